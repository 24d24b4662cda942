#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far `auto` is from the best algorithm: its regret, time of auto / time of the best - 1, for each collective, kind of buffers,
transport and size.

Each launch measures all algorithms and `auto` in turns. The best of a cell is chosen on the first launches, by its largest ratio to
the fastest of the same launch; both are timed on the others, so an algorithm that was lucky when it was chosen has no advantage.
`--transport auto` may take any algorithm; so its best is the best over both transports. The interval of a cell reaches from its least
to its largest regret in the launches that time it. A negative regret says that the best was not found; at the median it counts as 0.
Where auto took the best algorithm itself, no choice could be better: what is above 15 % there is named, and no miss.
Exit status 1 where a bar is missed: 5 % at the median of all cells, no cell whose interval lies above 15 %, none where auto is slower
than MPI in all of these launches by over 15 %, none without a row of auto. Cells whose median is above 15 % are named too.

With --tune 5s each launch is followed by one with --tune-auto 5s, which tunes anew: the tables of one launch serve no other, nor
does the user's cache. The regret of the tuned auto is judged in the same way among these launches, and printed second, with what
tuning has gained. Only the shipped tables decide the exit status.

usage: scripts/regret.py GRADMETER [--launches 5] [--choose 2] [--ranks 2] [--collectives allreduce] [--buffers arena,plain,malloc]
                         [--sizes 8,512,...] [--seconds 60] [--tune 5s] [--keep FOLDER] [--report-only]
As root or with more ranks than cores:  . scripts/environment.sh  first.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import typing

MEDIAN_BAR, CELL_BAR = 0.05, 0.15
TRANSPORTS = {"auto": ("shm", "mpi"), "mpi": ("mpi",)}  # what each may take


def rows_of(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "point" and row["status"] == "ok":
            yield row


class Timed(typing.NamedTuple):
    seconds: float
    took: str | None  # the algorithm that auto chose


def key_of(row):
    """The algorithm and its transport; None for auto's transport."""
    f = row["factors"]
    return f["algorithm"], f.get("transport")


def launch(options, collective, buffers, out, tune=None):
    """tune: the time of --tune-auto. A launch that fails or is cut off leaves no file of the name `out`."""
    part = out.with_suffix(".part.jsonl")
    command = [options.mpiexec, "-np", str(options.ranks), options.gradmeter, "allreduce", "--collective", collective,
               "--buffers", buffers, "--transport", "auto,mpi", "--algorithm", "all,auto", "--sizes", options.sizes,
               "--in-place", "in", "--time-budget", f"{options.seconds}s", "--out", str(part), "--force"] + (["--tune-auto", tune] if tune else [])
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"XDG_CACHE_HOME": cache})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    part.replace(out)


def check_ranks(options, path):
    """A file that was kept is of as many ranks as this call asks for, or it answers another question."""
    others = {row["factors"].get("ranks") for row in rows_of(path)} - {options.ranks}
    if others:
        sys.exit(f"regret: {path} has rows of {', '.join(map(str, others))} ranks, not of {options.ranks}: give another --keep FOLDER or --ranks")


def cells_of(launches):
    """{(buffers, collective, size): [{(algorithm, transport): Timed} of each launch]}"""
    cells = {}
    for number, paths in enumerate(launches):
        for path in paths:
            for row in rows_of(path):
                f = row["factors"]
                cell = cells.setdefault((f["buffers"], f["collective"], f["size_bytes"]), [{} for _ in launches])
                taken = re.search(", by (.+)", row["metrics"].get("implementation", ""))
                cell[number][key_of(row)] = Timed(row["metrics"]["time_s"]["median"], taken and taken[1])
    return cells


def judge(times, choose, transport):
    """The regret of auto over this transport: the best, what MPI's time is beside auto's, and the regret in each launch that times."""
    allowed = TRANSPORTS[transport]
    served = {k for t in times for k in t if k[0] != "auto" and (k[1] is None or k[1] in allowed)}
    candidates = {k for k in served if all(k in one for one in times)}
    # Where buffers are private and sent as messages, auto's transport is mpi in all launches: then both transports have the same row.
    # Where it is another, a launch without that row has none to judge: that of the other transport is another measurement.
    auto = next((("auto", t) for t in allowed if any(("auto", t) in one for one in times)), None)
    if not candidates:
        return None
    if auto is None or not all(auto in one for one in times):
        return {}
    best = min(candidates, key=lambda k: max(t[k].seconds / min(t[c].seconds for c in candidates) for t in times[:choose]))
    timed = times[choose:]
    mpi = [t[auto].seconds / t[k].seconds - 1 for t in timed for k in t if k[0] == "mpi"]
    return {"best": best, "auto_s": statistics.median(t[auto].seconds for t in timed), "best_s": statistics.median(t[best].seconds for t in timed),
            "took_best": best[1] in (None, auto[1]) and all(t[auto].took == best[0] for t in timed),
            "regrets": [t[auto].seconds / t[best].seconds - 1 for t in timed], "beside_mpi": mpi, "left_out": len(served - candidates)}


def report(options, cells):
    """Prints the table and the bars that are missed. Returns the median regret, the number of cells above the bar, and whether one is
    missed."""
    worst, medians, failures, wide, alike, left_out = [], [], [], [], [], 0
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
            if found["took_best"]:
                if regret > CELL_BAR:
                    alike.append(f"{name}: {100 * regret:.0f} %, at least {100 * low:.0f}")
                low = min(low, 0.0)
            elif low > CELL_BAR:
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
    above = sum(w > CELL_BAR for w in worst)
    print(f"{len(medians)} cells on {options.ranks} ranks: median regret {100 * middle:.1f} % (bar {100 * MEDIAN_BAR:.0f}), "
          f"{above} cells above {100 * CELL_BAR:.0f} % in all of {options.launches - options.choose} launches"
          + (f"; {left_out} times an algorithm was left out, since a launch lacks it" if left_out else ""))
    for line in wide:
        print(f"above {100 * CELL_BAR:.0f} % at its median, not in all launches: {line}")
    for line in alike:
        print(f"above {100 * CELL_BAR:.0f} % though auto took the best itself, so what is measured is not the choice: {line}")
    for line in failures:
        print(f"missed: {line}")
    return middle, above, bool(failures)


def gained(options, shipped, tuned):
    """One line for each cell whose regret tuning has changed by more than the bar."""
    for cell, transport in ((c, t) for c in sorted(shipped) if c in tuned for t in TRANSPORTS):
        found = [judge(times[cell], options.choose, transport) for times in (shipped, tuned)]
        if not all(found):
            continue
        before, after = (statistics.median(f["regrets"]) for f in found)
        if abs(before - after) > CELL_BAR:
            buffers, collective, size = cell
            print(f"{'gained' if after < before else 'lost'} by tuning: {buffers} {collective} {transport} {size}: regret "
                  f"{100 * before:.0f} % before, {100 * after:.0f} % after")


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
    parser.add_argument("--tune", metavar="TIME", help="measure what --tune-auto TIME gains, too: twice as many launches")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the result files; those that are there are not measured again")
    parser.add_argument("--report-only", action="store_true", help="exit status 0 although a bar is missed: oversubscribed ranks, or CI")
    options = parser.parse_args()
    if not 0 < options.choose < options.launches:
        parser.error("--choose must be less than --launches: the others time what these have chosen")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        kinds = {"": None} | ({"-tuned": options.tune} if options.tune else {})
        launches = {kind: [] for kind in kinds}
        for number in range(options.launches):
            for kind in kinds:
                launches[kind].append([])
            for collective in options.collectives.split(","):
                for buffers in options.buffers.split(","):
                    for kind, tune in kinds.items():
                        out = folder / f"{collective}-{buffers}-{number}{kind}.jsonl"
                        if not out.exists():
                            print(f"launch {number + 1} of {options.launches}: {collective}, {buffers}{', tuned' if tune else ''}",
                                  file=sys.stderr, flush=True)
                            launch(options, collective, buffers, out, tune)
                        check_ranks(options, out)
                        launches[kind][-1].append(out)
        cells = cells_of(launches[""])
        middle, above, missed = report(options, cells)
        if options.tune:
            print(f"\nwith --tune-auto {options.tune}:")
            tuned = cells_of(launches["-tuned"])
            tuned_middle, tuned_above, _ = report(options, tuned)
            gained(options, cells, tuned)
            print(f"tuned for {options.tune}: median regret {100 * tuned_middle:.1f} % in place of {100 * middle:.1f} %, cells above "
                  f"{100 * CELL_BAR:.0f} % {tuned_above} in place of {above}")
    sys.exit(0 if options.report_only else int(missed))


if __name__ == "__main__":
    main()
