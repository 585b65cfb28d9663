#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# brim bench and brim perplexity on a tiny model: what they print, and what they refuse.
set -uo pipefail
brim=$1
cd "$(dirname "$0")/../.." || exit 1
model=tests/golden/models/qwen3_mlx_g32
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # WHAT COMMAND...: must succeed
    local what=$1
    shift
    "$@" && return
    echo "FAILED: $what"
    failed=1
}
code() { # EXPECTED ARGUMENT...
    local expected=$1 got
    shift
    "$brim" "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$expected" ] && return
    echo "FAILED: brim $*: exit code $got, expected $expected"
    cat "$work/err"
    failed=1
}
json() { python3 -c "import json,sys; d=json.load(open('$work/out')); sys.exit(not ($1))"; }

code 0 bench kda --tokens 33 --heads 2 --repeats 1
check "bench kda" json "d['tokens'] == 33 and d['heads'] == 2 and d['out_error'] < 5e-3"
code 0 bench kda --tokens 130 --heads 1 --repeats 1 --threads 2
check "bench kda, a head of two threads" json "d['owners'] == 2 and d['helpers'] == 0 and d['out_error'] < 5e-3"
code 0 bench kda --tokens 130 --heads 1 --repeats 1 --softplus
check "bench kda, softplus" json "d['gate'] == 'softplus' and d['out_error'] < 5e-3"
code 2 bench kda --device cuda --set seed --softplus --list
code 0 bench kda --device cuda --set sweep --list
check "bench kda, the sweep's shapes" grep -qx '64,64,64,0,0' "$work/out"
cat "$work/out" >"$work/whole"
for part in 1 2 3; do code 0 bench kda --device cuda --set sweep --part $part/3 --list && tail -n +2 "$work/out"; done | sort >"$work/parts"
check "bench kda, parts make the whole" diff <(tail -n +2 "$work/whole" | sort) "$work/parts"
code 2 bench kda --device cuda --set sweep --part 4/3 --list
code 2 bench kda --device cuda --part 1/3
code 2 bench kda --device cuda --set nonsense
code 2 bench kda --device cuda --set all --tokens 5 --list
check "bench kda, a set's own tokens" grep -q 'own tokens' "$work/err"
code 2 bench kda --set sweep
code 2 bench kda --device gpu
code 2 bench kda --tokens 0
code 2 bench kda --heads 1,2,
check "bench kda, the list that is none" grep -qF "'1,2,' is not a list" "$work/err"

code 0 bench model $model -p 9,32 -n 3 -d 0,5 -r 2 -o json -q --prompt "a b"
check "one record per test" json "[t['test'] for t in d] == ['pp9','pp32','tg3','pp9 @ d5','pp32 @ d5','tg3 @ d5',d[-1]['test']]"
check "the last is the time to first token" json "d[-1]['test'].startswith('ttft') and d[-1]['n_prompt'] > 0"
check "samples and checks" json "all(len(t['samples_ns']) == 2 and t['checked'] and t['avg_ts'] > 0 for t in d)"
code 0 bench model $model -p 9 -n 2 -r 1 -o csv -q --activations int8
check "csv: header and two rows" test "$(wc -l <"$work/out")" = 3
code 0 bench model $model -p 9 -n 0 -r 1 -q --cpu-tier c --level dense
check "md" grep -q '| pp9 |' "$work/out"
code 2 bench model
code 2 bench model $model -p 9,x
code 1 bench model "$work/none.gguf"

code 0 bench progression $model --input-len 16 --output-len 3 --warmup 0 --repeats 2 -q \
    --prefill-logits last --json-output - --variant split-k --variant dense:c --variant matvec:c:int8
check "two samples of each variant" json "[len(v['decode_tps']['samples']) for v in d['variants']] == [2,2,2]"
check "all were checked" json "d['checked'] and all(v['checked'] for v in d['variants'])"
check "names" json "[v['name'] for v in d['variants']] == ['split-k','dense:c','matvec:c:int8']"
code 2 bench progression $model --repeats 3 --variant tiled --variant matvec
code 0 bench progression $model --input-len 16 --output-len 3 --warmup 0 --repeats 2 -q \
    --variant week2-simd-matmul --peer 'other=echo 4000 2000 #' --variant other
check "a peer's nanoseconds" grep -qF '| other | 4000000.00 | 1000000.00 | 500000.00 |' "$work/out"
code 0 bench progression $model --warmup 0 --repeats 2 -q --peer 'other=echo 4000 2000 #' --variant other --json-output -
check "a peer alone is not checked" json "d['checked'] is False and d['variants'][0]['checked'] is False"
code 0 bench progression $model --input-len 16 --output-len 3 --warmup 0 --repeats 2 -q --no-check \
    --peer 'other=echo 4000 2000 #' --variant other --variant tiled --json-output -
check "nothing is checked" json "d['checked'] is False"
code 0 bench progression $model --input-len 16 --output-len 3 --warmup 0 --repeats 2 -q \
    --peer 'other=echo 4000 2000 #' --variant other --variant tiled --json-output -
check "brim's own is" json "d['checked'] and [v['checked'] for v in d['variants']] == [False, True]"
code 1 bench progression $model --repeats 1 -q --no-check --peer 'other=false' --variant other
code 2 bench progression $model --peer other --variant other
code 1 bench progression "$work/none.gguf"
check "a missing model is named" grep -q "none\.gguf.*No such file" "$work/err"
code 2 bench progression $model --variant mlx
code 2 bench progression $model --variant fast
check "says what a variant is" grep -q "'fast' is neither a --peer nor LEVEL" "$work/err"

code 0 bench operators --model smollm2-135m -q --warmup 0 --iterations 6 --context 9 --context 33 \
    --include-split-k --prefill-projection k --section prefill-projections --section model-kernels --json-output -
check "orders are balanced" json "all(sorted(c['orders'][:2])==[[0,1],[1,0]] for c in d['cases'] if len(c['implementations'])==2)"
check "two passes" json "[len(c['orders']) for c in d['cases'] if c['name'].startswith('k ')] == [12,12]"
# the course's own command lines, on a smaller model
code 0 bench operators --solution tiny_llm --model smollm2-135m --section prefill-projections --context 32 --prefill-projection k \
    --warmup 5 --iterations 30
check "the projection's row" grep -qE '^  k M=32 ' "$work/out"
code 0 bench progression --offline --solution tiny_llm --repeats 4 --variant week2-simd-matmul --variant week2-split-k \
    --variant mlx --peer 'mlx=echo 4000 2000 #' --model $model --input-len 32 --output-len 33 --warmup 2 --prefill-logits last
check "the course's rows" grep -q '^| week2-split-k | ' "$work/out"
code 2 bench operators --model smollm2-135m -q --iterations 7 --section decode-projections
check "says why" grep -q 'multiple of 6' "$work/err"
code 2 bench operators --model smollm2-135m --iterations 7
check "before anything is measured" test "$(wc -l <"$work/err")" = 1
code 2 bench operators --model smollm2-135m --query-length 129 --warmup 0 --iterations 6
check "so are queries without keys" test "$(cat "$work/err")" = \
    "brim: error: --query-length: 129 queries cannot see the 128 keys of --context causally"
check "and nothing was printed" test ! -s "$work/out"
code 2 bench operators --model smollm2-135m --section attention --context 9 --context 5 --query-length 3,6 --iterations 6
check "of any context" test "$(cat "$work/err")" = \
    "brim: error: --query-length: 6 queries cannot see the 5 keys of --context causally"
code 0 bench operators --model smollm2-135m --section embedding --query-length 129 --warmup 0 --iterations 6 -q
code 1 bench operators --model smollm2-135m --section embedding --json-output "$work/none/x"
check "so is a file that cannot be written" test "$(wc -l <"$work/err")" = 1
code 2 bench operators --context 9 --context 12 --context-repeats 3
code 2 bench operators --section nonsense
code 2 bench nonsense

head -c 2000 tests/golden/text/kjv.txt >"$work/text"
code 0 perplexity $model --file "$work/text" --ctx 64 --json -q
check "second halves are scored" json "d['scored_tokens'] == 31 * d['windows'] and d['windows'] == d['text_tokens'] // 64"
check "a random model knows nothing" json "100 < d['perplexity'] < 100000"
code 1 perplexity $model --file "$work/text" --ctx 65536
code 2 perplexity $model
exit $failed
