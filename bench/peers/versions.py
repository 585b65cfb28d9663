#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print what the measurements of bench/peers ran with, as JSON: processor, compilers, packages."""
import importlib.metadata
import json
import platform
import subprocess


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def status_kib(field):
    """A field of /proc/self/status, for example VmHWM, the peak of the resident memory."""
    with open("/proc/self/status", encoding="ascii") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    return 0


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def system_info():
    """The instruction sets llama.cpp says it was built for."""
    try:
        import llama_cpp
        return llama_cpp.llama_print_system_info().decode()
    except Exception:  # absent or broken: the row is empty, the report goes on
        return None


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def versions():
    return {
        "processor": processor(),
        "python": platform.python_version(),
        "compiler": first_line(["cc", "--version"]),
        "packages": {p: version(p) for p in ("llama-cpp-python", "mlx", "mlx-cpu", "mlx-lm", "numpy")},
        "llama_system_info": system_info(),
    }


if __name__ == "__main__":
    print(json.dumps(versions(), indent=2))
