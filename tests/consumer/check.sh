#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh BUILD: install BUILD into a scratch directory, then build and run a consumer from there by
# find_package and by pkg-config, shared and static. Prints one line for each that works.
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# Moved after installing: nothing may remember the first place.
mv "$work/first" "$work/moved"
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name libbrim.a)")

cmake -S "$source" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/cmake" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/cmake/consumer_shared" >/dev/null && echo "ok find_package, shared"
"$work/cmake/consumer_static" >/dev/null && echo "ok find_package, static"

export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs brim)"
cc -std=c11 -Wall -Wextra -Werror "$source/consumer.c" -o "$work/shared" "${flags[@]}"
LD_LIBRARY_PATH=$libdir "$work/shared" >/dev/null && echo "ok pkg-config, shared"
# Fully static: works only when Libs.private and Requires.private name everything.
read -ra flags <<<"$(pkg-config --static --cflags --libs brim)"
cc -std=c11 -Wall -Wextra -Werror -static "$source/consumer.c" -o "$work/static" "${flags[@]}" 2>"$work/log" ||
    { cat "$work/log"; exit 1; }
"$work/static" >/dev/null && echo "ok pkg-config, static"

"$prefix/bin/brim" --version >/dev/null && echo "ok installed command line"
