"""Logs of other benchmarks imported: what is left out of a log that was cut, and what is mistrusted, is said and counted."""
import support

HEAD = """# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   4711 on     node01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4711 on     node01 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
ROW = "     1048576        262144     float     sum      -1 {:>8}   33.55   33.55       0    30.00   34.95   34.95       0\n"


def body(test):
    log, out = test.path("cut.log"), test.path("cut.jsonl")
    log.write_text(HEAD + ROW.format("31.25") + ROW.format("0.00") + ROW.format("31250") + ROW.format("31.25").rstrip())
    done = test.run("import", log, "--out", out)
    if test.check(done.code == 0 and "5 points" in done.out, "a log that was cut is read as far as it is whole", done):
        test.check("left out: 1 row whose time or rate is 0 or less, line 10, the last row, which is cut; "
                   "mistrusted: 1 row whose columns contradict each other\n" in done.out, "what is wrong with it is one line", done)
        test.valid(out)
        test.equal([p["status"] for p in support.points(out)], ["ok", "ok", "ok", "mistrusted", "ok"], "its points")
    done = test.run("report", out, "--text")
    test.check("1 MiB in 31.2 ms are 33.6 MB/s, but algbw says 33.5 GB/s" in done.out, "the report says why it mistrusts a row", done)


support.main(__doc__, body)
