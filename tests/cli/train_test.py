# SPDX-License-Identifier: Apache-2.0
"""`gradmeter train --target 0.97` reaches 97 % of the built-in digits with 1, 2 and 4 ranks at one global batch. The
loss curves agree within 1e-5 for the first 100 steps whatever the ranks, and the final
accuracies within 0.3 points. The control: without the exchange of gradients (strategy independent) the same comparison
says that they differ. A step's time is the slowest rank's, and files that are written are no training."""
import math
import os
import threading
import time

import support

GLOBAL_BATCH, STEPS, TOLERANCE = 128, 100, 1e-5
SAMPLES = 30000  # half of all: a run spends much of its time drawing them
TARGET, ACCURACY_TOLERANCE = 0.97, 0.003
SMALL = "mlp:784-128-10"  # an eighteenth of the default model
# What is compared are losses in training: hardly any validation, and of languages no more samples than the steps take.
CURVE = ("--steps", STEPS, "--validation-samples", 1000)
LANGUAGE = ("--data", "language:steps=12", *CURVE)


def loss_curve(path):
    """Loss by step, from the rows of single steps; rows of whole epochs carry an accuracy."""
    return {p["metrics"]["step"]: p["metrics"]["loss"] for p in support.points(path) if "accuracy" not in p["metrics"]}


def difference(one, other):
    """The largest difference over the first steps; infinite when a step is missing or is no number."""
    worst = 0.0
    for step in range(STEPS):
        a, b = one.get(step), other.get(step)
        if a is None or b is None or not (math.isfinite(a) and math.isfinite(b)):
            return math.inf
        worst = max(worst, abs(a - b))
    return worst


def agree(one, other):
    return difference(one, other) <= TOLERANCE


def train(test, name, ranks, *more, model=SMALL, replicas=None, samples=SAMPLES, threads=False, timeout=200, code=0):
    """One rank needs no launcher; `threads`: two ranks as threads, which tests/mpi and cli.thread_ranks hold to the bits of processes."""
    out = test.path(f"{name}.jsonl")
    done = test.run("train", "--model", model, "--batch", GLOBAL_BATCH // (replicas or ranks), "--threads", "1", "--log-every", "1",
                    "--train-samples", samples, "--out", out, *more, ranks=ranks if ranks > 1 else None, threads=threads, timeout=timeout)
    test.check(done.code == code and not done.own_lines, f"{name} ends with {code}", done)
    test.valid(out)
    return done, out


def accuracies(path):
    return [p["metrics"]["accuracy"] for p in support.points(path) if "accuracy" in p["metrics"]]


def to_the_target(test, ranks):
    """Trains to the target; the result file and the final accuracy."""
    done, path = train(test, f"sync on {ranks} ranks to the target", ranks, "--target", TARGET)
    final = (accuracies(path) or [0])[-1]
    test.check(final >= TARGET and "reached" in done.out, f"{ranks} ranks reach {TARGET:.0%}: {final:.2%}", done)
    batches = {(p["factors"]["batch_per_rank"], p["factors"]["batch_global"], p["factors"]["ranks"])
               for p in support.points(path)}
    test.equal(batches, {(GLOBAL_BATCH // ranks, GLOBAL_BATCH, ranks)}, f"its global batch is {GLOBAL_BATCH}")
    return path, final


FEW_STEPS = ("train", "--model", "mlp:784-32-10", "--batch", 32, "--threads", 1, "--train-samples", 6400, "--validation-samples", 100, "--epochs", 1)


def steps_of_the_slowest(test):
    """Its steps are nearly all of the time; those of the first rank, of which another waits for none, are not."""
    out = test.path("slowest.jsonl")
    test.run(*FEW_STEPS, "--strategy", "ps-async", "--inject", "slow:rank=1,factor=20", "--out", out, ranks=2, threads=True)
    row = support.points(out)[-1]
    training_s = 6400 / row["metrics"]["samples_per_s"]
    share = sum(row["raw_times_s"]) / training_s
    test.check(share > 0.5, f"steps are the slowest rank's: together {share:.2f} of the training's time", row["metrics"])
    test.check("metrics.time_s.ci95_low" in row.get("nonfinite", {}), "steps in a row give no interval", row)


def dumps_take_no_time(test):
    """Nobody reads the file for four seconds, so that writing it takes as long."""
    out, pipe = test.path("dumps.jsonl"), test.path("pipe")
    os.mkfifo(pipe)

    def read_late():
        time.sleep(4)
        pipe.read_bytes()
    reader = threading.Thread(target=read_late, daemon=True)
    reader.start()
    done = test.run(*FEW_STEPS, "--dump-weights", pipe, "--force", "--out", out, ranks=2, threads=True)
    reader.join(30)
    row = support.points(out)[-1]
    training_s = 6400 / row["metrics"]["samples_per_s"]
    test.check(training_s < 2.5 < done.seconds, f"the time of --dump-weights is no training: {training_s:.2f} s of {done.seconds:.2f}", done)


def body(test):
    steps_of_the_slowest(test)
    dumps_take_no_time(test)
    found = {ranks: to_the_target(test, ranks) for ranks in (1, 2, 4)}
    for ranks in (2, 4):
        curves = [loss_curve(found[r][0]) for r in (1, ranks)]
        test.check(agree(*curves), f"their loss curves agree within {TOLERANCE}: off by {difference(*curves):.1e}")
        test.check(abs(found[ranks][1] - found[1][1]) <= ACCURACY_TOLERANCE,
                   f"and the final accuracies within 0.3 points: {found[1][1]:.2%}, {found[ranks][1]:.2%}")

    alone = loss_curve(found[1][0])
    test.check(len(set(alone.values())) > STEPS / 2 and alone[STEPS - 1] < alone[0] / 2,
               f"the loss of 1 rank falls: {alone.get(0)} to {alone.get(STEPS - 1)}")
    ways = {"buckets on 4 ranks": (4, "--algorithm", "ring", "--bucket", "64K"),
            "the library's all-reduce on 4 ranks": (4, "--algorithm", "mpi"),
            "a ring over MPI without overlap on 2 ranks": (2, "--algorithm", "ring", "--transport", "mpi", "--overlap", "none")}
    for name, (ranks, *how) in ways.items():
        _, path = train(test, name, ranks, *CURVE, *how)
        off = difference(alone, loss_curve(path))
        test.check(agree(alone, loss_curve(path)), f"{name} agrees as well: off by {off:.1e}")

    for ranks in (2, 4):
        _, path = train(test, f"independent on {ranks} ranks", ranks, *CURVE, "--strategy", "independent")
        curve = loss_curve(path)
        test.check(len(curve) == STEPS and all(map(math.isfinite, curve.values())), "it has all its steps")
        test.check(not agree(alone, curve),
                   f"control: without exchange {ranks} ranks differ, by {difference(alone, curve):.1e}")

    few = GLOBAL_BATCH * STEPS
    one_rank = {}
    for model in ("lstm-lm:hidden=16", "transformer-lm:hidden=16,tied=1"):
        alone = one_rank[model] = loss_curve(train(test, f"{model} on 1 rank", 1, *LANGUAGE, model=model, samples=few)[1])
        for ranks in (2, 4):
            done, path = train(test, f"{model} on {ranks} ranks", ranks, *LANGUAGE, model=model, samples=few, threads=True)
            off = difference(alone, loss_curve(path))
            test.check(agree(alone, loss_curve(path)), f"{model} on {ranks} ranks agrees: off by {off:.1e}")
            test.check("the language's own is 3.364" in done.out, "and its perplexity is beside the language's", done)
        last = max(alone)
        test.check(1.2130 < alone[last] < alone[0], f"the loss of a word falls: {alone[0]} to {alone[last]}")

    model = "transformer-lm:hidden=16"
    one_rank[model] = loss_curve(train(test, f"{model} on 1 rank", 1, *LANGUAGE, model=model, samples=few)[1])
    for model, mesh, ranks in ((model, "pipeline=2", 2), (model, "tensor=2", 2), (model, "data=2,pipeline=2,schedule=gpipe", 4),
                               (model, "data=2,tensor=2", 4), (f"{model},tied=1", "pipeline=2", 2)):
        alone = one_rank[model]
        _, path = train(test, f"{model} on {mesh}", ranks, *LANGUAGE, "--mesh", mesh, "--accumulate", 2,
                        model=model, replicas=ranks // 2, samples=few, threads=ranks == 2)
        off = difference(alone, loss_curve(path))
        test.check(agree(alone, loss_curve(path)), f"{model} on {mesh} agrees: off by {off:.1e}")
        last = support.points(path)[-1]["metrics"]
        test.check(last["bytes_sent_total"] == last["bytes_predicted"] > 0, "and sends what was forecast",
                   support.brief(support.points(path)[-1]))

    done, _ = train(test, "a target out of reach", 1, "--steps", "5", "--target", TARGET, samples=few, code=1)
    test.check("not reached" in done.out, "says that it was not reached", done)


if __name__ == "__main__":
    support.main(__doc__, body)
