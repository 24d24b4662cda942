# SPDX-License-Identifier: Apache-2.0
"""Traces of PyTorch's profiler, PyTorch's execution traces and Chakra's end to end: imported, replayed on two ranks and on
threads, the rows compared; what cannot be replayed is refused before anything is measured."""
import json
import pathlib
import resource
import signal
import time

import support

LOGS = pathlib.Path("tests/importers/logs")


def replayed(test, root):
    trace, out = root / LOGS / "kineto_gloo.json", test.path("r.jsonl")
    done = test.run("replay", trace, "--seconds", "0.5", "--out", out, ranks=2)
    if not test.check(done.code == 0, "a trace of gloo on two ranks", done):
        return
    test.valid(out)
    row, = support.points(out)
    f, m = row["factors"], row["metrics"]
    test.equal((row["experiment"], row["status"], f["ranks"], f["problem"], m["wrong"], m["baseline_ranks"]),
               ("replay", "ok", 2, "trace:steps=3,calls=9,bytes=8036484", 0, 2), "the row says what was replayed")
    steps = sorted(e["ts"] for e in json.loads(trace.read_text())["traceEvents"] if e["name"].startswith("ProfilerStep#"))
    last = [e for e in json.loads(trace.read_text())["traceEvents"] if e["name"].startswith("ProfilerStep#")
            and e["ts"] == steps[-1]][0]
    mean = (steps[-1] + last["dur"] - steps[0]) / len(steps) * 1e-6
    test.check(abs(m["baseline_time_s"] / mean - 1) < 1e-6, "the baseline is the trace's mean step", (m, mean))
    busy = m["compute_s"]
    test.check(0.5 * mean < busy <= m["time_s"]["max"] * 1.001, "most of it is busy time, and no more than the step", m)
    test.check(m["comm_s"] > 0 and abs(m["comm_s"] - m["exposed_union_s"] - m["overlap_s"]) < 1e-9,
               "the exchange is what was exposed and what was hidden", m)
    lines = [line.split() for line in done.out.splitlines() if line.split()[:1] in (["trace"], ["replay"]) and line.split()[1].isdigit()]
    test.equal([line[:2] for line in lines], [["trace", "2"], ["replay", "2"]], "the table has the trace and the replay")
    shown = float(lines[1][3].lstrip("*~")) if len(lines) == 2 else 0
    test.check(abs(shown / (1e3 * m["time_s"]["median"]) - 1) < 0.01, "the table's step is the file's", (lines, m))
    imported = test.path("i.jsonl")
    done = test.run("import", trace, "--out", imported)
    test.check(done.code == 0 and "of rank 0 alone" in done.out, "the same trace imported", done)
    test.valid(imported)
    test.equal([p["experiment"] for p in support.points(imported)], ["replay"] + 3 * ["allreduce"], "its rows")
    done = test.run("report", imported, out, "--text")
    test.check(done.code == 0 and "trace:steps=3" in done.out, "report shows both", done)


def on_other_ranks(test, root):
    out = test.path("t.jsonl")
    done = test.run("replay", root / LOGS / "kineto_nccl.json", "--seconds", "0.5", "--out", out, "--thread-ranks", "2")
    test.check(done.code == 2 and "collective" in done.err, "a send between GPUs is refused", done)
    test.check(not out.exists(), "and nothing is written")
    whole = json.loads((root / LOGS / "kineto_nccl.json").read_text())
    whole["traceEvents"] = [e for e in whole["traceEvents"] if "SendRecv" not in e["name"]]
    trace = test.path("nccl.json")
    trace.write_text(json.dumps(whole))
    for overlap in ("none", "bucketed"):
        done = test.run("replay", trace, "--seconds", "0.5", "--out", out, "--force", "--thread-ranks", "3", "--overlap", overlap)
        if not test.check(done.code == 0, f"collectives of eight GPUs on three threads, overlap {overlap}", done):
            continue
        row, = support.points(out)
        test.equal((row["factors"]["ranks"], row["metrics"]["baseline_ranks"], row["factors"]["overlap"], row["metrics"]["wrong"]),
                   (3, 8, overlap, 0), "ranks that there are, and those of the trace")
        if overlap == "none":
            test.equal(row["metrics"]["overlap_s"] < 0.1 * row["metrics"]["comm_s"], True, "nothing is hidden without a thread")
    for computation, device, most_s in (("spin", "cpu", None), ("sleep", "none", 0.5)):
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = test.run("replay", trace, "--seconds", "1", "--out", out, "--force", "--thread-ranks", "1", "--computation", computation)
        after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
        if not test.check(done.code == 0, f"computations {computation}", done):
            continue
        row, = support.points(out)
        test.equal(row["factors"]["device"], device, "the row says what a rank did while the trace computes")
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        test.check(spent > 0.6 if most_s is None else spent < most_s * seconds, f"a core's seconds of {computation}", (spent, seconds))
    done = test.run("replay", trace, "--computation", "nap", "--thread-ranks", "2")
    test.check(done.code == 2 and "spin, sleep" in done.err, "another word is refused in a line with those that there are", done)


def without_times(test, root):
    """An execution trace has calls alone, Chakra durations and dependencies."""
    out = test.path("e.jsonl")
    done = test.run("replay", root / LOGS / "execution_trace_gloo.json", "--seconds", "0.5", "--out", out, "--thread-ranks", "2")
    if test.check(done.code == 0, "PyTorch's execution trace of gloo", done):
        test.valid(out)
        row, = support.points(out)
        m = row["metrics"]
        test.equal((row["status"], row["factors"]["problem"], m["wrong"], m.get("baseline_time_s"), m["baseline_ranks"]),
                   ("ok", "trace:steps=3,calls=9,bytes=8036484", 0, None, 2), "the same calls as the profiler's of this program, no time of its own")
        test.check(0 < m["comm_s"] <= m["time_s"]["max"] * 1.001 and m["compute_s"] < 0.1 * m["time_s"]["median"], "it exchanges alone", m)
        lines = [line.split() for line in done.out.splitlines() if line.split()[:1] in (["trace"], ["replay"]) and line.split()[1].isdigit()]
        test.equal([line[0] for line in lines], ["trace", "replay"], "the table has both")
    done = test.run("import", root / LOGS / "execution_trace_gloo.json", "--out", out, "--append")
    test.check(done.code == 0 and "no time to compare" in done.out, "its import says that it has no time", done)
    test.valid(out)
    chakra = test.path("c.jsonl")
    done = test.run("replay", root / LOGS / "chakra.json", "--seconds", "0.5", "--out", chakra, "--thread-ranks", "2")
    if test.check(done.code == 0, "a trace of Chakra", done):
        test.valid(chakra)
        row, = support.points(chakra)
        m = row["metrics"]
        test.check(row["status"] == "ok" and m["wrong"] == 0 and m["compute_s"] > 0 and m["comm_s"] > 0, "computes and exchanges", m)


def refused(test, root):
    log = (root / LOGS / "kineto_gloo.json").read_text()
    cut, empty, cycle = test.path("cut.json"), test.path("empty.json"), test.path("cycle.json")
    cycle.write_text('{\n "version": "0.0.4"\n}\n{"id": "1", "name": "n", "type": "COMP_NODE", "dataDeps": ["1"]}')
    cut.write_text(log[:len(log) // 2])
    empty.write_text('{"schemaVersion": 1, "traceEvents": []}')
    for trace, why in ((cut, "no whole JSON"), (empty, "ProfilerStep#"), (cycle, "line 4: node 1: its dependencies form a cycle"), (test.path("none.json"), "cannot read")):
        done = test.run("replay", trace, ranks=2)
        test.check(done.code == 2 and why in done.err and len(done.own_lines) == 1, f"refused in one line: {why}", done)
    test.check(test.run("replay").code == 2, "a trace must be named")


def long_steps(test, root):
    """A step of 58 days would hold the machine; a signal ends a long computation."""
    trace = json.loads((root / LOGS / "kineto_gloo.json").read_text())
    last = max((e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    for dur, why in ((58 * 86400e6, "busy for 58 days, and --seconds 5 is for all samples; record fewer or shorter steps"),
                     (100e6, "give --seconds 10")):
        last["dur"] = dur
        path = test.path("long.json")
        path.write_text(json.dumps(trace))
        done = test.run("replay", path, "--thread-ranks", "2", timeout=20)
        test.check(done.code == 2 and why in done.err and len(done.own_lines) == 1, f"refused in one line: {why}", done)
    with test.started("replay", path, "--seconds", "200", "--thread-ranks", "2") as job:
        time.sleep(2)
        job.process.send_signal(signal.SIGINT)
        done = job.wait(15)
        interrupted = [line for line in done.own_lines if "interrupted; nothing was kept of 0 of 1 point" in line]
        test.equal((done.code, len(interrupted), len(done.own_lines)), (130, 1, 1), "an interrupt ends a computation of 100 s in good order, before its grace is over")


def body(test):
    test.attempt(lambda test: long_steps(test, test.source), "on a busy machine a rank's thread may not run within the grace")
    replayed(test, test.source)
    on_other_ranks(test, test.source)
    without_times(test, test.source)
    refused(test, test.source)


support.main(__doc__, body)
