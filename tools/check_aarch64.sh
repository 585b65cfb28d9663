#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cross-build the kernels for 64-bit Arm and run the kernel checker under qemu, on a core with the dot
# product extension and on one without. Prints "N passed, N failed, N skipped"; exit code 77: skipped.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
for command in aarch64-linux-gnu-gcc qemu-aarch64; do
    if ! command -v $command >/dev/null; then
        echo "SKIP: $command not found (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
        echo "0 passed, 0 failed, 1 skipped"
        exit 77
    fi
done
cmake --preset aarch64 -DBRIM_WERROR=ON && cmake --build build/aarch64 --target brim_kernels brim_check || exit 1
. tools/qemu_check.sh
run_checker "qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max" build/aarch64/tests/brim_check "c neon" ""
run_checker "qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu cortex-a57" build/aarch64/tests/brim_check "c neon" ""
finish
