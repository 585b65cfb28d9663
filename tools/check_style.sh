#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What clang-format does not see: licence heads, blanks, leftovers, length, and calls that the library
# must not make. Looks at files known to git, or at everything outside build when there is no git.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C.UTF-8
failed=0
# complain TEXT LINES: one message with the first places, when there are any.
complain() {
    [ -z "$2" ] && return
    printf 'error: %s:\n%s\n' "$1" "$(head -10 <<<"$2")"
    failed=1
}

list() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do [ -f "$file" ] && echo "$file"; done
    else
        for pattern in "$@"; do find . -type f -path "./$pattern" -not -path './build/*' | sed 's,^\./,,'; done
    fi | grep -v '^tests/fuzz/corpus/' | sort -u
}
mapfile -t code < <(list '*.c' '*.h' '*.cc' '*.cu' '*.cuh')
mapfile -t scripts < <(list '*.sh' '*.py' '.ci/run')
mapfile -t build < <(list 'CMakeLists.txt' '*.cmake' '*.in' '*.json.in')
mapfile -t library < <(printf '%s\n' "${code[@]}" | grep '^src/')
all=("${code[@]}" "${scripts[@]}" "${build[@]}")

complain "no SPDX line among the first three" "$(for f in "${code[@]}" "${scripts[@]}"; do
    head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
done)"
complain "a tab" "$(grep -nP '\t' "${all[@]}")"
complain "a blank at the end of a line" "$(grep -nP ' +$' "${all[@]}")"
complain "a carriage return" "$(grep -nP '\r$' "${all[@]}")"
complain "no newline at the end of the file" "$(for f in "${all[@]}"; do [ -s "$f" ] && [ -n "$(tail -c 1 "$f")" ] && echo "$f"; done)"
# Invisible or direction-changing characters: zero width, bidi marks, byte order mark, soft hyphen.
complain "an invisible character" "$(grep -nP '[\x{00AD}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{FEFF}]' "${all[@]}")"
complain "a leftover mark" "$(grep -nE 'TODO|FIXME|XXX:|HACK:' "${all[@]}" | grep -v '^tools/check_style.sh:')"
complain "a path of a particular machine" "$(grep -nE '(^|[^A-Za-z.])/(work|root|home/[a-z]+)/' "${all[@]}" | grep -v '^tools/check_style.sh:')"
complain "a file beyond 1200 lines (tables belong into files of their own, *_table.*)" "$(
    wc -l "${code[@]}" | awk '$1 > 1200 && $2 != "total" && $2 !~ /_table\./ {print $2 ": " $1}')"

# The library never exits, prints or reads the environment; memory goes through src/base/mem.h.
without_comments() { sed -e 's,/\*.*\*/,,' -e 's,^ *\(/\*\|\*\).*,,' -e 's,//.*,,' -e 's,"[^"]*",,g' "$1"; }
calls() {
    for f in "${library[@]}"; do
        without_comments "$f" | grep -nP "(?<![A-Za-z0-9_.>])($1) *\(" | sed "s,^,$f:,"
    done
}
complain "the library must not exit or abort" "$(calls 'exit|_exit|abort|quick_exit')"
complain "the library must not print" "$(calls 'printf|puts|putchar|perror' | grep -v '^src/cuda/')"
complain "the library must not read the environment" "$(calls 'getenv|secure_getenv|setenv')"
complain "memory goes through src/base/mem.h" "$(calls 'malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup' | grep -v '^src/base/mem.c')"
complain "kernels are launched by src/cuda/launch.h" "$(grep -n '<<<' "${library[@]}" | grep '^src/cuda/' | grep -v '^src/cuda/launch.h')"

if [ -z "${BRIM_SKIP_SHELLCHECK:-}" ] && command -v shellcheck >/dev/null; then
    mapfile -t shell < <(printf '%s\n' "${scripts[@]}" | grep -v '\.py$')
    shellcheck -x -S warning "${shell[@]}" || failed=1
fi
exit $failed
