# SPDX-License-Identifier: Apache-2.0
"""The sweep of the first promise: `mpirun -np 4 gradmeter scale --model M --batch 16,64,256 --ranks 1,2,4
--strategy independent,sync --algorithm mpi,ring --out r.jsonl` gives each meaningful combination as one row, with
baseline, interval and decomposition, and bytes that equal what the algorithm must send; every line fits the schema."""
import json
import math
import re

import support

BATCHES, RANKS = (16, 64, 256), (1, 2, 4)
WIDTHS = (784, 64, 64, 10)
MODEL = "mlp:" + "-".join(map(str, WIDTHS))
TENSORS = 2 * (len(WIDTHS) - 1)
PARAMETER_BYTES = 4 * sum(a * b + b for a, b in zip(WIDTHS, WIDTHS[1:]))
# Tensors begin at cache lines in the gradient buffer; what is between them travels too.
PADDING_BYTES = 64 * TENSORS
SUMMARY = ("median", "q1", "q3", "ci95_low", "ci95_high", "p95", "p99", "min", "max", "n", "stop")
DECOMPOSITION = ("comm_s", "exposed_s", "exposed_ci95_low", "exposed_ci95_high", "exposed_union_s", "overlap_s",
                 "contention_s", "straggle_s", "interference_s", "wait_s", "wire_s", "other_s")
PARTS = ("contention_s", "straggle_s", "interference_s", "wait_s", "wire_s", "other_s")
BYTES = ("bytes_sent_total", "bytes_sent_per_rank_max", "bytes_inter_node", "bytes_predicted")


def combination(point):
    factors = point["factors"]
    return factors["ranks"], factors["batch_per_rank"], factors["strategy"], factors["algorithm"]


def wanted_combinations():
    """`independent` sends nothing and one rank has nobody to send to: there the algorithm is no factor."""
    return [(ranks, batch, strategy, algorithm) for batch in BATCHES for ranks in RANKS
            for strategy in ("independent", "sync")
            for algorithm in (("mpi", "ring") if strategy == "sync" and ranks > 1 else (None,))]


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


class Row:
    """Collects what is wrong with one row, so that one line tells all of it."""

    def __init__(self, point, baselines, controls):
        self.point, self.factors, self.metrics = point, point["factors"], point["metrics"]
        self.ranks, self.batch, self.strategy, self.algorithm = combination(point)
        self.baselines, self.controls, self.problems = baselines, controls, []

    def need(self, good, problem):
        if not good:
            self.problems.append(problem)

    def number(self, name):
        value = self.metrics.get(name)
        return value if isinstance(value, (int, float)) else math.nan

    def judge(self):
        self.need(self.point["status"] == "ok", f"status {self.point['status']}: {self.point['reason']}")
        self.judge_time()
        self.judge_baseline()
        self.judge_decomposition()
        self.judge_bytes()
        return self.problems

    def judge_time(self):
        time, raw = self.metrics.get("time_s") or {}, self.point["raw_times_s"]
        self.need(set(SUMMARY) <= set(time), "time_s lacks a part of its summary")
        numbers = [time.get(name) for name in ("min", "ci95_low", "median", "ci95_high", "max")]
        ordered = None not in numbers and numbers == sorted(numbers) and numbers[0] > 0
        self.need(ordered, f"min, interval, median, max of time_s are {numbers}")
        n, stop = time.get("n", 0), time.get("stop")
        self.need(stop in ("interval", "samples", "budget"), f"stopped for '{stop}'")
        self.need(n >= 10 or stop == "budget", f"only {n} samples, stopped for '{stop}'")
        blocks = self.metrics.get("blocks") or 0
        # Blocks of disturbed turns are left out where six others remain, also below those that end a measurement.
        taken = blocks + (self.metrics.get("left_out_blocks") or 0)
        self.need(blocks >= 6 and taken >= (8 if stop == "interval" else 6), f"{blocks} of {taken} blocks, stopped for '{stop}'")
        self.need(len(raw) == n, f"{len(raw)} raw times for n = {n}")
        self.need(raw and close(min(raw), time.get("min") or 0), "raw times are not those of the summary")
        samples_per_s = self.factors["batch_global"] / (time.get("median") or math.inf)
        self.need(close(self.number("samples_per_s"), samples_per_s), "samples_per_s is not batch / time")

    def judge_baseline(self):
        base = self.baselines.get(self.batch)
        self.need(base is not None, "there is no 1-rank row of independent at this batch")
        if base is None:
            return
        base_time, base_rate = base["metrics"]["time_s"]["median"], base["metrics"]["samples_per_s"]
        self.need(close(self.number("baseline_time_s"), base_time), "baseline_time_s is not the 1-rank row's time")
        self.need(self.metrics.get("baseline_ranks") == 1, "baseline_ranks is not 1")
        efficiency = self.number("samples_per_s") / self.ranks / base_rate
        self.need(close(self.number("efficiency"), efficiency), "efficiency is not the ratio of the rates per rank")
        if self.ranks > 1:
            low, high = (self.number(f"efficiency_ci95_{end}") for end in ("low", "high"))
            self.need(low <= self.number("efficiency") <= high, f"the interval of efficiency is {low} to {high}")
            # The sum of the parts is what was lost: nothing is counted twice, nothing left out.
            parts = sum(self.metrics.get(name) or 0 for name in PARTS)
            lost = self.metrics["time_s"]["median"] - base_time
            self.need(math.isclose(parts, lost, rel_tol=1e-6, abs_tol=1e-9), f"the parts add up to {parts}, not {lost}")

    def judge_decomposition(self):
        self.need(self.number("compute_s") > 0, "compute_s is not there")
        if not self.algorithm:
            extra = [name for name in ("comm_s", "exposed_s", "exposed_union_s", "overlap_s", "wait_s", "wire_s", *BYTES)
                     if self.metrics.get(name) is not None]
            self.need(not extra, f"nothing is exchanged, yet it has {extra}")
            return
        lost = [name for name in DECOMPOSITION if math.isnan(self.number(name))]
        # Clocks on several hosts may be less sure than the skew; on one host they are the same clock.
        if self.factors["nodes"] > 1 and "wait_s" in lost:
            lost.remove("wait_s")
        self.need(not lost, f"the decomposition lacks {lost}")
        control = self.controls.get((self.ranks, self.batch))
        self.need(control is not None, "there is no row of independent at these factors")
        if control is not None:
            exposed = self.metrics["time_s"]["median"] - control["metrics"]["time_s"]["median"]
            self.need(math.isclose(self.number("exposed_s"), exposed, abs_tol=1e-12), "exposed_s is not step - control")
        self.need(self.number("overlap_s") <= self.number("comm_s") + 1e-9, "more overlapped than communicated")

    def judge_bytes(self):
        if self.algorithm == "mpi":
            known = [name for name in BYTES if self.metrics.get(name) is not None]
            self.need(not known, f"the library does not tell its bytes, yet there is {known}")
        if self.algorithm != "ring":
            return
        total, most = self.metrics.get("bytes_sent_total"), self.metrics.get("bytes_sent_per_rank_max")
        self.need(total is not None and total == self.metrics.get("bytes_predicted"),
                  f"sent {total} bytes, predicted {self.metrics.get('bytes_predicted')}")
        # A ring's rank sends 2(P-1)/P of the buffer.
        low = 2 * (self.ranks - 1) * PARAMETER_BYTES
        high = 2 * (self.ranks - 1) * (PARAMETER_BYTES + PADDING_BYTES)
        self.need(total is not None and low <= total <= high, f"sent {total} bytes, not {low} to {high}")
        # Blocks are whole elements, so one rank may have an element more than another in each of its 2(P-1) messages
        # for each bucket.
        slack = 4 * 2 * (self.ranks - 1) * TENSORS
        self.need(most is not None and low / self.ranks <= most <= high / self.ranks + slack,
                  f"a rank sent {most} bytes, not about {low / self.ranks:.0f}")
        nodes = self.factors["nodes"]
        self.need(nodes > 1 or self.metrics.get("bytes_inter_node") == 0, "bytes crossed nodes on one node")


def judge(points):
    """What is wrong with the rows of a sweep; nothing for a good one."""
    baselines = {p["factors"]["batch_per_rank"]: p for p in points
                 if p["factors"]["ranks"] == 1 and p["factors"]["strategy"] == "independent"}
    controls = {(p["factors"]["ranks"], p["factors"]["batch_per_rank"]): p for p in points
                if p["factors"]["strategy"] == "independent"}
    return {combination(p): problems for p in points if (problems := Row(p, baselines, controls).judge())}


def table_rows(text):
    """(ranks, batch, strategy, algorithm) of each row of the printed tables."""
    rows = []
    for line in text.splitlines():
        cells = re.match(r" *(\d+)\*? +(?:-|weak) +(\d+) +(independent|sync) +(\S+) ", line)
        if cells:
            algorithm = cells[4].partition("/")[0]
            rows.append((int(cells[1]), int(cells[2]), cells[3], None if algorithm == "-" else algorithm))
    return rows


def overlap(test, text, cores, points):
    """The default takes a progress thread where each rank has a core for it, and says where it has not."""
    found = {(p["factors"]["ranks"], p["factors"]["overlap"]) for p in points if p["factors"]["overlap"]}
    wanted = {(p["factors"]["ranks"], "bucketed" if p["factors"]["ranks"] * (p["factors"]["threads"] + 1) <= cores else
               "none") for p in points if p["factors"]["overlap"]}
    test.equal(found, wanted, f"overlap is off by itself where {cores} cores have none to spare")
    off = [str(ranks) for ranks, kind in sorted(wanted) if kind == "none"]
    line = f"no spare core with {', '.join(off)} ranks: overlap off"
    test.equal(line in text, bool(off), "and a line above the tables says so")


def damaged(points, index, change):
    copies = [json.loads(json.dumps(p)) for p in points]
    change(copies[index])
    return copies


def controls(test, out, points):
    """The checks above can fail: each damage is found, and in its row only."""
    good = [(i, combination(p)[3]) for i, p in enumerate(points) if combination(p) not in judge(points)]
    ring, mpi = (next(i for i, algorithm in good if algorithm == wanted) for wanted in ("ring", "mpi"))
    damages = {
        "a byte more than predicted": (ring, lambda p: p["metrics"].update(
            bytes_sent_total=1 + p["metrics"]["bytes_sent_total"])),
        "half the bytes, predicted too": (ring, lambda p: p["metrics"].update(
            {name: p["metrics"][name] // 2 for name in ("bytes_sent_total", "bytes_predicted")})),
        "bytes claimed for the library": (mpi, lambda p: p["metrics"].update(bytes_sent_total=1)),
        "a lost interval": (mpi, lambda p: p["metrics"]["time_s"].update(ci95_low=None)),
        "too few samples": (mpi, lambda p: p["metrics"]["time_s"].update(n=4, stop="interval")),
        "a lost part": (ring, lambda p: p["metrics"].pop("overlap_s")),
        "a lost cause": (ring, lambda p: p["metrics"].update(wire_s=p["metrics"]["wire_s"] + 1e-3)),
        "too few blocks": (mpi, lambda p: p["metrics"].update(blocks=5)),
        "an interval from too few blocks": (mpi, lambda p: (p["metrics"].update(blocks=7, left_out_blocks=0),
                                                            p["metrics"]["time_s"].update(stop="interval"))),
        "another efficiency": (ring, lambda p: p["metrics"].update(efficiency=p["metrics"]["efficiency"] * 1.001)),
    }
    before = judge(points)
    for what, (index, change) in damages.items():
        found = [row for row in judge(damaged(points, index, change)) if row not in before]
        test.equal(found, [combination(points[index])], f"control: {what} is found")
    bad = test.path("bad.jsonl")
    text = out.read_text()
    for what, changed in {"a renamed metric summary": text.replace('"ci95_low"', '"ci95_lo"', 1),
                          "a text where a number belongs": text.replace('"compute_s":', '"compute_s":"?","x":', 1),
                          "a torn line": text[:-20]}.items():
        bad.write_text(changed)
        test.check(changed != text and test.validate(bad).returncode == 1, f"control: the schema refuses {what}")
    for what, (index, change) in {
            "parts that do not add up": (ring, lambda p: p["metrics"].update(wait_s=p["metrics"]["wait_s"] + 1e-3)),
            "a step below its limit": (mpi, lambda p: p["metrics"].update(limit_s=2 * p["metrics"]["time_s"]["max"])),
            "a verdict that is not likely": (mpi, lambda p: p["metrics"].update(bound_by="wire", bound_by_probability=0.6)),
            "ranks faster than one alone": (mpi, lambda p: p["metrics"].update(efficiency_ci95_low=1.01))}.items():
        changed = [json.loads(line) for line in text.splitlines()]
        rows = [line for line in changed if line["kind"] == "point"]
        rows[index]["status"] = "ok"
        change(rows[index])
        bad.write_text("".join(json.dumps(line) + "\n" for line in changed))
        test.check(test.validate(bad).returncode == 1, f"control: the validator refuses {what}")


def one_rank(test):
    """A job script goes over 1, 2, 4 ranks with the same flags: on one rank those of the exchange are null, and a note says so."""
    exchange = ["--algorithm", "ring", "--codec", "bf16", "--bucket", "1M", "--overlap", "bucketed", "--transport", "mpi"]
    small = ["--model", "mlp:784-16-10", "--batch", "16", "--strategy", "sync"]
    for name, arguments in (("scale", ["scale", *small, "--time-budget", "1s"]),
                            ("train", ["train", *small, "--steps", "3", "--train-samples", "640", "--validation-samples", "64"])):
        out = test.path(f"one-{name}.jsonl")
        done = test.run(*arguments, *exchange, "--out", out)
        factors = [p["factors"] for p in support.points(out)]
        test.check(done.code == 0 and factors and all(f[flag] is None for f in factors for flag in ("algorithm", "codec", "transport", "overlap")),
                   f"{name} on one rank: flags of the exchange are null", done)
        test.check(len(re.findall(r"(?m)^note: one rank exchanges nothing, so --algorithm ring, .*--bucket 1M change nothing$", done.err)) == 1,
                   "with one note", done)
        done = test.run(*arguments, *exchange, "--strict")
        test.check(done.code == 2 and len(done.own_lines) == 1, "--strict refuses them", done)


def servers_on_one_rank(test):
    done = test.run("train", "--model", "mlp:784-16-10", "--batch", "16", "--strategy", "ps-async", "--servers", "1", "--steps", "3",
                    "--train-samples", "640", "--validation-samples", "64")
    test.check(done.code == 0 and "note: one rank exchanges nothing, so --servers 1 changes nothing" in done.err,
               "train on one rank: it is its own server, with a note", done)


def own_work(test):
    """Evaluations that only the strategy makes are no kernels that an exchange slows down."""
    out = test.path("own.jsonl")
    done = test.run("scale", "--thread-ranks", 2, "--ranks", 2, "--model", "mlp:784-64-10", "--batch", 64, "--strategy", "es,population",
                    "--algorithm", "ring", "--time-budget", "8s", "--out", out)
    for p in support.points(out):
        m, name = p["metrics"], p["factors"]["strategy"].split(":")[0]
        if name == "independent" or p["factors"]["ranks"] == 1:
            continue
        parts = {k: m.get(k, 0) for k in PARTS}
        test.check(m["other_s"] > 4 * m["interference_s"], f"what {name} computes besides a usual step is no interference", parts)
        test.check(abs(sum(parts.values()) / (m["time_s"]["median"] - m["baseline_time_s"]) - 1) < 1e-6, f"the parts of {name} add up", m)
    test.equal(done.code, 0, "searches in a sweep")


def body(test):
    out = test.path("r.jsonl")
    done = test.run("scale", "--model", MODEL, "--batch", "16,64,256", "--ranks", "1,2,4", "--strategy",
                    "independent,sync", "--algorithm", "mpi,ring", "--out", out, "--time-budget", "15s", ranks=4,
                    timeout=150)
    if not test.check(done.code == 0 and not done.own_lines, "the sweep ends with 0", done):
        return
    test.valid(out)
    points, runs = support.points(out), support.runs(out)
    test.equal(len(runs), 1, "the file has one run line")
    test.equal(runs[0]["ranks"], 4, "it says 4 ranks")
    test.check({p["run_id"] for p in points} == {runs[0]["run_id"]}, "all points are of that run")
    test.check({p["factors"]["model"] for p in points} == {MODEL}, f"all are of {MODEL}")
    test.equal(len(points), 24, "the file has 24 points")
    test.equal(sorted(map(combination, points), key=str), sorted(wanted_combinations(), key=str),
               "they are the 24 meaningful combinations, each once")
    test.equal(judge(points), {}, "each has baseline, interval, decomposition and the bytes of its algorithm")
    test.equal(sorted(table_rows(done.out), key=str), sorted(wanted_combinations(), key=str),
               "the printed tables have a row for each")
    test.check(done.out.count("baseline: 1 rank") == 3, "each of the 3 curves names its baseline", done)
    overlap(test, done.out, runs[0]["cores_per_node"], points)
    test.check("24 points measured, 0 kept" in done.out, "the last line counts them", done)
    controls(test, out, points)
    one_rank(test)
    servers_on_one_rank(test)
    own_work(test)


if __name__ == "__main__":
    support.main(__doc__, body)
