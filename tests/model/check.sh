#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Exhaustive check of mailbox.pml by Spin for one and two owners and rings of two and three; each mutation
# must be caught.
set -euo pipefail
model="$(cd "$(dirname "$0")" && pwd)/mailbox.pml"
command -v spin >/dev/null || { echo "SKIP: spin is not installed"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
explore() { # flags...: 0 when no interleaving fails an assertion or blocks
    spin "$@" -a "$model" >/dev/null
    cc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
    ./pan -m200000 >log
    grep -q 'errors: 0' log && ! grep -q 'max search depth too small' log
}
for owners in 1 2; do
    for depth in 2 3; do
        explore -DOWNERS=$owners -DDEPTH=$depth -DPACKETS=$((2 * depth + 1)) || { echo "error: owners $owners, depth $depth"; cat log; exit 1; }
        echo "ok: $owners owner(s), ring of $depth, $(awk '/states, stored/ {print $1}' log) states"
    done
done
for mutation in NO_ACK_WAIT NO_GENERATION READY_FIRST ONE_ACK; do
    if explore -DOWNERS=2 -DDEPTH=2 -DPACKETS=5 -D$mutation; then
        echo "error: the model does not notice $mutation"
        exit 1
    fi
    echo "ok: $mutation is caught"
done
