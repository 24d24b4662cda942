# SPDX-License-Identifier: Apache-2.0
"""Disks that fail under a result file. One that fills: the job ends with a line that says so, what was written is whole but for a torn last
line, and --resume goes on when there is room. One of a network that is away for a while, or comes back under a new handle: the job waits,
and nothing is missing or twice. Two jobs that write one file: the second is refused before it works, the first keeps all its rows. Preloads
GRADMETER_FLAKY_DISK; filling a disk needs the right to mount one and is skipped without."""
import contextlib
import errno
import json
import os
import signal
import subprocess

import support

SWEEP = ("scale", "--model", "mlp:784-8-10", "--batch", "4,8,12", "--ranks", "1,2", "--strategy", "sync", "--threads", "1",
         "--precision-goal", "0.9", "--min-samples", "3", "--time-budget", "3s")


def whole_sweep(test, file, done, what):
    test.equal(done.code, 0, f"{what}: the job ends well")
    test.valid(file)
    keys = [support.key(p) for p in support.points(file)]
    test.check(len(keys) == len(set(keys)) and len(keys) >= 6, f"{what}: all {len(keys)} rows are there, none twice")


def away(test):
    faults_of = {"half of a line": (errno.EIO, {}), "a stale handle": (errno.ESTALE, {}), "all but the end of a line": (errno.EIO, {"FLAKY_LACKS": "1"}),
                 "a handle that is stale again while the file is read": (errno.ESTALE, {"FLAKY_OPEN": "2"})}
    for what, (number, more) in faults_of.items():
        file = test.path(f"{what.replace(' ', '-')}.jsonl")
        faults = {"LD_PRELOAD": os.environ["GRADMETER_FLAKY_DISK"], "FLAKY_FILE": file.name, "FLAKY_WRITE": "3", "FLAKY_ERROR": str(number),
                  "FLAKY_S": "2", **more}
        done = test.run(*SWEEP, "--out", file, ranks=2, env=faults)
        whole_sweep(test, file, done, f"a disk that is away for two seconds, {what}")
        said = [line for line in done.own_lines if file.name in line]
        test.check(len(said) == 2 and "trying again" in said[0] and "can be written again" in said[1], "two lines say it", done)
    file = test.path("lost.jsonl")
    faults = {"LD_PRELOAD": os.environ["GRADMETER_FLAKY_DISK"], "FLAKY_FILE": file.name, "FLAKY_WRITE": "6", "FLAKY_ERROR": str(errno.EIO), "FLAKY_S": "2"}
    with test.started(*SWEEP, "--out", file, ranks=2, env=faults) as job:
        support.wait_until(lambda: "trying again" in job.text(1) or job.process.poll() is not None, 60, 0.01)
        lines = support.whole_lines(file)
        os.truncate(file, sum(len(line.encode()) + 1 for line in lines[:-1]))
        done = job.wait(60)
    test.check(done.code == 3 and any("rows are gone" in line for line in done.own_lines), "a disk that comes back without a row: 3, and a line", done)


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)


def full(test):
    with small_disk(test.path("disk"), "8k") as mounted:
        if not mounted:
            print("skipped: a full disk needs the right to mount one", flush=True)
            return
        file = test.path("disk") / "full.jsonl"
        done = test.run(*SWEEP, "--out", file, ranks=2)
        test.equal(done.code, 3, "a disk that fills ends the job with 3")
        told = [line for line in done.own_lines if str(file) in line and "No space left" in line]
        test.equal(len(told), 1, "one line says which file and why")
        kept = support.whole_lines(file)
        rows = support.points(file)
        test.check(0 < len(rows) < 6 and all(json.loads(line) for line in kept), f"the {len(rows)} rows before are whole")
        subprocess.run(["mount", "-o", "remount,size=1m", test.path("disk")], check=True)
        done = test.run(*SWEEP, "--out", file, "--resume", ranks=2)
        whole_sweep(test, file, done, "--resume with more room")
        test.equal(support.whole_lines(file)[: len(kept)], kept, "what was kept is untouched")


def two_jobs(test):
    file = test.path("both.jsonl")
    batches = ",".join(str(4 * n) for n in range(1, 25))
    with test.started(*SWEEP[:4], batches, *SWEEP[5:-1], "60s", "--out", file, ranks=2) as job:
        support.wait_until(lambda: len(support.points(file)) > 1 or job.process.poll() is not None, 60)
        for mode in ("--resume", "--append", "--force"):
            second = test.run(*SWEEP, "--out", file, mode, ranks=2)
            test.equal(second.code, 2, f"a second job with {mode} is refused")
            test.check(any("another job is writing" in line for line in second.own_lines), "in a line that says why",
                       second)
        test.check(job.process.poll() is None, "the first still ran then")
        job.process.send_signal(signal.SIGTERM)
        done = job.wait(30)
    test.equal(done.code, 143, "and is ended by a signal")
    test.valid(file)
    test.equal(len(support.runs(file)), 1, "it had the file for itself")
    done = test.run(*SWEEP, "--out", file, "--append", ranks=2)
    test.equal((done.code, len(support.runs(file))), (0, 2), "after that another job may")


def body(test):
    away(test)
    full(test)
    two_jobs(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
