#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Commands on the tiny checkpoints: data on standard output, the rest on standard error, JSON that
# parses, results that repeat.
set -uo pipefail
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"
model=$models/qwen3_mlx_g64

run inspect "$model"
expect_ok
grep -q '^family *qwen3$' <<<"$out" || complain "the family is not shown"
run inspect --json "$model"
expect_ok
expect_json
run inspect "$work"
[ "$code" = 1 ] && grep -q 'config.json' <<<"$err" || complain "a directory without config.json is not named"

run tokenize "$model" "hello world"
expect_ok
ids=$out
grep -qE '^[0-9]+( [0-9]+)*$' <<<"$ids" || complain "not a line of ids"
[ -z "$err" ] || complain "wrote to standard error"
# shellcheck disable=SC2086 # a list of ids
run tokenize "$model" --decode $ids
[ "$out" = "hello world" ] || complain "ids do not give the text back"
run tokenize "$model" --json "a \"b\" c"
expect_ok
expect_json
printf 'line\n' >"$work/text"
input=$work/text run tokenize "$model" --count --file -
[ "$out" -ge 1 ] || complain "no count"
printf '1 2\0 3' >"$work/ids"
run tokenize "$model" --decode --file "$work/ids"
expect_error 1 "the list of ids holds a NUL byte"
run tokenize "$model" --decode 99999999
[ "$code" = 1 ] && grep -q "'99999999' is no token id" <<<"$err" || complain "an id beyond the vocabulary is accepted"

run run "$model" "hello" --raw -n 8
expect_ok
first=$out
grep -q '^generated .* tokens/s' <<<"$err" && grep -q '^load time' <<<"$err" && grep -q '^peak memory' <<<"$err" ||
    complain "figures are missing on standard error"
run run "$model" "hello" --raw -n 8 --threads 1 --quiet
[ "$out" = "$first" ] || complain "the number of threads changes the text"
[ -z "$err" ] || complain "--quiet is not"
run run "$model" "hello" --raw -n 8 --temp 1 --seed 7 -q
sampled=$out
run run "$model" "hello" --raw -n 8 --temp 1 --seed 7 -q
[ "$out" = "$sampled" ] || complain "the same seed gives another text"
run run "$model" "hello" --raw -n 4 --json
expect_ok
expect_json
python3 -c 'import json, sys; d = json.load(sys.stdin); assert d["generated_tokens"] <= 4 and d["prompt_tokens"] > 0' <<<"$out" ||
    complain "the JSON figures are wrong"
run run "$model" "hello" --raw -n 0 -q
expect_ok
[ -z "$out" ] || complain "--max-tokens 0 wrote text"
run run "$model" "a long enough text" --raw --ctx 2
[ "$code" = 1 ] && grep -q '^brim: error: .*--ctx' <<<"$err" && [ -z "$out" ] || complain "a prompt beyond the context is accepted"

n=$("$brim" tokenize "$model" "a long enough text" --count)
run run "$model" "a long enough text" --raw --ctx "$n" -q
expect_ok
grep -q '^brim: warning: .*--ctx' <<<"$err" || complain "a prompt that fills the context goes unexplained"

# A model that asks for a first token gets it before a plain prompt, once.
cp -r "$models/llama_tied" "$work/bos"
echo '{"add_bos_token": true}' >"$work/bos/tokenizer_config.json"
run run "$models/llama_tied" "hello" --raw -n 1 --json
without=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["prompt_tokens"])' <<<"$out")
run run "$work/bos" "hello" --raw -n 1 --json
python3 -c 'import json, sys; assert json.load(sys.stdin)["prompt_tokens"] == int(sys.argv[1]) + 1' "$without" <<<"$out" ||
    complain "no first token before a plain prompt"
run run "$work/bos" "" --raw -n 1 -q
expect_ok
run run "$models/llama_tied" "" --raw -n 1 -q
expect_error 1 "the prompt is empty"
printf 'one two three four five six seven eight nine ten eleven twelve' >"$work/text"
run perplexity "$models/llama_tied" -f "$work/text" --ctx 8 -q
without=$out
run perplexity "$work/bos" -f "$work/text" --ctx 8 -q
expect_ok
[ "$out" != "$without" ] || complain "no first token in a window"

# A saved timeline is taken up again: only the last token of the prompt is evaluated, and the text is
# the same.
run run "$model" "hello world" --raw -n 6 -q --snapshot-save "$work/snapshot"
expect_ok
saved=$out
run run "$model" "hello world" --raw -n 6 --snapshot-load "$work/snapshot"
expect_ok
[ "$out" = "$saved" ] || complain "another text after loading a snapshot"
grep -qE '^prompt +1 tokens.* reused' <<<"$err" || complain "evaluates more than the last token"
run run "$models/llama_tied" "hello" --raw -n 2 --snapshot-load "$work/snapshot"
[ "$code" = 1 ] && grep -q '^brim: error: ' <<<"$err" || complain "a snapshot of another model is accepted"

mkfifo "$work/pipe"
run run "$model" "hello" --raw -n 1 -q --snapshot-save "$work/pipe"
[ "$code" = 1 ] && [ -p "$work/pipe" ] || complain "a pipe is replaced by a snapshot"

# A reader that went away ends the program quietly, with a code that is not 0. It is gone before the
# program begins: a text this short would fit into the pipe of a slower one.
mkfifo "$work/closed"
: <"$work/closed" &
exec 3>"$work/closed"
wait $!
"$brim" run "$model" "hello" --raw --ignore-eos -n 200 >&3 2>"$work/err"
code=$?
exec 3>&-
last="run into a closed pipe" out='' err=$(cat "$work/err")
[ "$code" = 1 ] || complain "exit code $code, expected 1"
! grep -q 'error' <<<"$err" || complain "complains about the closed pipe"
if [ -e /dev/full ]; then
    "$brim" inspect "$model" >/dev/full 2>"$work/err"
    code=$? last="inspect onto a full disk" err=$(cat "$work/err")
    [ "$code" = 1 ] && grep -q 'cannot write standard output' <<<"$err" || complain "a full disk goes unnoticed"
fi

run synth --preset tiny "$work/tiny"
expect_ok
run inspect "$work/tiny"
expect_ok
for words in "run TINY hello" "run TINY hello --raw" "tokenize TINY hello" "tokenize TINY --decode 1"; do
    # shellcheck disable=SC2086 # words
    run ${words/TINY/$work/tiny}
    [ "$code" = 1 ] && [ "$(tail -1 <<<"$err")" = "brim: error: this model has no tokenizer: it takes token ids only" ] ||
        complain "a model without tokenizer"
done
run bench model "$work/tiny" -p 0 -n 0 -q
[ "$code" = 1 ] && grep -q 'nothing to measure' <<<"$err" || complain "measures nothing without a word"
run synth --preset tiny "$work/tiny"
[ "$code" = 1 ] && grep -q "$work/tiny" <<<"$err" || complain "overwrites what is there"
run synth --preset gigantic "$work/none"
[ "$code" = 1 ] && grep -q 'gigantic' <<<"$err" || complain "an unknown preset is not named"
run quantize "$models/qwen3_head_dim" "$work/quantized" --group 32
expect_ok
run run "$work/quantized" "hello" --raw -n 4 -q
expect_ok

run plan split-k --rows 32 --inner 2560 --outputs 4096
expect_ok
expect_json
[ "$(wc -l <"$work/out")" = 1 ] || complain "not one line"
exit $failed
