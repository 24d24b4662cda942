#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is a newer build slower? Launches the programs of two builds in turn and prints, for each figure, the median over
launches of both and the ratio of the medians with its 95 % interval (bootstrap over launches): what the executor costs
a step, a training step's time outside kernels, kernel cases relative to the bare primitive of the same launch
(tests/bench), all-reduces relative to MPI_Allreduce of the same launch, and steps of layer tables. Give the same folder twice for an A/A run:
its intervals say what the machine can tell apart.

    compare-speed.py OLD NEW [--launches 15] [--only executor harness kernels allreduce tables] [--ranks 2] [--mpiexec mpirun]

OLD and NEW are folders with gradmeter, bench_executor, bench_harness and bench_kernels, or those that --only needs.
12 launches of executor, harness and allreduce took 11 minutes on 2 cores.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

SIZES = "8,4096,65536,1048576,16777216,67108864"
ALGORITHMS = "mpi,ring,recursive-doubling,shm-direct"
TABLES = "alexnet,resnet50,dlbench_ffn,ptb_lstm_small"


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def executor(folder, o):
    """(algorithm, transport, ranks) -> ns a step."""
    rows = [line.split() for line in output([o.mpiexec, "-np", str(o.ranks), folder / "bench_executor"]).splitlines()[1:]]
    return {f"executor {row[0]} {row[1]} {row[2]} ranks [ns/step]": float(row[3]) for row in rows}


def harness(folder, _):
    rows = [line.split() for line in output([folder / "bench_harness", "16", "256"]).splitlines()]
    rows = [row for row in rows if row and row[0].isdigit()]
    return {f"step outside kernels, batch {row[0]} [us]": float(row[5]) for row in rows} | {
        f"step, batch {row[0]} [us]": float(row[1]) * 1e3 for row in rows}


def kernels(folder, _):
    """Of each case, and of all: the geometric mean."""
    lines = output([folder / "bench_kernels", "1", "overheads"]).splitlines()
    ratio = {m[1]: float(m[2]) for m in (re.match(r"(.*?): .*; bare .*; ratio ([\d.]+)", line) for line in lines) if m}
    ratio["all cases"] = statistics.geometric_mean(ratio.values())
    return {f"kernel/bare, {name}": value for name, value in ratio.items()}


def all_reduce(folder, o):
    lines = output([o.mpiexec, "-np", str(o.ranks), folder / "gradmeter", "allreduce", "--algorithm", ALGORITHMS,
                    "--sizes", SIZES, "--in-place", "in", "--time-budget", "10s", "--json"]).splitlines()
    points = [p for p in map(json.loads, lines) if p["kind"] == "point" and p["status"] == "ok"]
    time = {(p["factors"]["algorithm"], p["factors"]["size_bytes"]): p["metrics"]["time_s"]["median"] for p in points}
    return {f"{algorithm}/mpi, {size} B": seconds / time["mpi", size]
            for (algorithm, size), seconds in time.items() if algorithm != "mpi"}


def tables(folder, _):
    """A step of published networks on one rank, at their full widths."""
    with tempfile.TemporaryDirectory() as work:
        file = pathlib.Path(work, "r.jsonl")
        output([folder / "gradmeter", "scale", "--model", TABLES, "--batch", "4", "--strategy", "independent",
                "--time-budget", "20s", "--out", file])
        points = [p for p in map(json.loads, file.read_text().splitlines()) if p["kind"] == "point" and p["status"] == "ok"]
    return {f"step of {p['factors']['model']} [ms]": p["metrics"]["time_s"]["median"] * 1e3 for p in points}


MEASURES = {"executor": executor, "harness": harness, "kernels": kernels, "allreduce": all_reduce, "tables": tables}


def ratio_interval(old, new, draws=2000):
    """(ratio of medians, low, high)."""
    random.seed(1)
    drawn = sorted(statistics.median(random.choices(new, k=len(new))) / statistics.median(random.choices(old, k=len(old)))
                   for _ in range(draws))
    return statistics.median(new) / statistics.median(old), drawn[draws // 40], drawn[-draws // 40 - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--launches", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), metavar="PART")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mpiexec", default="mpirun")
    o = parser.parse_args()
    seen = ({}, {})
    for number in range(o.launches):
        # Who begins alternates: a machine that drifts favours neither.
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            for part in o.only:
                for name, value in MEASURES[part]((o.old, o.new)[side], o).items():
                    seen[side].setdefault(name, []).append(value)
        print(f"launch {number + 1} of {o.launches}", file=sys.stderr, flush=True)
    print(f"{'figure':<56} {'old':>9} {'new':>9} {'new/old':>8}  95 % interval over {o.launches} launches")
    for name in [n for n in seen[0] if n in seen[1]]:
        ratio, low, high = ratio_interval(seen[0][name], seen[1][name])
        verdict = "slower" if low > 1 else "faster" if high < 1 else "no difference"
        print(f"{name:<56} {statistics.median(seen[0][name]):>9.4g} {statistics.median(seen[1][name]):>9.4g} "
              f"{ratio:>8.3f}  {low:.3f}-{high:.3f}  {verdict}")


if __name__ == "__main__":
    main()
