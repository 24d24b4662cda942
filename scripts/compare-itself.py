#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a program against itself: launches of the same commands go to two sides, and `gradmeter compare` should find no
difference. The share of points that it calls different nevertheless is its rate of false alarms on this machine as it is now.
Then every time of the second side is made longer in a copy of its file, and the sides are compared again: no point of it may
be called the same.

    compare-itself.py GRADMETER [--launches 5] [--comparisons 3] [--slower 1.1] [--label quiet] [-- COMMAND ...]

COMMAND is one of gradmeter with its flags, without --out: allreduce --thread-ranks 2 --sizes 1M. Without it all-reduces of two
ranks of threads and small kernels are measured, about 12 s a launch. Prints a table of Markdown with one row. Exit status 0: no
slowed point was called the same; 1: one was, or nothing was compared; 2: the arguments are wrong, or a command failed.
"""
import argparse
import collections
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

DEFAULTS = (
    ["allreduce", "--thread-ranks", "2", "--sizes", "1K,16K,128K,1M,8M", "--algorithm", "ring,direct,recursive-doubling",
     "--time-budget", "5s"],
    ["kernels", "--op", "gemm", "--filter", "n=16", "--set", "training", "--cache", "hot,cold", "--time-budget", "6s"],
)
TIMES = ("median", "q1", "q3", "ci95_low", "ci95_high", "p95", "p99", "min", "max")  # of a summary; n is no time
LAUNCH_LIMIT_S = 900


def refuse(why):
    print(f"compare-itself: {why}", file=sys.stderr)
    sys.exit(2)


def output_of(command, limit_s):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        refuse(f"{' '.join(map(str, command))} took over {limit_s} s; give it a shorter --time-budget")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed no error"])[-1]
        refuse(f"{' '.join(map(str, command))} ended with {done.returncode}: {last}")
    return done.stdout


def measure(o, commands, sides):
    """Launches go to a b b a a b b a ..., so that a drift of the machine meets both sides alike."""
    for turn in range(2 * o.launches):
        out = sides[(0, 1, 1, 0)[turn % 4]]
        for command in commands:
            output_of([o.gradmeter, *command, "--out", out, "--append"], LAUNCH_LIMIT_S)
        print(f"launch {turn + 1} of {2 * o.launches}", file=sys.stderr, flush=True)


def slowed(path, factor):
    """A copy of a result file in which every time is longer by the factor, and every run another one: compare refuses a
    launch that is on both sides."""
    copy = path.with_suffix(".slowed.jsonl")
    with path.open(encoding="utf-8") as lines, copy.open("w", encoding="utf-8") as to:
        for record in map(json.loads, lines):
            record["run_id"] += "-slowed"
            time = (record.get("metrics") or {}).get("time_s")
            if isinstance(time, dict):
                time.update({key: time[key] * factor for key in TIMES if time.get(key) is not None})
            elif time is not None:
                record["metrics"]["time_s"] = time * factor
            to.write(json.dumps(record) + "\n")
    return copy


def verdicts(gradmeter, a, b):
    rows = csv.DictReader(io.StringIO(output_of([gradmeter, "compare", a, b, "--csv", "-"], 60)))
    return collections.Counter(row["verdict"] for row in rows if row["verdict"] != "missing")  # a side has no launch of it


def table(label, equal, slower):
    points = sum(equal.values())
    different = equal["faster"] + equal["slower"]
    return "\n".join((
        "| machine | points | called different | same | undecided | slowed: slower | undecided | same | faster |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| {label} | {points} | {different} ({100 * different / max(1, points):.1f} %) | {equal['same']} | {equal['undecided']} "
        f"| {slower['slower']} | {slower['undecided']} | {slower['same']} | {slower['faster']} |"))


def arguments():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--launches", type=int, default=5, help="of each side (5)")
    parser.add_argument("--comparisons", type=int, default=3, help="each of launches of its own (3)")
    parser.add_argument("--slower", type=float, default=1.1, help="by which factor the copy is slower (1.1)")
    parser.add_argument("--label", default="as it is", help="what the row says of the machine: quiet, a build beside it, ...")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder for the result files; without it they are removed")
    o = parser.parse_args(sys.argv[1:split])
    if not shutil.which(o.gradmeter):
        refuse(f"'{o.gradmeter}' is not a program; name the gradmeter that is to be compared with itself")
    if o.launches < 1 or o.comparisons < 1 or o.slower <= 1:
        refuse("--launches and --comparisons are counts from 1, and --slower is above 1")
    if o.keep and o.keep.exists():
        refuse(f"'{o.keep}' exists; its launches would be counted with these, so name a new folder")
    return o, sys.argv[split + 1:]


def main():
    o, command = arguments()
    o.gradmeter = os.path.abspath(shutil.which(o.gradmeter))
    equal, slower = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory(prefix="gradmeter-compare-") as scratch:
        folder = o.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for comparison in range(o.comparisons):
            sides = [folder / f"{comparison + 1}-{side}.jsonl" for side in "ab"]
            measure(o, [command] if command else DEFAULTS, sides)
            equal += verdicts(o.gradmeter, *sides)
            slower += verdicts(o.gradmeter, sides[0], slowed(sides[1], o.slower))
    print(table(o.label, equal, slower))
    sys.exit(1 if slower["same"] or not equal else 0)


if __name__ == "__main__":
    main()
