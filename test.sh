#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./test.sh [--quick] [--fuzz-seconds N] [LANE...]: build brim in every way that matters and run all
# tests. Ends with one line "N passed, N failed, N skipped"; each skip is printed with its reason.
# Exits with 0 only when nothing failed.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
. tools/deps.sh

quick=0
fuzz_seconds=10
wanted=()
all_lanes="style release model asan-ubsan tsan clang tidy fuzz consumer kernels-only aarch64 old-cpu cuda emu"
quick_lanes="style release"
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --fuzz-seconds)
        [ $# -ge 2 ] || die "--fuzz-seconds needs a number"
        fuzz_seconds=$2
        shift
        ;;
    -h | --help)
        cat <<TEXT
usage: ./test.sh [--quick] [--fuzz-seconds N] [LANE...]

--quick           the lanes $quick_lanes, without tests labelled slow: the inner loop
--fuzz-seconds N  time for each fuzz target (default: 10)
LANE...           only these of: $all_lanes
TEXT
        exit 0
        ;;
    -*) die "unknown option '$1' (see ./test.sh --help)" ;;
    *)
        case " $all_lanes " in *" $1 "*) wanted+=("$1") ;; *) die "unknown lane '$1'; there are: $all_lanes" ;; esac
        ;;
    esac
    shift
done
if [ ${#wanted[@]} -eq 0 ]; then
    if [ $quick = 1 ]; then read -ra wanted <<<"$quick_lanes"; else read -ra wanted <<<"$all_lanes"; fi
fi

logs=build/test-logs
mkdir -p $logs
passed=0 failed=0 skipped=0
failures=() skips=()

ok() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    failures+=("$lane: $1")
    echo "  failed: $1"
}
skip() {
    skipped=$((skipped + 1))
    skips+=("$lane: $1")
    echo "  skipped: $1"
}

# step NAME COMMAND...: one check; its output is shown when it fails.
step() {
    local name=$1 log
    shift
    log=$logs/$lane-${name//[^a-zA-Z0-9]/-}.log
    "$@" >"$log" 2>&1
    judge "$name" "$log" $?
}

# begin NAME COMMAND...: a step of one processor, two of them at a time; end_steps counts them.
begun=()
begin() {
    local name=$1 log
    shift
    log=$logs/$lane-${name//[^a-zA-Z0-9]/-}.log
    rm -f "$log.code"
    ("$@" >"$log" 2>&1; echo $? >"$log.code") &
    begun+=("$name")
    [ $((${#begun[@]} % 2)) = 1 ] || wait
}
end_steps() {
    local name log
    wait
    for name in "${begun[@]}"; do
        log=$logs/$lane-${name//[^a-zA-Z0-9]/-}.log
        judge "$name" "$log" "$(cat "$log.code" 2>/dev/null || echo 1)"
    done
    begun=()
}

judge() {
    local name=$1 log=$2
    case $3 in
    0) ok ;;
    77) skip "$name: $(sed -n 's/^SKIP: //p' "$log" | head -1)" ;;
    *)
        fail "$name"
        tail -40 "$log" | sed 's/^/    /'
        return 1
        ;;
    esac
}

# build PRESET [OPTION...]: configure and build with warnings as errors.
build() {
    local preset=$1
    shift
    step "configure $preset" cmake --preset "$preset" -DBRIM_WERROR=ON "$@" &&
        step "build $preset" cmake --build "build/$preset"
}

# tests PRESET [CTEST OPTION...]: run CTest and count cmocka tests one by one.
tests() {
    local preset=$1 line
    shift
    local junit=$PWD/$logs/$lane.xml
    rm -f "$junit"
    [ $quick = 0 ] || set -- "$@" -LE slow
    ctest --test-dir "build/$preset" --no-tests=error --output-junit "$junit" -j 2 "$@" >"$logs/$lane-ctest.log" 2>&1
    if [ ! -s "$junit" ]; then
        fail "no test ran; see $logs/$lane-ctest.log"
        return
    fi
    while IFS= read -r line; do
        case $line in
        counts\ *)
            read -r _ p f s <<<"$line"
            passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
            echo "  $p passed, $f failed, $s skipped"
            ;;
        failed:*) failures+=("$lane: ${line#failed: }") && echo "  $line" ;;
        skipped:*) skips+=("$lane: ${line#skipped: }") && echo "  $line" ;;
        *) echo "  $line" ;;
        esac
    done < <(tools/count_tests.py "$junit")
}

lane_style() {
    local files
    mapfile -t files < <(find src include app tests bench examples -name '*.[ch]' 2>/dev/null | sort)
    step "clang-format" clang-format --dry-run -Werror "${files[@]}"
    step "folder dependencies" tools/check_deps.py
    step "style" tools/check_style.sh
    step "the router's table" tools/kda_route_table.py --check
}

# What the golden tests compare with; the tests of what cannot be fetched are skipped one by one.
fetch_vocabularies() {
    [ $quick = 0 ] || return 0
    tools/fetch_model.sh >/dev/null 2>&1 || true
    tools/fetch_tokenizers.sh >/dev/null 2>&1 || true
}

lane_release() { fetch_vocabularies && build release && tests release -L check; }

# The demonstration model answers, through the command a reader types.
lane_model() {
    local model
    if ! model=$(tools/fetch_model.sh 2>$logs/fetch.log); then
        skip "demonstration model: $(sed -n 's/^brim: error: //p' $logs/fetch.log | head -1)"
        return
    fi
    step "run.sh answers" tests/cli/check_run_sh.sh "$model"
    [ -x build/release/tests/check_llama ] || build release
    step "agrees with llama.cpp" build/release/tests/check_llama "$model"
}

# What no compiler has a part in is tested once, in the lane release.
no_compiler='^(model|plan|docs)/'

lane_asan-ubsan() { build asan-ubsan && tests asan-ubsan -L check -E "$no_compiler"; }

lane_tsan() { build tsan && TSAN_OPTIONS=halt_on_error=1 tests tsan -L threads; }

lane_clang() { build clang && tests clang -L check -E "$no_compiler"; }

lane_tidy() {
    [ -e build/clang/compile_commands.json ] || cmake --preset clang >/dev/null 2>&1
    step "clang-tidy" tools/check_tidy.sh build/clang
}

lane_fuzz() {
    build fuzz || return
    local target name found=0
    for target in tests/fuzz/fuzz_*.c; do
        [ -e "$target" ] || continue
        found=1
        name=$(basename "$target" .c)
        begin "$name" tools/fuzz.sh build/fuzz/tests/"$name" "$fuzz_seconds"
    done
    end_steps
    [ $found = 1 ] || fail "there is no fuzz target"
}

lane_consumer() {
    [ -e build/release/build.ninja ] || build release || return
    step "build release" cmake --build build/release && step "install and consume" tests/consumer/check.sh build/release
}

# The kernels alone build where no JSON, regex or Unicode library is installed.
lane_kernels-only() {
    build kernels-only -DBRIM_BUILD_TESTS=OFF || return
    step "symbols" tools/check_symbols.sh build/kernels-only/libbrim_kernels.so
    step "links no library of the engine" no_engine_libraries build/kernels-only/libbrim_kernels.so
}
no_engine_libraries() {
    ! readelf -d "$1" | grep NEEDED | grep -E 'jansson|pcre|utf8proc'
}

lane_aarch64() { step "aarch64 under qemu" tools/check_aarch64.sh; }

lane_old-cpu() { step "old processors under qemu" tools/check_old_cpu.sh; }

# Device code is built by the release preset where nvcc is; its tests need a GPU.
lane_cuda() {
    local nvcc
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    if [ -z "$nvcc" ]; then
        skip "no nvcc: the CUDA kernels are not built"
        return
    fi
    step "registers and spills of every kernel" tools/check_spills.py --nvcc "$nvcc"
    if [ ! -e /dev/nvidia0 ]; then
        skip "no NVIDIA GPU: the CUDA kernels are built, not run"
    else
        build release && tests release -L cuda
    fi
}

# The CUDA kernels and their checks on an emulator: neither nvcc nor a GPU is needed.
lane_emu() {
    if [ "$(uname -sm)" != "Linux x86_64" ]; then
        skip "the emulator is written for x86-64 Linux"
        return
    fi
    if ! grep -qw avx2 /proc/cpuinfo; then
        skip "the emulator's products need AVX2"
        return
    fi
    build emu && tests emu -L emu
}

test_packages="$build_packages libcmocka-dev python3 python3-pip python3-numpy clang clang-format clang-tidy libclang-rt-dev
gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user shellcheck spin"
if [ $quick = 1 ]; then test_packages="$build_packages libcmocka-dev python3 clang-format shellcheck"; fi
# shellcheck disable=SC2086 # a list of words
ensure_packages $test_packages

# Of all that has run so far, in whole seconds, into `processors`; of a subshell it would be nothing.
count_processors() {
    times >$logs/times
    processors=$(sed -n '2s/[ms]/ /gp' $logs/times | awk '{printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4}')
}

first=$SECONDS
for lane in "${wanted[@]}"; do
    echo "== $lane"
    lane_begin=$SECONDS
    count_processors
    lane_processors=$processors
    "lane_$lane"
    count_processors
    echo "   $((SECONDS - lane_begin)) s, $((processors - lane_processors)) s of processors"
done

echo
for line in "${failures[@]}"; do echo "failed: $line"; done
for line in "${skips[@]}"; do echo "skipped: $line"; done
echo "total time $((SECONDS - first)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
