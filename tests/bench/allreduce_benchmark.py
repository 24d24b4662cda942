# SPDX-License-Identifier: Apache-2.0
"""How much faster than MPI_Allreduce our own all-reduces are, and how close to a copy of the buffer. Every launch measures
all algorithms of a size in turn; ratios are taken within a launch, and their median and range over launches are printed.

    allreduce_benchmark.py GRADMETER [--launches 5] [--ranks 2,4] [--out results.jsonl]
    allreduce_benchmark.py GRADMETER --device cuda [--ranks 2,4,8]   one rank a GPU, our kernels against NCCL's

The bars, with their names in the output:
  arena   best own algorithm on arena buffers against MPI_Allreduce as programs have it (malloc's memory), from 1 MiB up
  small   the same, every size: its interval is never wholly below 0.95
  p2p     ring or direct over MPI point to point, both sides on the same plain buffers, from 1 MiB up
  memcpy  shm-direct against a copy of the buffer by all ranks at once, from 1 MiB up; last end - first start for both
  tcp     best own algorithm over TCP, 2 ranks, from 64 KiB up: its interval is never wholly below 0.95
  gpu     best own kernel over peers' memory against NCCL: ahead up to 256 KiB, and at 64 MiB at most 5 % behind
Ends with 1 when a bar is missed, or has nothing that was measured.
"""
import argparse
import json
import math
import statistics
import subprocess
import sys

MIB = 1 << 20
SIZES = "8,64,1K,8K,64K,256K,1M,4M,16M,64M"
OWN = ("ring", "direct", "recursive-doubling", "rabenseifner", "shm-direct")
POINT_TO_POINT = ("ring", "direct")
ON_PEERS = ("gpu-direct", "gpu-ring")
DEVICE_SIZES = "1K,8K,64K,256K,64M"


def launch(o, ranks, flags, mpi_flags=()):
    """One mpirun: {(size, algorithm, transport, buffers): (median seconds, limit seconds)}."""
    command = [o.mpiexec, "-np", str(ranks), *mpi_flags, o.gradmeter, "allreduce", "--in-place", "out", "--reduction",
               "span", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if o.out:
        with open(o.out, "a", encoding="utf-8") as file:
            file.write(done.stdout)
    found = {}
    for line in done.stdout.splitlines():
        point = json.loads(line)
        if point["kind"] != "point" or point["status"] != "ok":
            continue
        f, m = point["factors"], point["metrics"]
        key = (f["size_bytes"], f["algorithm"].split(":")[0], f["transport"], f["buffers"])
        found[key] = (m["time_s"]["median"], m["limit_s"])
    return found


class Ratio:
    """Of medians within each launch; the range over five launches covers the median with 94 %."""

    def __init__(self, ratios):
        self.median, self.low, self.high = statistics.median(ratios), min(ratios), max(ratios)

    def __str__(self):
        return f"{self.median:6.2f} ({self.low:.2f}-{self.high:.2f})"


def ratio(launches, over, under):
    both = [(found[over][0], found[under][0]) for found in launches if over in found and under in found]
    return Ratio([a / b for a, b in both]) if both else None


def best(launches, base, candidates):
    """The candidate with the highest median ratio to base, by name."""
    ratios = {key: ratio(launches, base, key) for key in candidates}
    ratios = {key: r for key, r in ratios.items() if r}
    return max(ratios.items(), key=lambda item: item[1].median) if ratios else (None, None)


class Bars:
    def __init__(self):
        self.missed = []

    def check(self, bar, ranks, size, value, holds, wanted):
        print(f"{bar:>7} {ranks:>5} {size:>9}  {value}  {'met' if holds else 'MISSED'}, wanted {wanted}", flush=True)
        if not holds:
            self.missed.append(f"{bar} at {ranks} ranks, {size} B")


def judge_shared_memory(bars, ranks, launches):
    sizes = sorted({key[0] for key in launches[0]})
    gains = []
    for size in sizes:
        shipped = (size, "mpi", None, "malloc")
        own = [(size, name, "shm", "arena") for name in OWN]
        key, r = best(launches, shipped, own)
        huge, arena = (ratio(launches, (size, "mpi", None, kind), key) for kind in ("plain", "arena"))
        note = f"{r} {key[1]:<18} (huge pages for MPI: {huge.median:.2f}, arena for MPI: {arena.median:.2f})"
        if size < MIB:
            bars.check("small", ranks, size, note, r.high >= 0.95, "not wholly below 0.95")
            continue
        wanted = 4 if size >= 64 * MIB else 2.5
        bars.check("arena", ranks, size, note, r.median >= wanted, f"{wanted}")
        key, r = best(launches, (size, "mpi", None, "plain"), [(size, n, "mpi", "plain") for n in POINT_TO_POINT])
        gains.append(r.median)
        small = ratio(launches, (size, "mpi", None, "malloc"), (size, key[1], "mpi", "malloc"))
        note = f"{r} {key[1]:<18} (malloc on both sides: {small.median:.2f})"
        bars.check("p2p", ranks, size, note, r.median >= 1.05, "1.05")
        direct = (size, "shm-direct", "shm", "arena")
        over_copy = Ratio([found[direct][0] / found[direct][1] for found in launches])
        most = 1.3 if ranks <= 2 else 1.7
        bars.check("memcpy", ranks, size, f"{over_copy} x the copy", over_copy.median <= most, f"at most {most}")
    mean = math.exp(statistics.mean(map(math.log, gains)))
    bars.check("p2p", ranks, "all", f"{mean:6.2f} geometric mean", mean >= 1.25, "1.25")


def judge_tcp(bars, launches):
    for size in sorted({key[0] for key in launches[0]}):
        key, r = best(launches, (size, "mpi", None, "plain"), [(size, n, "mpi", "plain") for n in OWN])
        bars.check("tcp", 2, size, f"{r} {key[1]:<18}", r.high >= 0.95, "not wholly below 0.95")


def judge_devices(bars, ranks, launches):
    rows = sorted({key for found in launches for key in found})
    for size in sorted({key[0] for key in rows}):
        nccl = next((key for key in rows if key[:2] == (size, "nccl")), None)
        key, r = best(launches, nccl, [key for key in rows if key[0] == size and key[1] in ON_PEERS])
        wanted = 0.95 if size >= 64 * MIB else 1
        bars.check("gpu", ranks, size, f"{r} {key[1] if key else '':<18}", r is not None and r.median >= wanted,
                   "a row of both" if r is None else f"{wanted}")
    if not rows:
        bars.check("gpu", ranks, 0, "nothing was measured", False, "rows that count")


def measure_devices(o, bars):
    for ranks in map(int, o.ranks.split(",")):
        flags = ["--device", o.device, "--sizes", o.sizes or DEVICE_SIZES, "--algorithm", ",".join(("nccl", *ON_PEERS)),
                 "--time-budget", "30s"]
        judge_devices(bars, ranks, [launch(o, ranks, flags) for _ in range(o.launches)])


def measure_host(o, bars):
    for ranks in map(int, o.ranks.split(",")):
        flags = ["--sizes", o.sizes or SIZES, "--algorithm", ",".join(("mpi", *OWN)), "--transport", "shm,mpi",
                 "--buffers", "arena,plain,malloc", "--time-budget", "45s"]
        judge_shared_memory(bars, ranks, [launch(o, ranks, flags) for _ in range(o.launches)])
    if not o.no_tcp:
        over_tcp = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
        flags = ["--sizes", "64K,256K,1M,4M,16M,64M", "--algorithm", ",".join(("mpi", *OWN)), "--transport", "mpi",
                 "--buffers", "plain", "--time-budget", "25s"]
        judge_tcp(bars, [launch(o, 2, flags, over_tcp) for _ in range(o.launches)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", help="append all result lines to this file")
    parser.add_argument("--mpiexec", default="mpirun")
    parser.add_argument("--no-tcp", action="store_true")
    o = parser.parse_args()
    bars = Bars()
    print(f"{'bar':>7} {'ranks':>5} {'bytes':>9}  median (range) over {o.launches} launches of their time / ours")
    (measure_host if o.device == "cpu" else measure_devices)(o, bars)
    print("every bar is met" if not bars.missed else "missed: " + "; ".join(bars.missed))
    sys.exit(1 if bars.missed else 0)


if __name__ == "__main__":
    main()
