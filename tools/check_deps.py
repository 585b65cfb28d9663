#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folder dependencies: every #include of a project header must follow an arrow declared here.

The table is the architecture. A folder may include itself, its own public headers under include/brim,
and what its row names; a row may name a folder or a single header. Cycles between folders are refused.
Libraries are held to the folders that wrap them.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder: what it may include (folders, or single headers that end in .h)
ARROWS = {
    "base": [],
    "plan": ["base"],
    "tensor": ["base"],
    "text": ["base"],
    "cpu": ["plan", "tensor", "base"],
    "cuda": ["plan", "tensor", "base"],
    "backend": ["cpu", "cuda", "plan", "tensor", "base"],
    "load": ["tensor", "text", "base", "model/config.h"],
    "model": ["backend/backend.h", "tensor", "base"],
    "run": ["model", "text", "load", "backend", "tensor", "plan", "base"],
}

# A header named alone in a row of ARROWS stands for a leaf: it may be included without an arrow to
# its folder, because it depends on nothing there.
LIBRARIES = {
    "jansson.h": {"load", "text"},
    "pcre2.h": {"text"},
    "utf8proc.h": {"text"},
    "cuda_runtime.h": {"cuda"},
    "cuda.h": {"cuda"},
    "cmocka.h": set(),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def sources(folder):
    for suffix in ("*.c", "*.h", "*.cu", "*.cuh"):
        yield from sorted(folder.rglob(suffix))


def main():
    errors = []
    edges = {folder: set() for folder in ARROWS}
    for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()):
        name = folder.name
        if name not in ARROWS:
            errors.append(f"src/{name}: no row in {pathlib.Path(__file__).name}")
            continue
        for path in sources(folder):
            where = path.relative_to(ROOT)
            for number, kind, target in includes(path):
                at = f"{where}:{number}"
                if kind == "<":
                    library = target.split("/")[-1]
                    if library in LIBRARIES and name not in LIBRARIES[library]:
                        errors.append(f"{at}: only {sorted(LIBRARIES[library]) or 'tests'} may include <{target}>")
                    continue
                if target.startswith("brim/"):
                    if not (ROOT / "include" / target).exists():
                        errors.append(f"{at}: {target} does not exist")
                    continue
                if "/" not in target:
                    if not (path.parent / target).exists() and not (folder / target).exists():
                        errors.append(f"{at}: \"{target}\" is not beside the file")
                    continue
                if target.startswith("../"):
                    errors.append(f"{at}: include from src, not by ..")
                    continue
                other = target.split("/")[0]
                if not (ROOT / "src" / target).exists():
                    if not (path.parent / target).exists():
                        errors.append(f"{at}: {target} does not exist")
                elif other != name:
                    if target in ARROWS[name]:
                        continue
                    if other not in ARROWS[name]:
                        errors.append(f"{at}: src/{name} may not include {target}")
                    edges[name].add(other)

    # Public headers include the standard library and each other.
    for path in sources(ROOT / "include"):
        for number, kind, target in includes(path):
            if kind == '"' and not target.startswith("brim/"):
                errors.append(f"{path.relative_to(ROOT)}:{number}: public headers include only brim/*.h")

    # Programs see the public interface and their own headers, nothing of src.
    for program in ("app", "examples"):
        for path in sources(ROOT / program):
            for number, kind, target in includes(path):
                if kind != '"' or target.startswith("brim/") or (path.parent / target).exists():
                    continue
                errors.append(f"{path.relative_to(ROOT)}:{number}: {program}/ sees include/brim only, not {target}")

    # Cycles between folders, over what is really included.
    state = {}

    def visit(folder, trail):
        if state.get(folder) == "done":
            return
        if folder in trail:
            errors.append("cycle: " + " -> ".join(trail[trail.index(folder):] + [folder]))
            return
        for other in sorted(edges.get(folder, ())):
            visit(other, trail + [folder])
        state[folder] = "done"

    for folder in edges:
        visit(folder, [])

    for error in errors:
        print(f"error: {error}")
    return 1 if errors else 0


sys.exit(main())
