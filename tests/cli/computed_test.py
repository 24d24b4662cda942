# SPDX-License-Identifier: Apache-2.0
"""What is timed is what is checked. Preloads GRADMETER_IDLE_ONEDNN, a oneDNN that from the twelfth execution of each primitive on computes
nothing, or half, or puts an older result, or spoils a byte: rows are wrong, the exit code is 4. Without it they are ok."""
import os

import support

QUICK = ["--precision-goal", "0.5", "--threads", "1"]
PRODUCTS = ["kernels", *QUICK, "--shape", "gemm:m=96,n=96,k=96", "--cache", "hot,cold"]
CONVOLUTIONS = ["kernels", *QUICK, "--shape", "conv:w=14,h=14,c=16,n=2,k=16,fw=3,fh=3,pw=1,ph=1,sw=1,sh=1",
                "--pass", "forward,backward-data,backward-weights"]


TABLE = ["infer", "--model", "dlbench_ffn", "--batch", "4", "--precision", "fp32,int8", *QUICK]
NETWORK = ["infer", "--model", "mlp:784-64-10", "--batch", "4", "--epochs", "1", "--train-samples", "1280", "--validation-samples", "640", *QUICK]
STEPS = ["scale", "--model", "mlp:784-64-10", "--strategy", "independent", "--ranks", "1", "--thread-ranks", "1", "--time-budget", "1s"]
TRAINING = ["train", "--model", "mlp:784-64-10", "--steps", "60", "--train-samples", "4000", "--validation-samples", "100",
            "--thread-ranks", "1"]


def rows(test, name, *arguments, how=None, start=12):
    """Exit code, the rows, what the run printed."""
    out = test.path(f"{name}.jsonl")
    cheat = {"LD_PRELOAD": os.environ["GRADMETER_IDLE_ONEDNN"], "IDLE_HOW": how, "IDLE_FROM": str(start), "IDLE_EVERY": "1"}
    done = test.run(*arguments, "--out", out, env=cheat if how else None)
    points = support.points(out) if out.exists() else []
    if points:
        test.valid(out)
    return done.code, points, done


def honest(test, name, *arguments):
    code, points, done = rows(test, name, *arguments)
    # Beside other programs a row may be mistrusted, for its time.
    test.check(code == 0 and points and all(p["status"] in ("ok", "mistrusted") for p in points), f"{name}: not wrong", done)


def caught(test, name, how, *arguments, start=12):
    code, points, done = rows(test, f"{name}-{how}", *arguments, how=how, start=start)
    test.check(code == 4 and points and all(p["status"] == "wrong" for p in points), f"{name}, {how}: wrong", done)
    return [p["reason"] for p in points]


def kernels(test):
    honest(test, "products", *PRODUCTS, "--precision", "fp32,int8")
    for how in ("nothing", "byte"):  # the roofline takes most of the time of each run
        reasons = caught(test, "products", how, *PRODUCTS)
        test.check(all("timed call" in r for r in reasons), "calls are caught that were timed", reasons)
    caught(test, "convolutions", "half", *CONVOLUTIONS)
    # From an execution on that only the products of the roofline reach: the call is right, its limit is not.
    reasons = caught(test, "one call", "byte", "kernels", "--shape", "gemm:m=512,n=512,k=512", "--cache", "hot", "--threads", "1", "--time-budget", "1ms",
                     start=40)
    test.check(all("limit" in r for r in reasons), "a limit that rests on wrong products is none", reasons)
    done = test.run("doctor", env={"LD_PRELOAD": os.environ["GRADMETER_IDLE_ONEDNN"], "IDLE_HOW": "half", "IDLE_FROM": "12"})
    test.check(done.code == 4 and "product that gives a rate is wrong" in done.err, "doctor's rates are of right products", done)


def forward_passes(test):
    honest(test, "a layer table", *TABLE)
    honest(test, "a network", *NETWORK, "--precision", "fp32,bf16,int8")
    for how in ("nothing", "half", "stale"):
        caught(test, "a layer table", how, *TABLE)
    trained = 100  # executions of no primitive of the training, which has 20 steps
    for how in ("nothing", "half"):
        reasons = caught(test, "a network", how, *NETWORK, "--precision", "fp32,bf16,int8", start=trained)
        test.check(all("timed pass" in r for r in reasons), "passes are caught that were timed", reasons)
    code, _, done = rows(test, "its training", *NETWORK, how="nothing")
    test.check(code == 4 and "timed step" in done.err, "a training that computes nothing ends the run with 4", done)


def steps(test):
    honest(test, "steps", *STEPS)
    honest(test, "a training", *TRAINING)
    for how in ("nothing", "half", "stale", "byte"):
        # Steps built anew between blocks have new primitives, which beside other programs come to a few executions only.
        reasons = caught(test, "steps", how, *STEPS, start=3)
        test.check(all("timed step" in r for r in reasons), "steps are caught that were timed", reasons)
    code, _, done = rows(test, "training", *TRAINING, how="nothing")
    test.check(code == 4 and "timed step" in done.err, "a training that computes nothing ends with 4", done)


def half_width(point):
    t = point["metrics"]["time_s"]
    return (t["ci95_high"] - t["ci95_low"]) / 2 / t["median"]


def other_memory(test):
    """Where memory lies stays for a whole launch, unless blocks have memory of their own: what it does is in the interval."""
    for name, arguments in (("products", [*PRODUCTS[:-1], "hot"]), ("passes", NETWORK), ("steps", [*STEPS[:-1], "4s"])):
        # Beside other programs there may be time for so few builds that they all had the same luck, once.
        for launch in range(3):
            _, points, done = rows(test, f"{name}-placed-{launch}", *arguments, how="placed")
            # What is converted to fp32 first is computed in memory of the thread's own.
            widths = [half_width(p) for p in points if "by conversion" not in str(p["metrics"].get("implementation"))]
            if widths and min(widths) > 0.05:
                break
        test.check(widths and min(widths) > 0.05, f"{name}: what other pages do is in the interval", widths or done)


def body(test):
    other_memory(test)
    kernels(test)
    forward_passes(test)
    steps(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
