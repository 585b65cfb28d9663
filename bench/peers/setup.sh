#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the programs brim is measured against into a virtual environment of their own:
#   llama-cpp-python  llama.cpp, compiled here for this processor (GGML_NATIVE), CPU only
#   mlx (CPU)         with mlx-cpu as its backend on Linux
# and what the scripts need (numpy, matplotlib). Nothing of brim needs any of this.
# Usage: bench/peers/setup.sh [DIR]   (default: $XDG_CACHE_HOME/brim/peers-venv)
# BRIM_PEERS_JOBS sets the compile jobs (default: all processors).
set -euo pipefail

LLAMA_CPP_PYTHON=0.3.36
MLX=0.32.4
MLX_LM=0.32.2

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/brim/peers-venv}
jobs=${BRIM_PEERS_JOBS:-$(nproc)}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip="$venv/bin/pip --disable-pip-version-check"
$pip install --quiet numpy matplotlib

# Compiled from the source archive, so that llama.cpp uses every instruction this processor has, as
# a user who builds it by hand gets it.
if ! "$venv/bin/python" -c "import llama_cpp; assert llama_cpp.__version__ == '$LLAMA_CPP_PYTHON'" 2>/dev/null; then
    echo "compiling llama-cpp-python $LLAMA_CPP_PYTHON with $jobs jobs (minutes)" >&2
    CMAKE_BUILD_PARALLEL_LEVEL=$jobs \
        CMAKE_ARGS="-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release -DLLAVA_BUILD=OFF" \
        $pip install --no-binary llama-cpp-python "llama-cpp-python==$LLAMA_CPP_PYTHON"
fi

# mlx's Linux wheel takes its CPU backend from mlx-cpu. A failure leaves the other peer usable.
if ! $pip install --quiet "mlx[cpu]==$MLX" "mlx-lm==$MLX_LM"; then
    echo "mlx $MLX could not be installed here; its rows will be missing" >&2
fi

"$venv/bin/python" "$here/versions.py" >"$venv/versions.json"
cat "$venv/versions.json"
