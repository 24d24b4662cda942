# SPDX-License-Identifier: Apache-2.0
"""Inference end to end: a model is trained, quantized, compared with fp32 and timed; the table is the file's; emulated
precisions have accuracy alone; what no backend has says so; layer tables; ranks at once; --resume."""
import support

SMALL = ["--epochs", "1", "--train-samples", "1280", "--validation-samples", "500", "--calibration-samples", "64",
         "--min-samples", "20", "--precision-goal", "0.5", "--time-budget", "4s", "--threads", "1"]
MODEL = ["--model", "cnn:convolutions=2,filters=4,hidden=16", "--train-batch", "8", "--lr", "0.005"]


def table_and_file(test):
    out = test.path("i.jsonl")
    command = ["infer", *MODEL, "--batch", "1,8", "--precision", "fp32,bf16,int8,int4", *SMALL, "--out", out]
    done = test.run(*command)
    if not test.check(done.code == 0 and not done.own_lines, "four precisions of a network, without mpirun", done):
        return
    test.valid(out)
    points = support.points(out)
    test.equal([(p["factors"].get("batch_per_rank"), p["factors"]["precision"]) for p in points],
               [(b, p) for b in (1, 8) for p in ("fp32", "bf16", "int8")] + [(None, "int4")],
               "a row for each batch and precision, of the emulated one a single row")
    test.check(all(p["status"] == "ok" for p in points), "no backend lacks one", points)
    timed = [p for p in points if p["factors"]["precision"] != "int4"]
    test.check(all(map(support.says_how_bf16_is_multiplied, timed)), "rows in bf16 say how it is multiplied", timed)
    base = {p["factors"]["batch_per_rank"]: p["metrics"]["time_s"]["median"] for p in timed
            if p["factors"]["precision"] == "fp32"}
    fp32 = [p for p in timed if p["factors"]["precision"] == "fp32"]
    for p in timed:
        m, batch = p["metrics"], p["factors"]["batch_per_rank"]
        t = m["time_s"]
        test.check(0 < t["median"] <= t["p95"] <= t["p99"] <= t["max"] and t["n"] == len(p["raw_times_s"]) >= 20,
                   f"batch {batch}, {p['factors']['precision']}: every pass is a sample, and the tail is in order", t)
        test.check(abs(m["samples_per_s"] * t["median"] / batch - 1) < 1e-9, "samples/s are batch by time", m)
        test.check(abs(m["speedup"] * t["median"] / base[batch] - 1) < 1e-9, "× fp32 is the ratio of the medians", m)
    accuracy = fp32[0]["metrics"]["accuracy"]
    test.check(accuracy > 0.5, f"the network was trained: {accuracy}")
    test.check(all(p["metrics"]["error"] < 1e-4 and p["metrics"]["accuracy_lost"] == 0 for p in fp32),
               "fp32 is training's forward pass", fp32)
    for p in points:
        m = p["metrics"]
        test.check(abs(m["accuracy"] + m["accuracy_lost"] - accuracy) < 1e-12 and
                   m["accuracy_lost_ci95_low"] < m["accuracy_lost"] + 1e-3 and
                   m["accuracy_lost_ci95_low"] < m["accuracy_lost_ci95_high"],
                   f"{p['factors']['precision']}: what is lost is of fp32's accuracy, with an interval", m)
    error = {p["factors"]["precision"]: p["metrics"]["error"] for p in points}
    test.check(error["fp32"] < error["bf16"] < error["int8"] < 0.1 and error["int8"] < error["int4"],
               "fewer bits are farther off", error)
    int4 = points[-1]["metrics"]
    test.check(int4.get("emulated") is True and "time_s" not in int4 and "speedup" not in int4,
               "an emulated precision has no time", int4)
    rows = [line.split() for line in done.out.splitlines() if line[:1] in " 0123456789" and line.split()[1:2] == ["int8"]]
    for cells, p in zip(rows, [p for p in points if p["factors"]["precision"] == "int8"]):
        us = float(cells[2].lstrip("*~"))
        test.check(abs(us / (1e6 * p["metrics"]["time_s"]["median"]) - 1) < 0.01, "the table's time is the file's",
                   (cells, p))
    test.equal(len(rows), 2, "int8 has a line for each batch")
    lines = support.whole_lines(out)
    out.write_text("\n".join(lines[:-2]) + "\n")  # without the end, and a point
    again = test.run(*command, "--resume")
    test.check(again.code == 0 and "1 point measured" in again.out and "6 kept" in again.out,
               "--resume measures what is missing", again)
    same = support.points(out)[-1]["metrics"]
    test.check(same["accuracy"] == int4["accuracy"] and same["error"] == int4["error"],
               "the same weights: training is deterministic", (same, int4))


def ranks(test):
    alone, both = test.path("alone.jsonl"), test.path("both.jsonl")
    case = ["infer", "--model", "mlp:784-24-10", "--batch", "4", "--precision", "fp32,int8", *SMALL]
    test.run(*case, "--out", alone)
    done = test.run(*case, "--out", both, ranks=2)
    if not test.check(done.code == 0 and "2 ranks at once" in done.out, "two ranks at once", done):
        return
    test.valid(both)
    one, two = support.points(alone), support.points(both)
    test.check(all(a["metrics"]["accuracy"] == b["metrics"]["accuracy"] and
                   abs(a["metrics"]["error"] - b["metrics"]["error"]) < 1e-6 for a, b in zip(one, two)),
               "the same network whatever the ranks: each validates its part", (one, two))
    test.check(all(p["metrics"]["ranks_spread"] >= 1 for p in two), "and how far ranks are apart", two)
    test.check(all(abs(p["metrics"]["samples_per_s"] * p["metrics"]["time_s"]["median"] / 8 - 1) < 1e-9 for p in two),
               "samples/s are those of both", two)


def others(test):
    out = test.path("o.jsonl")
    done = test.run("infer", "--model", "lstm:hidden=16,rnn:hidden=16", "--batch", "2", "--precision", "fp32,int8",
                    *SMALL, "--out", out)
    points = support.points(out)
    test.check(done.code == 0 and [p["status"] for p in points] == ["ok", "ok", "ok", "unsupported"] and
               "lstm and gru" in points[-1]["reason"], "int8 of an lstm, and why a plain layer has none", (done, points))
    test.check("lstm and gru" in done.out, "the table says it too", done)
    test.run("infer", "--model", "alexnet", "--shrink", "16", "--batch", "1", "--precision", "fp32,int8,int4", *SMALL,
             "--out", out, "--force")
    points = support.points(out)
    test.equal([p["status"] for p in points], ["ok", "ok", "unsupported"], "a layer table has times in what computes")
    test.check(all("accuracy" not in p["metrics"] and p["metrics"]["time_s"]["median"] > 0 and
                   p["metrics"]["speedup"] > 0 for p in points[:2]), "and no accuracy", points)
    test.valid(out)
    done = test.run("infer", "--model", "lstm-lm:hidden=16", "--data", "language", "--batch", "2", "--precision",
                    "fp32,int8", *SMALL, "--json")
    test.check(done.code == 0 and '"accuracy"' in done.out and '"status":"ok"' in done.out, "a language model", done)
    plan = test.run("infer", "--model", "mlp,rnn", "--precision", "fp32,int8", "--dry-run")
    test.check(plan.code == 0 and "16 points, 4 of them unsupported" in plan.out, "--dry-run says the points", plan)


def body(test):
    table_and_file(test)
    ranks(test)
    others(test)


support.main(__doc__, body)
