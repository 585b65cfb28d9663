#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# brim chat from a pipe, with the demonstration model when it is in the cache.
set -uo pipefail
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
model=${XDG_CACHE_HOME:-$HOME/.cache}/brim/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -e "$model" ]; then
    echo "SKIP: the demonstration model is not in the cache (./run.sh fetches it)"
    exit 77
fi

printf 'My name is Ada.\nWhat is my name?\n/reset\nSay yes.\n/exit\nnever read\n' >"$work/talk"
input=$work/talk run chat "$model" -n 24
expect_ok
grep -q 'Ada' <<<"$out" || complain "the second turn does not know the first"
[ "$(grep -c '^\[prompt' <<<"$err")" = 3 ] || complain "expected figures of three turns"
reused=$(sed -n 's/^\[prompt .* tokens, \([0-9]*\) reused.*/\1/p' <<<"$err" | sed -n 2p)
# Turn 2 keeps all of turn 1 that the template leaves unchanged: system message, question, answer.
[ "${reused:-0}" -gt 30 ] || complain "the second turn evaluates the first again ($reused tokens reused)"

input=/dev/null run chat "$model"
expect_ok
[ -z "$out" ] || complain "says something without being asked"
printf 'hello\n' >"$work/talk"
input=$work/talk run chat "$model" --ctx 8
[ "$code" = 1 ] && grep -q '^brim: error: ' <<<"$err" || complain "a turn beyond the context is accepted"

# Ctrl-C ends the reply cleanly and says so by the exit code.
"$brim" run "$model" "Count to one thousand." --ignore-eos -n 4000 >"$work/out" 2>"$work/err" &
pid=$!
for _ in $(seq 200); do
    [ -s "$work/out" ] && break
    sleep 0.1
done
kill -INT $pid
wait $pid
code=$? last="run, interrupted" out=$(cat "$work/out") err=$(cat "$work/err")
[ "$code" = 130 ] || complain "exit code $code, expected 130"
grep -q '^generated .*(interrupted)' <<<"$err" || complain "no figures after an interrupt"
exit $failed
