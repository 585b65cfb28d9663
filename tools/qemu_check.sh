# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by check_aarch64.sh and check_old_cpu.sh: run the kernel checker and add up its counts.
passed=0 failed=0 skipped=0

# run_checker EMULATOR PROGRAM TIERS FORBIDDEN: the tiers that must have run, and those that must not.
run_checker() {
    local output line tier
    echo "-- $1"
    # shellcheck disable=SC2086 # a command line
    output=$($1 "$2" 2>&1)
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
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}
