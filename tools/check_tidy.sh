#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_tidy.sh BUILD [FILE...]: clang-tidy over src and app, or the files named, by the committed
# configuration, two at a time. The tiers of the kernels are instances of the same few shapes and take
# minutes each in the analyzer: the compilers' warnings and the kernel checker hold those.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
[ $# -gt 0 ] || mapfile -t files < <(find src app -name '*.c' -not -path 'src/cpu/arm/*' -not -path 'src/cpu/x86/*' -not -path 'src/cuda/*' | sort)
[ $# -eq 0 ] || files=("$@")
printf '%s\n' "${files[@]}" | xargs -P 2 -n 4 clang-tidy -p "$build" --quiet --warnings-as-errors='*'
