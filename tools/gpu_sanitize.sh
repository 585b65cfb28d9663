#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_sanitize.sh [--programs DIR] [-j N] [PATTERN...]: compute-sanitizer over the GPU's programs, a process for each
# tool and selection, N at a time (default: 12), each ended after its own limit. PATTERN: selections whose "tool group/name"
# matches this extended regular expression (default: all). SANITIZER: the tool (default: compute-sanitizer); WITHIN: seconds
# for all together, after which nothing more is started; LIMIT: the most seconds for any. WAITING: a directory with programs
# of a build for racecheck of KDA and gemv (CMake: BRIM_WAIT_NS=100000; src/cuda/ptx/sync.cuh), without which it does not end.
# Run from the source directory (the engine's checkpoints). Leaves $OUT/sanitize/*.log and $OUT/sanitize.csv, a line each:
# tool, selection, kernels looked at, reports, their kinds, what the program said, seconds, result. Racecheck's reports of some
# KDA routes are "as handover", and no failure, where the same run has such a kind for a small correct program that hands
# over in the same way (gpu_sanitize_barrier; docs/verification.md). Exit status 1 if a result is neither that nor clean.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=12
. "$root/tools/gpu_programs.sh"
waiting=${WAITING:-$programs}
sanitizer=${SANITIZER:-compute-sanitizer}
out=${OUT:-out}
within=${WITHIN:-3600}
pattern=$(
    IFS='|'
    echo "$*"
)

# Each line: tool, selection, seconds, kernels (substrings of their names; - all), program and arguments.
list=()
add() { [[ "$1 $2" =~ ${pattern:-.} ]] && list+=("$*"); }

# The ways of handing over, alone: reports here are the tool's own (docs/verification.md).
for way in relay pair turns load acked join counted kept lane; do add racecheck "handover/$way" 100 - "$programs/gpu_sanitize_barrier" $way; done
# What cluster barriers cost: threads of each of 8 blocks, barriers but one.
# shellcheck disable=SC2086 # two words
for size in "128 4" "1024 1" "1024 4"; do add racecheck "cluster/${size/ /x}" 100 - "$programs/gpu_sanitize_barrier" cluster $size; done

# KDA. One sequence whose last chunk is cut, so long that every stage, instance and panel is used twice; for the tools that
# look at global memory so long that the ring is, too. Queue: five sequences in one CTA. Split: segments of two chunks,
# gates that forget, then gates that do not and need the serial launch behind; wide: windows of two.
kda_short() {
    case $1 in
    m128 | split*) echo 185 ;; m64) echo 217 ;; pair) echo 281 ;; queue) echo 57,33,0,70,1 ;;
    c4-m128 | c5-m64) echo 409 ;; c4-m64) echo 281 ;; c6-m64) echo 537 ;; c8-m128) echo 921 ;;
    esac
}
kda_wrap() {
    case $1 in
    c4-m128 | c5-m64) echo 537 ;; c4-m64) echo 377 ;; c6-m64) echo 697 ;; c8-m128) echo 1177 ;; *) kda_short "$1" ;;
    esac
}
kda_routes="m128 m64 pair queue c4-m128 c4-m64 c5-m64 c6-m64 split split-join c8-m128"
for gate in bound free; do
    for route in $kda_routes; do
        case $route in queue) few=few ;; *) few= ;; esac
        case $route in c[4568]-*) limit=200 ;; *) limit=60 ;; esac
        # shellcheck disable=SC2086 # perhaps no word
        add racecheck "kda/$route-$gate" $limit - "$waiting/gpu_sanitize_kda" "$route" $gate "$(kda_short "$route")" $few
        case $route in
        split*)
            add racecheck "kda/$route-$gate-weak" 60 - "$waiting/gpu_sanitize_kda" "$route" $gate "$(kda_short "$route")" weak
            add racecheck "kda/$route-$gate-wide" 60 - "$waiting/gpu_sanitize_kda" "$route" $gate 281 wide
            ;;
        esac
        for tool in memcheck synccheck initcheck; do
            # shellcheck disable=SC2086
            add $tool "kda/$route-$gate" 60 - "$programs/gpu_sanitize_kda" "$route" $gate "$(kda_wrap "$route")" $few
            case $route in
            split*)
                add $tool "kda/$route-$gate-weak" 60 - "$programs/gpu_sanitize_kda" "$route" $gate "$(kda_wrap "$route")" weak
                add $tool "kda/$route-$gate-wide" 60 - "$programs/gpu_sanitize_kda" "$route" $gate 281 wide
                ;;
            esac
        done
    done
done

# The model's kernels and the engine. Racecheck looks at one family of kernels a process.
add racecheck model/norm 60 rmsnorm "$programs/gpu_check_model" tiny rows
add racecheck model/rotate 60 rotate "$programs/gpu_check_model" tiny rows
add racecheck model/dense 60 dense "$programs/gpu_check_model" tiny dense
add racecheck model/attn-decode 100 attn_decode "$programs/gpu_check_model" tiny attention
add racecheck model/attn-prefill 100 attn_prefill "$programs/gpu_check_model" tiny attention
add racecheck model/attn-any 60 attention_any "$programs/gpu_check_model" tiny attention
for setting in {0..14}; do add racecheck "model/sample-$setting" 200 sample,likeliest "$programs/gpu_check_sample" one "$setting"; done
for setting in 0 2 7; do add racecheck "model/sample-$setting-equal" 200 sample,likeliest "$programs/gpu_check_sample" one "$setting" equal; done
add racecheck model/engine-attention 100 attn_ "$programs/gpu_check_engine" tiny
add racecheck model/engine-w4 100 w4_ "$programs/gpu_check_engine" tiny
add racecheck model/engine-rest 100 dense,norm,rotate,swiglu,embed "$programs/gpu_check_engine" tiny
for tool in memcheck synccheck initcheck; do
    for part in rows dense attention; do add $tool "model/$part" 60 - "$programs/gpu_check_model" tiny $part; done
    for part in 0 1 2; do add $tool model/sample-$part 60 - "$programs/gpu_check_sample" tiny $part; done
    add $tool model/engine 100 - "$programs/gpu_check_engine" tiny
done

# W4.
for kernel in w4_cluster w4_tile,w4_reduce w4_matvec,w4_naive,w4_dequantize,w4_pack; do
    add racecheck "w4/few-rows-${kernel//,/-}" 100 $kernel "$programs/gpu_check_w4" short
done
add racecheck w4/op 100 w4_tile,w4_reduce "$programs/gpu_check_w4_op" short
add racecheck w4/stream 100 w4_stream "$programs/gpu_check_stream" short
add racecheck w4/gemv-bf16 200 w4_gemv "$waiting/gpu_check_gemv" bf16 short
add racecheck w4/gemv-int8 200 w4_gemv "$waiting/gpu_check_gemv" int8 short
for tool in memcheck synccheck initcheck; do
    add $tool w4/few-rows 100 - "$programs/gpu_check_w4" short
    add $tool w4/op 100 - "$programs/gpu_check_w4_op" short
    add $tool w4/stream 100 - "$programs/gpu_check_stream" short
    add $tool w4/gemv 100 - "$programs/gpu_check_gemv" short
done

# All that may be refused, before the last run's logs go.
selected=$(printf '%s\n' "${list[@]}" | cut -d' ' -f1,2)
for part in "$@"; do
    if [ -z "$selected" ] || ! grep -qE -- "$part" <<<"$selected"; then refuse "no selection matches '$part'"; fi
done
command -v "$sanitizer" >/dev/null || refuse "there is no '$sanitizer'; SANITIZER names it (the CUDA toolkit has one)"
for job in "${list[@]}"; do
    read -r _ _ _ _ program _ <<<"$job"
    [ -x "$program" ] || refuse "there is no program '$program'; --programs names their directory"
done
mkdir -p "$out/sanitize"
rm -f "$out"/sanitize/*
version=$("$sanitizer" --version 2>/dev/null | sed -n 's/^Version //p')

# kinds LOG: what racecheck's reports are about, as "store/load bulk/load": who wrote, who read or wrote as well.
kinds() {
    sed -n 's/^=* *[EW][a-z]*: Race reported between \(Write\|Read\) access at \([a-z_]*\).*/1 \1 \2/p
            s/^=* *and \(Write\|Read\) access at \([a-z_]*\).*/2 \1 \2/p' "$1" |
        awk '{ kind = $3 ~ /^(bulk|tma)/ ? "bulk" : $2 == "Write" ? "store" : "load" }
             $1 == 1 { first = kind; wrote = $2 == "Write"; next }
             { print wrote ? first "/" kind : kind "/" first }' | sort -u | paste -sd' '
}

# one TOOL SELECTION SECONDS KERNELS PROGRAM ARGUMENT...: a line of the table, by the log.
one() {
    local tool=$1 name=$2 limit=$3 kernels=$4 left=$((within - SECONDS))
    shift 4
    local log="$out/sanitize/$tool-${name//\//-}.log" arguments="${*:2}" options=() start status
    [ $left -gt 3 ] || { echo "$tool,$name,${kernels//,/ },,,,0,not started" >"$log.csv" && return; }
    [ "$limit" -le "${LIMIT:-$limit}" ] || limit=$LIMIT
    [ "$limit" -le $left ] || limit=$left
    case $kernels in -) ;; *) for k in ${kernels//,/ }; do options+=(--kernel-name "kns=$k"); done ;; esac
    case $tool in racecheck) options+=(--racecheck-report "${RACECHECK_REPORT:-analysis}") ;; esac
    start=$(date +%s%N)
    # each talks to its program through ports of its own; a check lets calls fail on purpose: out of memory
    options+=(--port "$port" --launch-timeout 60)
    timeout -k 3 "$limit" "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 99 --print-limit 200 --show-backtrace device \
        "${options[@]}" "$@" >"$log" 2>&1
    status=$?
    local seconds=$((($(date +%s%N) - start) / 100000000)) reports said result
    reports=$(sed -n 's/^=*= *\(RACECHECK\|ERROR\) SUMMARY: *\([0-9]*\).*/\2/p' "$log" | tail -1)
    said=$(grep -E '^(ok|FAIL|SKIP) |passed, .* failed' "$log" | tail -1 | tr ',' ';')
    case $status in
    0) result=clean ;;
    99) result=reports ;;
    124 | 137) result="timeout" ;;
    *) result="status $status" ;;
    esac
    [ "$result" != clean ] || [ "${reports:-x}" = 0 ] || result="no summary"
    echo "$tool,$name,${kernels//,/ },$reports,$(kinds "$log"),$said (${arguments//,/ }),$((seconds / 10)).$((seconds % 10)),$result" >"$log.csv"
}

# The long ones first.
port=${PORT:-20000}
while read -r job; do
    port=$((port + 20))
    [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
    # shellcheck disable=SC2086 # a line of words
    one $job </dev/null &
done < <(printf '%s\n' "${list[@]}" | sort -s -k3,3nr)
wait
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed "s/^/# /; s/\$/; compute-sanitizer $version; $(date -u +%F)/"
    echo "tool,selection,kernels,reports,kinds,program,seconds,result"
    for job in "${list[@]}"; do
        read -r tool name _ <<<"$job"
        cat "$out/sanitize/$tool-${name//\//-}.log.csv"
    done
} | awk -F, -v OFS=, 'BEGIN { # the ways that each hands over by, gates aside
        ways["kda/m64"] = "pair turns"
        ways["kda/pair"] = "pair"
        n = split("c4-m128 c4-m64 c5-m64 c6-m64 c8-m128", ring, " ")
        for (i = 1; i <= n; i++) ways["kda/" ring[i]] = "load acked"
        ways["kda/split-weak"] = "load acked pair turns" # of the serial launch behind
        ways["kda/m128-bound"] = ways["kda/queue-bound"] = "lane" # without a bound they are clean
        ways["kda/split-wide"] = ways["kda/split-join-wide"] = "counted kept"
    }
    $2 ~ /^handover/ { # by itself alone
        ways[$2] = substr($2, 10)
        n = split($5, k, " ")
        for (i = 1; i <= n; i++) seen[$2, k[i]] = 1
    }
    $1 == "racecheck" && $8 == "reports" {
        name = $2
        sub(/-(bound|free)/, "", name)
        n = split($5, k, " ")
        known = n > 0
        for (i = 1; i <= n; i++) {
            found = 0
            m = split(ways[$2 in ways ? $2 : name], w, " ")
            for (j = 1; j <= m; j++) found = found || ("handover/" w[j], k[i]) in seen
            known = known && found
        }
        if (known) $8 = "as handover"
    }
    { print }' >"$out/sanitize.csv"
rm -f "$out"/sanitize/*.log.csv
awk -F, '!/^#/ && $1 != "tool" { n[$8]++ } END { for (r in n) printf "%d %s\n", n[r], r }' "$out/sanitize.csv"
! awk -F, '!/^#/ && $1 != "tool" && $8 != "clean" && $8 != "as handover"' "$out/sanitize.csv" | grep .
