#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_run_sh.sh MODEL: ./run.sh as its reader meets it, once the model is in the cache.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
check() {
    if ! eval "$2"; then
        echo "error: $1"
        tail -n 5 "$work/out" "$work/err"
        failed=1
    fi
}

# The build is current or made now; the run after it must do nothing but answer.
./run.sh "What is the capital of France?" >"$work/out" 2>"$work/err"
check "run.sh succeeds" "[ $? -eq 0 ]"
start=$(date +%s%N)
./run.sh "What is the capital of France?" >"$work/out" 2>"$work/err"
check "run.sh succeeds a second time" "[ $? -eq 0 ]"
seconds=$((($(date +%s%N) - start) / 1000000000))
check "the answer names Paris" 'grep -q Paris "$work/out"'
check "figures are on standard error" 'grep -q "^generated .* tokens/s" "$work/err" && grep -q "^peak memory" "$work/err"'
check "standard output holds the answer alone" '! grep -qE "tokens/s|Building|Built|Downloading|Installing|\[[0-9]+/[0-9]+\]" "$work/out"'
check "the second run installs, downloads and builds nothing" '! grep -qE "Installing|Downloading|Building|Built|Configuring" "$work/err"'
check "the second run is quick ($seconds s)" "[ $seconds -lt 30 ]"

./run.sh --model "$work/none.gguf" hello >"$work/out" 2>"$work/err"
check "a model that is not there: code 1" "[ $? -eq 1 ]"
check "a model that is not there is named" 'grep -q "none.gguf. does not exist" "$work/err" && [ ! -s "$work/out" ]'
./run.sh --wrong >"$work/out" 2>"$work/err"
check "a wrong option: code 2" "[ $? -eq 2 ]"

# No network and an empty cache: a sentence, and how to go on; nothing half-valid stays behind.
env XDG_CACHE_HOME="$work/cache" PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_EXTRA_INDEX_URL= PIP_FIND_LINKS= \
    PIP_RETRIES=0 PIP_NO_CACHE_DIR=1 ./run.sh hello >"$work/out" 2>"$work/err"
check "offline: code 1" "[ $? -eq 1 ]"
check "offline: says so and names --model" 'grep -q "could not be downloaded" "$work/err" && grep -q -- "--model" "$work/err" && [ ! -s "$work/out" ]'
check "offline: the cache stays empty" '[ -z "$(find "$work/cache" -type f)" ]'
exit $failed
