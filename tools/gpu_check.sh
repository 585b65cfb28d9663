#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check.sh [--programs DIR] [-j N] PART...: check and measure on this machine's GPU; -j N: N parts at a time.
#   all                 every part below but sweep-kda: what checks (N at a time), then what times, one after the other
#   w4 kda              every form of an operator against its fp64 reference
#   kda-first           the first KDA call of a process takes less than three times the second's time and no memory: it
#                       takes all that there is, so part of kda only where no other part runs beside it
#   peers               the Python binding on torch tensors, against float64 and flash-linear-attention, which is
#                       found by PYTHONPATH (fla-core's wheel, unpacked, will do); BRIM_LIBRARY names the library
#   bench-peers         torch and flash-linear-attention beside brim (bench/peers/w4_peers.py, kda_peers.py)
#   bench-progression   a synthetic Qwen3-4B whole, brim's levels beside transformers (bf16, int4) and MLX, where these are installed
#                       (bench/peers/model_peers.py); MODEL4B: the model, else it is made
#   w4-op               the public W4 operator: values, launches, bits, refusals
#   model-kernels       the model's own kernels and the sampler against plain C
#   model               the whole engine: goldens at every level, CPU beside GPU
#   sanitize[-GROUP[-TOOL]]  GROUP w4, model, kda or cluster: compute-sanitizer's TOOL (default: memcheck, synccheck, racecheck and
#                       initcheck) over small selections, 12 at a time (gpu_sanitize.sh, which WAITING is for)
#   bench-model         rates of a synthetic Qwen3-4B at every level, and where a step's time goes; the command
#                       brim and libbrim.so lie in DIR or above it
#   sweep-kda           every KDA route over tokens, heads and sequences, for the router's table; PART=I/N times part I of N
#                       (default 1/6, each within 8 minutes)
#   sweep-w4            every row count from 1 to 256, each projection, through the operator's choice of kernel
#   bench-w4 bench-w4-op bench-model-kernels bench-operators bench-kda  times, as CSV; nothing is timed that failed its check
# The programs (default build/release/tests) need the driver alone, so DIR may come from a machine
# without a GPU (gpu_pack.sh). Files go to $OUT (default out/), named by part; each names driver, date and clocks.
# COMMIT: the commit that the programs were built from, where this directory has no git; kda_route_table.py goes by it.
# A check that takes longer than $LIMIT seconds (default 240) is ended and has failed.
# Ends with "N passed, N failed, N skipped", one for each program run.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
binding=$root/bindings/python
brim=${BRIM:-}
jobs=1
. "$root/tools/gpu_programs.sh"
[ $# -gt 0 ] || set -- w4 w4-op kda
for part in "$@"; do
    case $part in
    w4 | w4-op | model | model-kernels | kda | kda-first | peers | sanitize | sweep-kda | sweep-w4) ;;
    bench-w4 | bench-w4-op | bench-model | bench-model-kernels | bench-operators | bench-kda | bench-peers | bench-progression) ;;
    sanitize-*)
        [[ $part =~ ^sanitize-(w4|model|kda|cluster)(-(memcheck|synccheck|racecheck|initcheck))?$ ]] ||
            refuse "'$part': sanitize[-GROUP[-TOOL]]; see --help"
        ;;
    all) [ $# = 1 ] || refuse "part all has every other: name it alone" ;;
    *) refuse "no part is called '$part'; see --help" ;;
    esac
done
for place in "$programs" "$programs/.."; do [ -n "$brim" ] || [ ! -x "$place/brim" ] || brim=$place/brim; done
export LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} # what gpu_pack.sh put beside brim
out=${OUT:-out}
commit=${COMMIT:-$(git -C "$root" log -1 --format=%h 2>/dev/null || echo unknown)}
mkdir -p "$out"
passed=0 failed=0 skipped=0
kda_helped="m64 pair queue c4-m128 c4-m64 c5-m64 c6-m64 c8-m128"

# step LOG COMMAND...: run for at most $limit seconds, keep all output in $out/LOG, show its end.
limit=${LIMIT:-240}
step() {
    local log=$out/$1
    shift
    echo "== $*"
    if timeout "$limit" "$@" >"$log" 2>&1; then passed=$((passed + 1)); else
        echo "failed: $*"
        failed=$((failed + 1))
    fi
    tail -3 "$log"
}
# bench FILE COMMAND...: the command's own CSV on standard output, under a line that says where.
bench() {
    local file=$out/$1
    shift
    echo "== $*"
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader |
        sed "s/^/# /; s|\$|; clocks not locked; $(date -u +%F); programs of commit $commit; ${*##*/}|" >"$file"
    if "$@" >>"$file"; then passed=$((passed + 1)); else
        echo "failed: $*"
        failed=$((failed + 1))
    fi
}

if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no NVIDIA GPU on this machine"
    echo "0 passed, 0 failed, $# skipped"
    exit 77
fi
# The times are taken when everything has been checked, and not if a check failed.
if [ "$*" = all ]; then
    "$0" --programs "$programs" -j "$jobs" w4 w4-op model-kernels model kda peers sanitize &&
        "$0" --programs "$programs" kda-first || exit
    set -- sweep-w4 bench-w4 bench-w4-op bench-model-kernels bench-operators bench-kda bench-peers bench-model bench-progression
    jobs=1
fi
# Several parts at a time: each by a call of its own, whose output follows when it ends.
if [ "$jobs" -gt 1 ] && [ $# -gt 1 ]; then
    for part in "$@"; do
        case $part in bench-* | sweep-* | kda-first)
            refuse "'$part' needs the GPU to itself: run it alone" ;;
        esac
    done
    logs=$(mktemp -d)
    for part in "$@"; do
        [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
        GPU_SHARED=1 "$0" --programs "$programs" "$part" >"$logs/$part" 2>&1 &
    done
    wait
    for part in "$@"; do
        sed '$d' "$logs/$part"
        read -r p _ f _ s _ < <(tail -1 "$logs/$part" | grep -E '^[0-9]+ passed' || echo "0 passed, 1 failed, 0 skipped")
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done
    rm -r "$logs"
    set --
fi
for part in "$@"; do
    case $part in
    w4)
        step w4.log "$programs/gpu_check_w4"
        step w4_stream.log "$programs/gpu_check_stream"
        step w4_gemv.log "$programs/gpu_check_gemv"
        ;;
    peers)
        for test in test_torch test_fla; do
            step "peers-$test.log" env PYTHONPATH="$binding:$binding/tests:${PYTHONPATH:-}" python3 -m unittest "$test"
        done
        ;;
    bench-peers) for peer in w4 kda; do limit=900 step "$peer-peers.log" python3 "$root/bench/peers/${peer}_peers.py" --out "$out"; done ;;
    w4-op) step w4-op.log "$programs/gpu_check_w4_op" ;;
    # The whole engine, from the source directory: goldens, CPU beside GPU. MODEL: a SmolLM2 file; MODEL4B: a Qwen3-4B.
    model)
        limit=600 step model.log "$programs/gpu_check_engine" --synth qwen3-0.6b ${MODEL:+--model "$MODEL"} \
            ${MODEL4B:+--chain "$MODEL4B"}
        ;;
    model-kernels)
        step model-kernels.log "$programs/gpu_check_model"
        step sample.log "$programs/gpu_check_sample"
        ;;
    kda)
        # m128 against fp64 in all forms, every route in short, what must be bit-equal, then all against m128
        step kda-m128.log "$programs/gpu_check_kda" m128
        for route in $kda_helped; do
            step "kda-$route.log" "$programs/gpu_check_kda" "$route" short
            step "kda-bits-$route.log" "$programs/gpu_check_kda_bits" "$route"
        done
        step kda-bits.log "$programs/gpu_check_kda_bits" m128,split,split-join
        for check in state refuse inputs layout; do
            step "kda-$check.log" "$programs/gpu_check_kda_$check" "m128,${kda_helped// /,},split,split-join"
        done
        step kda-gate.log "$programs/gpu_check_kda_gate" "m128,${kda_helped// /,}"
        step kda-routes.log "$programs/gpu_check_kda_routes" equal packed queue streams repeat big
        step kda-far.log "$programs/gpu_check_kda_far"
        limit=120 step kda-delay.log "$programs/gpu_check_kda_routes" delay
        limit=120 step kda-late.log "$programs/gpu_check_kda_late"
        step kda-split.log "$programs/gpu_check_kda_split"
        step kda-sound.log "$programs/gpu_check_kda_sound" "$root/tests/golden/kda_split_seeds.txt"
        step kda-join.log "$programs/gpu_check_kda_join"
        [ -n "${GPU_SHARED:-}" ] || step kda-first.log "$programs/gpu_check_kda_first"
        ;;
    kda-first) step kda-first.log "$programs/gpu_check_kda_first" ;;
    sanitize | sanitize-*)
        read -r group tool < <(tr - ' ' <<<"${part#sanitize}")
        limit=1200 step "$part.log" env OUT="$out/$part" "$root/tools/gpu_sanitize.sh" --programs "$programs" \
            "^${tool:-[a-z]*} (handover|${group:-[a-z0-9]*})/"
        ;;
    # A part that is stopped leaves the shapes it has done; tools/kda_route_table.py takes the files as they are.
    sweep-kda)
        share=${PART:-1/6}
        bench "kda_sweep_${share/\//_of_}.csv" timeout 480 "$programs/gpu_bench_kda" sweep all 5 4 "$share"
        ;;
    sweep-w4) bench w4_sweep.csv "$programs/gpu_check_w4" sweep ;;
    bench-w4)
        bench w4.csv "$programs/gpu_check_w4" bench
        bench w4_stream.csv "$programs/gpu_check_stream" bench
        bench w4_gemv.csv "$programs/gpu_check_gemv" sweep
        ;;
    bench-model)
        work=$(mktemp -d)
        "$brim" synth --quiet --preset qwen3-4b "$work/qwen3-4b"
        # The C reference takes longer than all else: the default level is held to it, part `model` holds the rest.
        levels() {
            local rates=("$brim" bench model --device cuda --quiet -p "32,128,2048" -n 128 -d "0,128" -r 5 -o csv)
            "${rates[@]}" "$work/qwen3-4b" || return
            for level in split-k tiled attention fused matvec dense; do
                "${rates[@]}" --no-check --level $level "$work/qwen3-4b" | tail -n +2 || return
            done
        }
        bench model.csv levels
        limit=600 step model_profile.txt python3 "$root/tools/profile_model.py" "$(dirname "$brim")/libbrim.so" "$work/qwen3-4b" \
            --prefill 32 --prefill 128 --prefill 2048
        rm -r "$work"
        ;;
    bench-progression)
        work=$(mktemp -d)
        [ -n "${MODEL4B:-}" ] || "$brim" synth --quiet --preset qwen3-4b "$work/qwen3-4b"
        limit=900 step progression.log python3 "$root/bench/peers/model_peers.py" --brim "$brim" --model "${MODEL4B:-$work/qwen3-4b}" --out "$out"
        rm -r "$work"
        ;;
    bench-w4-op) bench w4_split.csv "$programs/gpu_check_w4_op" bench ;;
    bench-model-kernels) bench model_kernels.csv "$programs/gpu_bench_model" ;;
    bench-kda)
        bench kda_routes.csv "$programs/gpu_bench_kda" all all 8
        bench kda_split.csv "$programs/gpu_check_kda_split" bench
        bench kda_split_weak.csv "$programs/gpu_check_kda_split" bench weak
        for gates in minus12 one; do # the ten public shapes
            bench "kda_split_$gates.csv" "$programs/gpu_check_kda_split" bench $gates 0 split 12 20
            "$programs/gpu_check_kda_split" bench $gates 0 split 5 5 | tail -n +2 >>"$out/kda_split_$gates.csv"
        done
        bench kda_join.csv "$programs/gpu_check_kda_split" join
        bench kda_compose.csv "$programs/gpu_bench_kda_compose"
        ;;
    # Recorded and cold, recorded and hot, launched and cold.
    bench-operators)
        projections=$(printf ' --prefill-projection %s' q k v o gate up down)
        for form in "operators graph 200" "operators_hot graph 0" "operators_plain plain 200"; do
            read -r name launch cold <<<"$form"
            # shellcheck disable=SC2086 # a list of words
            bench "$name.txt" "$brim" bench operators --device cuda --model qwen3-4b --quiet \
                --include-split-k --iterations 30 --context 16 --context 32 --context 64 --context 128 --context 2048 \
                $projections --launch "$launch" --cold "$cold"
        done
        ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
