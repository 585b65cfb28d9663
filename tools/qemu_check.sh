# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by check_aarch64.sh and check_old_cpu.sh: run the kernel checker on several processors at once
# and add up its counts.
passed=0 failed=0 skipped=0
checkers=()
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT

# run_checker EMULATOR PROGRAM TIERS FORBIDDEN: the tiers that must have run, and those that must not.
run_checker() {
    # shellcheck disable=SC2086 # a command line
    $1 "$2" >"$outputs/${#checkers[@]}" 2>&1 &
    checkers+=("$1|$3|$4")
}

# judge_checker OUTPUT EMULATOR TIERS FORBIDDEN
judge_checker() {
    local output line tier
    echo "-- $2"
    output=$(cat "$1")
    grep -v "TCG doesn't support" <<<"$output"
    line=$(tail -1 <<<"$output")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
    else
        echo "error: the checker did not finish"
        failed=$((failed + 1))
    fi
    for tier in $3; do
        grep -q "^$tier attn: [1-9]" <<<"$output" && grep -q "^$tier kda: [1-9]" <<<"$output" && continue
        echo "error: tier $tier did not run"
        failed=$((failed + 1))
    done
    for tier in $4; do
        grep -q "^$tier attn: " <<<"$output" || continue
        echo "error: tier $tier ran on a processor without it"
        failed=$((failed + 1))
    done
}

finish() {
    local i emulator tiers forbidden
    wait
    for i in "${!checkers[@]}"; do
        IFS='|' read -r emulator tiers forbidden <<<"${checkers[i]}"
        judge_checker "$outputs/$i" "$emulator" "$tiers" "$forbidden"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}
