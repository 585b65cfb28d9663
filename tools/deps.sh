# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by run.sh and test.sh: find out which Debian packages are missing and install those.
# A package is named together with the question that tells whether what it brings is already there,
# so that a self-built compiler or another distribution's packages count too.

say() { printf '%s\n' "$*" >&2; }

die() {
    say "brim: error: $*"
    exit 1
}

has_command() { command -v "$1" >/dev/null 2>&1; }
has_module() { has_command pkg-config && pkg-config --exists "$1"; }

# Does clang find its sanitizer and fuzzer runtimes?
has_clang_runtime() {
    has_command clang || return 1
    local dir
    dir=$(clang -print-resource-dir)/lib
    [ -n "$(find "$dir" -name 'libclang_rt.fuzzer*' -print -quit 2>/dev/null)" ]
}

# Some Python has numpy: the binding's tests take the first that has.
has_numpy() {
    python3 -c "import numpy" 2>/dev/null || /usr/bin/python3 -c "import numpy" 2>/dev/null
}

package_present() {
    case $1 in
    build-essential) has_command cc && has_command c++ && has_command make ;;
    cmake) has_command cmake ;;
    ninja-build) has_command ninja ;;
    pkg-config) has_command pkg-config ;;
    libjansson-dev) has_module jansson ;;
    libpcre2-dev) has_module libpcre2-8 ;;
    libutf8proc-dev) has_module libutf8proc ;;
    libcmocka-dev) has_module cmocka ;;
    python3) has_command python3 ;;
    python3-pip) find_pip >/dev/null ;;
    python3-numpy) has_numpy ;;
    clang) has_command clang ;;
    clang-format) has_command clang-format ;;
    clang-tidy) has_command clang-tidy ;;
    libclang-rt-dev) has_clang_runtime ;;
    gcc-aarch64-linux-gnu) has_command aarch64-linux-gnu-gcc ;;
    libc6-dev-arm64-cross) [ -e /usr/aarch64-linux-gnu/include/stdio.h ] ;;
    shellcheck) has_command shellcheck ;;
    qemu-user) has_command qemu-aarch64 && has_command qemu-x86_64 ;;
    *) dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
    esac
}

# Prints a Python that has pip; fails when there is none.
find_pip() {
    local python
    for python in python3 /usr/bin/python3; do
        if has_command "$python" && "$python" -m pip --version >/dev/null 2>&1; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

# Install what is missing of the packages named; says what before it does. Standard output stays
# untouched.
ensure_packages() {
    local missing=() package sudo=()
    for package in "$@"; do
        package_present "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! has_command apt-get; then
        die "missing, and this system has no apt-get: please install what corresponds to ${missing[*]}"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        has_command sudo || die "missing packages: ${missing[*]}. Install them as root: apt-get install ${missing[*]}"
        sudo=(sudo)
        say "Installing with sudo apt-get: ${missing[*]}"
    else
        say "Installing with apt-get: ${missing[*]}"
    fi
    export DEBIAN_FRONTEND=noninteractive
    if ! "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >&2; then
        # A fresh system has no package lists yet, an old one outdated ones.
        "${sudo[@]}" apt-get update -q >&2 || die "apt-get update failed; without network, install ${missing[*]} by other means"
        "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
            die "apt-get could not install ${missing[*]}"
    fi
}

# shellcheck disable=SC2034 # used by the scripts that source this file
build_packages="build-essential cmake ninja-build pkg-config libjansson-dev libpcre2-dev libutf8proc-dev"
