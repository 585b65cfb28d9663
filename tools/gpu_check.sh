#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check.sh [DIR]: run the GPU programs of DIR (default build/release/tests) on this machine's GPU.
# They need the driver alone, so DIR may be a copy. KDA is checked on every route; `sanitize` as a second
# argument adds compute-sanitizer's memcheck and synccheck on the short form.
set -uo pipefail
dir=${1:-"$(dirname "$0")/../build/release/tests"}
failed=0
run() {
    echo "== $*"
    "$@" || { echo "error: $* failed"; failed=1; }
}
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "skipped: no NVIDIA GPU"
    exit 77
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for route in m128 c4-m128; do
    run "$dir/gpu_check_kda" "$route"
    if [ "${2:-}" = sanitize ]; then
        for tool in memcheck synccheck; do
            run compute-sanitizer --tool "$tool" --error-exitcode 1 "$dir/gpu_check_kda" "$route" short
        done
    fi
done
exit $failed
