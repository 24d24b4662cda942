#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how finely src is cut: files, lines, named types, functions.

  scripts/tree-figures.py [FOLDER ...]

Without folders: src. Needs universal-ctags. Lines are all lines, comments and empty ones too. Types are classes,
structs, enumerations and concepts with a name; functions are those with a body.
"""
import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = {".cpp", ".hpp", ".cu", ".cuh"}
SMALL = 50  # lines


def tags(files):
    """Every definition that ctags finds, as a dictionary."""
    command = ["ctags", "--output-format=json", "--kinds-C++=fcsg", "--fields=+ne", "--fields-C++=+{properties}",
               "--language-force=C++", "-f", "-", "-L", "-"]
    out = subprocess.run(command, input="\n".join(map(str, files)), capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def main():
    about = subprocess.run(["ctags", "--version"], capture_output=True, text=True).stdout if shutil.which("ctags") else ""
    if "Universal Ctags" not in about:
        sys.exit("tree-figures.py: universal-ctags is missing; install it, as with: apt-get install universal-ctags")
    folders = [Path(a) for a in sys.argv[1:]] or [ROOT / "src"]
    files = sorted(f for folder in folders for f in folder.rglob("*") if f.suffix in KINDS)
    if not files:
        sys.exit("tree-figures.py: no C++ or CUDA files in " + ", ".join(map(str, folders)))
    texts = [f.read_text(encoding="utf-8") for f in files]
    lines = [len(t.splitlines()) for t in texts]
    found = tags(files)
    # ctags calls a type without a name __anon and a number.
    named = [t for t in found if t["kind"] in ("class", "struct", "enum") and not t["name"].startswith("__anon")]
    concepts = sum(len(re.findall(r"^\s*concept\s+\w+\s*=", t, re.MULTILINE)) for t in texts)
    functions = [t["end"] - t["line"] + 1 for t in found if t["kind"] == "function" and "end" in t]
    types = len(named) + concepts
    total = sum(lines)
    for what, value in [
        ("C++ and CUDA files", f"{len(files):,}"),
        ("lines", f"{total:,}"),
        ("lines a file, median", f"{statistics.median(lines):.0f}"),
        (f"files under {SMALL} lines", f"{sum(n < SMALL for n in lines):,}"),
        ("named types", f"{types:,}"),
        ("lines a type", f"{total / types:.0f}" if types else "-"),
        ("functions with a body", f"{len(functions):,}"),
        ("lines a function, mean", f"{statistics.mean(functions):.1f}" if functions else "-"),
        ("lines a function, median", f"{statistics.median(functions):.0f}" if functions else "-"),
    ]:
        print(f"{what:26} {value:>8}")


if __name__ == "__main__":
    main()
