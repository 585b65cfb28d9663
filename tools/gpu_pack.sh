#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_pack.sh FILE.tar.xz [PROGRAM...]: pack the GPU's checks and benchmarks, for a machine that has a GPU
# but neither compiler nor network. PROGRAM: names below build/release/tests (default: all of gpu_*); the
# command brim, libbrim.so and libbrim_kernels.so go with them, and the shared libraries these two need beside
# those of the C library and the compiler, which a GPU machine need not have. There:
#     mkdir programs && tar -xf FILE.tar.xz -C programs && tools/gpu_check.sh --programs programs PART...
# The programs share most of their code, so one dictionary over all makes the archive small.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/release
usage() { sed -n '3,9s/^# \{0,1\}//p' "$root/tools/gpu_pack.sh"; }
case ${1:-} in
-h | --help) usage && exit ;;
"" | -*) usage >&2 && exit 2 ;;
esac
archive=$1
shift
[ $# -gt 0 ] || mapfile -t < <(cd "$build/tests" && find . -maxdepth 1 -name 'gpu_*' -type f -executable -printf '%f\n' | sort)
[ $# -gt 0 ] || set -- "${MAPFILE[@]}"
[ $# -gt 0 ] || { echo "gpu_pack: no gpu_* in $build/tests: build with nvcc first" >&2; exit 1; }
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
for program in "$@"; do cp "$build/tests/$program" "$packed"; done
cp "$build/brim" "$packed"
for library in brim brim_kernels; do cp -L "$build/lib$library.so" "$packed"; done
needed=$(ldd "$build/brim" "$build/libbrim.so" | sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u)
while read -r name path; do
    case $name in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libgcc_s.so.* | libstdc++.so.*) ;;
    *) cp -L "$path" "$packed/$name" ;;
    esac
done <<<"$needed"
strip "$packed"/*
tar -cf - -C "$packed" . | xz --threads=1 --lzma2=preset=2,dict=256MiB >"$archive"
du -h "$archive"
