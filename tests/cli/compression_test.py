# SPDX-License-Identifier: Apache-2.0
"""Codecs on the wire, end to end: exact bytes, the comparison with none, training that loses no accuracy (and training
without error feedback, which does), and what is refused."""
import itertools

import support

QUICK = ["--time-budget", "1s", "--precision-goal", "0.5"]
DIGITS = ["train", "--model", "mlp:784-32-10", "--batch", "32", "--epochs", "3", "--train-samples", "20000",
          "--validation-samples", "10000", "--threads", "1", "--overlap", "none", "--algorithm", "direct"]
HALF_A_POINT = 0.005
VISIBLY = 0.008  # worse: in a run that loses 1.5 points and more


def base(point):
    return point["factors"]["codec"].partition(":")[0]


def wire_bits(codec, n):
    """What an element takes: codes of b bits and, bucketed by 512, an fp32 scale, each padded to 16 bytes."""
    padded = lambda b: (b + 15) // 16 * 16
    bits = {"bf16": 16, "qsgd8": 8, "qsgd4": 4, "onebit": 1}[codec]
    scales = 0 if codec == "bf16" else padded(4 * -(-n // 512))
    return scales + padded(-(-n * bits // 8))


def sums(test):
    out = test.path("sums.jsonl")
    n = 1 << 14
    codecs = "none,bf16,qsgd8,qsgd4,onebit,topk,powersgd:rank=2,terngrad,randomk,qsgd-elias"
    done = test.run("allreduce", "--sizes", str(4 * n), "--algorithm", "direct,mpi", "--codec", codecs, "--in-place",
                    "both", "-n", "6", "-w", "1", "--out", out, ranks=2, timeout=120)
    if not test.check(done.code == 0 and not done.own_lines, "a sweep over codecs ends with 0", done):
        return
    test.valid(out)
    points = support.points(out)
    rows = {(p["factors"]["algorithm"], base(p), p["factors"]["in_place"]): p for p in points}
    test.equal(len(rows), 2 * 10 * 2, "each codec by each algorithm, out of place and in place")
    refused = {c for (a, c, _), p in rows.items() if p["status"] == "unsupported" and a == "mpi"}
    test.equal(refused, {"bf16", "qsgd8", "qsgd4", "onebit"}, "the library sums what is linear or gathered, and no codes")
    test.check(all(p["status"] == "ok" for (a, _, _), p in rows.items() if a == "direct"), "direct carries all of them",
               [(k, p["reason"]) for k, p in rows.items() if p["status"] not in ("ok", "unsupported")])
    for codec in ("bf16", "qsgd8", "qsgd4", "onebit"):
        m = rows["direct", codec, False]["metrics"]
        # Two ranks send each other half of the buffer, encoded, and then the finished halves.
        test.equal(m["bytes_sent_total"], 4 * wire_bits(codec, n // 2), f"{codec}: bytes on the wire are exact")
        test.check(m["encode_s"] > 0 and m["decode_s"] > 0 and m["crossover_bytes_per_s"] > 0 and
                   m["link_bytes_per_s"] > 0, f"{codec}: the row has the codec's time and the crossover", m)
    test.equal(rows["direct", "terngrad", False]["metrics"]["bytes_sent_total"], 2 * (16 + n // 4),
               "terngrad: two bits an element and a scale, from each rank to the other")
    errors = {c: rows["direct", c, False]["metrics"]["error"] for c in ("none", "bf16", "qsgd8", "qsgd4")}
    test.check(errors["none"] < 1e-6 and errors["bf16"] < 2e-5 < errors["qsgd8"] < 4e-4 < 0.02 < errors["qsgd4"] < 0.1,
               "errors of the sums are those of the literature", errors)
    test.check("codecs against none" in done.out and "pays below" in done.out, "the table holds codecs beside none", done)


def injected_error(test):
    done = test.run("allreduce", "--sizes", "16K", "--algorithm", "direct,ring", "--codec", "none,qsgd4,topk", "--inject",
                    "flip:rank=1", "--in-place", "out", *QUICK, "--out", test.path("flip.jsonl"), ranks=2, threads=True)
    test.check(done.code == 4, "an injected error ends with 4", done)
    wrong = {base(p): p["metrics"]["wrong"] for p in support.points(test.path("flip.jsonl"))}
    test.check(len(wrong) == 3 and all(w >= 1 for w in wrong.values()), "for every codec", wrong)


def accuracy(test):
    found = {}
    for codec in ("none", "qsgd8", "qsgd4", "onebit", "topk", "powersgd:rank=2", "onebit:ef=off", "topk:ef=off"):
        out = test.path(f"{codec.replace(':', '_').replace('=', '_')}.jsonl")
        done = test.run(*DIGITS, "--codec", codec, "--out", out, ranks=4, threads=True, timeout=120)
        if not test.check(done.code == 0, f"training with codec {codec}", done):
            return
        found[codec] = [p["metrics"]["accuracy"] for p in support.points(out)][-1]
        test.valid(out)
    text = ", ".join(f"{c} {100 * a:.2f}" for c, a in found.items())
    print(f"note   accuracy after 3 epochs of 20000 digits, 4 ranks [%]: {text}", flush=True)
    for codec in ("qsgd8", "qsgd4", "onebit", "topk", "powersgd:rank=2"):
        test.check(found[codec] > found["none"] - HALF_A_POINT, f"{codec} is as accurate as fp32, within half a point", text)
    for codec in ("onebit:ef=off", "topk:ef=off"):
        test.check(found[codec] < found["none"] - VISIBLY, f"control: {codec} is visibly worse", text)


def curves(test):
    out = test.path("scale.jsonl")
    done = test.run("scale", "--model", "mlp:784-64-10", "--batch", "32", "--ranks", "2", "--strategy", "sync",
                    "--algorithm", "ring", "--codec", "none,qsgd4,qsgd4:bucket=128", *QUICK, "--out", out, ranks=2, threads=True)
    test.check(done.code == 0, "scale takes codecs as a factor", done)
    test.valid(out)
    rows = {p["factors"]["codec"]: p for p in support.points(out) if p["factors"].get("codec")}
    test.equal(len(rows), 3, "a point for each codec")
    sent = sorted(p["metrics"]["bytes_sent_total"] for p in rows.values())
    test.check(sent[0] < sent[1] < sent[2] / 5, "and fewer bytes with it", sent)
    coded = [p["metrics"] for c, p in rows.items() if c != "none"]
    test.check(all(m["encode_s"] > 0 and 0.005 < m["error"] < 0.2 for m in coded), "with its time and error", coded)
    test.check("qsgd4:bucket=128" in done.out, "the table tells the two apart", done)


def warming_up(test, command, without):
    """10 steps: all of them in the first epoch of four, or four of each density."""
    for codec, label in (("dgc", "dgc:warmup=40"), ("dgc:warmup=16,density=0.001", "warmup=16")):
        done = test.run(*command, "--codec", codec, ranks=3, threads=True)
        test.check(done.code == 0 and label in done.out.splitlines()[0] and ", as forecast" in done.out,
                   f"{codec}: the head says {label}, and the bytes are as forecast", done)
        test.check(without not in done.out, f"control: more than the {without} without a warm-up", done)
    for command in ("scale", "allreduce", "codecs"):
        ranks = None if command == "codecs" else 2
        done = test.run(command, "--codec", "dgc:warmup=16", ranks=ranks, threads=True)
        test.check(done.code == 2 and "warmup" in done.own_lines[0], f"{command} refuses a warm-up", done)
    done = test.run("train", "--strategy", "ps-sync", "--codec", "dgc:warmup=16", ranks=2, threads=True)
    test.check(done.code == 2 and "warm-up" in done.own_lines[0], "servers have none", done)
    done = test.run("train", "--mesh", "tensor=2", "--codec", "dgc:clip=1", ranks=4, threads=True)
    test.check(done.code == 2 and "clip" in done.own_lines[0], "clipping wants all tensors on one rank", done)


def forecasts(test):
    """A run holds what it sent to the strategy's forecast: to the byte, or to the most where lengths depend on the data."""
    digits = ["train", "--model", "mlp:784-64-10", "--batch", "32", "--epochs", "1", "--train-samples", "1000",
              "--validation-samples", "100", "--threads", "1"]
    on_ring = ["--strategy", "sync", "--algorithm", "ring"]
    strategies = (on_ring, ["--strategy", "ps-sync", "--servers", "1"], ["--strategy", "ps-async"])
    # The last is the control: nothing is encoded, so all is known.
    codecs = ("topk", "dgc:warmup=0", "randomk", "powersgd:rank=2", "terngrad", "qsgd-elias", "qsgd-elias:min=1000000")
    sent = {}

    def as_forecast(case):
        strategy, codec = case
        done = test.run(*digits, *strategy, "--codec", codec, ranks=3, threads=True)
        text = ", of " if codec == "qsgd-elias" else ", as forecast"
        test.check(done.code == 0 and text in done.out, f"{' '.join(strategy)} {codec}: bytes{text}", done)
        if strategy is on_ring:
            sent[codec] = done.out.split(" sent a step")[0].splitlines()[-1]

    test.side_by_side(as_forecast, itertools.product(strategies, codecs), at_once=3)
    warming_up(test, [*digits, *on_ring], sent["dgc:warmup=0"])


def refused(test):
    bad = (("qsgd3", "qsgd4"), ("qsgd4:bucket=0", "bucket"), ("topk:density=0", "above 0"), ("topk:density=1.5", "density"),
           ("powersgd:rank=0", "rank"), ("qsgd1:ef=on", "ef=on"), ("dgc:ef=off", "ef=off"))

    def in_one_line(case):
        command, (codec, part) = case
        done = test.run(command, "--codec", codec, ranks=2, threads=True)
        test.check(done.code == 2 and len(done.own_lines) == 1 and part in done.own_lines[0],
                   f"{command} --codec {codec} is refused in one line", done)

    test.side_by_side(in_one_line, itertools.product(("allreduce", "train"), bad), at_once=4)
    done = test.run(*DIGITS, "--codec", "powersgd:rank=33", ranks=2, threads=True)
    test.check(done.code == 2 and "33" in done.err, "a rank above every matrix of the model is refused", done)
    done = test.run("allreduce", "--sizes", "16K", "--algorithm", "ring", "--codec", "powersgd:rank=101", "--in-place",
                    "in", *QUICK, ranks=2, threads=True)
    test.check(done.code == 0 and "unsupported" in done.out, "and in a sweep a row says so", done)


def body(test):
    sums(test)
    injected_error(test)
    accuracy(test)
    curves(test)
    forecasts(test)
    refused(test)


if __name__ == "__main__":
    support.main(__doc__, body)
