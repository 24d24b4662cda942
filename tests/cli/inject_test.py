# SPDX-License-Identifier: Apache-2.0
"""What is injected on purpose is found, and stands in every row: wrong results end in exit code 4 with a line that says
which call was wrong and on which rank, for strategies with collectives and with servers; nothing is found in the same
run without them."""
import json
import re
import time

import support

SMALL = ("--model", "mlp:784-8-10", "--batch", "4", "--ranks", "2", "--algorithm", "ring", "--threads", "1",
         "--min-samples", "5", "--time-budget", "2s")
STRATEGIES = ("sync", "model-averaging", "ps-sync")


def points(test, path):
    test.valid(path)
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if "factors" in row and row["factors"]["ranks"] == 2 and
            row["factors"]["strategy"] != "independent"]


def wrong_results(test):
    file = test.path("wrong.jsonl")
    done = test.run("scale", *SMALL, "--strategy", ",".join(STRATEGIES), "--inject", "flip:call=2,rank=1", "--out", file,
                    ranks=2)
    test.equal(done.code, 4, "scale with wrong results exits with 4")
    rows = points(test, file)
    test.equal(sorted(r["factors"]["strategy"].split(":")[0] for r in rows), sorted(STRATEGIES), "each has its row")
    for row in rows:
        name = row["factors"]["strategy"]
        test.equal(row["status"], "wrong", f"{name} is wrong")
        test.check("rank 1 " in row["reason"] or "wrong sums" in row["reason"], f"{name} says why in a line: {row['reason']}")
        test.equal(row["factors"]["inject"], "flip:call=2,rank=1", f"{name} says what was injected")
    test.check("injected on purpose: flip:call=2,rank=1" in done.out, "the head says it too", done)


def dropped_contributions(test):
    """All ranks agree on these sums, which lack one rank's part: only what the sum must be shows it."""
    file = test.path("dropped.jsonl")
    codecs = ["none", "bf16", "natural8", "onebit", "qsgd2", "terngrad:exchange=sra", "topk", "powersgd"]
    done = test.run("scale", *SMALL[2:], "--model", "mlp:784-32-10", "--strategy", "sync", "--codec", ",".join(codecs),
                    "--inject", "omit:rank=1", "--out", file, ranks=2)
    test.equal(done.code, 4, "scale with sums that lack a contribution exits with 4")
    wrong = sorted((codec.split(":")[0], "wrong") for codec in codecs)
    test.equal(sorted((r["factors"]["codec"].split(":")[0], r["status"]) for r in points(test, file)), wrong,
               "each is wrong, however much its codec loses")
    done = test.run("allreduce", "--sizes", "64K", "--algorithm", "ring", "--codec", ",".join(codecs), "--inject",
                    "omit:rank=1", "--in-place", "out", "-n", "5", "-w", "1", "--out", test.path("allreduce.jsonl"),
                    ranks=2)
    test.equal(done.code, 4, "and so does allreduce")
    with open(test.path("allreduce.jsonl"), encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if "factors" in row]
    test.equal(sorted((r["factors"]["codec"].split(":")[0], r["status"]) for r in rows), wrong, "for the same codecs")


def diverging_ranks(test):
    """A wrong loss on one rank alone must not let ranks wait for different survivors."""
    done = test.run("scale", *SMALL, "--strategy", "population", "--inject", "flip:call=5,rank=0", "--out",
                    test.path("population.jsonl"), ranks=2)
    test.equal(done.code, 4, "population with a wrong loss on one rank exits with 4")
    test.equal([r["status"] for r in points(test, test.path("population.jsonl"))], ["wrong"], "and its row is wrong")
    # Each rank finds from averaged losses when to average weights next: with different losses they would wait for ever.
    done = test.run("scale", *SMALL, "--strategy", "adacomm:every=4,interval=8", "--inject", "flip:call=5,rank=0", "--timeout", "30s",
                    "--out", test.path("adacomm.jsonl"), ranks=2)
    test.check(done.code == 4, "adacomm with a wrong loss on one rank exits with 4, and does not wait for ever", done)


def right_results(test):
    file = test.path("right.jsonl")
    done = test.run("scale", *SMALL, "--strategy", "sync,ps-sync", "--inject", "slow:rank=1,factor=2", "--out", file,
                    ranks=2)
    test.equal(done.code, 0, "a slow rank is no wrong result")
    for row in points(test, file):
        test.equal((row["status"], row["factors"]["inject"]), ("ok", "slow:factor=2,rank=1"),
                   f"{row['factors']['strategy']} is right and says what was injected")


def servers_have_no_barrier(test):
    """A barrier would hold the fast worker back to one step before the slow one. The first point of the group, the control, has one."""
    file = test.path("paces.jsonl")
    test.run("scale", "--model", "mlp:784-128-10", "--batch", "256", "--ranks", "2", "--threads", "1", "--time-budget", "3s", "--strategy", "ps-async",
             "--inject", "slow:rank=1,factor=8", "--out", file, ranks=2)
    gaps = [row["metrics"].get("clock_gap") or 0 for row in points(test, file)]
    test.check(len(gaps) == 1 and gaps[0] > 1, f"the fast worker runs ahead of one that is eight times as slow: {gaps}")


def slow_rank(test):
    """Whichever it is, it is named with its probability, however busy the machine is: it computes 16 times as long as
    the others."""
    file = test.path("slow.jsonl")
    for slow in (1, 2):
        done = test.run("scale", "--model", "mlp:784-64-10", "--batch", "64", "--ranks", "4", "--strategy", "sync", "--algorithm",
                        "ring", "--overlap", "none", "--threads", "1", "--time-budget", "3s", "--inject",
                        f"slow:rank={slow},factor=16", "--out", file, "--force", ranks=4, threads=True)
        test.valid(file)
        with open(file, encoding="utf-8") as lines:
            rows = [row for row in map(json.loads, lines) if "factors" in row and row["factors"]["ranks"] == 4]
        test.equal(len(rows), 2, "the exchange and its control are measured")
        for row in rows:
            name, m = row["factors"]["strategy"], row["metrics"]
            test.equal((m.get("slowest_rank"), m.get("bound_by")), (slow, "straggle"), f"{name}: rank {slow} is slow")
            test.check(2 / 3 <= m["bound_by_probability"] <= 1 and m["bound_by_candidates"].startswith("straggle "),
                       f"{name}: with its probability: {m['bound_by_probability']}, {m['bound_by_candidates']}")
        test.check(re.search(rf" r{slow} .* straggle \d\d %", done.out), "and the table says so", done)


def training(test):
    arguments = ("train", "--model", "mlp:784-8-10", "--batch", "4", "--train-samples", "400", "--validation-samples",
                 "50", "--epochs", "1", "--threads", "1")
    wrong = test.run(*arguments, "--inject", "flip:call=20", ranks=2)
    test.equal(wrong.code, 4, "train that turns wrong in the middle exits with 4")
    test.check(any("rank 0" in line for line in wrong.own_lines), "and says on which rank", wrong)
    plain = test.run(*arguments, ranks=2)
    test.equal(plain.code, 0, "the same without it is right")


def late(test):
    """After the checks before timing: those between timed calls, or the one at the end, show it."""
    for codec in ("none", "qsgd8"):
        command = ("allreduce", "--sizes", "64K", "--algorithm", "ring", "--codec", codec, "--in-place", "out",
                   "--time-budget", "1s")
        done = test.run(*command, "--inject", "flip:call=300,rank=1", ranks=2)
        test.equal(done.code, 4, f"allreduce with codec {codec} that turns wrong while it is timed ends with 4")


def products(test):
    """Of so many ranks that the products of their numbers could leave the types' range."""
    command = ("allreduce", "-o", "prod", "-d", "float,bfloat16", "--sizes", "1K", "--algorithm", "ring", "--in-place", "out", "-n", "1", "-w", "1")
    for faults, code, status in (("", 0, "ok"), ("flip:call=1,rank=63", 4, "wrong"), ("flip:call=2,rank=0", 4, "wrong")):
        file = test.path("products.jsonl")
        done = test.run(*command, *(("--inject", faults) if faults else ()), "--out", file, "--force", ranks=64)
        test.equal((done.code, [p["status"] for p in support.points(file)]), (code, [status, status]),
                   f"products of 64 ranks with '{faults}' are {status}")


def late_messages(test):
    """Lower bounds of times, and equal losses: what a network's faults may do to results is nothing."""
    file = test.path("delay.jsonl")
    done = test.run("allreduce", "--sizes", "64K", "--algorithm", "ring,shm-direct", "--in-place", "out", "-n", "3", "-w", "1",
                    "--inject", "delay:time=20ms", "--out", file, ranks=2)
    test.equal(done.code, 0, "an all-reduce by late messages is right")
    row, refused = sorted(points(test, file), key=lambda r: r["status"])
    test.check(row["metrics"]["time_s"]["min"] >= 0.04, f"its two rounds take 40 ms at least: {row['metrics']['time_s']['min']}")
    test.equal(row["factors"]["inject"], "delay:jitter=0s,seed=1,time=20ms", "the row says what was injected")
    test.check(refused["status"] == "unsupported" and "messages" in refused["reason"],
               f"what sends no messages is refused: {refused['reason']}")
    losses = {}
    for strategy in ("sync", "ps-sync"):
        for faults in ("", "drop:p=0.2,timeout=5ms"):
            file = test.path("drop.jsonl")
            done = test.run("train", "--model", "mlp:784-16-10", "--batch", "16", "--train-samples", "320", "--validation-samples",
                            "64", "--strategy", strategy, *(("--inject", faults) if faults else ()), "--out", file, "--force", ranks=2)
            test.equal(done.code, 0, f"{strategy} trains with '{faults}'")
            losses[strategy, faults] = [r["metrics"]["loss"] for r in points(test, file)]
        test.equal(losses[strategy, faults], losses[strategy, ""], f"{strategy}: messages that are sent again change no loss")


def cut_link(test):
    """One that comes back costs its time; one that does not ends the job, which says who waits for whom."""
    file = test.path("cut.jsonl")
    begin = time.monotonic()
    done = test.run("train", "--model", "mlp:784-16-10", "--batch", "16", "--train-samples", "320", "--validation-samples", "64",
                    "--inject", "cut:rank=1,at=0s,for=2s", "--out", file, ranks=2)
    test.check(done.code == 0 and time.monotonic() - begin > 2, "a link that is cut for two seconds holds training up, not more", done)
    done = test.run("train", "--model", "mlp:784-16-10", "--batch", "16", "--train-samples", "320", "--validation-samples", "64",
                    "--inject", "cut:rank=1", "--timeout", "2s", "--out", file, "--force", ranks=3)
    test.equal(done.code, 3, "a link that stays cut ends the job with 3")
    test.check(re.search(r"rank \d waits for rank 1: ", done.err), "a rank says that it waits for the one that is cut off", done)


def bad_input(test):
    for text, word in (("flip:rank=2", "rank 2 does not exist"), ("flop", "did you mean 'flip'")):
        done = test.run("scale", *SMALL, "--strategy", "sync", "--inject", text, ranks=2)
        test.check(done.code == 2 and word in done.err, f"--inject {text} is refused: {word}", done)


def body(test):
    wrong_results(test)
    dropped_contributions(test)
    diverging_ranks(test)
    right_results(test)
    servers_have_no_barrier(test)
    slow_rank(test)
    training(test)
    late(test)
    products(test)
    late_messages(test)
    cut_link(test)
    bad_input(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
