#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./run.sh [--model FILE] [PROMPT]: build brim, fetch the demonstration model, answer the prompt.
# Standard output carries the answer alone; building, progress and rates go to standard error.
set -euo pipefail
start=$PWD
cd "$(dirname "$0")"
. tools/deps.sh

usage() {
    cat >&2 <<'TEXT'
usage: ./run.sh [--model PATH] [PROMPT]

Installs missing packages (apt), builds brim in build/release, fetches the demonstration model
SmolLM2-135M-Instruct (98 MB, kept in ${XDG_CACHE_HOME:-~/.cache}/brim) and answers PROMPT.
--model PATH or BRIM_MODEL=PATH uses a model of yours: a .gguf file or a Hugging Face directory.
TEXT
}

model=${BRIM_MODEL:-}
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --model)
        [ $# -ge 2 ] || { say "brim: error: --model needs a path"; usage; exit 2; }
        model=$2
        shift 2
        ;;
    --)
        shift
        break
        ;;
    -?*)
        say "brim: error: unknown option '$1'"
        usage
        exit 2
        ;;
    *) break ;;
    esac
done
prompt=${*:-"Why is the sky blue? Answer in two sentences."}
case $model in
'' | /*) ;;
*) model=$start/$model ;;
esac
[ -z "$model" ] || [ -e "$model" ] || die "the model '$model' does not exist"

# shellcheck disable=SC2086 # a list of words
ensure_packages $build_packages
if [ ! -e build/release/build.ninja ]; then
    say "Configuring build/release"
    cmake --preset release >&2
fi
build_log=build/release/run.log
if [ ! -e build/release/brim ]; then say "Building build/release/brim (the first time takes a minute or two, where nvcc is found some more)"; fi
if ! cmake --build build/release --target brim_cli >"$build_log" 2>&1; then
    cat "$build_log" >&2
    die "the build failed"
fi
if grep -q Linking "$build_log"; then say "Built build/release/brim"; fi
[ -n "$model" ] || model=$(tools/fetch_model.sh)

exec build/release/brim run --max-tokens 400 -- "$model" "$prompt"
