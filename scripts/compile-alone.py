#!/usr/bin/env python3
"""Compiles every source of src/ and tests/ by itself, without writing anything: a missing include, and a name that hides another,
go unseen where several sources are compiled as one unit. Fails when any source does not compile.
Needs the preset alone, configured and not built.

    scripts/compile-alone.py [--recent COMMITS]     only sources that the last so many commits changed, as CI does
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def compile_alone(entry):
    command = shlex.split(entry["command"])
    at = command.index("-o")
    del command[at : at + 2]
    return subprocess.run([*command, "-fsyntax-only", "-Werror"], cwd=entry["directory"], check=False).returncode


def changed_recently(root, commits):
    """None where there is no history."""
    log = subprocess.run(["git", "-C", root, "log", f"-{commits}", "--name-only", "--format="], check=False,
                         capture_output=True, text=True)
    return {root / name for name in log.stdout.split()} if log.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recent", type=int, metavar="COMMITS")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    commands = root / "build" / "alone" / "compile_commands.json"
    if not commands.exists():
        sys.exit("compile-alone: build/alone is not configured; run: cmake --preset alone")
    entries = [e for e in json.loads(commands.read_text()) if pathlib.Path(e["file"]).is_relative_to(root)
               and not pathlib.Path(e["file"]).is_relative_to(root / "build")]
    changed = changed_recently(root, arguments.recent) if arguments.recent else None
    if changed is not None:
        entries = [e for e in entries if pathlib.Path(e["file"]) in changed]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        failed = sum(code != 0 for code in pool.map(compile_alone, entries))
    print(f"{len(entries)} sources compiled alone, {failed} failed")
    sys.exit(1 if failed or not (entries or changed) else 0)


if __name__ == "__main__":
    main()
