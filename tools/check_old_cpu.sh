#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run the kernel checker under qemu on processors without AVX-512 and without AVX: an instruction that
# escaped its tier ends it. Prints "N passed, N failed, N skipped"; exit code 77: skipped.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
if [ "$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 >/dev/null; then
    echo "SKIP: needs an x86-64 build and qemu-x86_64 (Debian: qemu-user)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 77
fi
cmake --preset kernels-only -DBRIM_BUILD_TESTS=ON -DBRIM_WERROR=ON && cmake --build build/kernels-only --target brim_check || exit 1
. tools/qemu_check.sh
run_checker "qemu-x86_64 -cpu Haswell" build/kernels-only/tests/brim_check "c avx2" "avx512"
run_checker "qemu-x86_64 -cpu Westmere" build/kernels-only/tests/brim_check "c" "avx2 avx512"
run_checker "qemu-x86_64 -cpu qemu64" build/kernels-only/tests/brim_check "c" "avx2 avx512"
finish
