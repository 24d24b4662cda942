# SPDX-License-Identifier: Apache-2.0
"""Ends that nobody planned. A rank killed in mid-sweep: the file keeps every finished point, the job ends by itself and
names the rank; --resume measures the rest and nothing twice, and drops a line that was torn. SIGTERM and SIGINT end the
job within seconds. A rank that hangs: those that wait for it say so and end the job. A full disk is told."""
import os
import re
import signal
import time

import support

RANKS = 4
BATCHES = (4, 8)               # a sweep that is hit in the middle and then gone on with
MORE_BATCHES = range(4, 36)    # one that would go on for long: mpirun passes a signal on only after a second
PER_BATCH = 8                  # points: at 1 rank two strategies; at 2 and at 4 independent and two algorithms
POINTS = len(BATCHES) * PER_BATCH
CURVE_S = 2                # for the points of a batch at most, which are measured in turn and written together
BEFORE = 3                 # points in the file when the blow falls
HEAD = 2                   # lines before them: the run and its plan
END_S = 30                 # a job that was hit is gone by then, with time for a slow machine


def sweep(batches):
    """Small and coarse: it must go on long enough to be hit, and no longer."""
    return ["scale", "--model", "mlp:784-32-10", "--batch", ",".join(map(str, batches)), "--ranks", "1,2,4",
            "--strategy", "independent,sync", "--algorithm", "mpi,ring", "--precision-goal", "0.5", "--time-budget",
            f"{CURVE_S * len(batches)}s"]


def hit_in_the_middle(test, out, blow, *more, batches=MORE_BATCHES, lenient=False):
    """Starts a sweep, waits for its first points, does `blow(job, ranks)`, and says how the job ended, which lines were
    in the file before the blow, and after how many seconds the last rank was gone. Lenient: mpirun may stay behind."""
    points = len(batches) * PER_BATCH
    out.unlink(missing_ok=True)
    with test.started(*sweep(batches), "--out", out, *more, ranks=RANKS) as job:
        ready = support.wait_until(lambda: len(support.points(out)) >= BEFORE or job.process.poll() is not None, 60)
        whole, ranks = support.whole_lines(out), job.ranks()
        known = len(whole) - HEAD
        if not test.check(ready and len(ranks) == RANKS and BEFORE <= known < points,
                          f"the sweep is under way: {known} of {points} points, {len(ranks)} ranks",
                          job.outcome()):
            raise RuntimeError("there was no sweep to hit")
        begin = time.monotonic()
        blow(job, ranks)
        gone = support.wait_until(lambda: not any(map(support.is_alive, ranks.values())), END_S)
        seconds = time.monotonic() - begin
        if gone and lenient and not support.wait_until(lambda: job.process.poll() is not None, 5):
            print("note   all ranks are gone and mpirun hangs: ended by this test", flush=True)
            job.end()
        outcome = job.wait(END_S)
        test.check(gone, "all ranks end by themselves", outcome)
        test.check(outcome.code != 0, f"the job ends with code {outcome.code}, {seconds:.1f} s later", outcome)
        return outcome, whole, seconds


def kept_and_valid(test, out, whole):
    lines = support.whole_lines(out)
    test.check(whole and lines[: len(whole)] == whole, f"the file keeps the {len(whole) - HEAD} points that were in it")
    torn = out.read_bytes().rpartition(b"\n")[2]
    complete = test.path(f"complete-{out.name}")
    complete.write_text("\n".join(lines) + "\n")
    apart = ", a torn last one apart" if torn else ""
    test.valid(complete, what=f"each of its {len(lines)} whole lines is valid{apart}")


def resumed(test, out, note=""):
    """Goes on with the file; returns what the run said."""
    before, ids = support.whole_lines(out), {run["run_id"] for run in support.runs(out)}
    earlier = [support.key(p) for p in support.points(out)]
    done = test.run(*sweep(BATCHES), "--out", out, "--resume", ranks=RANKS, timeout=90)
    test.check(done.code == 0 and not done.own_lines, "--resume ends with 0", done)
    test.valid(out)
    test.equal(support.whole_lines(out)[: len(before)], before, "what was in the file is untouched")
    new_runs = [run["run_id"] for run in support.runs(out) if run["run_id"] not in ids]
    new = [p for p in support.points(out) if p["run_id"] in new_runs]
    test.equal(len(new_runs), 1, "the new points have a run of their own")
    keys = [support.key(p) for p in support.points(out)]
    test.equal(len(new), POINTS - len(earlier), f"it measured the {POINTS - len(earlier)} points that were missing")
    test.check(len(keys) == len(set(keys)) == POINTS, f"no point is there twice, and all {POINTS} are there",
               f"{len(keys)} points, {len(set(keys))} different")
    test.check(f"{len(new)} points measured, {len(earlier)} kept" in done.out, "it says how many it kept", done)
    if note:
        test.check(note in done.err, f"and it says '{note}'", done)
    rows = re.findall(r"^ *\d+\*? +(?:-|weak) +\d+ ", done.out.replace("~", " "), re.M)
    test.equal(len(rows), POINTS, "the tables show kept and new points together")
    compared = [p for p in new if p["metrics"].get("efficiency") is not None]
    test.equal(len(compared), len(new), "new points are compared with kept ones: each has its efficiency")
    return done


def killed(test):
    out, victim = test.path("killed.jsonl"), 2
    done, whole, _ = hit_in_the_middle(test, out, lambda job, ranks: os.kill(ranks[victim], signal.SIGKILL),
                                       batches=BATCHES)
    test.check(re.search(rf"rank {victim}\b.*(signal 9|Killed)", done.out + done.err), f"it names rank {victim}", done)
    others = [r for r in range(RANKS) if r != victim and re.search(rf"rank {r}\b.*(signal 9|Killed)", done.err)]
    test.check(not others, "and blames no other", done)
    kept_and_valid(test, out, whole)
    resumed(test, out)
    again = test.run(*sweep(BATCHES), "--out", out, "--resume", ranks=RANKS, timeout=60)
    test.check(again.code == 0 and f"0 points measured, {POINTS} kept" in again.out,
               "--resume of a finished sweep measures nothing", again)


def torn(test):
    """What a killed writer leaves: a file of some points whose last line has no end."""
    full, out = test.path("killed.jsonl"), test.path("torn.jsonl")
    lines = support.whole_lines(full)[: HEAD + BEFORE]
    half = support.whole_lines(full)[HEAD + BEFORE][:200]
    out.write_text("\n".join(lines) + "\n" + half)
    test.check(test.validate(out).returncode == 1, "control: the validator refuses the torn line")
    resumed(test, out, note="torn")
    test.equal(support.read_lines(out)[HEAD + BEFORE]["kind"], "run", "where the torn line was stands the new run")


def signalled(test):
    blows = {
        "SIGTERM to mpirun": lambda job, _: job.process.send_signal(signal.SIGTERM),
        "SIGINT to mpirun": lambda job, _: job.process.send_signal(signal.SIGINT),
        "SIGTERM to one rank": lambda _, ranks: os.kill(ranks[1], signal.SIGTERM),
    }

    def hit(what):
        blow, out, alone = blows[what], test.path(f"{what}.jsonl"), what.endswith("one rank")
        # Open MPI 4.1's mpirun, when it is signalled itself, may drop what ranks print last, and in about one of thirty
        # runs hangs or crashes in PMIx_server_finalize after all ranks are gone.
        done, whole, seconds = hit_in_the_middle(test, out, blow, lenient=not alone)
        test.check(seconds < 10, f"{what}: the ranks are gone within seconds: {seconds:.1f}", done)
        kept_and_valid(test, out, whole)
        if alone:
            test.check(any("interrupted; " in line and "--resume" in line for line in done.own_lines),
                       "it says that it was interrupted, and how to go on", done)

    print(f"--- {', '.join(blows)}, side by side", flush=True)
    test.side_by_side(hit, blows)


def time_limit(test):
    """A scheduler signals all processes of a job at once, its own mpirun too."""
    print("--- SIGTERM to mpirun and all ranks, as at a time limit", flush=True)
    out = test.path("limit.jsonl")
    done, whole, seconds = hit_in_the_middle(
        test, out, lambda job, ranks: [os.kill(pid, signal.SIGTERM) for pid in (*ranks.values(), job.process.pid)], batches=BATCHES,
        lenient=True)
    test.check(seconds < 10, f"the ranks are gone within seconds: {seconds:.1f}", done)
    kept_and_valid(test, out, whole)


def hung(test):
    """A stopped process stands for one that hangs."""
    print("--- a rank that hangs in training, one in a sweep, side by side", flush=True)
    test.side_by_side(lambda part: part(test, 2, 4), (hung_in_training, hung_in_a_sweep))


def hung_in_training(test, victim, timeout):
    """The ranks wait for each other in the ring."""
    out = test.path("hung.jsonl")
    # One row at step 0 says that training is under way; the epoch is longer than we look.
    arguments = ["train", "--model", "mlp", "--batch", "4", "--threads", "1", "--train-samples", "20000",
                 "--validation-samples", "100", "--algorithm", "ring", "--log-every", "1000000", "--timeout",
                 f"{timeout}s", "--out", out]
    out.unlink(missing_ok=True)
    with test.started(*arguments, ranks=RANKS) as job:
        ready = support.wait_until(lambda: support.points(out) or job.process.poll() is not None, 60)
        ranks = job.ranks()
        if test.check(ready and len(ranks) == RANKS, "training is under way", job.outcome()):
            time.sleep(0.3)
            os.kill(ranks[victim], signal.SIGSTOP)
        done = job.wait(timeout + END_S)
        if victim in ranks and support.is_alive(ranks[victim]):
            os.kill(ranks[victim], signal.SIGKILL)
    waits = {int(a): int(b) for a, b in re.findall(r"^gradmeter: rank (\d) waits for rank (\d): ", done.err, re.M)}
    spoke = {int(r) for r in re.findall(r"^gradmeter: rank (\d) waits ", done.err, re.M)}
    test.check(done.code == 3, f"the job ends with code 3: {done.code}", done)
    test.equal(spoke, set(range(RANKS)) - {victim}, "each rank but the one that hangs says that it waits")
    test.check(victim in waits.values(), f"one of them waits for rank {victim}", done)
    test.equal(set(waits.values()) - spoke, {victim}, "of those that are waited for only that one is silent")
    test.check("all-reduce ring, round" in done.err, "they say in which operation and round", done)
    kept_and_valid(test, out, support.whole_lines(out)[: HEAD + 1])
    ends = [line for line in support.read_lines(out) if line["kind"] == "end"]
    test.check(len(ends) == 1 and ends[0]["exit"] in (3, 143), "the file says how the run ended", ends)


def hung_in_a_sweep(test, victim, timeout):
    out = test.path("hung-sweep.jsonl")
    done, whole, _ = hit_in_the_middle(test, out, lambda job, ranks: os.kill(ranks[victim], signal.SIGSTOP),
                                       "--timeout", f"{timeout}s")
    test.check(done.own_lines and not any(f"rank {victim} " in line[:20] for line in done.own_lines),
               f"ranks other than {victim} say what they were at", done)
    kept_and_valid(test, out, whole)


def full_disk(test):
    done = test.run("scale", "--model", "mlp:784-16-10", "--time-budget", "1s", "--out", "/dev/full", ranks=2)
    test.check(done.code == 3, f"a full disk ends the job with code 3: {done.code}", done)
    told = [line for line in done.own_lines if "/dev/full" in line and "No space left" in line]
    test.equal(len(told), 1, "one line says which file and why")


def body(test):
    launcher = "Open MPI 4.1's mpirun now and then loses what ranks print last, or hangs, when a job ends before its time"
    for part in (killed, torn, signalled, time_limit, hung):
        test.attempt(part, launcher)
    full_disk(test)


if __name__ == "__main__":
    support.main(__doc__, body)
