# SPDX-License-Identifier: Apache-2.0
"""The collective sweep end to end: nccl-tests' flags and columns, checked results, CSV and JSON, counts that are exact,
rows that say why they are not measured, and a wrong result that ends with 4."""
import csv
import io
import json
import os
import re

import support

QUICK = ["--time-budget", "1s", "--precision-goal", "0.5"]
COLUMNS = ("size", "count", "algorithm", "out of place", "in place", "algbw", "busbw", "#wrong", "limit", "error")


def factors(point, *names):
    return tuple(point["factors"][n] for n in names)


def good_row(point, ranks):
    """What is wrong with a measured row; nothing for a good one."""
    m, f, problems = point["metrics"], point["factors"], []
    if point["status"] != "ok" or m["wrong"] != 0:
        return [point["status"], point["reason"], m.get("wrong")]
    time = m["time_s"]["median"]
    algbw = f["size_bytes"] / time
    if abs(m["algbw_bytes_per_s"] / algbw - 1) > 1e-9:
        problems.append("algbw is not size / time")
    if abs(m["busbw_bytes_per_s"] / (algbw * 2 * (ranks - 1) / ranks) - 1) > 1e-9:
        problems.append("busbw is not algbw 2(P-1)/P")
    if f["algorithm"] == "mpi" and m.get("bytes_sent_total") is not None:
        problems.append("bytes claimed for the library")
    if f["algorithm"] == "ring" and m["bytes_sent_total"] != m["bytes_predicted"]:
        problems.append("bytes differ from the schedule's")
    if f["nodes"] == 1 and not m["limit_s"] > 0:
        problems.append("no limit")
    if not (0 < m["steadiness"] <= 1 and m["blocks"] >= 6 and 0 <= m["disturbed_blocks"] <= m["blocks"] and m["left_out_blocks"] >= 0):
        problems.append("no canary")
    return problems


def table_and_file(test):
    out = test.path("r.jsonl")
    sweep = ["allreduce", "-b", "64", "-e", "64K", "-f", "1024", "--algorithm", "mpi,ring", *QUICK, "--out", out]
    done = test.run(*sweep, ranks=2, timeout=90)
    if not test.check(done.code == 0 and not done.own_lines, "a sweep ends with 0", done):
        return
    test.check(all(c in done.out for c in COLUMNS), "the table has nccl-tests' columns and ours", done)
    test.check("machine: " in done.out and "% steady" in done.out, "and says how steady the machine was", done)
    test.valid(out)
    points = support.points(out)
    test.equal(sorted(factors(p, "algorithm", "size_bytes", "in_place") for p in points),
               sorted((a, s, i) for a in ("mpi", "ring") for s in (64, 65536) for i in (False, True)),
               "all sizes by all algorithms, out of place and in place, each once")
    bad = {support.key(p): r for p in points if (r := good_row(p, 2))}
    test.equal(bad, {}, "each row is checked, has bandwidths of its median, its bytes and a limit")
    test.check("rows" not in done.err and "8 points measured, 0 kept" in done.out, "the last line counts them", done)
    lines = support.whole_lines(out)
    out.write_text("\n".join(lines[:-4]) + "\n")  # without the end, and three points
    again = test.run(*sweep, "--resume", ranks=2, timeout=90)
    test.check(again.code == 0 and "3 points measured, 5 kept" in again.out, "--resume measures what is missing", again)
    test.valid(out)


def formats(test):
    small = ["allreduce", "--sizes", "1000", "-n", "17", "-w", "3", "--algorithm", "mpi,ring", "--transport", "mpi",
             "--buffers", "arena,plain", "--in-place", "in"]
    done = test.run(*small, "--csv", ranks=2)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    test.check(done.code == 0 and len(rows) == 4, "--csv has one line a point", done)
    test.equal({(r["status"], r["samples"], r["size_bytes"], r["in_place"]) for r in rows}, {("ok", "17", "1000", "true")},
               "-n is exact, a size need not be a power of two")
    test.check(None not in rows[0] and all(float(r["time_median_s"]) > 0 for r in rows), "each line has all columns")
    done = test.run(*small, "--json", "-m", "3", "-a", "1", "-c", "0", ranks=2)
    path = test.path("stdout.jsonl")
    path.write_text(done.out)
    test.valid(path, what="--json prints a valid result file")
    points = support.points(path)
    test.equal({(len(p["raw_times_s"]), p["metrics"].get("wrong"), *factors(p, "problem", "reduction")) for p in points},
               {(17, None, "calls=3", "avg")}, "-m, -a and -c are obeyed and recorded")


def other_collectives(test):
    out = test.path("all.jsonl")
    done = test.run("allreduce", "--collective", "all", "--sizes", "4000", "--algorithm", "all", "-n", "6", "-d",
                    "fp32,int32", "--in-place", "both", "--out", out, ranks=4, timeout=120)
    test.check(done.code == 0, "all collectives by all algorithms end with 0", done)
    test.valid(out)
    points = support.points(out)
    test.equal({support.brief(p)["algorithm"]: p["reason"] for p in points if p["status"] not in ("ok", "unsupported")}, {},
               "each point is measured, or unsupported with its reason")
    measured = {p["factors"]["collective"] for p in points if p["status"] == "ok"}
    test.check("allreduce" in measured, "all-reduce is among them", measured)
    crowded = {p["metrics"]["oversubscribed"] for p in points if p["status"] == "ok"}
    test.equal(len(crowded), 1, "all say alike whether there are more ranks than cores")


def fake_nodes(test):
    out = test.path("fake.jsonl")
    done = test.run("allreduce", "--sizes", "64K", "--algorithm", "ring", "--transport", "all,auto", "--fake-nodes",
                    "0,0,1,1", "-n", "5", "--in-place", "in", "--out", out, ranks=4)
    test.check(done.code == 0, "one host plays two", done)
    found = {factors(p, "transport", "nodes", "ranks_per_node", "mapping") + (p["status"],) for p in support.points(out)}
    test.check(("mpi", 2, 2, "fake:0,0,1,1", "ok") in found, "the file says that the nodes are fake", found)
    test.check(("shm", 2, 2, "fake:0,0,1,1", "unsupported") in found, "shared memory does not span them", found)
    crossed = [p["metrics"]["bytes_inter_node"] for p in support.points(out) if p["status"] == "ok"]
    test.check(crossed and all(b > 0 for b in crossed), "bytes crossed nodes", crossed)
    test.valid(out)


def injected_errors(test):
    out = test.path("flip.jsonl")
    done = test.run("allreduce", "--sizes", "1000", "-d", "all", "--algorithm", "all", "--in-place",
                    "out", "--inject", "flip:rank=1", "--out", out, ranks=2, timeout=90)
    test.check(done.code == 4, "an injected error ends with 4", done)
    points = [p for p in support.points(out) if p["status"] != "unsupported"]
    test.check(points and all(p["status"] == "wrong" and p["metrics"]["wrong"] >= 1 for p in points),
               "every algorithm and type is found wrong", [(p["status"], support.brief(p)) for p in points])
    test.check("#wrong" in done.out and "wrong:" in done.out, "after all rows were printed", done)
    test.check("injected on purpose: flip:call=0,rank=1" in done.out, "a line above the tables says what was injected", done)
    test.equal({p["factors"].get("inject") for p in support.points(out)}, {"flip:call=0,rank=1"}, "and so does each row")
    test.valid(out)


# A megabyte: blocks have at most 250 calls and few more are discarded between them, so that some whole block lies among
# the wrong calls, and none of the last.
LONG = ["allreduce", "--sizes", "1M", "--algorithm", "mpi", "--in-place", "in", "-w", "5", "-n"]


def wrong_while_timing(test):
    """Right before and after timing, wrong on all ranks alike in between: only a check among the timed calls sees it."""
    library = os.environ.get("GRADMETER_WRONG_SUM", "")
    if not test.check(os.path.exists(library), "the interposed library is there", library):
        return

    def run(first, end, calls, *more):
        wrapper = ["env", f"LD_PRELOAD={library}", f"WRONG_FROM={first}", f"WRONG_TO={end}"]
        return test.run(*LONG, calls, *more, ranks=2, timeout=120, wrapper=wrapper)

    out = test.path("between.jsonl")
    done = run(300, 1000, 1200, "--out", out)
    found = [(p["status"], p["metrics"]["wrong"]) for p in support.points(out)]
    test.check(done.code == 4 and found == [("wrong", 2)], "errors in the middle of the timed calls end with 4", done)
    test.check(run(300, 1000, 1200, "-c", "0").code == 0, "control: unchecked they are not seen")
    test.check(run(1000000, 1000001, 300).code == 0, "control: the library by itself is right")


def timed_calls(test):
    """Calls between barriers on data of their own would all be right: what is checked is a call that was timed. The library says how
    many results it has spoiled."""
    library = os.environ.get("GRADMETER_WRONG_SUM", "")
    short = ["-n", "60", "-w", "5", "--algorithm", "mpi", "--sizes", "64K"]
    cases = [
        ("directly", ["--in-place", "both", "--cadence", "none"]),
        ("directly", ["--in-place", "both", "-m", "10"]),
        ("directly", ["--collective", "broadcast,all_gather", "--cadence", "none"]),
        ("early", ["--in-place", "both"]),
        ("early", ["--collective", "broadcast,all_gather", "--cadence", "none"]),
        ("early", ["--in-place", "out", "-m", "10"]),
        ("idle", ["--in-place", "both", "--cadence", "none"]),
        ("idle", ["--collective", "broadcast,all_gather", "--in-place", "both"]),
    ]
    for number, (kind, more) in enumerate(cases):
        out = test.path(f"{kind}-{number}.jsonl")
        done = test.run("allreduce", *short, *more, "--out", out, ranks=2, timeout=120,
                        wrapper=["env", f"LD_PRELOAD={library}", f"WRONG_KIND={kind}", "WRONG_FROM=40"])
        found = {(p["factors"]["collective"], p["factors"]["in_place"]): p["status"] for p in support.points(out)}
        test.check(done.code == 4 and set(found.values()) == {"wrong"}, f"{kind}, {' '.join(more)}: every point is wrong", found)
    for more in (["--in-place", "both", "--cadence", "none"], ["--in-place", "out", "-m", "10"]):
        done = test.run("allreduce", *short, *more, ranks=2, timeout=120,
                        wrapper=["env", f"LD_PRELOAD={library}", "WRONG_KIND=repeated", "WRONG_FROM=40"])
        test.check(done.code == 0 and re.findall(r"spoilt (\d+)", done.err) == ["0", "0"], f"{more}: no timed call finds the input of the last one", done)
    done = test.run("allreduce", *short, "--in-place", "out", ranks=2, timeout=120,
                    wrapper=["env", f"LD_PRELOAD={library}", "WRONG_KIND=directly", "WRONG_FROM=40"])
    test.check(done.code == 0 and re.findall(r"spoilt (\d+)", done.err) == ["0", "0"], "control: with a barrier before each call none follows another", done)


def other_memory(test):
    """Blocks begin at other pages: a library to which some are slow has that in its interval."""
    library = os.environ.get("GRADMETER_WRONG_SUM", "")
    out = test.path("placed.jsonl")
    done = test.run("allreduce", "--algorithm", "mpi", "--sizes", "8,8K", "--in-place", "both", "--precision-goal", "0.5",
                    "--out", out, ranks=2, wrapper=["env", f"LD_PRELOAD={library}", "WRONG_KIND=placed"])
    widths = [(t["ci95_high"] - t["ci95_low"]) / 2 / t["median"] for t in (p["metrics"]["time_s"] for p in support.points(out))]
    test.check(len(widths) == 4 and min(widths) > 0.05, "what other pages do is in the interval", widths or done)


def private_memory(test):
    """auto serves every size, also where peers cannot map the buffers; without MPI all-reduce alone has an own algorithm."""
    sizes = ["allreduce", "--sizes", "8,4K,64K,1M", "--algorithm", "auto", "--buffers", "plain,malloc", "-n", "5", "--in-place", "both"]
    for transport in "auto", "mpi":
        out = test.path(f"private-{transport}.jsonl")
        done = test.run(*sizes, "--transport", transport, "--out", out, ranks=2)
        rows = support.points(out)
        test.check(done.code == 0 and len(rows) == 16, f"auto takes private buffers over {transport}", done)
        test.equal([(p["factors"]["size_bytes"], p["reason"]) for p in rows if p["status"] != "ok"], [], f"all of them over {transport}")
    out = test.path("private-threads.jsonl")
    done = test.run(*sizes, "--collective", "allreduce,all_gather", "--thread-ranks", "2", "--out", out)
    test.check(done.code == 0, "ranks as threads", done)
    test.equal({(p["factors"]["collective"], p["status"]) for p in support.points(out)},
               {("allreduce", "ok"), ("all_gather", "unsupported")}, "threads read each other's memory; nothing gathers it")


def failed_release(test):
    """Destructors can throw nothing: the program says what failed in them, and does not end as if nothing had."""
    library = os.environ.get("GRADMETER_WRONG_SUM", "")
    done = test.run("allreduce", "--sizes", "8", "--algorithm", "mpi", "-n", "5", ranks=2,
                    wrapper=["env", f"LD_PRELOAD={library}", "WRONG_FROM=1000000", "WRONG_FINALIZE=1"])
    test.check(done.code == 3 and any("MPI_Finalize failed in the end" in line for line in done.own_lines),
               "an error of MPI_Finalize is a line, and ends with 3", done)


def injected_later(test):
    """From a call on that comes after the checks before timing, over every collective, library's and own."""
    out = test.path("later.jsonl")
    done = test.run("allreduce", "--collective", "all", "--sizes", "4000", "--algorithm", "mpi,ring,pairwise,neighbour",
                    "--in-place", "both", "-n", "40", "-w", "5", "--inject", "flip:call=16,rank=1", "--out", out, ranks=2,
                    timeout=120)
    points = [p for p in support.points(out) if p["status"] != "unsupported"]
    first = points[0]
    test.check(done.code == 4 and first["status"] == "wrong" and first["metrics"]["time_s"]["n"] > 0,
               "an error from a timed call on is found in the first point", first)
    test.equal({p["factors"]["collective"] for p in points if p["status"] == "wrong"},
               {"allreduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "sendrecv"}, "in each collective")


def slow_rank(test):
    out = test.path("slow.jsonl")
    done = test.run("allreduce", "--sizes", "256K", "--algorithm", "mpi", "--in-place", "out", "--time-budget", "2s",
                    "--inject", "slow:rank=1,factor=20", "--per-rank", "--out", out, ranks=2)
    (point,) = support.points(out)
    test.check(done.code == 0 and point["metrics"].get("slowest_rank") == 1 and "slow: rank 1" in done.out,
               "a slowed rank is named", done)
    test.check("by rank" in done.out, "--per-rank has a table by rank", done)
    test.valid(out)


def unequal_work(test):
    """A root sends while the others receive, so that calls of unlike length show no slow rank."""
    out = test.path("roots.jsonl")
    done = test.run("allreduce", "--collective", "broadcast", "--algorithm", "direct", "--sizes", "64K", "--in-place", "in",
                    "--root", "0,1", "--time-budget", "4s", "--out", out, ranks=2, threads=True)
    test.equal([p["metrics"].get("slowest_rank") for p in support.points(out)], [None, None], "a root is not called slow")
    test.check(done.code == 0 and "slow: rank" not in done.out, "neither in the table", done)


def one_way(test):
    """The rate of a node's port is measured while it sends and receives, and a broadcast's port does one of them."""
    out = test.path("one_way.jsonl")
    done = test.run("allreduce", "--collective", "broadcast", "--algorithm", "mpi", "--sizes", "256K,1M", "--in-place",
                    "in", "--fake-nodes", "0,1", "--transport", "mpi", "--time-budget", "3s", "--out", out, ranks=2)
    found = [(*factors(p, "collective", "size_bytes"), p["status"], p["reason"]) for p in support.points(out)]
    test.check(done.code == 0 and len(found) == 2 and all(f[2] == "ok" for f in found), "no broadcast is faster than its wire", found)


def own_limits(test):
    """Four ranks: three sums that are each rounded to fp8 take twice as long as three in fp32; one sum takes as long."""
    out = test.path("wide.jsonl")
    done = test.run("allreduce", "--collective", "reduce_scatter", "--datatype", "fp8_e4m3", "--accum-dtype", "same,fp32",
                    "--sizes", "64K", "--algorithm", "direct", "--in-place", "out", *QUICK, "--out", out, ranks=4, threads=True)
    limits = [p["metrics"]["limit_s"] for p in support.points(out)]
    test.check(done.code == 0 and limits[0] > 1.2 * limits[1], "sums of another arithmetic have a limit of their own", limits)


def told_apart(test):
    done = test.run("allreduce", "--datatype", "fp16,fp32", "--buffers", "arena,malloc", "--algorithm", "ring", "--sizes", "4K",
                    "--in-place", "in", "-n", "6", "-w", "2", "--transport", "mpi", "--per-rank", ranks=2)
    lines = done.out[done.out.find("by rank"):].splitlines()
    heads = [line for line in lines if "dtype=" in line and "buffers=" in line]
    test.check(done.code == 0 and len(heads) == 8 and len(set(re.sub(r"\d+\.\d+", "", h) for h in heads)) == 8,
               "rows of --per-rank name what tells their points apart", done)


def served_by_mpi(test):
    out = test.path("auto.jsonl")
    done = test.run("allreduce", "--algorithm", "auto", "--transport", "mpi", "--sizes", "8,16K", "--in-place", "in", "-n", "6",
                    "-w", "2", "--out", out, ranks=2)
    short, long = support.points(out)
    by_mpi = short["metrics"]["implementation"]
    test.check(done.code == 0 and by_mpi.endswith(", by mpi") and not by_mpi.startswith("gradmeter"),
               "a call that auto leaves to MPI is MPI's", by_mpi)
    test.check("bytes_sent_total" not in short["metrics"] and long["metrics"].get("bytes_sent_total", 0) > 0 and
               long["metrics"]["bytes_sent_total"] == long["metrics"]["bytes_predicted"],
               "and later calls of gradmeter's own algorithms have their bytes", long)


def measured_table(test):
    path = str(test.path("table.txt"))
    flags = ["--sizes", "8,1M", "--transport", "shm", "--in-place", "in"]
    done = test.run("allreduce", *flags, "--algorithm", "mpi,ring,shm-direct", "--write-table", path, ranks=2)
    test.check(done.code == 0 and path in done.err, "the fastest of each size go to a file", done)
    text = test.path("table.txt").read_text()
    test.check("the least median time of each size" in text, "and say what they are", text)
    done = test.run("allreduce", *flags, "--algorithm", f"auto:table={path}", "-n", "7", ranks=2)
    test.check(done.code == 0 and ("shm-direct" in done.out or "ring" in done.out), "which auto reads", done)
    done = test.run("allreduce", *flags, "--write-table", path, ranks=2)
    test.check(done.code == 2 and len(done.own_lines) == 1, "an existing table is not replaced", done)
    done = test.run("allreduce", "--sizes", "8", "-d", "fp32,fp16", "--write-table", str(test.path("two.txt")), ranks=2)
    test.check(done.code == 2 and "--datatype" in done.own_lines[0], "two datatypes make no table", done)
    for flag, value in (("--codec", "bf16"), ("--codec", "none,bf16"), ("--cadence", "barrier,window"), ("--reduction", "max,min"),
                        ("--overlap", "none,gemm"), ("--accum-dtype", "same,fp32")):
        done = test.run("allreduce", *flags, flag, value, "--write-table", str(test.path("two.txt")), ranks=2)
        test.check(done.code == 2 and flag in done.own_lines[0], f"{flag} {value} makes no table", done)


def overlap(test):
    out = test.path("overlap.jsonl")
    done = test.run("allreduce", "--sizes", "256K", "--algorithm", "mpi,ring", "--overlap", "none,gemm", "--in-place", "in",
                    "-n", "7", "-w", "3", "--out", out, ranks=2, timeout=120)
    test.check(done.code == 0 and "hidden" in done.out, "the exchange runs under a matrix product", done)
    rows = [p["metrics"] for p in support.points(out) if p["factors"]["overlap"] == "gemm"]
    parts = all(m["comm_s"] > 0 and m["compute_s"] > 0 and "exposed_s" in m and "overlap_s" in m for m in rows)
    test.check(len(rows) == 2 and parts, "its rows have the parts", rows)
    test.valid(out)


BAD = [
    (["-b", "64M", "-e", "8"], ["--minbytes", "--maxbytes"]),
    (["-b", "0"], ["--minbytes", "--stepbytes"]),
    (["-f", "1"], ["--stepfactor"]),
    (["-i", "0"], ["--stepbytes"]),
    (["-b", "8Q"], ["--minbytes", "8Q"]),
    (["-n", "0"], ["--iters", "from 1"]),
    (["-w", "-3"], ["--warmup_iters"]),
    (["-b", "1", "-e", "3"], ["no size holds one element", "nothing to measure"]),
    (["--sizes", "8", "--collective", "all_to_all", "--dry-run", "--fake-nodes", "0,0,0,0"], ["no size holds one element"]),
    (["--time-budget", "30m1h"], ["--time-budget", "1h30m"]),
    (["-o", "xor"], ["xor", "sum"]),
    (["-d", "fp12"], ["fp12", "fp32"]),
    (["-r", "7"], ["--root", "7"]),
    (["-a", "4"], ["--average", "4"]),
    (["-a", "1", "--reduction", "max"], ["--average", "--reduction"]),
    (["-G", "1"], ["--device cuda"]),
    (["-G", "often"], ["--cudagraph", "often"]),
    (["-c", "2"], ["--check"]),
    (["--collective", "gather"], ["gather", "allreduce"]),
    (["--algorithm", "rings"], ["rings", "ring"]),
    (["--buffers", "pinned"], ["pinned", "arena"]),
    (["--buffers", "registered"], ["registered", "--device cuda"]),
    (["--in-place", "maybe"], ["maybe", "both"]),
    (["--fake-nodes", "0,0,1"], ["--fake-nodes", "3 nodes", "1 rank"]),
    (["--set", "mlperf"], ["mlperf", "deepbench"]),
    (["--set", "deepbench", "--sizes", "1M"], ["--set", "--sizes"]),
    (["--codec", "qsgd3"], ["qsgd3", "qsgd2"]),
    (["--overlap", "conv"], ["conv", "gemm"]),
    (["--inject", "flip:rank=5"], ["--inject flip", "rank 5"]),
    (["--inject", "flop:call=5"], ["flop", "flip"]),
    (["--inject", "slow:factor=0.5"], ["factor", "0.5"]),
    (["--inject", "drift:ppm=20"], ["drift", "--reduction span"]),
    (["--csv", "--json"], ["--csv", "--json"]),
]


def bad_input(test):
    def refused(case):
        arguments, words = case
        done = test.run("allreduce", *arguments, timeout=30)
        line = done.own_lines[0] if len(done.own_lines) == 1 else ""
        test.check(done.code == 2 and line and all(w in line for w in words), f"{' '.join(arguments)}: one line, exit 2", done)

    test.side_by_side(refused, BAD)
    done = test.run("allreduce", "--algorithm", "rings", ranks=2)
    test.check(done.code == 2 and len(done.own_lines) == 1, "one line from two ranks too", done)


def dry_run(test):
    done = test.run("allreduce", "--dry-run", "--set", "deepbench", "--fake-nodes", "0,0,1,1", "--algorithm",
                    "mpi,ring,direct")
    test.check(done.code == 0 and "42 points on 4 ranks" in done.out and "258000000" in done.out,
               "--dry-run needs no ranks and shows DeepBench's sizes", done)
    done = test.run("allreduce", "--dry-run", "--sizes", "8", "--algorithm", "ring", "-n", "1000000")
    test.check(done.code == 0 and "at most 1.00 s" not in done.out and "how long is not known" in done.out,
               "which claims no time for a number of iterations", done)


def body(test):
    table_and_file(test)
    formats(test)
    other_collectives(test)
    fake_nodes(test)
    injected_errors(test)
    injected_later(test)
    test.attempt(slow_rank, "the other rank was held up as much by other programs")
    unequal_work(test)
    test.attempt(one_way, "beside other programs the wire may be slower each time that it is measured")
    own_limits(test)
    told_apart(test)
    served_by_mpi(test)
    wrong_while_timing(test)
    test.attempt(timed_calls, "beside other programs blocks are short, and the call that is checked may be the first of one, which follows no other")
    other_memory(test)
    private_memory(test)
    failed_release(test)
    measured_table(test)
    overlap(test)
    bad_input(test)
    dry_run(test)


if __name__ == "__main__":
    support.main(__doc__, body)
