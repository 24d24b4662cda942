# SPDX-License-Identifier: Apache-2.0
"""What is printed as measured is kept. Standard output that takes no more, a result file that is renamed, removed, replaced or cut short while
a run writes it, disks that refuse in fdatasync and close, schedulers' warnings, signals while a model is trained: the program either has
every row that it spoke of in a file that it names, or ends with another code than 0 and a line that says why. Preloads GRADMETER_FLAKY_DISK."""
import json
import os
import random
import re
import signal
import subprocess
import time

import support

SEED = 20261127
POINTS = 24
SWEEP = ("allreduce", "--thread-ranks", "1", "--algorithm", "ring,recursive-doubling", "--sizes", ",".join(str(64 * n) for n in range(1, POINTS // 2 + 1)),
         "--in-place", "out", "--time-budget", "1.2s")


def into(test, target, *arguments):
    with open(target, "w", encoding="utf-8") as stream:
        return subprocess.run([test.gradmeter, *map(str, arguments)], stdout=stream, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                              cwd=test.folder, env=test.environment(None))


def standard_output(test):
    rows = test.path("rows.jsonl")
    test.run(*SWEEP[:-1], "1s", "--out", rows)
    few = ("--thread-ranks", "2", "--time-budget", "1s")
    for arguments in (["--version"], ["--help"], ["help"], ["list"], ["list", "--json"], ["manual"], ["completion", "bash"], ["scale", "--help"],
                      ["doctor"], ["report", rows, "--markdown", "-"], ["report", rows, "--findings", "-"], ["report", rows, "--csv", "-"],
                      ["report", rows, "--text"], ["compare", rows, "--by", "algorithm"],
                      ["allreduce", "--sizes", "64", "--csv", *few], ["allreduce", "--sizes", "64", *few],
                      ["kernels", "--shape", "gemm:m=8,n=8,k=8", "--json", *few], ["links", "--csv", *few],
                      ["codecs", "--codec", "bf16", "--size", "64K", "--time-budget", "1s"]):
        name = " ".join(map(str, arguments)).replace(str(rows), "FILE")
        # The control. Of what measures the machine for seconds cli.kernels and cli.commands have it.
        well = arguments[0] not in ("kernels", "doctor") and into(test, "/dev/null", *arguments)
        if well and well.returncode != 0:
            test.check(False, f"{name} ends well", well.stderr)
            continue
        full = into(test, "/dev/full", *arguments)
        own = [line for line in full.stderr.splitlines() if line.startswith("gradmeter:") and "standard output" in line]
        test.check(full.returncode == 3 and len(own) == 1, f"{name} on a full disk ends with 3 and one line", f"{full.returncode}\n{full.stderr}")


def rows_in(*files):
    return sum(len(support.points(file)) for file in files if file.exists())


def said_measured(done):
    found = re.search(r"(\d+) points? measured", done.out)
    return int(found.group(1)) if found else 0


def file_that_goes(test):
    """Each at moments that a seed draws."""
    draw = random.Random(SEED)
    blows = {"renamed": lambda file, other: file.rename(other), "removed": lambda file, _: file.unlink(),
             "replaced": lambda file, other: (file.rename(other), file.write_text("somebody's\n")),
             "cut short": lambda file, _: os.truncate(file, 0), "torn": lambda file, _: os.truncate(file, file.stat().st_size - 7)}
    for what, blow in blows.items():
        for moment in sorted(draw.uniform(0.1, 0.7) for _ in range(3 if what in ("renamed", "removed") else 2)):
            file, other = test.path("goes.jsonl"), test.path("other.jsonl")
            for old in (file, other):
                old.unlink(missing_ok=True)
            with test.started(*SWEEP, "--out", file) as job:
                after = 1 + int(moment * POINTS)
                reached = support.wait_until(lambda: len(support.points(file)) >= after or job.process.poll() is not None, 60, 0.002)
                under_way = job.process.poll() is None
                if under_way:
                    blow(file, other)
                done = job.wait(60)
            name = f"{what} after {after} of {POINTS} points"
            if not (reached and under_way):
                test.check(done.code == 0, f"{name}: the run was over before", done)
                continue
            if what in ("cut short", "torn"):
                test.check(done.code == 3 and any("cut it short" in line for line in done.own_lines), f"{name}: 3, and a line", done)
                continue
            kept = rows_in(other) if what == "replaced" else rows_in(file, other)
            test.check(done.code == 0 and kept == said_measured(done) == POINTS, f"{name}: {kept} rows are kept of {said_measured(done)}", done)
            test.check(any(str(file) in line for line in done.own_lines), f"{name}: and a line says so", done)
            if what == "renamed":
                test.check(any(str(other) in line for line in done.own_lines), f"{name}: the new name is told", done)
            if what == "replaced":
                test.equal(file.read_text(), "somebody's\n", f"{name}: what is there now is as it was")
            test.valid(other if other.exists() else file)


def refusing_disk(test):
    for call in ("FLAKY_SYNC", "FLAKY_CLOSE"):
        file = test.path(f"{call}.jsonl")
        faults = {"LD_PRELOAD": os.environ["GRADMETER_FLAKY_DISK"], "FLAKY_FILE": file.name, call: "122"}
        done = test.run(*SWEEP[:-1], "1s", "--out", file, env=faults)
        test.check(done.code == 3 and any(str(file) in line and "quota" in line for line in done.own_lines),
                   f"{call.lower()[6:]} that fails: 3, and a line", done)


def ends(file):
    return [line for line in support.read_lines(file) if line["kind"] == "end"]


def warnings(test):
    for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU"):
        number = getattr(signal, name)
        file = test.path(f"{name}.jsonl")
        with test.started(*SWEEP[:-1], "5s", "--out", file) as job:
            support.wait_until(lambda: len(support.points(file)) >= 2 or job.process.poll() is not None, 60)
            job.process.send_signal(number)
            done = job.wait(30)
        test.equal(done.code, 128 + number, f"{name} ends the run after the points under way")
        test.equal([end["exit"] for end in ends(file)], [128 + number], "and the file says so")
        kept = rows_in(file)
        test.check(2 <= kept < POINTS and any(f"interrupted; {kept} of {POINTS} points are in {file}" in line and "--resume" in line for line in done.own_lines),
                   f"the {kept} points before are rows, and said to be", done)
        test.valid(file)
        done = test.run(*SWEEP, "--out", file, "--resume")
        test.check(done.code == 0 and rows_in(file) == POINTS, "--resume measures the rest", done)


def signal_while_learning(test):
    file = test.path("learns.jsonl")  # one rank of three takes no part
    with test.started("scale", "--thread-ranks", "3", "--ranks", "2", "--model", "mlp:784-8-10", "--batch", "8", "--strategy", "sync",
                      "--algorithm", "ring", "--time-budget", "1s", "--learn", "40000000", "--out", file) as job:
        test.check(support.wait_until(lambda: "learns" in job.text(1) or len(support.points(file)) >= 1, 60), "a point of scale begins to learn")
        time.sleep(1)
        job.process.send_signal(signal.SIGTERM)
        done = job.wait(60)
    test.equal(done.code, 143, "SIGTERM while it learns ends with 143")
    test.check(any(row["factors"]["ranks"] == 2 and row["status"] == "ok" for row in support.points(file)), "and keeps the rows that were measured", done)
    test.valid(file)


def last_moments(test):
    file = test.path("trained.jsonl")
    with test.started("infer", "--model", "mlp", "--thread-ranks", "1", "--epochs", "50", "--out", file) as job:
        support.wait_until(lambda: support.runs(file) or job.process.poll() is not None, 30)
        time.sleep(1)
        job.process.send_signal(signal.SIGINT)
        done = job.wait(30)
    test.equal(done.code, 130, "SIGINT while infer trains its model ends with 130")
    test.equal([end["exit"] for end in ends(file)], [130], "and the file says so")
    file = test.path("limited.jsonl")
    done = test.run(*SWEEP[:-1], "1s", "--out", file, wrapper=("bash", "-c", 'ulimit -f 8; exec "$@"', "limited"))
    test.check(done.code == 3 and any("File too large" in line for line in done.own_lines), "a limit on files' size: 3, and a line", done)
    test.check(all(json.loads(line) for line in support.whole_lines(file)), "and what was written before is whole")
    for limit, code in (("-Ss 64", 0), ("-s 64", 2)):  # one that may be raised, one that may not
        done = test.run("allreduce", "--thread-ranks", "2", "--algorithm", "ring", "--sizes", "64", "--time-budget", "1s",
                        wrapper=("bash", "-c", f'ulimit {limit}; exec "$@"', "limited"))
        told = code == 0 or any("the stack is limited to" in line for line in done.own_lines)
        test.check(done.code == code and told, f"a stack of 64 KiB by ulimit {limit}: {code}", done)


def body(test):
    for part in (standard_output, file_that_goes, refusing_disk, warnings, signal_while_learning, last_moments):
        part(test)


if __name__ == "__main__":
    support.main(__doc__, body)
