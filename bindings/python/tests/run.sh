#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh LIBRARY [TEST...]: the binding's tests on numpy arrays, with the first Python that has numpy.
# Exits with 77 where there is none.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export BRIM_LIBRARY=$1 PYTHONPATH=$here/..:$here PYTHONDONTWRITEBYTECODE=1
shift
[ $# -gt 0 ] || set -- test_numpy
for python in python3 /usr/bin/python3; do
    if "$python" -c "import numpy" 2>/dev/null; then
        cd "$here"
        exec "$python" -m unittest "$@"
    fi
done
echo "SKIP: no python3 with numpy (python3-numpy)"
exit 77
