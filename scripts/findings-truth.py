#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants a truth in result files and says whether gradmeter's findings name it first, and nothing that is false.

    . scripts/environment.sh
    scripts/findings-truth.py build/release/gradmeter --seeds 61-120 [--keep FOLDER]

A seed draws a file: which truth, and whether it is in the measurement (a run with --inject, a changed setting, a program beside it,
a link of a virtual cluster) or written into rows of an honest one, half of the files each. A finding is false where it names a fault
that was not planted, and where its figures are not those of the rows, which are computed here once more. Cores that this machine itself
lost to others, by /proc/stat, are a truth of every file of that time.
The recorded run is results/findings-truth.md; 60 seeds take about 20 minutes on 2 cores and want a quiet machine. Links of virtual clusters
need root or user namespaces; seeds that would have one are left out, and counted, where there is none.
"""
import argparse
import collections
import contextlib
import copy
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ("slow_rank", "slow_link", "wrong_algorithm", "small_batch", "shared_cores", "bad_launch", "mixed_machines", "nothing_wrong")
FAULTS = ("mixed_machines", "outlier_launch", "shared_cores", "slow_rank", "slow_host", "slow_link", "disturbance")
PARTS = ("wire", "wait", "straggle", "interference", "contention", "other")


class Unable(Exception):
    """This machine cannot make what the seed wants."""


def is_measured(seed):
    """Of every kind one half of the seeds."""
    return ((seed - 1) // len(KINDS) + (seed - 1)) % 2 == 0


def read(file):
    return [json.loads(line) for line in pathlib.Path(file).read_text().splitlines()]


def points_of(lines):
    return [line for line in lines if line["kind"] == "point"]


def stolen_share(before, after):
    """Of the cores' time, what the hypervisor had [0..1]."""
    spent = [b - a for a, b in zip(before, after)]
    return spent[7] / max(1, sum(spent[:8]))


def processor_times():
    return [int(x) for x in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]


# --- changing rows

def scale_time(metrics, factor):
    time = metrics["time_s"]
    for key in ("median", "q1", "q3", "ci95_low", "ci95_high", "p95", "p99", "min", "max"):
        if key in time:
            time[key] *= factor
    for key in ("samples_per_s", "efficiency", "efficiency_ci95_low", "efficiency_ci95_high", "efficiency_node", "self_speedup",
                "algbw", "busbw", "flops_per_s", "roofline"):
        if isinstance(metrics.get(key), (int, float)):
            metrics[key] /= factor


def add_time(metrics, part, seconds):
    """A step of this much more, of that part."""
    before = metrics["time_s"]["median"]
    metrics[part + "_s"] = metrics.get(part + "_s", 0) + seconds
    scale_time(metrics, (before + seconds) / before)
    losses = {name: metrics.get(name + "_s") or 0 for name in PARTS}
    largest = max(losses, key=losses.get)
    metrics["bound_by"], metrics["bound_by_probability"] = {"contention": "cores"}.get(largest, largest), 0.97


def is_exchange(point):
    return point["status"] == "ok" and point["factors"]["ranks"] > 1 and point["factors"].get("strategy") != "independent"


def quiet(point):
    point["metrics"].update({"noise_run_delay": 0.0, "noise_steal": 0.0, "disturbed_blocks": 0, "oversubscribed": False})


class Planter:
    def __init__(self, gradmeter, bases, measures):
        self.gradmeter, self.honest, self.measures, self.bases = str(pathlib.Path(gradmeter).resolve()), bases, measures, {}

    # --- measuring

    def run(self, out, *arguments, ranks=0, env=None, prefix=()):
        """Ranks are processes; 0: what the arguments say."""
        if not self.measures:
            return
        # To the ranks only: mpirun itself is to see the real machine.
        exported = [word for name, value in (env or {}).items() for word in ("-x", f"{name}={value}")]
        launcher = ["mpirun", "-np", str(ranks), "--bind-to", "core", *exported] if ranks else []
        done = subprocess.run([*prefix, *launcher, self.gradmeter, *map(str, arguments), "--out", str(out), "--append"],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 69:
            raise Unable(done.stderr.strip())
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}")

    def cluster(self, out, hosts, rate, links):
        flags = [word for link in links for word in ("--link", link)]
        self.run(out, "links", "--pattern", "one-way", "--time-budget", "25s",
                 prefix=(ROOT / "scripts" / "virtual-cluster.sh", *flags, str(hosts), rate, "--", "mpirun", "-np", str(hosts)))

    def step(self, r, **changed):
        """The flags of a sweep of steps, drawn; `changed` settles some."""
        hidden = r.choice((512, 768, 1024))
        flags = {"--model": f"mlp:784-{hidden}-{hidden}-10", "--batch": "256", "--ranks": "1,2", "--strategy": "sync",
                 "--algorithm": r.choice(("mpi", "ring", "recursive-doubling")), "--overlap": "none", "--threads": "1",
                 "--time-budget": "14s", **{"--" + name.replace("_", "-"): value for name, value in changed.items()}}
        return ["scale", *(word for pair in flags.items() for word in pair)]

    def base(self, name):
        """Honest rows, measured once: steps of three batches by two algorithms, all-reduces by three, links of six hosts."""
        if name not in self.bases:
            out = self.honest / f"{name}.jsonl"
            if not out.exists():
                if name == "steps":
                    self.run(out, "scale", "--model", "mlp:784-768-768-10", "--batch", "16,64,256", "--ranks", "1,2", "--strategy", "sync",
                             "--algorithm", "mpi,ring", "--overlap", "none", "--threads", "1", "--time-budget", "40s", ranks=2)
                elif name == "calls":
                    self.run(out, "allreduce", "--algorithm", "mpi,ring,rabenseifner", "-b", "64K", "-e", "4M", "-f", "8",
                             "--time-budget", "20s", ranks=2)
                else:
                    self.cluster(out, 6, "200Mbit", [])
            self.bases[name] = read(out)
        lines = copy.deepcopy(self.bases[name])
        for point in points_of(lines):
            quiet(point)
            point["metrics"].pop("slowest_rank", None)
            point["metrics"].pop("slowest_host", None)
        return lines

    @staticmethod
    def write(out, lines):
        out.write_text("".join(json.dumps(line) + "\n" for line in lines))

    # --- the truths; each writes a file and returns what a finding must say

    def slow_rank(self, r, out, measured):
        rank, factor = r.randrange(2), round(r.uniform(1.3, 3), 2)
        if measured:
            self.run(out, *self.step(r), "--inject", f"slow:rank={rank},factor={factor}", ranks=2)
        else:
            lines = self.base("steps")
            for point in filter(is_exchange, points_of(lines)):
                m = point["metrics"]
                add_time(m, "straggle", (factor - 1) * m["baseline_time_s"])
                m["slowest_rank"], m["slowest_host"] = rank, lines[0]["hosts"][0]
            self.write(out, lines)
        return lambda f: f["kind"] == "slow_rank" and f["figures"]["rank"]["value"] == rank

    def slow_link(self, r, out, measured):
        hosts = 6 if not measured else r.choice((5, 6, 7))
        a, b = sorted(r.sample(range(hosts), 2))
        if measured:
            how = r.choice(("100Mbit", "60Mbit", "2ms", "4ms"))
            self.cluster(out, hosts, "200Mbit", [f"{a + 1}-{b + 1}:{how}"])
        else:
            factor, latency = r.uniform(1.4, 4), r.random() < 0.5
            lines = self.base("links")
            for point in points_of(lines):
                if {point["factors"]["from_rank"], point["factors"]["to_rank"]} == {a, b}:
                    if latency:
                        for key in ("latency_s", "latency_ci95_low", "latency_ci95_high"):
                            value = point["metrics"].get(key)
                            if isinstance(value, dict):
                                scale_time({"time_s": value}, factor)
                            elif value is not None:
                                point["metrics"][key] = value * factor
                    else:
                        scale_time(point["metrics"], factor)
            self.write(out, lines)
        return lambda f: f["kind"] == "slow_link" and {f["figures"]["from_rank"]["value"], f["figures"]["to_rank"]["value"]} == {a, b}

    def wrong_algorithm(self, r, out, measured):
        """By one algorithm all takes longer: in messages that are late it has more rounds."""
        steps = r.random() < 0.5
        if measured:
            slow, fast = "ring", "recursive-doubling"  # two rounds and one
            late = f"delay:time={r.choice((2, 3, 5))}ms"
            if steps:
                self.run(out, *self.step(r, algorithm=f"{slow},{fast}", model=f"mlp:784-{r.choice((64, 128))}-10"), "--inject", late, ranks=2)
            else:
                size = r.choice(("8", "1K", "32K", "256K"))
                self.run(out, "allreduce", "--algorithm", f"{slow},{fast}", "-b", size, "-e", size, "--time-budget", "8s", "--inject", late,
                         ranks=2)
        else:
            lines = self.base("steps" if steps else "calls")
            names = ["mpi", "ring"] if steps else ["mpi", "ring", "rabenseifner"]
            slow = r.choice(names)
            factor = r.uniform(1.8, 4)
            for point in filter(is_exchange, points_of(lines)):
                m = point["metrics"]
                by = point["factors"]["algorithm"].split(":")[0]
                if not steps:
                    scale_time(m, factor if by == slow else 1)
                elif by == slow:
                    add_time(m, "wire", factor * m["time_s"]["median"])
            self.write(out, lines)
        if steps:
            return lambda f: f["kind"] == "change" and slow not in self.winner(f) and "algorithm" in f["over"]
        return lambda f: f["kind"] == "fastest_exchange" and slow not in self.winner(f)

    @staticmethod
    def winner(finding):
        """The words of the sentence before "instead of", "is the fastest", or "takes" where several are as fast."""
        said = finding["sentence"]
        for mark in (" instead of ", " is the fastest", " takes "):
            if mark in said:
                return said[: said.index(mark)].rsplit(": ", 1)[-1]
        return said

    def small_batch(self, r, out, measured):
        small, large = r.choice((2, 4, 8)), r.choice((256, 512))
        if measured:
            self.run(out, *self.step(r, batch=f"{small},{large}", time_budget="20s"), ranks=2)
        else:
            lines, small = self.base("steps"), 16
            by = r.choice(("mpi", "ring"))
            kept = [line for line in lines if line["kind"] != "point" or line["factors"]["algorithm"] in (None, by)]
            for point in filter(is_exchange, points_of(kept)):
                m = point["metrics"]
                if point["factors"]["batch_per_rank"] == small:
                    add_time(m, "wire", r.uniform(3, 8) * m["time_s"]["median"])
            self.write(out, kept)
        return lambda f: f["kind"] == "small_batch" and f["figures"]["batch"]["value"] == small

    def shared_cores(self, r, out, measured):
        if measured and r.random() < 0.5:  # more threads than cores
            self.run(out, *self.step(r, threads="2"), ranks=2)
        elif measured:
            with spinning(r.randrange(2)):
                self.run(out, *self.step(r), ranks=2)
        else:
            lines = self.base(r.choice(("steps", "calls")))
            delay = r.uniform(0.15, 0.6)
            key = r.choice(("noise_run_delay", "noise_steal", "oversubscribed"))
            for point in points_of(lines):
                if point["factors"]["ranks"] > 1:
                    point["metrics"][key] = True if key == "oversubscribed" else delay * r.uniform(0.8, 1.2)
            self.write(out, lines)
        return lambda f: f["kind"] == "shared_cores"

    def bad_launch(self, r, out, measured):
        launches = r.choice((4, 5))
        bad = r.randrange(launches)
        if measured:
            flags = self.step(r, time_budget="5s", batch="64")
            for k in range(launches):
                with spinning(0, 1) if k == bad else contextlib.nullcontext():
                    self.run(out, *flags, ranks=2)
        else:
            base, lines, factor = self.base(r.choice(("steps", "calls"))), [], r.choice((r.uniform(1.6, 3), 1 / r.uniform(1.6, 3)))
            for k in range(launches):
                launch = copy.deepcopy(base)
                for line in launch:
                    line["run_id"] = f"launch{k}"
                for point in points_of(launch):
                    scale_time(point["metrics"], r.uniform(0.985, 1.015) * (factor if k == bad else 1))
                    if "efficiency" in point["metrics"] and k == bad:  # the baseline of that launch is slower alike
                        for key in ("efficiency", "efficiency_ci95_low", "efficiency_ci95_high"):
                            if isinstance(point["metrics"].get(key), float):
                                point["metrics"][key] *= factor
                lines += launch
            self.write(out, lines)
        return lambda f: f["kind"] == "outlier_launch" and f["figures"]["launch"]["value"] == bad + 1

    def mixed_machines(self, r, out, measured):
        if measured:
            flags = self.step(r, time_budget="6s")
            self.run(out, *flags, ranks=2)
            self.run(out, *flags, ranks=2, env={"HWLOC_SYNTHETIC": r.choice(("package:2 core:4 pu:2", "package:1 core:16 pu:1"))})
        else:
            first = self.base(r.choice(("steps", "calls")))
            second = copy.deepcopy(first)
            run, key = second[0], r.choice(("fingerprint", "commit", "version", "libraries"))
            run[key] = {**run[key], "oneDNN": "3.6.0"} if key == "libraries" else "another"
            factor = r.uniform(0.5, 2)
            for line in second:
                line["run_id"] = "second"
                if line["kind"] == "point":
                    scale_time(line["metrics"], factor)
                    for name in ("efficiency", "efficiency_ci95_low", "efficiency_ci95_high"):
                        if isinstance(line["metrics"].get(name), float):
                            line["metrics"][name] *= factor
            self.write(out, first + second)
        return lambda f: f["kind"] == "mixed_machines"

    def nothing_wrong(self, r, out, measured):
        if measured:
            what = r.choice(("calls", "links", "kernels"))
            if what == "calls":
                self.run(out, "allreduce", "--algorithm", r.choice(("mpi", "ring", "auto")), "-b", "1K", "-e", "1M", "-f", "32",
                         "--time-budget", "8s", ranks=2)
            elif what == "links":
                self.run(out, "links", "--pattern", "one-way", "--size", r.choice(("64K", "128K", "1M")), "--time-budget", "6s", ranks=2)
            else:
                self.run(out, "kernels", "--shape", r.choice(("gemm:m=512,n=512,k=512", "gemm:m=1024,n=256,k=512")), "--time-budget", "5s")
        else:
            lines = self.base("steps")
            by = r.choice(("mpi", "ring"))
            kept = [line for line in lines if line["kind"] != "point" or line["factors"]["algorithm"] in (None, by)]
            for point in points_of(kept):
                m = point["metrics"]
                if point["factors"]["ranks"] == 1:
                    continue
                scale_time(m, m["efficiency"] / r.uniform(0.975, 0.99))
                m["efficiency_ci95_low"], m["efficiency_ci95_high"] = m["efficiency"] - 0.015, m["efficiency"] + 0.015
                for name in PARTS:
                    m[name + "_s"] = 0.002 * m["time_s"]["median"]
                m["bound_by"] = "compute"
            self.write(out, kept)
        return lambda f: f["kind"] == "nothing_wrong"


@contextlib.contextmanager
def spinning(*cores):
    """Another program on these cores, for as long as the block."""
    programs = [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]) for core in cores]
    try:
        yield
    finally:
        for program in programs:
            program.terminate()
            program.wait()


# --- judging

def contradictions(finding, lines, kind, stolen):
    """What is false in it."""
    said, out = finding["kind"], []
    planted = {"slow_rank": {"slow_rank"}, "slow_link": {"slow_link", "slow_host"}, "shared_cores": {"shared_cores", "slow_rank"},
               "bad_launch": {"outlier_launch"}, "mixed_machines": {"mixed_machines"}}.get(kind, set())
    if said in FAULTS and said not in planted:
        hosts = max(len(line.get("hosts", [1])) for line in lines if line["kind"] == "run")
        is_crowded = hosts > len(os.sched_getaffinity(0)) or any(p["metrics"].get("oversubscribed") for p in points_of(lines))
        if said != "shared_cores" or not (stolen > 0.03 or is_crowded or kind in ("bad_launch", "slow_link")):
            out.append(f"{said} was not planted")
    if said in ("change", "fastest_exchange") and "faster" not in finding["sentence"]:
        out += wrong_ratios(finding, lines)
    if said == "small_batch":
        low, high = finding["figures"]["efficiency"], finding["figures"]["efficiency_larger"]
        if not low["high"] < high["low"]:
            out.append("small_batch without disjoint intervals")
    return out


def wrong_ratios(finding, lines):
    """Each ratio of times is that of two rows that have the finding's factors, the slower one of the algorithm that the figure names."""
    rows = collections.defaultdict(list)
    for point in points_of(lines):
        factors = point["factors"]
        if point["experiment"] == finding["experiment"] and all(factors.get(k) == v for k, v in finding["factors"].items()):
            rows[json.dumps(factors, sort_keys=True)].append(point)
    merged = [(launches[0]["factors"], math.exp(sum(math.log(p["metrics"]["time_s"]["median"]) for p in launches) / len(launches)))
              for launches in rows.values()]
    out = []
    for name, figure in finding["figures"].items():
        slower = name.removeprefix("speed_against_") if name.startswith("speed_against_") else None
        if slower is None and name != "throughput_ratio":
            continue
        if not any(abs(a / b / figure["value"] - 1) < 0.05 for factors, a in merged for _, b in merged
                   if slower in (None, factors.get("algorithm"))):
            out.append(f"no two rows have the ratio {figure['value']:.3f} of {name}")
    return out


def sure_verdicts(lines, kind, measured):
    """(right, given) of verdicts of 90 % or more on measured steps whose cause was planted: a slow rank, or late messages."""
    wanted = {"slow_rank": {"straggle"}, "wrong_algorithm": {"wire", "wait"}}.get(kind)
    if not wanted or not measured:
        return 0, 0
    sure = [p["metrics"]["bound_by"] for p in points_of(lines)
            if is_exchange(p) and (p["metrics"].get("bound_by_probability") or 0) >= 0.9 and p["metrics"].get("bound_by")]
    return sum(v in wanted for v in sure), len(sure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--seeds", default="1-60", help="first-last, or a list")
    parser.add_argument("--only", help="of the kinds " + ", ".join(KINDS))
    parser.add_argument("--how", choices=("measured", "edited"), help="only files with the truth in the measurement, or written into rows")
    parser.add_argument("--bases", help="the folder of honest rows to change; measured where there are none (default: the files' folder)")
    parser.add_argument("--keep", help="a folder for the files (default: a new one)")
    parser.add_argument("--judge", action="store_true", help="judge the files of --keep once more, without measuring anything")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last) + 1) if last else [int(s) for s in options.seeds.split(",")]
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="gradmeter-findings-"))
    folder.mkdir(parents=True, exist_ok=True)
    planter = Planter(options.gradmeter, pathlib.Path(options.bases or folder), not options.judge)
    counts = collections.Counter()
    print("| seed | planted | how | named first | as planted | false |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for seed in seeds:
        kind, measured = KINDS[(seed - 1) % len(KINDS)], is_measured(seed)
        if (options.only and kind not in options.only.split(",")) or (options.how and options.how != ("measured" if measured else "edited")):
            continue
        out = folder / f"seed{seed}.jsonl"
        if not options.judge:
            out.unlink(missing_ok=True)
        before = processor_times()
        try:
            is_truth = getattr(planter, kind)(random.Random(seed), out, measured)
        except Unable as e:
            counts["left out"] += 1
            print(f"| {seed} | {kind} | left out: {e} | | | |", flush=True)
            continue
        stolen = stolen_share(before, processor_times())
        said = subprocess.run([planter.gradmeter, "report", "--findings", "-", str(out)], capture_output=True, text=True, check=True).stdout
        findings = [json.loads(line) for line in said.splitlines()]
        lines = read(out)
        right = bool(findings) and is_truth(findings[0])
        false = [why for f in findings for why in contradictions(f, lines, kind, stolen)]
        verdicts = sure_verdicts(lines, kind, measured)
        counts.update({"files": 1, "first": right, "false": bool(false), "verdicts right": verdicts[0], "verdicts": verdicts[1]})
        named = f"{findings[0]['kind']}: {findings[0]['sentence']}" if findings else "nothing"
        print(f"| {seed} | {kind} | {'measured' if measured else 'edited'} | {named.replace('|', '/')} | {'yes' if right else '**NO**'} | "
              f"{'; '.join(false) or '–'} |", flush=True)
    print(f"\n{counts['first']} of {counts['files']} truths are named first, {counts['false']} files have a false finding, "
          f"{counts['verdicts right']} of {counts['verdicts']} verdicts of 90 % or more are right, {counts['left out']} seeds left out")
    return 0 if counts["files"] and counts["first"] >= 0.9 * counts["files"] and not counts["false"] else 1


if __name__ == "__main__":
    sys.exit(main())
