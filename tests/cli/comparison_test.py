# SPDX-License-Identifier: Apache-2.0
"""`mpirun -np 4 gradmeter scale --strategy all --learn N` in one command gives comparable rows: time per sample, bytes per
step equal to the strategy's forecast, staleness where there are servers, accuracy at equal samples and at equal time;
meshes and micro-batches are factors beside them; what cannot be had is a row with its reason."""
import json
import math

import support

RANKS, BATCH, MODEL = 4, 32, "mlp:784-64-64-10"
SAMPLES = 9600
WITH_SERVERS = ("dc-asgd", "easgd", "ps-async", "ps-backup", "ps-softsync", "ps-ssp", "ps-sync")
AT_ANY_STEP = ("ad-psgd", *WITH_SERVERS)  # workers need not be at the same one
GRADIENT_FREE = ("es", "population")


def base(point):
    return point["factors"]["strategy"].split(":")[0]


def number(point, name):
    value = point["metrics"].get(name)
    value = value.get("median") if isinstance(value, dict) else value
    return value if isinstance(value, (int, float)) else math.nan


def scale(test, name, *flags, model=MODEL, batch=BATCH, timeout=200):
    out = test.path(f"{name}.jsonl")
    done = test.run("scale", "--model", model, "--batch", batch, "--ranks", RANKS, "--threads", 1, "--min-samples", 6,
                    "--precision-goal", 0.5, "--out", out, *flags, ranks=RANKS, timeout=timeout)
    test.check(done.code == 0 and not done.own_lines, f"{name} ends with 0", done)
    test.valid(out)
    return done, support.points(out)


def judge_row(test, point):
    name = base(point)
    test.check(point["status"] == "ok", f"{name} is ok", point["reason"])
    time, per_sample = number(point, "time_s"), number(point, "time_per_sample_s")
    test.check(math.isclose(per_sample, time / (RANKS * BATCH), rel_tol=1e-9), f"{name}: time per sample {per_sample:.3g} s")
    if name == "independent":
        return
    sent, due = number(point, "bytes_sent_total"), number(point, "bytes_predicted")
    forecast = sent == due or name in ("adacomm", "population") and 0 < sent
    test.check(forecast, f"{name} sends {sent:.0f} bytes a step, and said so", f"forecast {due}")
    test.check((number(point, "staleness") >= 0) == (name in AT_ANY_STEP), f"{name}: staleness where steps differ",
               point["metrics"].get("staleness"))
    if name.startswith("ps-"):
        test.check(number(point, "wire_s") > 0, f"{name}: copies into and out of messages have a time", point)
    test.check(point["factors"].get("cadence") is None if name in AT_ANY_STEP else
               point["factors"]["cadence"] == "barrier", f"{name}: a barrier only where workers keep step")


def judge_learning(test, points):
    samples = {number(p, "learn_samples") for p in points}
    test.equal(samples, {SAMPLES // (RANKS * BATCH) * RANKS * BATCH}, "all learned from equally many samples")
    for p in points:
        reached, in_time = number(p, "accuracy_at_samples"), number(p, "accuracy_at_time")
        # ps-backup leaves out the updates of late workers, and on shared cores other programs make them late.
        least = 0.15 if base(p) in GRADIENT_FREE else 0.6 if base(p) == "ps-backup" else 0.8
        test.check(least < reached <= 1 and 0 <= in_time <= 1,
                   f"{base(p)}: {reached:.1%} at equal samples, {in_time:.1%} at equal time")


def body(test):
    done, points = scale(test, "all strategies", "--strategy", "all", "--algorithm", "ring", "--time-budget", "6s", "--learn",
                         SAMPLES)
    four = [p for p in points if p["factors"]["ranks"] == RANKS]
    listed = json.loads(test.run("list", "strategies", "--json").out)["strategies"]
    test.equal(sorted(base(p) for p in four), sorted(s["name"] for s in listed), "every strategy has one row on four ranks")
    for p in four:
        judge_row(test, p)
    judge_learning(test, four)
    for column in ("µs/sample", "B/step", "% equal samples", "% equal time", "waits"):
        test.check(column in done.out, f"the table has a column {column}", done)

    _, points = scale(test, "meshes", "--strategy", "sync,ps-async,es", "--mesh", "data;tensor=2;tensor=2,pipeline=2;pipeline=4",
                      "--algorithm", "ring", "--accumulate", "1,2", "--time-budget", "6s")
    rows = {(base(p), p["factors"].get("mesh"), p["factors"].get("accumulate") or 1): p
            for p in points if p["factors"]["ranks"] == RANKS}
    for mesh in (None, "data=2,tensor=2", "tensor=2,pipeline=2"):
        for accumulate in (1, 2):
            for name in ("sync", "es", "independent"):
                point = rows.get((name, mesh, accumulate))
                test.check(point is not None and point["status"] == "ok",
                           f"{name} on {mesh or 'data'} with {accumulate} micro-batches", point)
    refused = rows.get(("sync", "pipeline=4", 1))
    test.check(refused is not None and refused["status"] == "unsupported" and refused["reason"],
               f"a model of few layers has no four stages: {refused and refused['reason']}")

    _, points = scale(test, "layer table in stages", "--strategy", "sync", "--shrink", 32, "--algorithm", "ring",
                      "--mesh", "data;data=2,pipeline=2;tensor=2,data=2", "--accumulate", 2, "--time-budget", "3s", model="alexnet", batch=2)
    rows = {p["factors"].get("mesh"): p for p in points if p["factors"]["ranks"] == RANKS and base(p) == "sync"}
    test.equal(set(rows), {None, "data=2,pipeline=2", "data=2,tensor=2"}, "a layer table has a row on each mesh")
    for mesh in (None, "data=2,pipeline=2"):
        sent, due = number(rows[mesh], "bytes_sent_total"), number(rows[mesh], "bytes_predicted")
        test.check(rows[mesh]["status"] == "ok" and 0 < sent == due, f"on {mesh or 'data'} it sends {sent:.0f} bytes a step, and said so",
                   f"forecast {due}")
    refused = rows["data=2,tensor=2"]
    test.check(refused["status"] == "unsupported" and "does not say which layers read the same numbers" in refused["reason"],
               f"tensor ranks cannot share its layers: {refused['reason']}")

    done, points = scale(test, "servers", "--strategy", "ps-async", "--servers", 1, "--time-budget", "2s")
    served = [p for p in points if base(p) == "ps-async" and p["factors"]["ranks"] == RANKS]
    test.equal([p["factors"]["batch_global"] for p in served], [(RANKS - 1) * BATCH], "a rank that serves has no batch")
    for p in served:
        test.check(p["status"] == "ok" and number(p, "bytes_sent_total") == number(p, "bytes_predicted"),
                   "and its bytes are counted", p)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
