# SPDX-License-Identifier: Apache-2.0
"""Layer tables as models of scale: every kind of layer, in fp32 and bf16, exchanged by several strategies and codecs; a user's own file and its faults; what does not fit into memory."""
import re

import support

ROWS = """layer,kind,shape,params,forward_flops_per_sample,input,stride,padding,groups,steps,heads
conv,conv,32x3x3x3,864,442368,3x16x16,1,1,,,
conv.bias,bias,32,32,0,,,,,,
norm.weight,norm,32,32,0,,,,,,
words,embedding,200x64,12800,0,,,,,8,
rnn.ih,lstm,256x64,16384,262144,64,,,,8,
rnn.hh,lstm,256x64,16384,262144,,,,,8,
rnn.bias,bias,256,256,0,,,,,,
heads,attention_matmul,-,0,16384,64,,,,8,4
out,linear_tied,200x64,0,204800,64,,,,8,
"""
# All tensors are whole cache lines, so that there are no gaps between them.
PARAMETERS = 864 + 32 + 32 + 12800 + 2 * 16384 + 256
PRECISIONS = ["fp32", "bf16"]


def runs(test, table):
    out = test.path("tables.jsonl")
    sweep = ["scale", "--model", table, "--batch", "2,4", "--ranks", "2", "--strategy", "sync,ps-sync", "--algorithm",
             "ring", "--codec", "none,qsgd4", "--precision", ",".join(PRECISIONS), "--time-budget", "5s", "--precision-goal", "0.5", "--out", out]
    done = test.run(*sweep, ranks=2)
    points = support.points(out)
    # Of 2 batches in each precision: independent and both strategies on one rank, where servers change nothing, and on
    # two ranks independent and two codecs of two strategies.
    test.check(done.code == 0 and len(points) >= 2 * 7 * len(PRECISIONS), "a table of every kind of layer runs", done)
    test.check(all(p["status"] == "ok" for p in points), "each point is measured",
               [(p["factors"], p["status"], p["reason"]) for p in points if p["status"] != "ok"])
    test.equal({p["factors"]["precision"] for p in points}, set(PRECISIONS), "in each precision")
    test.check(all(map(support.says_how_bf16_is_multiplied, points)), "rows in bf16 say how it is multiplied",
               {p["reason"] for p in points})
    for p in points:
        if p["factors"]["strategy"] == "sync" and p["factors"]["ranks"] == 2 and p["factors"]["codec"] == "none":
            test.equal(p["metrics"]["bytes_sent_total"], 2 * 4 * PARAMETERS, "each rank sends its gradients once")
            test.check(p["metrics"]["limit_compute_s"] > 0, "and its operations have a limit", p["metrics"])
    test.valid(out)
    resumed = test.run(*sweep, "--resume", ranks=2)
    test.check("\n0 points measured" in resumed.out, "the same points are found again", resumed)


def buckets(test, table):
    out = test.path("buckets.jsonl")
    done = test.run("scale", "--model", table, "--batch", "2", "--ranks", "2", "--strategy", "sync,sharded,ps-sync",
                    "--algorithm", "ring", "--bucket", "64K", "--time-budget", "3s", "--per-bucket", "--out", out, ranks=2)
    lines = done.out.splitlines()
    test.check(done.code == 0 and "buckets on the rank that computed longest" in done.out, "--per-bucket has a table", done)
    test.check(any("rnn.ih" in line or "rnn.hh" in line for line in lines), "which names the largest tensors", done)
    sums = [re.search(r"exposed: (\S+) ms in all buckets, (\S+) ms in the row", line) for line in lines]
    sums = [(float(m[1]), float(m[2])) for m in sums if m]
    test.check(sums and all(abs(a - b) <= 0.5 * max(a, b) + 0.2 for a, b in sums),
               "what was exposed adds up to the row's, but for medians", done)
    test.check("ps-sync" in done.out and "does not send each bucket" in done.out, "a strategy without buckets says so", done)
    bounds(test, out, done)


def bounds(test, out, done):
    """The line about what can be hidden has the row's figures, and the bound is between nothing and the whole exchange."""
    rows = [p["metrics"] for p in support.points(out) if p["factors"]["strategy"] == "sync" and p["factors"]["ranks"] == 2]
    test.check(len(rows) == 1 and 0 <= rows[0]["exposed_least_s"] <= rows[0]["limit_exchange_s"], "the bound is in the row", rows)
    said = re.search(r"hidden: (\S+) of the (\S+) ms that can be hidden of (\S+) ms on the link \((\S+)( %)?\); kernels took", done.out)
    test.check(said, "a line says what is hidden of what can be", done)
    link, can = 1e3 * rows[0]["limit_exchange_s"], 1e3 * (rows[0]["limit_exchange_s"] - rows[0]["exposed_least_s"])
    hidden = link - 1e3 * rows[0]["exposed_union_s"]
    wanted = (hidden, can, link)
    test.check(all(abs(float(said[i + 1]) - w) <= 0.006 * abs(w) + 1e-9 for i, w in enumerate(wanted)), f"it has the row's {wanted}", said[0])
    others = [p["metrics"] for p in support.points(out) if p["factors"]["strategy"] != "sync"]
    test.check(others and all("exposed_least_s" not in m for m in others), "control: other strategies have no such bound", others)


def threads(test):
    done = test.run("scale", "--model", "vgg11", "--shrink", "16", "--batch", "1", "--thread-ranks", "2",
                    "--strategy", "sync", "--algorithm", "ring", "--time-budget", "2s", "--precision-goal", "0.5", "--out", test.path("threads.jsonl"))
    test.check(done.code == 0 and "vgg11:shrink=16" in done.out, "a shipped table on thread ranks, shrunk", done)


def refusals(test, table):
    def refused(*flags, says):
        done = test.run("scale", "--batch", "2", *flags)
        test.check(done.code == 2 and says in done.err and done.err.count("\n") == 1, f"one line: {says}", done)

    bad = test.path("bad.csv")
    bad.write_text(ROWS.replace("442368", "442369"))
    refused("--model", bad, says=f"{bad}:2:")
    refused("--model", test.path("missing.csv"), says="cannot be read")
    refused("--model", "resnet500", says="resnet50")
    refused("--model", "resnet50:width=2", says="width")
    refused("--model", table, "--precision", "fp12", says="fp12")
    refused("--model", table, "--learn", "100", says="does not learn")
    test.check(test.run("train", "--model", table).code == 2, "train refuses what does not learn")
    refused("--model", table, "--precision", "int8", says="run in fp32 and bf16, not in int8")
    mixed = test.run("scale", "--model", f"{table},mlp:784-16-10", "--precision", "lns16", "--batch", "2",
                     "--time-budget", "2s")
    test.check(mixed.code == 0 and "run in fp32 and bf16, not in lns16" in mixed.out,
               "a model without a precision that another has is unsupported, with the reason", mixed)
    big = test.run("scale", "--model", "gpt2_small", "--batch", "8192", "--time-budget", "2s")
    test.check("a worker would fit" in big.out, "what needs too much memory is skipped, with what would fit", big)


def body(test):
    table = test.path("all-kinds.csv")
    table.write_text(ROWS)
    runs(test, table)
    buckets(test, table)
    threads(test)
    refusals(test, table)


if __name__ == "__main__":
    support.main(__doc__, body)
