#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Help, exit codes and the exact messages of wrong command lines.
set -uo pipefail
# shellcheck source=SCRIPTDIR/lib.sh
. "$(dirname "$0")/lib.sh"

run
expect_error 2 "no command (see 'brim --help')"
run walk
expect_error 2 "unknown command 'walk' (see 'brim --help')"
run --help
expect_ok
grep -q '^usage: brim COMMAND' <<<"$out" || complain "no usage line"
[ -z "$err" ] || complain "help wrote to standard error"
run --version
expect_ok
version=$(sed -n 's/^#define BRIM_VERSION_STRING "\(.*\)"/\1/p' "$source_dir/include/brim/version.h")
[ "$out" = "brim $version" ] || complain "expected brim $version"

# Every command that help lists explains itself.
commands=$("$brim" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
for name in run chat tokenize inspect quantize synth plan bench perplexity; do
    grep -qx "$name" <<<"$commands" || { last=help; complain "does not list $name"; }
done
for name in $commands; do
    run "$name" --help
    expect_ok
    grep -q "brim $name" <<<"$out" || complain "help does not name the command"
    [ -z "$err" ] || complain "help wrote to standard error"
done

run run
expect_error 2 "missing argument (usage: brim run MODEL [PROMPT])"
run run model
expect_error 2 "no prompt: give one as an argument or by --prompt-file"
run run model a b
expect_error 2 "unexpected argument 'b' (usage: brim run MODEL [PROMPT])"
run run model a --prompt-file x
expect_error 2 "give the prompt as an argument or by --prompt-file, not both"
run run --wrong model hi
expect_error 2 "unknown option '--wrong' (see 'brim run --help')"
run run -z model hi
expect_error 2 "unknown option '-z' (see 'brim run --help')"
run run model hi --temp
expect_error 2 "--temp needs a value (T)"
run run model hi --stop end --stop ""
expect_error 2 "--stop: the text is empty"
run chat model --stop ""
expect_error 2 "--stop: the text is empty"
run run model hi --raw=yes
expect_error 2 "--raw takes no value"
run run model hi --temp 1.5x
expect_error 2 "--temp: '1.5x' is not a number"
run run model hi --temp ""
expect_error 2 "--temp: '' is not a number"
run run model hi --temp nan
expect_error 2 "--temp: 'nan' is not a number"
run run model hi --temp -1
expect_error 2 "--temp: -1 is outside 0 to 1e+06"
run run model hi --top-p 1.1
expect_error 2 "--top-p: 1.1 is outside 0 to 1"
run run model hi --min-p=-0.1
expect_error 2 "--min-p: -0.1 is outside 0 to 1"
run run model hi -n 12.5
expect_error 2 "--max-tokens: '12.5' is not a whole number"
run run model hi -n 99999999999
expect_error 2 "--max-tokens: 99999999999 is outside -1 to 2147483647"
run run model hi --threads 0
expect_error 2 "--threads: 0 is outside 1 to 1024"
run run model hi --seed -1
expect_error 2 "--seed: '-1' is not a whole number from 0 to 18446744073709551615"
run run model hi --cpu-tier sse9
expect_error 2 "--cpu-tier: 'sse9' is none of c|avx2|avx512|neon"
run run model hi --activations int4
expect_error 2 "--activations: 'int4' is none of f32|int8"
run run model hi --device gpu
expect_error 2 "--device: 'gpu' is none of cpu|cuda"
run run model hi --level fast
expect_error 2 "--level: 'fast' is none of dense|matvec|fused|attention|tiled|split-k|hopper"
for level in fused attention hopper; do
    for command in "run $models/llama_tied hi" "bench model $models/llama_tied" "perplexity $models/llama_tied --file x"; do
        # shellcheck disable=SC2086 # a list of words
        run $command --level $level
        expect_error 2 "--level: $level needs --device cuda; the cpu has dense, matvec, tiled and split-k"
    done
done
run bench progression "$models/llama_tied" --variant hopper
expect_error 2 "--variant: hopper needs --device cuda; the cpu has dense, matvec, tiled and split-k"
run run tests/golden/models/llama_tied hi --device cuda --activations int8
expect_error 1 "device cuda: int8 activations are a mode of the CPU; a GPU rounds to bf16"
# Without CUDA, a driver or a device that fits: the reason, and an exit code of 1, from every command.
for command in "run $models/llama_tied hi --raw -n 1" "bench model $models/llama_tied -p 3 -n 1 -r 1" "bench kda --set lengths" \
    "bench operators --model smollm2-135m --section embedding" "bench progression $models/llama_tied --variant tiled --no-check"; do
    # shellcheck disable=SC2086 # a list of words
    run $command --device cuda
    [ "$code" = 0 ] && [ -e /dev/nvidia0 ] && continue
    [ "$code" = 1 ] && [ -z "$out" ] && grep -qE '^brim: error: .*(has no CUDA kernels|no such CUDA device|the NVIDIA driver is missing or older|compute capability)' \
        <<<"$err" || complain "does not say why there is no CUDA"
done
run run "$work/none.gguf" hi
[ "$code" = 1 ] || complain "a missing model: exit code $code, expected 1"
grep -q "^brim: error: .*none\.gguf" <<<"$err" || complain "the missing model is not named"
run run "$work/none.gguf" --prompt-file "$work/none.txt"
expect_error 1 "cannot open '$work/none.txt': No such file or directory"

run tokenize model
expect_error 2 "no text: give it as arguments or by --file"
run synth
expect_error 2 "missing --preset (usage: brim synth --preset NAME OUTPUT)"
run synth --preset tiny
expect_error 2 "missing OUTPUT (usage: brim synth --preset NAME OUTPUT)"
run quantize "$work" "$work/out4" --group 48
expect_error 2 "--group: '48' is none of 32|64|128"
run plan kda --help
expect_ok
[ "${out%%$'\n'*}" = "usage: brim plan kda [options]" ] || complain "another usage line"
run plan kda x
expect_error 2 "unexpected argument 'x' (usage: brim plan kda)"
run inspect
expect_error 2 "missing argument (usage: brim inspect MODEL)"
exit $failed
