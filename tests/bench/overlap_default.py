# SPDX-License-Identifier: Apache-2.0
"""Does the default of --overlap cost more than none? Launches `gradmeter scale` with the default and with
--overlap none in turn, on as many cores as ranks and with a spare core for each rank, and prints for each batch the
ratio of the launches' medians with its 95 % interval (Welch on logarithms). Ends with 1 where its upper end is beyond
1.02 and with 2 where nothing could be run.

    overlap_default.py GRADMETER [--launches 10] [--ranks 2] [--batch 16,256] [--time-budget 10s] [--algorithm auto]
                       [--mpiexec mpirun]
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ALLOWED = 1.02


def student_975(freedom):
    """The 97.5 % quantile of Student's t, by the Cornish-Fisher expansion around the normal's; freedom from 3 on."""
    z = 1.959964
    g = [(z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384]
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(g))


def ratio_interval(mine, theirs):
    """(ratio, low, high) of geometric means."""
    a, b = ([math.log(x) for x in xs] for xs in (mine, theirs))
    va, vb = (statistics.variance(x) / len(x) for x in (a, b))
    difference, error = statistics.mean(a) - statistics.mean(b), math.sqrt(va + vb)
    if error == 0:
        return (math.exp(difference),) * 3
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = student_975(max(3, freedom)) * error
    return math.exp(difference), math.exp(difference - half), math.exp(difference + half)


def step_times(o, cores, flags):
    """(what overlap came to, median [s]) by batch, of one launch on these cores, one compute thread a rank."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "r.jsonl"
        command = ["taskset", "-c", ",".join(map(str, cores)), o.mpiexec, "--bind-to", "none", "-np", str(o.ranks),
                   o.gradmeter, "scale", "--ranks", str(o.ranks), "--strategy", "sync", "--algorithm", o.algorithm,
                   "--batch", o.batch, "--threads", "1", "--time-budget", o.time_budget, "--out", str(out), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
        points = [row for row in map(json.loads, out.read_text().splitlines()) if row["kind"] == "point"]
    rows = [p for p in points if p["factors"]["strategy"] == "sync" and p["factors"]["ranks"] == o.ranks]
    return {p["factors"]["batch_per_rank"]: (p["factors"]["overlap"], p["metrics"]["time_s"]["median"]) for p in rows}


def compare(o, cores):
    """Prints a line for each batch; how many are beyond what is allowed."""
    kinds = {"default": [], "none": ["--overlap", "none"]}
    times = {kind: {} for kind in kinds}
    resolved = set()
    for number in range(o.launches):
        # Who begins alternates: a machine that drifts favours neither.
        for kind in list(kinds)[:: 1 if number % 2 == 0 else -1]:
            for batch, (overlap, seconds) in step_times(o, cores, kinds[kind]).items():
                times[kind].setdefault(batch, []).append(seconds)
                if kind == "default":
                    resolved.add(overlap)
    beyond = 0
    for batch, mine in sorted(times["default"].items()):
        theirs = times["none"][batch]
        ratio, low, high = ratio_interval(mine, theirs)
        beyond += high > ALLOWED
        print(f"{o.ranks} ranks on {len(cores)} cores, batch {batch}: default ({', '.join(sorted(resolved))}) "
              f"{statistics.median(mine) * 1e3:.3f} ms, none {statistics.median(theirs) * 1e3:.3f} ms, ratio {ratio:.3f} "
              f"[{low:.3f}, {high:.3f}] over {len(mine)} launches{'  beyond 1.02' if high > ALLOWED else ''}", flush=True)
    return beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", default="16,256")
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--time-budget", default="10s")
    parser.add_argument("--mpiexec", default="mpirun")
    o = parser.parse_args()
    if o.launches < 3 or o.ranks < 2:
        parser.error("an interval needs three launches, and an exchange two ranks")
    usable = sorted(os.sched_getaffinity(0))
    beyond = ran = 0
    for wanted in (o.ranks, 2 * o.ranks):
        if wanted > len(usable):
            print(f"{o.ranks} ranks on {wanted} cores: not run, {len(usable)} cores are usable here", flush=True)
            continue
        ran += 1
        beyond += compare(o, usable[:wanted])
    sys.exit(2 if not ran else 1 if beyond else 0)


if __name__ == "__main__":
    main()
