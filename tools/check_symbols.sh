#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_symbols.sh LIBRARY...: every global symbol starts with brim_, a shared library has an SONAME
# with the major version and exports what the public headers declare.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
complain() {
    echo "error: $*"
    failed=1
}

major=$(sed -n 's/^#define BRIM_VERSION_MAJOR //p' include/brim/version.h)
# Declarations are BRIM_API type brim_name(...), over one or several lines.
declared() { cat "$@" | tr '\n' ' ' | grep -oE 'BRIM_API[^;(]*\bbrim_[a-z0-9_]+\(' | grep -oE 'brim_[a-z0-9_]+\($' | tr -d '(' | sort -u; }

for library in "$@"; do
    name=$(basename "$library")
    case $name in
    *.a) symbols=$(nm -g --defined-only "$library" 2>/dev/null | awk 'NF == 3 {print $3}') ;;
    *) symbols=$(nm -D --defined-only "$library" | awk 'NF == 3 {print $3}') ;;
    esac
    [ -n "$symbols" ] || complain "$name has no symbols"
    # Host functions of CUDA files are C++: _Z<length>brim_... is the mangled form; kernels live in
    # unnamed namespaces, whose _GLOBAL__N_ names nvcc makes unique per file; and DW.ref.* is the
    # compiler's own weak reference to its exception handling.
    foreign=$(grep -vE '^brim_|^_Z[0-9]+brim_|_GLOBAL__N_|^DW\.ref\.|^_(init|fini)$' <<<"$symbols" || true)
    [ -z "$foreign" ] || complain "$name defines symbols without brim_: $(head -5 <<<"$foreign" | tr '\n' ' ')"
    case $name in
    *.a) continue ;;
    esac
    soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    expected=${name%%.so*}.so.$major
    [ "$soname" = "$expected" ] || complain "$name has SONAME '$soname', expected '$expected'"
    # Internal functions keep hidden visibility: exported means declared in a public header.
    undeclared=$(comm -23 <(sort -u <<<"$symbols") <(declared include/brim/*.h) | grep -vE '^_(init|fini)$' || true)
    [ -z "$undeclared" ] || complain "$name exports what no public header declares: $(head -5 <<<"$undeclared" | tr '\n' ' ')"
    if [ "${name%%.so*}" = libbrim ]; then
        missing=$(comm -13 <(sort -u <<<"$symbols") <(declared include/brim/*.h))
        [ -z "$missing" ] || complain "$name lacks what the public headers declare: $(tr '\n' ' ' <<<"$missing")"
    fi
done
exit $failed
