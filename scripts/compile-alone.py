#!/usr/bin/env python3
"""Compiles every source of src/ by itself, without writing anything: a missing include, and a name that hides another,
go unseen where several sources are compiled as one unit. Fails when any source does not compile.
Usage: scripts/compile-alone.py [PRESET]      (default: alone; configured, not built)
"""
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


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    preset = sys.argv[1] if len(sys.argv) > 1 else "alone"
    commands = root / "build" / preset / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"compile-alone: build/{preset} is not configured; run: cmake --preset {preset}")
    entries = [e for e in json.loads(commands.read_text()) if pathlib.Path(e["file"]).is_relative_to(root / "src")]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        failed = sum(code != 0 for code in pool.map(compile_alone, entries))
    print(f"{len(entries)} sources compiled alone, {failed} failed")
    sys.exit(1 if failed or not entries else 0)


if __name__ == "__main__":
    main()
