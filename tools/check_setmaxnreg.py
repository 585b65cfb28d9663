#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registers after setmaxnreg.dec, in machine code.

    cuobjdump -sass OBJECT | tools/check_setmaxnreg.py

For each instruction that gives registers up: does anything that can run after it, up to an instruction that takes
them back, name a register beyond what is left? A warp that does reads and writes another's. One line each; exits with 1
if one does, with 2 if the text has none. Follows branches, calls and reconvergence points; an indirect branch is an error.
"""
import re
import sys


def functions(lines):
    name, code = None, []
    for line in lines:
        if found := re.search(r"Function : (\S+)", line):
            if name:
                yield name, code
            name, code = found[1], []
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);\s*/\*", line):
            code.append((int(found[1], 16), found[2]))
    if name:
        yield name, code


def last_register(text):
    """The highest register an instruction names; wide operands are counted from their first."""
    numbers = [int(n) for n in re.findall(r"(?<![A-Z])R(\d+)\b", text)]
    if not numbers:
        return -1
    return max(numbers) + (3 if ".128" in text else 1 if ".64" in text or ".WIDE" in text else 0)


def successors(code, at, i):
    text = re.sub(r"^@!?U?P\w+ ", "", code[i][1])
    name = text.split()[0]
    if name.startswith(("BRX", "JMX", "CALL.ABS")):
        raise SystemExit(f"an indirect branch: {code[i][1]}")
    if name.startswith(("BRA", "BSSY", "CALL", "WARPSYNC", "BREAK")):
        yield from (at[a] for a in (int(x, 16) for x in re.findall(r"0x([0-9a-f]+)", text)) if a in at)
    always = not code[i][1].startswith("@") and not re.match(r"BRA(\.\w+)* !?U?P\d", text)
    if not (always and name.startswith(("EXIT", "RET", "BRA"))) and i + 1 < len(code):
        yield i + 1


def main():
    n_place = n_bad = 0
    for name, code in functions(sys.stdin):
        at = {address: i for i, (address, _) in enumerate(code)}
        for i, (address, text) in enumerate(code):
            if not (found := re.search(r"USETMAXREG\.DEALLOC\S* 0x([0-9a-f]+)", text)):
                continue
            budget, seen, ahead = int(found[1], 16), set(), list(successors(code, at, i))
            while ahead:
                j = ahead.pop()
                if j in seen or "USETMAXREG.TRY_ALLOC" in code[j][1]:
                    continue
                seen.add(j)
                ahead += successors(code, at, j)
            beyond = [code[j] for j in sorted(seen) if last_register(code[j][1]) >= budget]
            highest = max((last_register(code[j][1]) for j in seen), default=-1)
            print(f"{name} at {address:#x}: {budget} registers, {len(seen)} instructions, the highest is R{highest}")
            for a, bad in beyond[:5]:
                print(f"    beyond: {a:#x} {bad}")
            n_place, n_bad = n_place + 1, n_bad + bool(beyond)
    if not n_place:
        print("no setmaxnreg.dec in this text")
    return 2 if not n_place else n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
