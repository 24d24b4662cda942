# SPDX-License-Identifier: Apache-2.0
"""Logs of other benchmarks imported: what is left out of a log that was cut, and what is mistrusted, is said and counted."""
import support

HEAD = """# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   4711 on     node01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4711 on     node01 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
ROW = "{:12}  {:12}     float     sum      -1 {:>8}   33.55   33.55       0 {:8.2f}   34.95   34.95       0\n"


def row(mebibytes, time):
    return ROW.format(mebibytes << 20, mebibytes << 18, time, 30.0 * mebibytes)


def body(test):
    log, out = test.path("cut.log"), test.path("cut.jsonl")
    log.write_text(HEAD + row(2, "62.50") + row(4, "0.00") + row(1, "31250") + row(8, "250.00").rstrip())
    done = test.run("import", log, "--out", out)
    if test.check(done.code == 0 and "5 points" in done.out, "a log that was cut is read as far as it is whole", done):
        test.check("left out: 1 row whose time or rate is 0 or less, line 10, the last row, which is cut; "
                   "mistrusted: 1 row whose columns contradict each other\n" in done.out, "what is wrong with it is one line", done)
        test.valid(out)
        test.equal([p["status"] for p in support.points(out)], ["ok", "ok", "ok", "mistrusted", "ok"], "its points")
    done = test.run("report", out, "--text")
    test.check("1 MiB in 31.2 ms are 33.6 MB/s, but algbw says 33.5 GB/s" in done.out, "the report says why it mistrusts a row", done)
    pipe, logs = test.path("pipe.jsonl"), test.source / "tests" / "data" / "logs"
    done = test.run("import", "-", "--out", pipe, wrapper=("sh", "-c", '"$@" < "$0"', logs / "nccl_loop5.log"))
    if test.check(done.code == 0 and "10 points in 5 runs" in done.out, "a pipe is read, and each program in it is a launch", done):
        test.valid(pipe)
        test.equal({p["factors"]["ranks"] for p in support.points(pipe)}, {8}, "five runs of 8 ranks are of 8 ranks")
    launches, more = [logs / "osu_latency.log", test.path("again.log")], test.path("launches.jsonl")
    more_text = launches[0].read_text(encoding="utf-8")
    launches[1].write_text(more_text + "\n")
    for label, rows in ((["--machine", "old cluster"], 1), ([], 2)):
        done = test.run("import", *launches, *label, "--out", more, "--force")
        test.valid(more)
        size = support.points(more)[0]["factors"]["size_bytes"]
        done = test.run("report", more, "--markdown", "-")
        found = [line for line in done.out.splitlines() if f"| {size} |" in line]
        test.equal(len(found), rows, f"two logs without hosts are launches of one point if a label says so: {label}")
    sizes = test.path("sizes.jsonl")
    done = test.run("import", logs / "imb_oom.log", logs / "imb_one.log", "--out", sizes)
    if test.check(done.code == 0, "sizes that could not be measured are rows", done):
        test.valid(sizes)
        test.check(test.run("report", sizes, "--text").code == 0, "and a report shows them")
    done = test.run("import", logs / "nccl_ok.log", "--ranks", "4", "--out", test.path("no.jsonl"))
    test.check(done.code == 2 and len(done.own_lines) == 1 and "line 13: it says 8 ranks, but --ranks 4" in done.err,
               "ranks that contradict the log are refused in one line", done)
    latency = [logs / "osu_latency.log", "--ranks", "7", "--out", test.path("latency.jsonl"), "--force"]
    done = test.run("import", *latency)
    test.check(done.code == 0 and "--ranks 7 is not used, since the log says ranks itself: 2" in done.err, "--ranks of a log between two ranks: a note", done)
    done = test.run("import", *latency, "--strict")
    test.check(done.code == 2 and len(done.own_lines) == 1 and "leave --ranks out" in done.err, "with --strict a refusal", done)
    for why, args in (("'{}' is a directory; name the logs in it".format(logs), [logs]),
                      ("result 1: 'root' is missing or of another kind", [logs / "json_root_number.json"]),
                      ("it says allreduce, but --collective broadcast; leave --collective out", [logs / "chakra_ok.json", "--collective", "broadcast"])):
        done = test.run("import", *args, "--out", test.path("no.jsonl"))
        test.check(done.code == 2 and len(done.own_lines) == 1 and why in done.err, f"refused in one line: {why}", done)
    done = test.run("replay", logs / "kineto.json.gz", "--thread-ranks", "2", "--seconds", "2")
    test.check(done.code == 0, "a compressed trace is replayed", done)


support.main(__doc__, body)
