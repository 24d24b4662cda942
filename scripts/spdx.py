#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that source files name their licence (https://spdx.dev/learn/handling-license-info/), or writes the line.

Usage: scripts/spdx.py [--write] [PATH...]     PATH: files or folders, by default the whole tree
Exit status 1: files lack the line, which are listed (without --write). Data, documents, fragments (.inc) and texts that
the program embeds have none.
"""
import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {"//": (".c", ".cpp", ".hpp", ".cu", ".cuh"), "#": (".py", ".sh", ".cmake", ".def")}
NAMES = {"CMakeLists.txt": "#"}


def comment_of(path):
    """How a comment begins in this file; None for a file that gets no line."""
    if path.name in NAMES:
        return NAMES[path.name]
    for mark, suffixes in COMMENTS.items():
        if path.suffix in suffixes:
            return mark
    if path.suffix == "":
        with open(path, "rb") as file:
            return "#" if file.read(2) == b"#!" else None
    return None


def sources():
    """Every file of the tree: those that git would commit; of an unpacked tarball all outside build/."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True, check=False) if (ROOT / ".git").exists() else None
    if listed and listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [p for p in ROOT.rglob("*") if p.relative_to(ROOT).parts[0] != "build"]
    return sorted(p for p in found if p.is_file() and not p.is_symlink())


def has_line(path, mark):
    with open(path, encoding="utf-8") as file:
        first, second = file.readline().rstrip("\n"), file.readline().rstrip("\n")
    return f"{mark} {LINE}" in ((first, second) if first.startswith("#!") else (first,))


def write_line(path, mark):
    """As the first line, or below the one that names the interpreter."""
    text = path.read_text(encoding="utf-8")
    at = text.index("\n") + 1 if text.startswith("#!") else 0
    path.write_text(f"{text[:at]}{mark} {LINE}\n{text[at:]}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="add the line where it lacks")
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    wanted = [p.resolve() for p in options.paths] or [ROOT]
    lacking = 0
    for path in sources():
        mark = comment_of(path)
        if mark is None or not any(path == w or w in path.parents for w in wanted) or has_line(path, mark):
            continue
        lacking += 1
        if options.write:
            write_line(path, mark)
        print(f"{path.relative_to(ROOT)}: {'written' if options.write else 'no line ' + repr(LINE)}")
    return 1 if lacking and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
