#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The command line with --device cuda, on the emulated device: every level, every benchmark in a tiny
# form, and what it says where the device cannot be used.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=SCRIPTDIR/../cli/lib.sh
. tests/cli/lib.sh
model=$models/qwen3_mlx_g64
levels="dense matvec fused attention tiled split-k hopper"

json() { # WHAT CONDITION: on the JSON in $work/out
    python3 -c "import json; d = json.load(open('$work/out')); assert $2" 2>"$work/why" || complain "$1: $(tail -1 "$work/why")"
}

run run "$model" "hello" --raw -n 6 -q
expect_ok
text=$out
for level in $levels; do
    run run "$model" "hello" --raw -n 6 --device cuda --level "$level"
    expect_ok
    [ "$out" = "$text" ] || complain "another text than the CPU's '$text'"
    grep -q '^generated .* tokens/s' <<<"$err" || complain "no rates"
    run bench model "$model" -p 9 -n 2 -r 1 -o json -q --device cuda --level "$level"
    expect_ok
    json "$level" "[t['test'] for t in d] == ['pp9', 'tg2'] and all(t['level'] == '$level' and t['checked'] for t in d)"
done
run run "$model" "hello" --raw -n 6 -q --device cuda
[ "$out" = "$text" ] || complain "the default level writes another text"
run run "$model" "hello" --raw -n 6 -q --device cuda --temp 0.8 --top-k 20 --seed 5
expect_ok
drawn=$out
run run "$model" "hello" --raw -n 6 -q --device cuda --temp 0.8 --top-k 20 --seed 5
[ "$out" = "$drawn" ] || complain "the same seed draws another text"
run perplexity "$model" --file tests/golden/text/prompts.txt --ctx 16 --json -q --device cuda
expect_ok

# The course's names and brim's, forward and reverse; the text names what a sample is.
run bench progression "$model" --device cuda --input-len 9 --output-len 3 --warmup 0 --repeats 2 -q --prefill-logits last \
    --json-output - --variant week2-kv-cache --variant week2-quantized-matvec --variant week2-swiglu \
    --variant week2-decode-attention --variant week2-simd-matmul --variant week2-split-k --variant hopper \
    --peer 'other=echo 4000 2000 #' --variant other
expect_ok
json progression "len(d['variants']) == 8 and all(len(v['decode_tps']['samples']) == 2 for v in d['variants'])"
json progression "[v['checked'] for v in d['variants']] == [True] * 7 + [False]"

# Every section and projection; recorded and launched, hot and cold.
projections=$(printf ' --prefill-projection %s' q k v o gate up down)
common="bench operators --device cuda --model smollm2-135m -q --warmup 0 --iterations 6"
# shellcheck disable=SC2086 # lists of words
run $common $projections --section prefill-projections --context 16 --include-split-k --policy course --json-output -
expect_ok
json operators "len(d['cases']) == 7 and d['policy'] == 'course' and d['launch'] == 'graph' and d['cold_mib'] == 0"
json operators "all([i['name'] for i in c['implementations']] == ['tiled', 'split-k', 'hopper'] for c in d['cases'])"
json "dispatches" "all(i['accumulates'] + i['reduces'] == i['kernels'] and i['floor_fraction'] > 0 for c in d['cases'] for i in c['implementations'])"
json "a split reduces" "any(i['reduces'] == 1 for c in d['cases'] for i in c['implementations'] if i['name'] == 'split-k')"
json "tiled never" "all(i['reduces'] == 0 for c in d['cases'] for i in c['implementations'] if i['name'] == 'tiled')"
# shellcheck disable=SC2086
run ${common/iterations 6/iterations 2} --context 9 --query-length 4 --section embedding --section model-kernels --section attention --launch plain --cold 1
expect_ok
head -1 <<<"$out" | grep -q 'policy device, plain launches, weights cold' || complain "the table does not say what was measured"
for section in embedding model-kernels attention; do grep -q "^$section, median us" <<<"$out" || complain "no section $section"; done
# shellcheck disable=SC2086
run $common --section prefill-projections --context 33 --launch plain --cold 1 --include-split-k
expect_ok
grep -qE '^  q M=33 .*\[tiled x1 grid [0-9]+: 1\+0, [0-9]+ %\].* of [0-9.]+ us$' <<<"$out" || complain "no schedule, kernels and share of the floor"

# shellcheck disable=SC2086
run $common --section decode-projections
expect_ok
[ "$(grep -cE '^  [a-z]+ M=1 .*\[dense: 1, .*\[matvec .*: 1\+0, ' <<<"$out")" = 8 ] || complain "not the seven projections and the head"

run bench kda --device cuda --set nonsense
[ "$code" = 2 ] || complain "an unknown set"

# A device that cannot be used: its reason, and the CPU in use all the same.
for case in 'BRIM_EMU_DEVICES=0|no such CUDA device' 'BRIM_EMU_DRIVER=12080|the NVIDIA driver is missing or older' \
    'BRIM_EMU_CC=8.0|has compute capability 8.0' 'BRIM_EMU_MEMORY=100000|bytes of device memory are needed'; do
    export "${case%%|*}"
    for command in "run $model hello --raw -n 2 -q" "bench model $model -p 3 -n 1 -r 1 -q" \
        "bench progression $model --variant tiled -q --no-check --warmup 0 --repeats 1"; do
        # shellcheck disable=SC2086
        run $command --device cuda
        [ "$code" = 1 ] && [ -z "$out" ] && grep -q "^brim: error: .*${case#*|}" <<<"$err" || complain "$case: not said"
    done
    # shellcheck disable=SC2086
    run $common --section prefill-projections --context 9 --device cuda
    [ "$code" = 1 ] && grep -q "^brim: error: .*${case#*|}" <<<"$err" || complain "$case: not said"
    run run "$model" hello --raw -n 6 -q
    [ "$code" = 0 ] && [ "$out" = "$text" ] || complain "$case: the CPU"
    name=${case%%=*}
    unset "$name"
done
exit $failed
