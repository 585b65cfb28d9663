#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_tidy.sh BUILD: clang-tidy over src and app by the committed configuration, two files at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
find src app -name '*.c' -not -path 'src/cpu/arm/*' -not -path 'src/cuda/*' | sort |
    xargs -P 2 -n 4 clang-tidy -p "$1" --quiet --warnings-as-errors='*'
