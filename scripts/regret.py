#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far `auto` is from the best algorithm: its regret, time of auto / time of the best - 1, for each collective, kind of buffers,
transport and size.

Each launch measures all algorithms and `auto` in turns. The best of a cell is chosen on the first launches, by its largest ratio to
the fastest of the same launch; both are timed on the others, so an algorithm that was lucky when it was chosen has no advantage.
`--transport auto` may take any algorithm; so its best is the best over both transports. The interval of a cell reaches from its least
to its largest regret in the launches that time it. A negative regret says that the best was not found; at the median it counts as 0.
Exit status 1 where a bar is missed: 5 % at the median of all cells, no cell whose interval lies above 15 %, none where auto is slower
than MPI in all of these launches by over 15 %, none without a row of auto. Cells whose median is above 15 % are named too.

usage: scripts/regret.py GRADMETER [--launches 5] [--choose 2] [--ranks 2] [--collectives allreduce] [--buffers arena,plain,malloc]
                         [--sizes 8,512,...] [--seconds 60] [--keep FOLDER] [--report-only]
As root or with more ranks than cores:  . scripts/environment.sh  first.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

MEDIAN_BAR, CELL_BAR = 0.05, 0.15
TRANSPORTS = {"auto": ("shm", "mpi"), "mpi": ("mpi",)}  # what each may take


def rows_of(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "point" and row["status"] == "ok":
            yield row


def key_of(row):
    """The algorithm and its transport; None for auto's transport."""
    f = row["factors"]
    return f["algorithm"], f.get("transport")


def launch(options, collective, buffers, out):
    command = [options.mpiexec, "-np", str(options.ranks), options.gradmeter, "allreduce", "--collective", collective,
               "--buffers", buffers, "--transport", "auto,mpi", "--algorithm", "all,auto", "--sizes", options.sizes,
               "--in-place", "in", "--time-budget", f"{options.seconds}s", "--out", str(out), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def cells_of(launches):
    """{(buffers, collective, size): [{(algorithm, transport): seconds} of each launch]}"""
    cells = {}
    for number, paths in enumerate(launches):
        for path in paths:
            for row in rows_of(path):
                f = row["factors"]
                cell = cells.setdefault((f["buffers"], f["collective"], f["size_bytes"]), [{} for _ in launches])
                cell[number][key_of(row)] = row["metrics"]["time_s"]["median"]
    return cells


def judge(times, choose, transport):
    """The regret of auto over this transport: the best, what MPI's time is beside auto's, and the regret in each launch that times."""
    allowed = TRANSPORTS[transport]
    served = {k for t in times for k in t if k[0] != "auto" and (k[1] is None or k[1] in allowed)}
    candidates = {k for k in served if all(k in one for one in times)}
    # Where buffers are private and sent as messages, auto's transport is mpi: then both transports have the same row.
    auto = next((k for t in allowed for k in times[0] if k[0] == "auto" and k[1] == t and all(k in one for one in times)), None)
    if not candidates:
        return None
    if auto is None:
        return {}
    best = min(candidates, key=lambda k: max(t[k] / min(t[c] for c in candidates) for t in times[:choose]))
    timed = times[choose:]
    mpi = [t[auto] / t[k] - 1 for t in timed for k in t if k[0] == "mpi"]
    return {"best": best, "auto_s": statistics.median(t[auto] for t in timed), "best_s": statistics.median(t[best] for t in timed),
            "regrets": [t[auto] / t[best] - 1 for t in timed], "beside_mpi": mpi, "left_out": len(served - candidates)}


def report(options, cells):
    worst, medians, failures, wide, left_out = [], [], [], [], 0
    print(f"{'buffers':8} {'collective':15} {'transport':9} {'bytes':>10} {'auto us':>10} {'best us':>10}  {'regret, interval':24} best")
    for (buffers, collective, size), times in sorted(cells.items(), key=lambda c: (c[0][1], c[0][0], c[0][2])):
        for transport in TRANSPORTS:
            found = judge(times, options.choose, transport)
            if found is None:
                continue
            if not found:
                failures.append(f"{buffers} {collective} {transport} {size}: auto has no row in every launch")
                continue
            regret, low, high = statistics.median(found["regrets"]), min(found["regrets"]), max(found["regrets"])
            medians.append(max(0.0, regret))
            name = f"{buffers} {collective} {transport} {size}"
            if low > CELL_BAR:
                failures.append(f"{name}: auto takes {100 * low:.0f} % longer at least than {'/'.join(k for k in found['best'] if k)}")
            elif regret > CELL_BAR:
                wide.append(f"{name}: {100 * regret:.0f} %, at least {100 * low:.0f}")
            if found["beside_mpi"] and min(found["beside_mpi"]) > CELL_BAR:
                failures.append(f"{name}: auto is slower than MPI, by {100 * min(found['beside_mpi']):.0f} % at least")
            worst.append(low)
            left_out += found["left_out"]
            print(f"{buffers:8} {collective:15} {transport:9} {size:10} {1e6 * found['auto_s']:10.2f} {1e6 * found['best_s']:10.2f}  "
                  f"{100 * regret:6.1f} % ({100 * low:.1f} to {100 * high:.1f})".ljust(92) + "/".join(k for k in found["best"] if k))
    if not medians and not failures:
        sys.exit("regret: no cell has auto and another algorithm in every launch; was there time for all points?")
    middle = statistics.median(medians or [0.0])
    if middle > MEDIAN_BAR:
        failures.append(f"the median regret is {100 * middle:.1f} %")
    print(f"{len(medians)} cells on {options.ranks} ranks: median regret {100 * middle:.1f} % (bar {100 * MEDIAN_BAR:.0f}), "
          f"{sum(w > CELL_BAR for w in worst)} cells above {100 * CELL_BAR:.0f} % in all of {options.launches - options.choose} launches"
          + (f"; {left_out} times an algorithm was left out, since a launch lacks it" if left_out else ""))
    for line in wide:
        print(f"above {100 * CELL_BAR:.0f} % at its median, not in all launches: {line}")
    for line in failures:
        print(f"missed: {line}")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--choose", type=int, default=2, help="launches on which the best is chosen")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--collectives", default="allreduce")
    parser.add_argument("--buffers", default="arena,plain,malloc")
    parser.add_argument("--sizes", default="8,512,4K,16K,64K,256K,1M,4M,16M,64M")
    parser.add_argument("--seconds", type=int, default=60, help="of one sweep: a collective with a kind of buffers")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the result files; those that are there are not measured again")
    parser.add_argument("--report-only", action="store_true", help="exit status 0 although a bar is missed: oversubscribed ranks, or CI")
    options = parser.parse_args()
    if not 0 < options.choose < options.launches:
        parser.error("--choose must be less than --launches: the others time what these have chosen")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        launches = []
        for number in range(options.launches):
            launches.append([])
            for collective in options.collectives.split(","):
                for buffers in options.buffers.split(","):
                    out = folder / f"{collective}-{buffers}-{number}.jsonl"
                    if not out.exists():
                        print(f"launch {number + 1} of {options.launches}: {collective}, {buffers}", file=sys.stderr, flush=True)
                        launch(options, collective, buffers, out)
                    launches[-1].append(out)
        code = report(options, cells_of(launches))
    sys.exit(0 if options.report_only else code)


if __name__ == "__main__":
    main()
