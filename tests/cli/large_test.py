# SPDX-License-Identifier: Apache-2.0
"""A result file of a hundred thousand points: report and compare need less than a gigabyte for it, and a file of a million
is refused before it is read."""
import json
import resource
import subprocess
import time

import support

POINTS = 100_000
MEMORY = 1 << 30  # [B] of address space, with the program itself and its libraries


def row(draw, **factors):
    """As scale writes it: what is null too, causes of lost time, a timeline, raw times."""
    seconds = 1e-3 * (1 + draw / 1e6)
    metrics = {name: seconds * (i + 1) / 30 for i, name in enumerate(
        "compute_s comm_s exposed_s exposed_union_s overlap_s interference_s contention_s straggle_s wait_s wire_s other_s "
        "baseline_time_s limit_s limit_compute_s limit_exchange_s limit_roofline_s warmup_s".split())}
    metrics.update({name: 1.0 for name in "samples_per_s self_speedup steadiness noise_steal noise_run_delay ranks_spread".split()})
    metrics.update({name: 1 for name in "baseline_ranks baseline_batch blocks disturbed_blocks left_out_blocks timeline_rank".split()})
    metrics.update(efficiency=0.5 + draw / 3e6, efficiency_ci95_low=0.4, efficiency_ci95_high=0.9, bound_by="wire", bound_by_probability=0.9,
                   bound_by_candidates="wire 90 %, wait 10 %", timeline_step_s=seconds)
    metrics["timeline_compute"] = [{"name": f"forward {i} dense:1024", "begin_s": i * 1e-4, "end_s": (i + 1) * 1e-4} for i in range(6)]
    metrics["time_s"] = {"median": seconds, "q1": seconds, "q3": seconds, "ci95_low": 0.99 * seconds, "ci95_high": 1.01 * seconds,
                         "p95": seconds, "p99": seconds, "min": seconds, "max": seconds, "n": 32, "stop": "interval"}
    absent = dict.fromkeys("interconnect accumulate update mesh bucket_bytes scaling size_bytes dtype op problem inject".split())
    return {"kind": "point", "experiment": "scale", "status": "ok", "reason": "",
            "factors": {**absent, "nodes": 1, "model": "mlp:784-1024-1024-10", "threads": 1, "precision": "fp32", "algorithm": "ring",
                        "overlap": "none", "device": "cpu", "cadence": "barrier", "reduction": "max", "ranks_as": "processes", **factors},
            "metrics": metrics, "raw_times_s": [seconds] * 16}


def write(path, points, launches):
    """The line of a point is made once for each batch and written with its own factors and launch."""
    with open(path, "w", encoding="utf-8") as out:
        for launch in range(launches):
            run = {"kind": "run", "schema": 2, "run_id": f"{path.stem}{launch}", "time": f"2026-11-{launch + 1:02}T12:00:00Z"}
            out.write(json.dumps(run) + "\n")
            for i in range(points // launches):
                if i % 100 == 0:
                    line = json.dumps(dict(row(launch * 1000 + i % 997, ranks=-1, batch_per_rank=-2, strategy="@", interconnect="#"),
                                           run_id=run["run_id"]))
                strategy = ("independent", "sync", "gossip", "easgd")[i % 4]
                out.write(line.replace("-1,", f"{2 << i // 4 % 5},", 1).replace("-2,", f"{1 + i // 40},", 1).replace('"@"', f'"{strategy}"', 1)
                          .replace('"#"', f'"link{i // 20 % 2}"', 1) + "\n")
    return path


def within(test, memory, *arguments):
    """Runs the program with so much address space. Exit code, what it printed, processor time [s]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([test.gradmeter, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=test.folder,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"       {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} s of processor time, "
          f"{after.ru_maxrss >> 10} MiB at most: {arguments[0]}", flush=True)
    return done


def fits(test):
    many = write(test.path("many.jsonl"), POINTS, 1)
    done = within(test, MEMORY, "report", many, "-o", "page.html")
    test.check(done.returncode == 0, f"a page of {POINTS} points is made within {MEMORY >> 20} MiB", done.stderr[-500:])
    text = test.path("page.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])
    test.equal(len(data["rows"]), POINTS, "with a row for each")
    done = within(test, MEMORY, "compare", many, "--by", "interconnect")
    test.check(done.returncode == 0 and f"{POINTS // 2} points" in done.stdout, f"they are compared within {MEMORY >> 20} MiB",
               done.stdout[-800:] + done.stderr[-500:])


def is_refused(test):
    line = json.dumps({"kind": "point", "run_id": "r", "experiment": "scale", "status": "ok", "factors": {}, "metrics": {}}) + " " * 40 + "\n"
    million = test.path("million.jsonl")
    with open(million, "w", encoding="utf-8") as out:
        for _ in range(1000):
            out.write(line * 1000)
    for command in (("report", million, "-o", "no.html"), ("compare", million, "--by", "ranks")):
        begin = time.monotonic()
        done = within(test, MEMORY, *command)
        test.check(done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "more than 400000 points" in done.stderr
                   and "GB of memory" in done.stderr and "name fewer files" in done.stderr,
                   f"{command[0]} refuses a million points in one line that says why and what to do", done.stderr[-500:])
        test.check(time.monotonic() - begin < 20, "before it reads them")


def body(test):
    fits(test)
    is_refused(test)


support.main(__doc__, body)
