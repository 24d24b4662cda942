# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of one process (`--thread-ranks`) train and sum with the bits and bytes of ranks as processes: every
strategy, meshes, collectives of four types. Under the thread sanitizer, which MPI is not made for, the same sweep runs
on threads alone, and has to end without a race. Rows say ranks_as, and what only processes have is refused in a line."""
import json
import os
import subprocess
import sys

import support

SANITIZED = bool(os.environ.get("GRADMETER_SANITIZED"))


def compare(test, sides, *arguments):
    script = test.source / "scripts" / "compare-runs.py"
    at_once = "1" if SANITIZED else "4"  # launchers wait for most of their time
    done = subprocess.run([sys.executable, script, *sides, "--mpiexec", test.mpiexec, "--at-once", at_once, *arguments],
                          capture_output=True, text=True, timeout=800, check=False, env=test.environment())
    return done


def same_as_processes(test):
    threads = f"{test.gradmeter}@threads"
    sides, what = ([threads], "threads") if SANITIZED else ([test.gradmeter, threads], "processes and threads")
    for arguments in (["--only", "train", "--ranks", "3"], ["--only", "meshes", "--ranks", "4"],
                      ["--only", "codecs", "--ranks", "2", "--names", "qsgd4,topk,powersgd,dgc,onebit"],
                      ["--only", "allreduce", "--ranks", "4"]):
        done = compare(test, sides, *arguments)
        test.check(done.returncode == 0 and " 0 differ" in done.stdout, f"{what} agree: {' '.join(arguments)}",
                   done.stdout + done.stderr)


def differences_are_found(test):
    """The control: a sweep with another seed on one side differs."""
    other = test.path("other")
    other.write_text(f"#!/bin/sh\n[ $1 = list ] || set -- \"$@\" --lr 0.07\nexec '{test.gradmeter}' \"$@\"\n",
                     encoding="utf-8")
    other.chmod(0o755)
    done = compare(test, [f"{other}@threads", f"{test.gradmeter}@threads"], "--only", "optimizers", "--ranks", "2")
    test.check(done.returncode == 1 and "DIFFERS" in done.stdout, "another step size is found to differ",
               done.stdout + done.stderr)


def rows_and_refusals(test):
    out = test.path("rows.jsonl")
    done = test.run("allreduce", "--thread-ranks", 2, "-b", "1K", "-e", "1K", "--algorithm", "mpi,ring", "-n", 3, "--out",
                    out)
    rows = support.points(out)
    test.check(done.code == 0, "allreduce on two threads ends with 0", done)
    test.valid(out)
    test.equal({r["factors"]["ranks_as"] for r in rows}, {"threads"}, "each row says that its ranks are threads")
    refused = [r for r in rows if r["status"] == "unsupported"]
    test.check(refused and all(r["factors"]["algorithm"] == "mpi" and "mpirun" in r["reason"] for r in refused),
               "rows of mpi are unsupported, with what to do", json.dumps(refused))
    test.check(any(r["status"] == "ok" for r in rows), "rows of ring are measured")
    for ranks in (2, 3):
        out = test.path(f"auto{ranks}.jsonl")
        done = test.run("allreduce", "--thread-ranks", ranks, "--sizes", "8,100K", "--algorithm", "auto", "--collective", "all", "-n", 3, "--out", out)
        rows = support.points(out)
        test.check(done.code == 0 and len(rows) > 20 and {r["status"] for r in rows} == {"ok"},
                   f"auto takes the next best where MPI cannot be called, {ranks} ranks", done)
    plan = test.run("scale", "--dry-run", "--thread-ranks", "3", "--batch", "8")
    test.check(plan.code == 0 and "3" in {line.split()[0] for line in plan.out.splitlines() if line.strip()},
               "a plan is for the threads that are asked for", plan)
    for arguments in (["scale", "--thread-ranks", "0"], ["scale", "--thread-ranks", "2:tight"], ["scale", "--thread-ranks", "few"],
                      ["train", "--thread-ranks", "2", "--transport", "mpi", "--steps", "1"],
                      ["allreduce", "--thread-ranks", "2", "--inject", "drift:ppm=100"]):
        done = test.run(*arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1, f"{' '.join(arguments)}: one line and exit code 2", done)


def body(test):
    rows_and_refusals(test)
    if not SANITIZED:
        refused = test.run("scale", "--thread-ranks", 2, ranks=2)
        test.check(refused.code == 2 and refused.own_lines, "beside mpirun it is refused", refused)
        differences_are_found(test)
    same_as_processes(test)


if __name__ == "__main__":
    support.main(__doc__, body)
