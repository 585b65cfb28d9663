#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# brim plan split-k and plan kda: their lines, their refusals. The whole table is checked in tests/unit/test_split_k.c.
set -uo pipefail
brim=$1
cd "$(dirname "$0")/../.." || exit 1
failed=0

expect() { # WHAT EXPECTED ACTUAL
    [ "$2" = "$3" ] && return
    echo "FAILED: $1: expected '$2', got '$3'"
    failed=1
}

plan() { "$brim" plan split-k "$@" 2>&1; }

expect "k at 32 rows" \
    '{"split":10,"base_groups":32,"launched_groups":320,"kernel":"split-k","partition_inputs":256}' \
    "$(plan --rows 32 --inner 2560 --outputs 1024)"
for row in "9 2560 1024 10" "64 2560 1024 5" "96 2560 1024 2" "161 2560 1024 1" "32 2560 4096 2" \
    "33 2560 4096 1" "32 4096 2560 4" "64 9728 2560 2" "9 2560 9728 1"; do
    read -r m n k split <<<"$row"
    expect "$row" "{\"split\":$split," "$(plan --rows "$m" --inner "$n" --outputs "$k" | cut -c1-$((10 + ${#split})))"
done
for m in 1 8; do
    expect "matvec at $m rows" '{"kernel":"matvec","split":1,' \
        "$(plan --rows $m --inner 2560 --outputs 1024 | cut -c1-29)"
done
expect "device" \
    '{"split":10,"base_groups":8,"launched_groups":80,"kernel":"split-k","partition_inputs":256}' \
    "$(plan --rows 64 --inner 2560 --outputs 1024 --policy device --processors 132 --tile-rows 64 --tile-outputs 128)"
expect "not a multiple" "brim: error: split plan: 2500 inputs are not a multiple of 128" \
    "$(plan --rows 32 --inner 2500 --outputs 1024)"

code() {
    "$brim" "$@" >/dev/null 2>&1
    echo $?
}
expect "exit code of a plan" 0 "$(code plan split-k --rows 1 --inner 128 --outputs 1)"
expect "exit code of a refusal" 1 "$(code plan split-k --rows 1 --inner 100 --outputs 1)"
expect "exit code without rows" 2 "$(code plan split-k --inner 128 --outputs 1)"
expect "exit code without processors" 2 "$(code plan split-k --rows 1 --inner 128 --outputs 1 --policy device)"
hopper() { "$brim" plan split-k --level hopper "$@" 2>&1; }
expect "hopper, one row" \
    '{"kernel":"gemv","split":1,"grid":128,"tile_rows":1,"tile_outs":32,"cluster":1,"accumulates":1,"reduces":0,"workspace_bytes":0,"schedule":"gemv int8: 1 pairs 10 parts split 1"}' \
    "$(hopper --rows 1 --inner 2560 --outputs 4096)"
expect "hopper, few rows" \
    '{"kernel":"cluster","split":2,"grid":96,"tile_rows":16,"tile_outs":128,"cluster":2,"accumulates":1,"reduces":0,"workspace_bytes":0,"schedule":"cluster: 16 tokens 2 slabs 1 parts split 2"}' \
    "$(hopper --rows 16 --inner 2560 --outputs 6144)"
# what ran, by the committed sweep
for row in q,1,2560,4096 q,48,2560,4096 o,64,4096,2560 down,96,9728,2560 gateup,256,2560,19456; do
    IFS=, read -r name m n k <<<"$row"
    expect "hopper, $name at $m rows as measured" "$(grep "^$name,$m," bench/results/h200/w4_sweep.csv | cut -d, -f4- | sed 's/,/: /')" \
        "$(hopper --rows "$m" --inner "$n" --outputs "$k" | sed 's/.*"schedule":"\(.*\)"}/\1/')"
done
expect "hopper, a smaller GPU" "132 66" \
    "$(for n in 132 78; do hopper --rows 256 --inner 2560 --outputs 4096 --processors $n | grep -o '"grid":[0-9]*' | cut -d: -f2; done | xargs)"
expect "hopper, no row" '{"kernel":"none","split":1,"partition_inputs":2560,"grid":0,' "$(hopper --rows 0 --inner 2560 --outputs 4096 | cut -c1-60)"
expect "hopper, a group" "0 1" "$(code plan split-k --level hopper --rows 1 --inner 576 --outputs 960 --align 64) $(code plan split-k --level hopper --rows 1 --inner 576 --outputs 960)"
expect "hopper, more than a launch" "brim: error: w4: n_row 1000000000000, n_out 1000, n_in 128: more work than one launch takes" \
    "$(hopper --rows 1000000000000 --inner 128 --outputs 1000)"
expect "hopper, a policy's options" 2 "$(code plan split-k --level hopper --rows 1 --inner 2560 --outputs 4096 --policy device --processors 132)"
expect "hopper, a tile" 2 "$(code plan split-k --level hopper --rows 1 --inner 2560 --outputs 4096 --tile-rows 64)"
field() { # EXPRESSION ARGUMENT...: of the line, as d
    local what=$1
    shift
    "$brim" plan kda "$@" | python3 -c "import json,sys; d=json.load(sys.stdin); print($what)"
}
kda() { "$brim" plan kda "$@" 2>&1 | cut -d, -f1,3-8; }
expect "kda, few heads" "True True True" \
    "$(field "d['route'] in ('c5-m64', 'c6-m64'), d['grid'] == 8 * d['cluster'], d['depth'] == 5 * d['helpers']" --tokens 4096 --heads 8 | tr -d "(),'")"
expect "kda, a ring" '{"route":"c4-m128","grid":64,"cluster":4,"owners":1,"helpers":3,"instances":12,"depth":15' \
    "$(kda --tokens 4096 --heads 16 --route c4-m128)"
expect "kda, a pair" '{"route":"m64","grid":128,"cluster":2,"owners":2,"helpers":0,"instances":4,"depth":0' \
    "$(kda --tokens 8192 --heads 64 --route m64)"
expect "kda, another GPU" '{"route":"m128","grid":8,"cluster":1,"owners":1,"helpers":0,"instances":2,"depth":0' \
    "$(kda --tokens 4096 --heads 8 --processors 78)"
expect "kda, packed" '{"route":"pair","grid":128,"cluster":2,"owners":2,"helpers":0,"instances":4,"depth":0' \
    "$(kda --tokens 4096 --heads 8 --packed 8)"
expect "kda, expected times of all" "True True m128" \
    "$(field "0 < d['expected_us'] < d['alternatives'][0]['expected_us'], len(d['alternatives']) > 6, d['alternatives'][0]['route']" \
        --tokens 4096 --heads 8 | tr -d "(),'")"
expect "kda, a ring's reason" "c8-m128 by name alone: for validation" \
    "$(field "' '.join(a['route'] + ' ' + a['why_not'] for a in d['alternatives'] if a['route'] == 'c8-m128')" --tokens 4096 --heads 8)"
expect "kda, a route without an expected time" "split-join by name alone: its time depends on the data None" \
    "$(field "' '.join(a['route'] + ' ' + a['why_not'] + ' ' + str(a['expected_us']) for a in d['alternatives'] if a['route'] == 'split-join')" \
        --tokens 8192 --heads 64 --allow-split)"
expect "kda, split allowed" "split m64 8 1 16 128 True" \
    "$(field "d['route'], d['serial'][3:], d['split_length'], d['split_window'], d['split_slots'], d['grid'], d['expected_us'] > 0" \
        --tokens 4096 --heads 8 --allow-split | tr -d "(),'")"
expect "kda, split where gates do not forget" "True 1 0" \
    "$(field "d['expected_us'] < d['uncut_us'], d['cluster'], d['depth']" --tokens 4096 --heads 8 --allow-split | tr -d "(),'")"
expect "kda, split named and pinned" "split 4 2 38 True" \
    "$(field "d['route'], d['split_length'], d['split_window'], d['split_slots'], d['workspace_bytes'] > 1310720" \
        --packed 6 --tokens 4096 --longest 3000 --heads 2 --route split --split-length 4 --split-window 2 | tr -d "(),'")"
expect "kda, a longer first segment" "50 75 21 50" \
    "$(field "d['split_first'], d['split_chunks'], d['split_slots'], d['split_first']" --tokens 4096 --heads 8 --processors 16 --route split \
        --split-length 4 --split-first 50 --split-window 1 | tr -d "(),'")"
expect "kda, nothing skipped" "split-join 0 True True" \
    "$(field "d['route'], d['split_window'], 50 < d['expected_us'] < 300, all(a['why_not'] for a in d['alternatives'])" \
        --tokens 16384 --heads 1 --allow-split --split-exact | tr -d "(),'")"
expect "kda, a split by name, nothing skipped" "split-join split named by the caller; split_exact: nothing is skipped" \
    "$(field "d['route'] + ' ' + d['reason']" --tokens 16384 --heads 1 --route split --split-exact)"
expect "kda, nothing skipped by a window" 2 \
    "$(code plan kda --tokens 16384 --heads 1 --route split --split-exact --split-window 3)"
expect "kda, not measured" "m128 not measured None" \
    "$(field "d['route'], d['reason'], d['expected_us']" --tokens 8 --heads 8 | tr -d "(),'")"
expect "kda, too many tasks for the split" "brim: error: kda: route split takes at most 256 tasks, not 300" \
    "$("$brim" plan kda --tokens 4096 --heads 300 --route split 2>&1)"
expect "kda, a window beyond its segment" 1 "$(code plan kda --tokens 4096 --heads 8 --route split --split-length 1 --split-window 2)"
expect "kda, lengths of no split" 2 "$(code plan kda --tokens 4096 --heads 8 --split-length 1)"
expect "kda, longest without packed" 2 "$(code plan kda --tokens 4096 --heads 8 --longest 64)"
expect "kda, longest below the mean" 2 "$(code plan kda --tokens 4096 --heads 8 --packed 2 --longest 64)"
expect "kda, threads of a CPU" '{"route":"cpu-chunk","grid":1,"cluster":2,"owners":2,"helpers":0,"instances":1,"depth":4' \
    "$(kda --device cpu --tokens 2048 --heads 1 --threads 2)"
expect "kda, a CPU with a thread a task" '{"route":"cpu-chunk","grid":8,"cluster":1,"owners":1,"helpers":0,"instances":1,"depth":0' \
    "$(kda --device cpu --tokens 2048 --heads 8 --threads 4)"
expect "kda, threads of a GPU" 2 "$(code plan kda --tokens 4096 --heads 8 --threads 2)"
expect "kda, processors of a CPU" 2 "$(code plan kda --device cpu --tokens 4096 --heads 8 --processors 132)"
expect "kda, a GPU's route on a CPU" 2 "$(code plan kda --device cpu --tokens 4096 --heads 8 --route m128)"
expect "exit code of a forced route" 0 "$(code plan kda --tokens 1 --heads 1 --route c4-m128)"
expect "exit code of an unknown route" 2 "$(code plan kda --tokens 1 --heads 1 --route m7)"
expect "exit code of more tokens than can be counted" 2 \
    "$(code plan kda --batch 1000000000 --tokens 1000000000000 --heads 1)"
# Products of what each option may be: exact, or refused as the operator refuses them.
for many in "--batch 1000000000" "--packed 1000000000" "--batch 1000000000 --device cpu"; do
    read -ra words <<<"$many"
    expect "kda, more tasks than can be counted, $many" "brim: error: kda: n_seq * n_value_head does not fit 31 bits" \
        "$("$brim" plan kda "${words[@]}" --heads 1000000 --tokens 64 2>&1)"
    expect "exit code of them, $many" 1 "$(code plan kda "${words[@]}" --heads 1000000 --tokens 64)"
done
expect "kda, more rows than memory" \
    "brim: error: kda: n_seq 1000000000, n_tok 1000000000 and n_value_head 2 reach beyond what memory can hold" \
    "$("$brim" plan kda --batch 1000000000 --tokens 1000000000 --heads 2 --allow-split 2>&1)"
expect "kda, more segments than a launch has" \
    "brim: error: kda: route split counts the CTAs of its launch in 31 bits, not 8000000000" \
    "$("$brim" plan kda --batch 256 --tokens 1000000000 --heads 1 --route split --split-length 1 2>&1)"
expect "kda, all that fits is exact" "2000000000 m128" \
    "$(field "d['grid'], d['route']" --packed 1000000000 --tokens 1000000000 --heads 2 --allow-split | tr -d "(),'")"
for processors in 0 -3 1000001 99999999999999999999; do
    expect "kda, $processors processors" "brim: error: --processors: $processors is outside 1 to 1000000" \
        "$("$brim" plan kda --tokens 4096 --heads 8 --processors=$processors 2>&1)"
done
expect "exit code without heads" 2 "$(code plan kda --tokens 1)"
expect "exit code of processors without the policy" 2 \
    "$(code plan split-k --rows 1 --inner 128 --outputs 1 --processors 132)"
expect "exit code of an unknown plan" 2 "$(code plan nonsense)"
expect "exit code of help" 0 "$(code plan --help)"
exit $failed
