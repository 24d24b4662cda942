"""What is timed is what is checked. Preloads GRADMETER_IDLE_ONEDNN, a oneDNN that from the twelfth execution of each primitive on computes
nothing, or half, or puts an older result, or spoils a byte: rows are wrong, the exit code is 4. Without it they are ok."""
import os

import support

QUICK = ["--precision-goal", "0.5", "--threads", "1"]
PRODUCTS = ["--shape", "gemm:m=96,n=96,k=96", "--cache", "hot,cold"]
CONVOLUTIONS = ["--shape", "conv:w=14,h=14,c=16,n=2,k=16,fw=3,fh=3,pw=1,ph=1,sw=1,sh=1"]
PASSES = ["--pass", "forward,backward-data,backward-weights"]


def rows(test, name, *arguments, how=None):
    """Exit code, the rows, what the run printed."""
    out = test.path(f"{name}.jsonl")
    cheat = {"LD_PRELOAD": os.environ["GRADMETER_IDLE_ONEDNN"], "IDLE_HOW": how, "IDLE_FROM": "12", "IDLE_EVERY": "1"}
    done = test.run(*arguments, "--out", out, *QUICK, env=cheat if how else None)
    points = support.points(out) if out.exists() else []
    if points:
        test.valid(out)
    return done.code, points, done


def honest(test, name, *arguments):
    code, points, done = rows(test, name, *arguments)
    test.check(code == 0 and points and all(p["status"] == "ok" for p in points), f"{name}: ok", done)


def caught(test, name, how, *arguments):
    code, points, done = rows(test, f"{name}-{how}", *arguments, how=how)
    test.check(code == 4 and points and all(p["status"] == "wrong" for p in points), f"{name}, {how}: wrong", done)
    return [p["reason"] for p in points]


def kernels(test):
    honest(test, "products", "kernels", *PRODUCTS, "--precision", "fp32,int8")
    honest(test, "convolutions", "kernels", *CONVOLUTIONS, *PASSES)
    for how in ("nothing", "half", "stale", "byte"):
        reasons = caught(test, "products", how, "kernels", *PRODUCTS)
        test.check(all("timed call" in r for r in reasons), "calls are caught that were timed", reasons)
    caught(test, "convolutions", "half", "kernels", *CONVOLUTIONS, *PASSES)


def body(test):
    kernels(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
