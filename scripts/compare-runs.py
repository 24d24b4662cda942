#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same sweep with two programs, or with ranks as processes and as threads, and compares what must not differ:
bits of training (losses, accuracies), errors and wrong elements of collectives and codecs, bytes sent and predicted,
plans, decisions and lists. Times are not compared.

usage: scripts/compare-runs.py SIDE [SIDE] [--only PART ...] [--ranks 1,2,3,4] [--ignore KEY ...]
                               [--mpiexec mpiexec] [--at-once N]
SIDE is the path of a gradmeter, with '@threads' after it for ranks as threads: build/ci/gradmeter@threads. One alone only has to
end well, as under the thread sanitizer.
Parts: train, meshes, codecs, optimizers, allreduce, collectives, scale, plans, kernels, codec-errors.
Exit status 0: nothing differs. As root or with more ranks than cores:  . scripts/environment.sh  first.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

# Which worker's change comes first is a matter of time; bytes and steps are compared, bits are not.
TIMED_STRATEGIES = ("ad-psgd", "dc-asgd", "ps-async", "ps-backup", "ps-softsync", "ps-ssp", "easgd", "gossip", "es",
                    "population")
TRAIN = ["--model", "mlp:784-24-16-10", "--batch", "12", "--threads", "1", "--steps", "8", "--log-every", "1",
         "--train-samples", "4800", "--validation-samples", "300", "--warmup", "0", "--seed", "3"]
NEW_FACTORS = ("optimizer", "ranks_as",)  # keys that an older program does not write
# What it sends in a step depends on how many steps the budget of a point had room for.
PACED_STRATEGIES = ("adacomm",)
IGNORED = set()  # --ignore
BITS = ("loss", "accuracy", "step", "epoch", "error", "error_expected", "error_bound", "wrong", "wire_bits",
        "bytes_sent_total", "bytes_sent_per_rank_max", "bytes_predicted", "bytes_inter_node", "baseline_ranks",
        "baseline_batch", "implementation")


class Side:
    def __init__(self, text, mpiexec):
        self.text = text
        self.program, _, how = text.partition("@")
        if how not in ("", "threads"):
            sys.exit(f"{text}: '@threads' is all that may follow a program")
        self.threads, self.mpiexec = how == "threads", mpiexec

    def command(self, ranks, arguments):
        own = [self.program, *arguments]
        if ranks is None:
            return own
        return own + ["--thread-ranks", str(ranks)] if self.threads else [self.mpiexec, "-np", str(ranks), *own]

    def run(self, ranks, arguments, out):
        arguments = list(arguments)
        if out:
            arguments += ["--out", str(out), "--force"]
        done = subprocess.run(self.command(ranks, arguments), capture_output=True, text=True, timeout=300, check=False)
        rows = []
        if out and out.exists():
            lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
            rows = [line for line in lines if line["kind"] == "point"]
        return done, rows


def identity(row):
    return tuple(sorted((k, str(v)) for k, v in row["factors"].items() if v is not None and k not in NEW_FACTORS))


def bits(row):
    found = {k: row["metrics"][k] for k in compared(row) if k in row["metrics"] and k not in IGNORED}
    if str(found.get("implementation", "")).startswith("gradmeter "):
        found["implementation"] = "gradmeter"  # of any version
    return {**found, "status": row["status"], "reason": row["reason"]}


def rows_of(rows):
    return [(identity(r), bits(r)) for r in rows]


def train_cases(ranks, listed):
    for strategy in listed["strategies"]:
        for n in ranks:
            yield n, ["train", "--strategy", strategy, *TRAIN]


def mesh_cases(ranks, _):
    meshes = {2: ["data=1,tensor=2", "data=1,pipeline=2"],
              4: ["data=2,tensor=2", "data=2,pipeline=2", "data=1,tensor=2,pipeline=2"],
              8: ["data=2,tensor=2,pipeline=2"]}
    for n in ranks:
        for mesh in meshes.get(n, []):
            yield n, ["train", "--mesh", mesh, "--accumulate", "2", *TRAIN]


def codec_cases(ranks, listed):
    for codec in listed["names"] or listed["codecs"]:
        for n in ranks:
            if n > 1:
                yield n, ["train", "--codec", codec, *TRAIN]


def optimizer_cases(ranks, listed):
    for optimizer in listed["optimizers"]:
        yield max(ranks), ["train", "--optimizer", optimizer, *TRAIN]
        yield max(ranks), ["train", "--strategy", "sharded", "--optimizer", optimizer, *TRAIN]


SHORT = ["-n", "3", "-w", "1"]


def allreduce_cases(ranks, listed):
    names = ",".join(a for a in listed["algorithms"] if not a.startswith(("mpi", "ompi", "gloo", "auto")))
    for n in ranks:
        for dtype in ("float", "half", "int32", "fp8e4m3"):
            yield n, ["allreduce", "-b", "64", "-e", "256K", "-f", "64", "-d", dtype, "--in-place", "in", "--algorithm", names, *SHORT]


def collective_cases(ranks, _):
    for n in ranks:
        yield n, ["allreduce", "--collective", "all", "-b", "64K", "-e", "64K", "--algorithm", "ring,direct,pairwise,neighbour",
                  *SHORT]


def scale_cases(ranks, _):
    for n in ranks:
        yield n, ["scale", "--model", "mlp:784-32-10", "--batch", "8,16", "--ranks", "1," + str(n) if n > 1 else "1",
                  "--strategy", "all", "--algorithm", "ring", "--threads", "1", "--time-budget", "3s"]


def plan_cases(_, listed):
    for what in ("algorithms", "strategies", "codecs", "models", "optimizers", "lr-rules", "problems", "transports"):
        yield None, ["list", what, "--json"]
    yield None, ["scale", "--dry-run", "--batch", "8,16", "--strategy", "all"]


def kernel_cases(_, __):
    yield 2, ["kernels", "--filter", "gemm:m=64", "--threads", "1", "--time-budget", "50ms"]


def codec_error_cases(_, listed):
    yield None, ["codecs", "--codec", ",".join(listed["codecs"]), "-b", "64K", "-e", "64K", "--time-budget", "20ms"]


PARTS = {"train": train_cases, "meshes": mesh_cases, "codecs": codec_cases, "optimizers": optimizer_cases,
         "allreduce": allreduce_cases, "collectives": collective_cases, "scale": scale_cases, "plans": plan_cases,
         "kernels": kernel_cases, "codec-errors": codec_error_cases}


def compared(row):
    """Which metrics of this row must be equal."""
    strategy = str(row["factors"].get("strategy") or "").partition(":")[0]
    if strategy in PACED_STRATEGIES and row["metrics"].get("time_s"):
        return [b for b in BITS if not b.startswith("bytes_")]
    if strategy not in TIMED_STRATEGIES:
        return BITS
    return [b for b in BITS if b not in ("loss", "accuracy") and not b.startswith("bytes_")]


def differs(sides, ranks, arguments, folder):
    """A line for what differs, or None. With one side: for how it failed."""
    outcomes = []
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for i, side in enumerate(sides):
            out = None if arguments[0] == "list" or "--dry-run" in arguments else pathlib.Path(own) / f"{i}.jsonl"
            outcomes.append(side.run(ranks, arguments, out))
    (one, one_rows), (two, two_rows) = outcomes[0], outcomes[-1]
    if one.returncode != two.returncode or one.returncode not in (0, 2):  # 2: refused by both
        said = " | ".join(dict.fromkeys(side.stderr.strip()[-400:] for side in (one, two)))
        return f"exit codes {one.returncode} and {two.returncode}: {said}"
    if not one_rows and not two_rows:
        return None if one.stdout == two.stdout else "what was printed differs"
    a, b = rows_of(one_rows), rows_of(two_rows)
    if arguments[0] != "train":
        a, b = sorted(a, key=lambda r: r[0]), sorted(b, key=lambda r: r[0])
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} rows"
    for x, y in zip(a, b):
        if x != y:
            keys = [k for k in {**x[1], **y[1]} if x[1].get(k) != y[1].get(k)]
            return f"{dict(set(x[0]) ^ set(y[0])) or 'row'}: " + ", ".join(f"{k} {x[1].get(k)} and {y[1].get(k)}" for k in keys)
    return None


def listed_names(program):
    done = subprocess.run([program, "list", "--json", "strategies", "codecs", "optimizers", "algorithms"],
                          capture_output=True, text=True, check=True)
    return {k: [m["name"] for m in v if m["name"] != "none"] for k, v in json.loads(done.stdout).items()}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sides", nargs="+")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--ranks", default="1,2,3,4")
    parser.add_argument("--ignore", nargs="*", default=[], choices=BITS, help="metrics that are not compared")
    parser.add_argument("--names", default="", help="codecs, instead of all")
    parser.add_argument("--at-once", type=int, default=1, help="cases side by side: launchers wait for most of their time")
    parser.add_argument("--mpiexec", default=os.environ.get("MPIEXEC", "mpiexec"))
    options = parser.parse_args()
    if len(options.sides) > 2:
        parser.error("two sides at most")
    IGNORED.update(options.ignore)
    sides = [Side(s, options.mpiexec) for s in options.sides]
    listed = listed_names(sides[0].program)
    listed["names"] = [n for n in options.names.split(",") if n]
    ranks = [int(r) for r in options.ranks.split(",")]
    cases = failures = 0
    with tempfile.TemporaryDirectory(prefix="gradmeter-compare-") as folder, \
            concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for part in options.only:
            before, before_failures = cases, failures
            listing = list(PARTS[part](ranks, listed))
            for (n, arguments), why in zip(listing, pool.map(lambda case: differs(sides, *case, folder), listing)):
                cases += 1
                if why:
                    failures += 1
                    print(f"DIFFERS on {n} ranks: {shlex.join(arguments)}\n        {why}", flush=True)
            print(f"{part:13} {cases - before:4} cases, {failures - before_failures} differ", flush=True)
    print(f"{cases} cases, {failures} differ")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
