#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks gradmeter's own figures and says which attacks were noticed.

    . scripts/environment.sh
    scripts/truth.py build/release/gradmeter --interposed build/release/tests/interposed [--only NAME,…] [--quick]

Each experiment prints one row: what was done, what was found, and whether that is what must be found. Each has its
control, the same run with nothing done to it. Errors come from --inject and from libraries that are preloaded
(tests/interposed), so that the program does not judge itself alone. Ends with 1 when a row says NO.
The recorded run is results/truth.md; on 2 cores all takes about 20 minutes, --quick (as the tests run it) 2.
"""
import argparse
import errno
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

VALIDATE = pathlib.Path(__file__).resolve().parent / "validate-results.py"
NO_ALL_REDUCE = ("ad-psgd", "d-psgd", "dc-asgd", "easgd", "gossip", "ps-async", "ps-backup", "ps-softsync", "ps-ssp",
                 "ps-sync")
# The file is on a disk of $0 that only the command sees, and is copied from there when it has ended.
MOUNTS = ["unshare", "-m", "bash", "-c"]
ON_SMALL_DISK = 'mount -t tmpfs -o size="$0" tmpfs disk && { "$@"; code=$?; cp disk/out.jsonl .; exit $code; }'
SMALL = ("--model", "mlp:784-64-10", "--batch", "16", "--threads", "1")


def is_point(line):
    try:
        return json.loads(line)["kind"] == "point"
    except ValueError:  # torn
        return False


class Truth:
    def __init__(self, options):
        self.gradmeter, self.interposed, self.quick = options.gradmeter, options.interposed, options.quick
        self.mpiexec = options.mpiexec.split()
        # Of runs whose results count and not their times. The interval of a time may be wide then.
        self.brief = ("--time-budget", "1s", "--precision-goal", "0.5") if self.quick else ("--time-budget", "4s")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradmeter-truth-"))
        self.failed = self.spoilt = self.rows_printed = 0
        self.seeds = options.seeds

    # --- running

    def run(self, *arguments, ranks=None, env=None, timeout=600, wrapper=()):
        """(exit code, the last line that the program itself complained with, points of its result file)."""
        out = self.folder / "out.jsonl"
        out.unlink(missing_ok=True)
        launcher = [*self.mpiexec, "-np", str(ranks)] if ranks else []
        exported = [x for key in (env or {}) for x in ("-x", key)] if ranks else []
        done = subprocess.run([*launcher, *exported, *wrapper, self.gradmeter, *map(str, arguments), "--out", out],
                              capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})},
                              check=False)
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        own = [line for line in done.stderr.splitlines() if line.startswith("gradmeter:")]
        self.spoilt = sum(int(n) for n in re.findall(r"^spoilt (\d+) results$", done.stderr, re.MULTILINE))
        return done.returncode, own[-1] if own else "", [line for line in lines if line["kind"] == "point"]

    def row(self, experiment, done, found, right):
        self.failed += not right
        self.rows_printed += 1
        print(f"| {experiment} | {done} | {found} | {'yes' if right else '**NO**'} |", flush=True)

    def preload(self, name):
        places = [pathlib.Path(self.interposed).resolve() / f"{prefix}interposed_{name}.so" for prefix in ("", "lib")]
        found = [p for p in places if p.exists()]
        if not found:  # a loader that does not find it only says so
            sys.exit(f"truth: {places[0]} is not there: build the target interposed_{name}")
        return {"LD_PRELOAD": str(found[0])}

    # --- intervals

    @staticmethod
    def are_disjoint(a, b):
        return a["ci95_low"] > b["ci95_high"] or b["ci95_low"] > a["ci95_high"]

    def equal_points(self):
        """The same work twice in one launch: one rank's independent and sync, collectives and products with --repeats 2."""
        kinds = {"scale": ("--ranks", "1", "--strategy", "independent,sync", "--batch", "16,64,256", "--model", "mlp:784-256-10",
                           "--time-budget", "4s" if self.quick else "18s"),
                 "allreduce": ("--algorithm", "ring", "--sizes", "1K,32K,1M", "--in-place", "out", "--repeats", "2"),
                 "kernels": (*(x for n in (64, 160, 400) for x in ("--shape", f"gemm:m={n},n={n},k={n}")), "--cache", "hot",
                             "--threads", "1", "--repeats", "2")}
        for command, arguments in kinds.items():
            disjoint, pairs, widths = 0, 0, []
            for _ in range(1 if self.quick else 10):
                equal = {}
                for p in self.run(command, *arguments, ranks=2 if command == "allreduce" else None)[2]:
                    work = {k: v for k, v in p["factors"].items() if k not in ("strategy", "repeat")}
                    equal.setdefault(json.dumps(work, sort_keys=True), []).append(p["metrics"]["time_s"])
                for a, b in equal.values():
                    pairs += 1
                    disjoint += self.are_disjoint(a, b)
                    widths += [(t["ci95_high"] - t["ci95_low"]) / 2 / t["median"] for t in (a, b)]
            half = statistics.median(widths)
            # A handful of pairs, beside other tests, cannot judge the width.
            good = disjoint <= max(1, pairs // 20) and (self.quick or half <= 0.05)
            self.row("equal points", f"{command}: {pairs} pairs in {1 if self.quick else 10} launches",
                     f"{disjoint} disjoint, median half width {100 * half:.1f} %", good)

    def equal_launches(self):
        """Launches of the same work, one after another: what differs between two of them must be in their intervals."""
        if self.quick:
            return
        kinds = {"kernels": [(("--shape", f"gemm:m={n},n={n},k={n}", "--cache", "hot", "--threads", "1"), None) for n in (64, 160, 400)],
                 "allreduce": [(("--algorithm", "ring", "--sizes", "1K,32K,1M", "--in-place", "out"), 2)]}
        for command, launches in kinds.items():
            disjoint, pairs, before, failed = 0, 0, {}, 0
            for _ in range(10):
                done = [self.run(command, *arguments, ranks=ranks) for arguments, ranks in launches]
                failed += sum(code != 0 for code, _, _ in done)
                points = [p for _, _, found in done for p in found if p["status"] in ("ok", "mistrusted")]
                now = {json.dumps(p["factors"], sort_keys=True): p["metrics"]["time_s"] for p in points}
                for key in now.keys() & before.keys():
                    pairs += 1
                    disjoint += self.are_disjoint(now[key], before[key])
                before = now
            self.row("equal launches", f"{command}: {pairs} pairs of neighbours",
                     f"{disjoint} disjoint{f', {failed} launches failed' if failed else ''}",
                     pairs > 0 and failed == 0 and disjoint <= max(1, pairs // 20))

    # --- causes

    def slow_rank(self):
        ways = {"nothing": ((), None), "--inject slow:rank=1,factor=2": (("--inject", "slow:rank=1,factor=2"), None)}
        if not self.quick:
            ways["oneDNN of rank 1 twice as slow (preloaded)"] = (
                (), {**self.preload("slow_rank"), "SLOW_RANK": "1", "SLOW_FACTOR": "2"})
        for way, (flags, env) in ways.items():
            budget = "4s" if self.quick else "40s"
            code, own, points = self.run("scale", "--ranks", "1,2", "--strategy", "sync", "--algorithm", "mpi,ring",
                                         "--overlap", "none", "--batch", "64", "--time-budget", budget, *flags, ranks=2,
                                         env=env)
            exchanges = [p for p in points if p["factors"]["algorithm"] is not None and p["factors"]["ranks"] > 1]
            if code != 0 or not exchanges:
                self.row("a slow rank", way, f"exit {code}, {len(exchanges)} rows of exchanges{f': {own}' if own else ''}", False)
            for p in exchanges:
                f, m = p["factors"], p["metrics"]
                if p["status"] not in ("ok", "mistrusted"):
                    self.row("a slow rank", way, f"{f['algorithm']}: {p['status']}", False)
                    continue
                sure = m.get("bound_by_probability", 0) >= 0.9
                found = (f"{f['algorithm']}: {m.get('bound_by_candidates')}, slowest rank {m.get('slowest_rank')}, straggle "
                         f"{1e3 * m['straggle_s']:.2f} of {1e3 * m['time_s']['median']:.2f} ms")
                if way == "nothing":
                    good = m.get("bound_by") != "straggle" or not sure
                elif self.quick:  # among other tests a verdict may be unsure, but no sure one may be another
                    good = m.get("slowest_rank") in (1, None) and (m.get("bound_by") == "straggle" or not sure)
                else:
                    good = m.get("slowest_rank") == 1 and m.get("bound_by") == "straggle"
                self.row("a slow rank", way, found, good)

    # --- wrong results

    def judge_wrong(self, experiment, done, outcome, wanted, preloaded=False):
        code, own, points = outcome
        if preloaded and wanted and code == 0 and self.spoilt == 0 and not self.quick:  # on a busy machine
            return self.row(experiment, done, "exit 0: the run ended before its library was wrong", True)
        wrong = [p for p in points if p["status"] == "wrong"]
        found = f"exit {code}" + (f": {wrong[0]['reason']}" if wrong else f": {own}" if own else "")
        # A job whose ranks cannot go on together ends at once, with a line and without a row.
        self.row(experiment, done, found, code == wanted and (bool(wrong) or bool(own) or wanted == 0))

    def wrong_strategies(self):
        """An error in one element of every collective and message from the N-th on, on one rank."""
        listed = subprocess.run([self.gradmeter, "list", "strategies", "--json"], capture_output=True, text=True,
                                check=True).stdout
        names = [s["name"] for s in json.loads(listed)["strategies"] if s["name"] != "independent"]
        if self.quick:
            names = [n for n in names if n in ("sync", "model-averaging", "ps-sync")]
        for name in names:
            base = ("scale", *SMALL, *self.brief, "--ranks", "2", "--strategy", name)
            if name not in NO_ALL_REDUCE:
                base += ("--algorithm", "ring")
            control = self.run(*base, ranks=2)
            self.judge_wrong(f"wrong data, {name}", "nothing", control, 0)
            # A step makes a call at least, so half of the timed steps lie after this one.
            timed = min(p["metrics"]["time_s"]["n"] for p in control[2]
                        if p["factors"]["strategy"].split(":")[0] == name and p["factors"]["ranks"] == 2)
            for call in (1,) if self.quick else (1, 5, min(400, timed // 2)):
                flip = f"flip:call={call},rank=0"
                self.judge_wrong(f"wrong data, {name}", f"--inject {flip}",
                                 self.run(*base, "--inject", flip, ranks=2), 4)

    def wrong_sums(self):
        """MPI_Allreduce itself is wrong, on all ranks alike: before timing, from the fifth call, in mid-run."""
        base = ("scale", *SMALL, *self.brief, "--ranks", "2", "--strategy", "sync", "--algorithm", "mpi", "--overlap", "none")
        control = self.run(*base, ranks=2)
        self.judge_wrong("wrong MPI_Allreduce (preloaded)", "nothing", control, 0)
        for first in (5,) if self.quick else (1, 5, 400):
            env = {**self.preload("wrong_sum"), "WRONG_FROM": str(first)}
            self.judge_wrong("wrong MPI_Allreduce (preloaded)", f"all ranks alike, from call {first}",
                             self.run(*base, ranks=2, env=env), 4, preloaded=True)
        if self.quick:
            return
        # A step makes a call: the middle third of the timed ones is wrong, what comes before and after is right.
        timed = min(p["metrics"]["time_s"]["n"] for p in control[2] if p["factors"]["algorithm"])
        env = {**self.preload("wrong_sum"), "WRONG_FROM": str(timed // 3), "WRONG_TO": str(2 * timed // 3)}
        self.judge_wrong("wrong MPI_Allreduce (preloaded)", f"all ranks alike, calls {timed // 3} to {2 * timed // 3 - 1} only",
                         self.run(*base, ranks=2, env=env), 4, preloaded=True)

    def wrong_collectives(self):
        kinds = ("allreduce",) if self.quick else ("allreduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
                                                   "sendrecv")
        for kind in kinds:
            base = ("allreduce", "--collective", kind, "--algorithm", "ring" if kind == "allreduce" else "all", "-b",
                    "64K", "-e", "64K", *(("-n", "20", "-w", "5") if self.quick else ("--time-budget", "4s")))
            self.judge_wrong(f"wrong data, {kind}", "nothing", self.run(*base, ranks=2), 0)
            for call in (1,) if self.quick else (1, 5, 1000):
                flip = f"flip:call={call},rank=0"
                self.judge_wrong(f"wrong data, {kind}", f"--inject {flip}",
                                 self.run(*base, "--inject", flip, ranks=2), 4)
        if not self.quick:
            env = {**self.preload("wrong_sum"), "WRONG_FROM": "300", "WRONG_TO": "3000"}
            self.judge_wrong("wrong data, allreduce", "MPI_Allreduce (preloaded), calls 300 to 2999 only",
                             self.run("allreduce", "--algorithm", "mpi", "-b", "64K", "-e", "64K", "--time-budget", "4s",
                                      ranks=2, env=env), 4, preloaded=True)

    def wrong_timed_calls(self):
        """MPI's collectives are right between barriers on data of their own, and wrong as they are timed. From the 200th call on, so
        that the checks before timing pass."""
        if self.quick:
            return  # cli.allreduce holds these
        ways = {"--cadence none": ("--cadence", "none"), "-m 10": ("-m", "10"), "--cadence barrier": ()}
        for kind in ("directly", "early", "repeated", "idle"):
            for collective in ("allreduce", "broadcast", "all_gather"):
                for way, flags in ways.items():
                    if (kind == "directly" and not flags) or (kind == "repeated" and collective != "allreduce"):
                        continue  # no call follows another; what a broadcast repeats is right
                    for place in ("in", "out"):
                        env = {**self.preload("wrong_sum"), "WRONG_KIND": kind, "WRONG_FROM": "200"}
                        done = self.run("allreduce", "--collective", collective, "--algorithm", "mpi", "-b", "64K", "-e", "64K", "--in-place",
                                        place, "--time-budget", "2s", *flags, ranks=2, env=env)
                        # No call finds the data of the last one, so that a library that would do less then does all of its work.
                        self.judge_wrong(f"{collective} (preloaded: {kind})", f"{way}, --in-place {place}", done, 0 if kind == "repeated" else 4,
                                         preloaded=True)

    def drawn_faults(self):
        """Faults of libraries that a seed draws, from the library over the call to the conditions. What spoils no result is no fault,
        and counted apart."""
        if self.quick:
            return
        caught = idle = 0
        for seed in self.seeds:
            library, env, arguments, ranks = self.drawn_fault(seed)
            code, own, points = self.run(*arguments, ranks=ranks, env={**self.preload(library), **env})
            # A training that is wrong ends at once, with a line and without a row, and tells of no spoilt result.
            wrong = [p["reason"] for p in points if p["status"] == "wrong"]
            good = code == 4 or (self.spoilt == 0 and code == 0)
            idle += self.spoilt == 0 and code == 0
            caught += code == 4
            what = " ".join(f"{k}={v}" for k, v in env.items())
            self.row(f"seed {seed}: {library}, {what}", " ".join(arguments), f"exit {code}, {self.spoilt} results spoilt"
                     + (f": {wrong[0]}" if wrong else f": {own}" if own else ""), good)
        self.row("drawn faults", f"{len(self.seeds)} seeds", f"{caught} caught, {idle} spoilt no result", caught + idle == len(self.seeds))

    def honest_draws(self):
        """The same commands as those of drawn_faults with an honest library: none is accused."""
        if self.quick:
            return
        accused = 0
        for seed in self.seeds:
            _, _, arguments, ranks = self.drawn_fault(seed)
            code, own, points = self.run(*arguments, ranks=ranks)
            wrong = [p["reason"] for p in points if p["status"] == "wrong"]
            if code == 0 and points and not wrong:
                continue
            accused += 1
            self.row(f"seed {seed}: an honest library", " ".join(arguments), f"exit {code}: {wrong[0] if wrong else own}", False)
        self.row("an honest library", f"{len(self.seeds)} seeds", f"{accused} accused", accused == 0)

    def drawn_fault(self, seed):
        """(library, its environment, the command, its ranks)"""
        r = random.Random(f"fault {seed}")
        library = r.choice(("wrong_sum", "idle_onednn"))
        return library, *(self.fault_of_mpi if library == "wrong_sum" else self.fault_of_onednn)(r)

    def fault_of_mpi(self, r):
        command = r.choice(("allreduce", "allreduce", "scale", "train"))
        env = {"WRONG_KIND": r.choice(("sum", "directly", "early", "repeated", "idle")), "WRONG_FROM": str(int(10 ** r.uniform(1, 2.5))),
               "WRONG_RANK": str(r.choice((-1, 0, 1)))}
        if command == "allreduce":
            collective = "allreduce" if env["WRONG_KIND"] == "sum" else r.choice(("allreduce", "broadcast", "all_gather"))
            size = str(4 << r.randrange(1, 19))
            return env, (command, "--collective", collective, "--algorithm", "mpi", "--sizes", size, "--in-place", r.choice(("in", "out")),
                         "--cadence", r.choice(("barrier", "none", "window")), "-m", str(r.choice((1, 1, 10))), "--time-budget", "3s"), 2
        small = ("--model", "mlp:784-64-10", "--batch", str(r.choice((16, 64))), "--threads", "1")
        overlap = ("--overlap", r.choice(("none", "bucketed")))
        if command == "scale":
            strategy = r.choice(("sync", "sharded", "model-averaging"))
            overlap = overlap if strategy != "model-averaging" else ()
            return env, (command, *small, "--ranks", "2", "--strategy", strategy, "--algorithm", "mpi", *overlap, "--time-budget", "4s"), 2
        return env, (command, *small, *overlap, "--algorithm", "mpi", "--epochs", "1"), 2

    def fault_of_onednn(self, r):
        command = r.choice(("kernels", "kernels", "infer", "scale", "train"))
        env = {"IDLE_HOW": r.choice(("nothing", "half", "stale", "byte")), "IDLE_FROM": str(r.randrange(2, 60)), "IDLE_EVERY": str(r.randrange(1, 4))}
        precision = ("--precision", r.choice(("fp32", "bf16", "int8") if command in ("kernels", "infer") else ("fp32", "bf16")))
        if command == "kernels":
            m, n, k = (r.randrange(16, 200) for _ in range(3))
            shape = r.choice((f"gemm:m={m},n={n},k={k}", f"conv:w=14,h=14,c={8 * r.randrange(1, 5)},n=2,k=16,fw=3,fh=3,pw=1,ph=1,sw=1,sh=1"))
            return env, (command, "--shape", shape, "--cache", r.choice(("hot", "cold")), "--threads", "1", *precision, "--time-budget", "3s"), None
        model = ("--model", r.choice(("mlp:784-64-10", "mlp:784-128-64-10")), "--batch", str(r.choice((16, 64))), "--threads", "1")
        if command == "infer":
            return env, (command, *model, *precision, "--time-budget", "3s"), None
        if command == "scale":
            return env, (command, *model, *precision, "--time-budget", "4s"), None
        return env, (command, *model, *precision, "--epochs", "1"), None

    # --- rows that are kept

    def kept_rows(self):
        """The result file or its disk is struck at moments that a seed draws: all rows that were said to be measured are in
        the file, or the run ends with another code than 0 and a line."""
        errors = {name: str(getattr(errno, name)) for name in ("EIO", "ENOSPC", "EDQUOT", "ESTALE")}
        whole = self.struck("nothing")
        for seed in self.seeds if not self.quick else (1,):
            for blow in ("unlink", "truncate", "rename", "write", "fdatasync", "close", "full disk", "file size"):
                r = random.Random(f"{blow} {seed}")
                moment, part, error = r.random() * (0.4 if self.quick else 2.3), r.random(), r.choice(list(errors))
                limit, call = int(part * whole), 1 + int(part * {"write": 43, "fdatasync": 3}.get(blow, 1))
                if blow in ("unlink", "truncate", "rename"):
                    what = f"{blow}{f' to {part:.0%}' if blow == 'truncate' else ''} after {moment:.2f} s"
                    self.struck(what, strike=(blow, moment, part))
                elif blow == "full disk":
                    if subprocess.run(MOUNTS + ["mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False).returncode != 0:
                        self.row("kept rows", blow, "skipped: needs the right to mount one", True)
                        continue
                    pages = limit // 4096 + 1
                    self.struck(f"full disk of {pages} pages", wrapper=[*MOUNTS, ON_SMALL_DISK, f"{4 * pages}k"])
                elif blow == "file size":
                    self.struck(f"file size of at most {limit} bytes", wrapper=("prlimit", f"--fsize={limit}"))
                else:
                    env = {"FLAKY_WRITE": str(call), "FLAKY_ERROR": errors[error], "FLAKY_S": "1"} if blow == "write" else {
                        "FLAKY_SYNC" if blow == "fdatasync" else "FLAKY_CLOSE": errors[error], "FLAKY_AT": str(call)}
                    self.struck(f"{blow} {call} fails with {error}", env={**self.preload("flaky_disk"), "FLAKY_FILE": "out.jsonl", **env})

    def struck(self, what, strike=None, env=None, wrapper=()):
        """A run of 40 points and its row. Returns the bytes of its file."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        file, other = folder / "disk" / "out.jsonl", folder / "disk" / "other.jsonl"
        file.parent.mkdir()
        job = subprocess.Popen([*wrapper, pathlib.Path(self.gradmeter).resolve(), "allreduce", "--thread-ranks", "2", "--algorithm",
                                "ring,recursive-doubling", "--sizes", ",".join(str(64 * n) for n in range(1, 21)), "--in-place", "out",
                                "--time-budget", "0.3s" if self.quick else "2s", "--out", file], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}, cwd=folder)
        over = ""
        if strike:
            while not file.exists() and job.poll() is None:
                time.sleep(0.001)
            time.sleep(strike[1])
            os.kill(job.pid, signal.SIGSTOP)  # a run that has ended is not collected yet, so that its number is its own
            os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if '"kind":"end"' in file.read_text(encoding="utf-8"):
                over = "; it was over before"
            elif strike[0] == "rename":
                file.rename(other)
            elif strike[0] == "unlink":
                file.unlink()
            else:
                os.truncate(file, int(strike[2] * file.stat().st_size))
            os.kill(job.pid, signal.SIGCONT)
        out, err = job.communicate(timeout=300)
        told = [line for line in err.splitlines() if line.startswith("gradmeter:") and "out.jsonl" in line]
        said = sum(map(int, re.findall(r"(\d+) points measured", out)))
        # Where the run says that they are, or from its own disk.
        named = [f for f in (folder / "out.jsonl", file, other) if f.exists() and (f != other or any(str(other) in line for line in told))]
        text = "".join(f.read_text(encoding="utf-8") for f in named)
        rows = sum(map(is_point, text.splitlines()))
        good = rows >= said == 40 and "flaky disk:" not in err if job.returncode == 0 else bool(told) and what != "nothing"
        self.row("kept rows", what + over, f"exit {job.returncode}, {rows} rows of {said} said" + "".join(
            f"; {line.replace(str(folder / 'disk') + '/', '')}" for line in told), good)
        return len(text.encode())

    # --- the machine

    def drift(self):
        """Clocks that drift apart, with the ranks as two nodes: the span of a short call must not grow with it."""
        if self.quick:
            return  # the unit tests of runtime hold the clock model
        base = ("allreduce", "--fake-nodes", "0,1", "--reduction", "span", "--algorithm", "ring", "-b", "8", "-e", "8",
                "--time-budget", "10s")
        medians = {}
        for ppm in (0, 20, 200):
            flags = ("--inject", f"drift:ppm={ppm}") if ppm else ()
            _, _, points = self.run(*base, *flags, ranks=2)
            medians[ppm] = points[0]["metrics"]["time_s"]["median"]
        for ppm in (20, 200):
            grown = medians[ppm] - medians[0]
            self.row("clock drift", f"--inject drift:ppm={ppm}, span of 8 bytes over 10 s",
                     f"{1e6 * medians[ppm]:.2f} µs, {1e6 * medians[0]:.2f} without", abs(grown) < 5e-6)

    def hog(self):
        """Another program takes half of one rank's core."""
        if self.quick or os.cpu_count() < 2:
            return
        bound = ("--bind-to", "core")
        base = ("scale", "--ranks", "1,2", "--strategy", "sync", "--algorithm", "mpi", "--overlap", "none", "--batch", "64",
                "--time-budget", "20s", "--threads", "1")
        for beside in (False, True):
            spinning = None
            if beside:
                spinning = subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"])
            launcher, self.mpiexec = self.mpiexec, [*self.mpiexec, *bound]
            try:
                _, _, points = self.run(*base, ranks=2)
            finally:
                self.mpiexec = launcher
                if spinning:
                    spinning.terminate()
                    spinning.wait()
            p = next(p for p in points if p["factors"]["ranks"] == 2 and p["factors"]["algorithm"])
            m = p["metrics"]
            delay = m.get("noise_run_delay") or 0
            found = f"run-queue delay {100 * delay:.0f} % of the worst rank, bound by {m.get('bound_by')}"
            self.row("a busy neighbour", "a program that spins on core 1" if beside else "nothing", found,
                     delay > 0.2 if beside else delay < 0.2)

    # --- rows against their own definitions

    def rows(self):
        """Every row obeys its definitions, and those that share nothing but the machine are not doubted."""
        small = ("--model", "mlp:784-64-10", "--batch", "16", "--time-budget", "5s" if self.quick else "15s")
        sweeps = {"sync and ps-sync, small": ("--strategy", "sync,ps-sync", *small)} if self.quick else {
            "sync over batches, weak and strong": ("--strategy", "sync", "--batch", "16,64,256", "--scaling", "weak,strong"),
            "every strategy": ("--strategy", "all", "--batch", "64")}
        for sweep, flags in sweeps.items():
            code, _, points = self.run("scale", "--ranks", "1,2", "--algorithm", "mpi,ring", *flags, ranks=2, timeout=1800)
            checked = subprocess.run([sys.executable, VALIDATE, self.folder / "out.jsonl"], capture_output=True, text=True,
                                     check=False)
            doubted = sum(p["status"] == "mistrusted" for p in points)
            others = [p["metrics"].get("other_s", 0) / p["metrics"]["time_s"]["median"] for p in points
                      if p["status"] == "ok" and p["factors"]["ranks"] > 1]
            broken = checked.stdout.splitlines()
            self.row("rows", sweep, f"{len(points)} rows, {len(broken)} contradict a definition"
                     f"{': ' + broken[0] if broken else ''}; {doubted} mistrusted; `other` at most "
                     f"{100 * max(others, default=0):.1f} % of a step", code == 0 and checked.returncode == 0)


EXPERIMENTS = ("equal_points", "equal_launches", "slow_rank", "wrong_strategies", "wrong_sums", "wrong_collectives", "wrong_timed_calls",
               "drawn_faults", "honest_draws", "kept_rows", "drift", "hog", "rows")


def seeds(text):
    first, last = map(int, text.split("-"))
    return range(first, last + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--interposed", required=True, help="folder of the libraries that are preloaded")
    parser.add_argument("--mpiexec", default="mpirun")
    parser.add_argument("--only", default=",".join(EXPERIMENTS), help="of " + ", ".join(EXPERIMENTS))
    parser.add_argument("--seeds", type=seeds, default="1-30", help="of drawn_faults, honest_draws and kept_rows: FIRST-LAST")
    parser.add_argument("--quick", action="store_true", help="few and short runs, as the tests want them")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment '{unknown[0]}'; there are: {', '.join(EXPERIMENTS)}")
    truth = Truth(options)
    print("| experiment | done to it | found | as it must be |\n| --- | --- | --- | --- |", flush=True)
    for name in options.only.split(","):
        getattr(truth, name)()
    if truth.rows_printed == 0:
        sys.exit("truth: no row was printed, so nothing was shown: name an experiment that runs here, or leave --quick out")
    print(f"\n{truth.failed} rows are not as they must be" if truth.failed else "\nall rows are as they must be")
    return 1 if truth.failed else 0


if __name__ == "__main__":
    sys.exit(main())
