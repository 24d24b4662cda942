# SPDX-License-Identifier: Apache-2.0
"""Training with a dedicated server, hit in the middle. A worker or the server killed: the job ends by itself within
seconds and names the rank, and the rows written so far stay and are valid. The server stopped: every worker says that it
waits for that rank, and for what."""
import os
import re
import signal
import time

import support

RANKS, SERVER, WORKER = 4, 3, 1
HEAD = 2               # lines before the rows: the run and its plan
ROWS = 2               # of single steps, in the file when the blow falls
END_S = 30             # a job that was hit is gone by then, with time for a slow machine
TIMEOUT_S = 5


def hit(test, out, blow, end_s):
    """Trains until there are some rows, does `blow(ranks)`, and returns how the job ended, the lines that were in the
    file before, and how long the end took [s]."""
    out.unlink(missing_ok=True)
    # The epochs are more than we look at; a row a step goes out whenever workers meet.
    arguments = ["train", "--strategy", "ps-async", "--servers", 1, "--model", "mlp:784-64-10", "--batch", 8, "--threads",
                 1, "--train-samples", 20000, "--validation-samples", 100, "--epochs", 10000, "--log-every", 64,
                 "--timeout", f"{TIMEOUT_S}s", "--out", out]
    with test.started(*arguments, ranks=RANKS) as job:
        ready = support.wait_until(lambda: len(support.points(out)) >= ROWS or job.process.poll() is not None, 60)
        whole, ranks = support.whole_lines(out), job.ranks()
        if not test.check(ready and len(ranks) == RANKS and len(whole) >= HEAD + ROWS,
                          f"training is under way: {len(whole) - HEAD} rows, {len(ranks)} ranks", job.outcome()):
            raise RuntimeError("there was no training to hit")
        begin = time.monotonic()
        blow(ranks)
        done = job.wait(end_s)
        seconds = time.monotonic() - begin
        for pid in ranks.values():  # one that is stopped does not hear that the job has ended
            if support.is_alive(pid):
                os.kill(pid, signal.SIGKILL)
    test.check(done.code != 0, f"the job ends with code {done.code}, {seconds:.1f} s later", done)
    return done, whole, seconds


def kept_and_valid(test, out, whole):
    lines = support.whole_lines(out)
    test.check(lines[: len(whole)] == whole, f"the file keeps the {len(whole) - HEAD} rows that were in it")
    complete = test.path("complete.jsonl")
    complete.write_text("\n".join(lines) + "\n")
    test.valid(complete, what=f"each of its {len(lines)} whole lines is valid")
    test.check(all(p["status"] == "ok" for p in support.points(complete)), "and each row ok")


def killed(test, what, victim):
    print(f"--- {what} killed", flush=True)
    out = test.path(f"{victim}.jsonl")
    done, whole, seconds = hit(test, out, lambda ranks: os.kill(ranks[victim], signal.SIGKILL), END_S)
    blamed = {int(r) for r in re.findall(r"rank (\d+)\b.*(?:signal 9|Killed)", done.out + done.err)}
    test.equal(blamed, {victim}, f"it names rank {victim} and no other")
    test.check(seconds < 10, f"within seconds: {seconds:.1f}", done)
    kept_and_valid(test, out, whole)


def killed_worker(test):
    killed(test, "a worker", WORKER)


def killed_server(test):
    killed(test, "the server", SERVER)


def stopped_server(test):
    print("--- the server stopped", flush=True)
    out = test.path("stopped.jsonl")
    done, whole, _ = hit(test, out, lambda ranks: os.kill(ranks[SERVER], signal.SIGSTOP), TIMEOUT_S + END_S)
    test.check(done.code == 3, f"the job ends with code 3: {done.code}", done)
    waits = re.findall(r"^gradmeter: rank (\d) waits for rank (\d): (\w[\w ]*)", done.err, re.M)
    spoke = {int(waiter) for waiter, _, _ in waits}
    test.equal(spoke, set(range(RANKS)) - {SERVER}, "each worker says that it waits")
    awaited = {int(peer) for _, peer, _ in waits}
    # A worker that has met the others waits for them, in a ring: all who are waited for speak, but the one.
    test.equal(awaited - spoke, {SERVER}, f"of those that are waited for only rank {SERVER} is silent")
    test.check(any("servers" in why or "reduce" in why for _, _, why in waits), f"and for what: {waits}", done)
    kept_and_valid(test, out, whole)


def body(test):
    launcher = "Open MPI 4.1's mpirun now and then loses what ranks print last, or hangs, when a job ends before its time"
    for part in (killed_worker, killed_server, stopped_server):
        test.attempt(part, launcher)


if __name__ == "__main__":
    support.main(__doc__, body)
