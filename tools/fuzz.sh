#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh PROGRAM SECONDS: run one libFuzzer target on its committed seeds. What it finds on the way
# stays in a scratch directory; an input that fails is kept beside the program and named.
set -euo pipefail
program=$(realpath "$1")
seconds=$2
name=$(basename "$program")
seeds=$(realpath "$(dirname "$0")/..")/tests/fuzz/corpus/$name
[ -d "$seeds" ] || { echo "error: $seeds is missing"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    -artifact_prefix="$(dirname "$program")/$name-")
dictionary=${seeds%/*}/$name.dict
[ -f "$dictionary" ] && options+=(-dict="$dictionary")
# libFuzzer reports a finding with 77, which means "skipped" elsewhere.
"$program" "${options[@]}" "$work" "$seeds" || exit 1
