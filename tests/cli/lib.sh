# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of the command line. $brim is the program; run keeps both streams apart.
brim=$1
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # used by the tests
models=$source_dir/tests/golden/models
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2034 # the tests end with it
failed=0

# run ARGUMENT...: sets $code, $out and $err; standard input is empty unless $input names a file.
run() {
    "$brim" "$@" <"${input:-/dev/null}" >"$work/out" 2>"$work/err"
    code=$?
    out=$(cat "$work/out")
    err=$(cat "$work/err")
    last="brim $*"
}

complain() {
    echo "error: $last: $1"
    printf '  code %s\n  out: %s\n  err: %s\n' "$code" "$(head -c 300 <<<"$out")" "$(head -c 300 <<<"$err")"
    # shellcheck disable=SC2034
    failed=1
}

# The run failed with CODE, this one line on standard error and nothing on standard output.
expect_error() {
    [ "$code" = "$1" ] || complain "exit code $code, expected $1"
    [ "$err" = "brim: error: $2" ] || complain "expected the message 'brim: error: $2'"
    [ -z "$out" ] || complain "wrote to standard output"
}
expect_ok() {
    [ "$code" = 0 ] || complain "exit code $code, expected 0"
}
expect_json() {
    python3 -m json.tool <<<"$out" >/dev/null || complain "standard output is not JSON"
}
