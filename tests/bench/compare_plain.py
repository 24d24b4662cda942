# SPDX-License-Identifier: Apache-2.0
"""Does `gradmeter allreduce --algorithm mpi` measure what a plain C program measures for the same call? Launches both in
turn and prints the ratio of their medians for each size, with its interval over launches. Ends with 1 when a ratio is
beyond 10 %.

    compare_plain.py GRADMETER PLAIN_ALLREDUCE [--launches 5] [--ranks 2] [--sizes 8,65536,1048576] [--mpiexec mpirun]
"""
import argparse
import json
import statistics
import subprocess
import sys

ALLOWED = 0.10


def launch(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def plain_medians(o, size, iterations):
    out = launch([o.mpiexec, "-np", str(o.ranks), o.plain, str(iterations), str(o.discarded), str(size)])
    return float(out.split()[1])


def gradmeter_medians(o, size, iterations):
    out = launch([o.mpiexec, "-np", str(o.ranks), o.gradmeter, "allreduce", "--algorithm", "mpi", "--sizes", str(size),
                  "--in-place", "out", "--buffers", "plain", "-n", str(iterations), "-w", str(o.discarded), "--json"])
    points = [json.loads(line) for line in out.splitlines()]
    return next(p["metrics"]["time_s"]["median"] * 1e6 for p in points if p["kind"] == "point")


def iterations_for(size):
    """About a tenth of a second of calls, so that both have one block."""
    return max(20, min(1000, (64 << 20) // max(size, 1)))


def interval(ratios):
    """Of the median over launches: their whole range covers it with 1 - 2/2^n; 94 % at five."""
    return min(ratios), max(ratios), 1 - 2 / 2 ** len(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("plain")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default="8,1024,65536,1048576,16777216,67108864")
    parser.add_argument("--discarded", type=int, default=10)
    parser.add_argument("--mpiexec", default="mpirun")
    o = parser.parse_args()
    beyond = 0
    print(f"{'bytes':>10} {'plain us':>10} {'gradmeter us':>12} {'ratio':>7}  interval over {o.launches} launches")
    for size in map(int, o.sizes.split(",")):
        mine, theirs = [], []
        for number in range(o.launches):
            # Who begins alternates: a machine that drifts favours neither.
            first, second = ((plain_medians, theirs), (gradmeter_medians, mine))[:: 1 if number % 2 == 0 else -1]
            for measure, into in (first, second):
                into.append(measure(o, size, iterations_for(size)))
        ratio = statistics.median(mine) / statistics.median(theirs)
        low, high, covers = interval([a / b for a, b in zip(mine, theirs)])
        bad = not 1 / (1 + ALLOWED) <= ratio <= 1 + ALLOWED
        beyond += bad
        print(f"{size:>10} {statistics.median(theirs):>10.2f} {statistics.median(mine):>12.2f} {ratio:>7.3f}  "
              f"{low:.3f}-{high:.3f} ({covers:.0%}){'  beyond 10 %' if bad else ''}", flush=True)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
