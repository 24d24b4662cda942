# SPDX-License-Identifier: Apache-2.0
"""The kernel sweep end to end: table and file agree, ranks run together, curves over the batch, published times, files of
problems with bad rows, wrong results, --resume, and bad input in one line."""
import csv
import io
import re

import support

QUICK = ["--precision-goal", "0.5", "--threads", "1"]
SMALL = ["--shape", "gemm:m=96,n=32,k=64"]


def bad_row(point):
    """What is wrong with a measured row; nothing for a good one."""
    m, problems = point["metrics"], []
    if point["status"] != "ok":
        return [point["status"], point["reason"]]
    time = m["time_s"]["median"]
    if not time > 0 or abs(m["time_s"]["n"] - len(point["raw_times_s"])) > 0:
        problems.append("times")
    for rate in ("flops_per_s", "bytes_per_s", "peak_flops_per_s", "memory_bytes_per_s", "roofline", "ranks_spread"):
        if not m.get(rate, 0) > 0:
            problems.append(rate)
    if abs(m["roofline"] * time / m["limit_s"] - 1) > 1e-9:
        problems.append("the roofline is not limit by time")
    if m["limit"] not in ("compute", "memory", "cache"):
        problems.append("limit")
    if not 0 <= m["error"] < 0.05 or not m["implementation"]:
        problems.append("error or implementation")
    return problems


def numbers_of(table, shape):
    """The cells of the line of one shape, marks taken off."""
    return [[c.lstrip("*~") for c in line.split()] for line in table.splitlines() if line.startswith(shape)]


def table_and_file(test):
    out = test.path("k.jsonl")
    precisions = ["fp32", "bf16"]  # int8 in batch_curve
    sweep = ["kernels", *SMALL, "--precision", ",".join(precisions), "--cache", "hot,cold", "--out", out, *QUICK]
    done = test.run(*sweep)
    if not test.check(done.code == 0 and not done.own_lines, "each precision, hot and cold, without mpirun", done):
        return
    test.valid(out)
    points = support.points(out)
    test.equal(len(points), 2 * len(precisions), "each is a point")
    bad = {support.key(p): r for p in points if (r := bad_row(p))}
    test.equal(bad, {}, "each has times, rates, its roofline, its error")
    test.check(all(map(support.says_how_bf16_is_multiplied, points)), "rows in bf16 say how it is multiplied", points)
    by_conversion = ["by conversion" in p["metrics"]["implementation"] for p in points]
    test.equal(by_conversion, ["converted" in p["reason"] for p in points], "and so does the implementation's name")
    test.equal({p["metrics"]["flops_per_s"] * p["metrics"]["time_s"]["median"] // 1 for p in points
                if abs(p["metrics"]["flops_per_s"] * p["metrics"]["time_s"]["median"] / (2 * 96 * 32 * 64) - 1) > 1e-9},
               set(), "FLOP/s are 2mnk by the median")
    test.check(all((p["metrics"]["operand_sets"] > 1) == (p["factors"]["cache"] == "cold") for p in points),
               "cold rotates through sets of operands, hot has one")
    test.check(done.err.startswith("[0] roofline: "), "the roofline takes seconds, and is announced", done)
    test.check("roofline of the slowest rank" in done.out and "implementation" in done.out, "the head and the columns",
               done)
    for p, cells in zip(sorted(points, key=lambda p: (precisions.index(p["factors"]["precision"]),
                                                      p["factors"]["cache"] == "cold")),
                        numbers_of(done.out, "m=96,n=32,k=64")):
        us = p["metrics"]["time_s"]["median"] * 1e6
        test.check(abs(float(cells[1]) / us - 1) < 0.01, f"the table's time is the file's: {cells[1]} us",
                   (us, done))
    lines = support.whole_lines(out)
    out.write_text("\n".join(lines[:-3]) + "\n")  # without the end, and two points
    again = test.run(*sweep, "--resume")
    test.check(again.code == 0 and f"2 points measured, {len(points) - 2} kept" in again.out, "--resume measures what is missing", again)
    test.valid(out)
    again = test.run(*sweep, "--resume")
    test.check(again.code == 0 and f"0 points measured, {len(points)} kept" in again.out and "roofline of the slowest" not in again.out,
               "a finished sweep measures nothing, the machine's peaks neither", again)


def ranks(test):
    out = test.path("r.jsonl")
    done = test.run("kernels", "--shape", "gemm:m=256,n=256,k=256", "--out", out, *QUICK, ranks=2)
    test.check(done.code == 0 and "spread" in done.out and "2 ranks at once" in done.out, "two ranks at once", done)
    point = support.points(out)[0]
    test.check(point["factors"]["ranks"] == 2 and point["metrics"]["ranks_spread"] >= 1, "and how far they are apart",
               point)
    test.valid(out)
    done = test.run("kernels", "--shape", "gemm:m=256,n=256,k=256", "--solo", "--json", *QUICK, ranks=2)
    test.check(done.code == 0 and '"ranks":1' in done.out, "--solo leaves it to rank 0", done)


def batch_curve(test):
    out = test.path("b.jsonl")
    done = test.run("kernels", "--shape", "gemm:m=64,k=64", "--sweep", "batch", "--batch-max", "8", "--precision",
                    "fp32,int8", "--out", out, *QUICK)
    test.check(done.code == 0 and "over the mini-batch" in done.out, "a curve over the batch", done)
    test.equal([(p["factors"]["batch_per_rank"], p["factors"]["precision"]) for p in support.points(out)],
               [(b, t) for b in (1, 2, 4, 8) for t in ("fp32", "int8")], "1, 2, 4, 8 in each precision")
    curve = done.out.partition("over the mini-batch")[2]
    test.equal(re.findall(r"(?m)^ +([1248]) +[\d.]+", curve), ["1", "2", "4", "8"], "a line a batch")


def published(test):
    done = test.run("kernels", "--op", "gemm", "--set", "training", "--filter", "m=1760,n=16,a=N,b=N", "--against",
                    "v100-mixed", "--csv", *QUICK)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    test.check(done.code == 0 and len(rows) == 1, "a filter of whole values leaves one problem of 160", done)
    test.check(rows and rows[0]["published"] == "v100-mixed" and float(rows[0]["published_time_s"]) == 2e-5 and
               rows[0]["application"] == "DeepSpeech", "the V100's 0.020 ms stand beside ours", rows)


def files(test):
    path, out = test.path("mine.csv"), test.path("f.jsonl")
    path.write_text("m,n,k,application\n32,32,32,good\n32,x,32,bad\n64,32,32,good\n")
    done = test.run("kernels", "--problems", path, "--out", out, *QUICK, timeout=120,
                    wrapper=[test.mpiexec, "-np", "2", "sh", "-c", '"$@"; echo $? >code.$OMPI_COMM_WORLD_RANK', "sh"])
    test.equal([test.path(f"code.{rank}").read_text() for rank in (0, 1)], ["2\n", "2\n"], "a file with a bad row ends with 2, on every rank")
    test.check(any("mine.csv:3:4: 'x'" in line for line in done.own_lines), "and names file, line and column", done)
    test.equal([p["status"] for p in support.points(out)], ["ok", "ok"], "after the good rows were measured")
    done = test.run("kernels", "--problems", path, "--dry-run")
    test.check(done.code == 2 and "2 points" in done.out, "so does a dry run", done)


def wrong(test):
    out = test.path("w.jsonl")
    done = test.run("kernels", *SMALL, "--cache", "hot,cold", "--damage", "1", "--out", out, *QUICK, ranks=2)
    points = support.points(out)
    test.check(done.code == 4 and "2 of 2 points gave wrong results" in done.err, "a damaged element ends with 4", done)
    test.check(all(p["status"] == "wrong" and "(rank 1)" in p["reason"] and "time_s" not in p["metrics"] for p in points),
               "the rows name the rank and have no time", points)


def several_shapes(test):
    done = test.run("kernels", *SMALL, "--shape", "gemm:m=64,n=8,k=8", "--pass", "forward,backward-data", "--csv", *QUICK)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    measured = [(row["problem"].split(",")[0], row["pass"]) for row in rows if row["status"] == "ok"]
    test.check(done.code == 0 and sorted(measured) == [("gemm:m=64", "forward"), ("gemm:m=96", "forward")],
               "--shape given twice: both are measured", done)
    test.equal([row["status"] for row in rows if row["pass"] == "backward-data"], ["unsupported"] * 2, "what there is no kernel for is a row")
    test.check("one pass" in done.out, "with its reason", done)


def cold_updates(test):
    """A sample has many calls on many sets, of which the checked one runs once or a few times."""
    out = test.path("u.jsonl")
    done = test.run("kernels", "--shape", "pointwise:kind=sgd,elements=64", "--cache", "cold", "--out", out, *QUICK)
    points = support.points(out)
    test.check(done.code == 0 and [p["status"] for p in points] == ["ok"], "short updates of cold operands are right", done)
    test.check("not cold" in points[0]["reason"], "sets that the caches hold are not cold, and the row says it", points)


def absurd_shapes(test):
    done = test.run("kernels", "--dry-run", "--shape", "gemm:m=4294967296,n=4294967296,k=4294967296")
    cells = numbers_of(done.out, "gemm:m=4294967296")
    test.check(done.code == 0 and len(cells) == 1 and cells[0].count("EiB") == 2, "memory that does not fit 64 bits is much", done)


def too_little_time(test):
    done = test.run("kernels", "--op", "gemm", "--set", "device", "--time-budget", "1ms", "--json", "--threads", "1")
    test.check(done.code == 0 and done.out.count('"status":"skipped"') == 13 and "time budget" in done.out,
               "what the budget has no room for is a row with its estimate", done)


BAD = [
    (["--op", "gem"], ["gem", "gemm"]),
    (["--set", "serving"], ["serving", "server"]),
    (["--problems", "/no/such/file"], ["/no/such/file"]),
    (["--shape", "gemm:m=3"], ["--shape", "m,n,k"]),
    (["--shape", "m=3"], ["--shape", "gemm:"]),
    ([*SMALL, "--filter", "m=96"], ["--shape", "--filter"]),
    (["--filter", "m=123456"], ["--filter", "gemm:m="]),
    (["--precision", "fp8"], ["fp8", "bf16"]),
    (["--pass", "backward"], ["backward", "backward-data"]),
    (["--cache", "warm"], ["warm", "cold"]),
    (["--sweep", "m"], ["sweep", "batch"]),
    (["--shape", "pointwise:kind=sgd,elements=8", "--sweep", "batch"], ["batch", "pointwise"]),
    (["--packed", "--op", "gemm"], ["--packed", "--shape"]),
    ([*SMALL, "--packed", "--sweep", "batch"], ["--sweep batch", "mini-batch"]),
    (["--against", "v100"], ["v100", "v100-mixed"]),
    (["--threads", "0"], ["--threads", "0"]),
    (["--check", "2"], ["--check", "2"]),
    (["--damage", "1"], ["--damage", "1"]),
    (["--damage", "0", "--check", "0"], ["--damage", "--check"]),
    (["--device", "tpu"], ["device", "tpu"]),
    (["--csv", "--json"], ["--csv", "--json"]),
    (["--resume"], ["--out"]),
]


def bad_input(test):
    def refused(case):
        arguments, words = case
        done = test.run("kernels", *arguments, timeout=30)
        line = done.own_lines[0] if len(done.own_lines) == 1 else ""
        test.check(done.code == 2 and line and all(w in line for w in words),
                   f"{' '.join(map(str, arguments))}: one line, exit 2", done)

    test.side_by_side(refused, BAD)


def body(test):
    table_and_file(test)
    ranks(test)
    batch_curve(test)
    published(test)
    files(test)
    wrong(test)
    several_shapes(test)
    cold_updates(test)
    absurd_shapes(test)
    too_little_time(test)
    bad_input(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
