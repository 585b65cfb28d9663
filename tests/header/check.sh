#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, twice included, as strict C11 and as C++17, by every compiler
# that is here.
set -euo pipefail
cd "$(dirname "$0")/../.."
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for header in include/brim/*.h; do
    name=brim/$(basename "$header")
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$name" "$name" >"$work/alone.c"
    sed 's/(void)/()/' "$work/alone.c" >"$work/alone.cc"
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        $compiler -std=c11 -pedantic-errors -Wall -Wextra -Werror -Iinclude -fsyntax-only "$work/alone.c" ||
            { echo "error: $name is not C11 by itself ($compiler)"; failed=1; }
    done
    for compiler in g++ clang++; do
        command -v $compiler >/dev/null || continue
        $compiler -std=c++17 -pedantic-errors -Wall -Wextra -Werror -Iinclude -fsyntax-only "$work/alone.cc" ||
            { echo "error: $name is not C++17 by itself ($compiler)"; failed=1; }
    done
    # Installed headers include installed headers and the standard library only.
    if grep -nE '#include *[<"]' "$header" | grep -vE '"brim/[a-z_]+\.h"|<(stddef|stdint|stdbool)\.h>'; then
        echo "error: $name includes something else"
        failed=1
    fi
done
exit $failed
