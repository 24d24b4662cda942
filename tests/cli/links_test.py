# SPDX-License-Identifier: Apache-2.0
"""Links end to end: a row for each way of each link, matrices, a slow rank that is named, damaged messages that are found, the
bar's exit code, both ways, many pairs and bisections, --resume, the page's heat maps."""
import json
import re

import support

# Few and short messages: a rank that is slow six times waits for all of them.
SLOW = ["--pattern", "one-way", "--size", "64K", "--outstanding", "2", "--time-budget", "2s", "--precision-goal", "0.5"]
QUICK = ["--time-budget", "2s", "--precision-goal", "0.5"]


def rows_of(points, pattern="one-way"):
    return [p for p in points if p["factors"].get("pattern") == pattern]


def table_and_file(test):
    out = test.path("l.jsonl")
    done = test.run("links", *QUICK, "--size", "64K", "--outstanding", "4", "--out", out, ranks=3)
    if not test.check(done.code == 0 and not done.own_lines, "three ranks", done):
        return
    test.valid(out)
    points = support.points(out)
    links = rows_of(points)
    test.equal([(p["factors"]["from_rank"], p["factors"]["to_rank"]) for p in links],
               [(a, b) for a in range(3) for b in range(3) if a != b], "a row for each way of each link")
    for p in links:
        m, t = p["metrics"], p["metrics"]["time_s"]
        test.check(p["status"] == "ok" and m["blocks"] >= 6 and t["n"] == len(p["raw_times_s"]) >= 6 and m["wrong"] == 0,
                   "every window is a sample, in six blocks at least", p)
        test.check(abs(m["link_bytes_per_s"] * t["median"] / (4 * 65536) - 1) < 1e-9, "bandwidth is a window's bytes by its median time", m)
        test.check(0 < m["latency_s"]["median"] < t["median"] and m["from_host"] == m["to_host"], "a short message is faster than a window", m)
    test.check(len([line for line in done.out.splitlines() if " to 0" in line]) == 2, "a matrix of each", done.out)
    again = test.run("links", *QUICK, "--size", "64K", "--outstanding", "4", "--out", out, "--resume", ranks=3)
    test.check(again.code == 0 and "0 points measured, 7 kept" in again.out, "--resume keeps them", again)


def all_patterns(test):
    out = test.path("all.jsonl")
    done = test.run("links", *QUICK, "--pattern", "all", "--size", "5,4K", "--outstanding", "3", "--out", out, ranks=3)
    if not test.check(done.code == 0, "every pattern, on an odd number of ranks and ragged messages", done):
        return
    test.valid(out)
    points = support.points(out)
    for pattern, rows in (("one-way", 6), ("both-ways", 3), ("multi-pair", 1), ("bisection", 1), ("bisection-random", 1), ("groups", 0)):
        found = [p for p in rows_of(points, pattern) if p["status"] != "unsupported"]
        test.check(len(found) == 2 * rows and all(p["status"] == "ok" for p in found), f"{pattern}: {rows} rows for each size", found)
        ways = 1 if pattern in ("one-way", "multi-pair") else 2
        for p in found:
            f, m = p["factors"], p["metrics"]
            pairs = 1 if "from_rank" in f and f["from_rank"] is not None else f["pairs"]
            sent = ways * pairs * 3
            test.check(abs(m["message_rate_per_s"] * m["time_s"]["median"] / sent - 1) < 1e-9,
                       f"{pattern}: {sent} messages a window", m)


def halves(test):
    """Of three ranks the last one is in no half, but for random halves, which are measured first here."""
    for _ in range(3):
        done = test.run("links", *QUICK, "--pattern", "bisection-random,bisection", "--size", "64K", "--inject", "slow:rank=2,factor=50",
                        "--json", ranks=3)
        took = {p["factors"]["pattern"]: p["metrics"]["time_s"]["median"] for p in map(json.loads, done.out.splitlines())
                if p["kind"] == "point" and p["status"] == "ok"}
        test.check(done.code == 0 and took["bisection"] < took["bisection-random"] / 3, "bisection has its halves after random ones", took)


def what_is_injected(test):
    out = test.path("slow.jsonl")  # without --fail-below what is slow does not change the exit code: cli.closing
    named = test.run("links", *SLOW, "--inject", "slow:rank=2,factor=6", "--fail-below", "0.5", "--out", out, "--force", ranks=4)
    rate = {(p["factors"]["from_rank"], p["factors"]["to_rank"]): p["metrics"]["link_bytes_per_s"] for p in support.points(out)}
    others = sorted(r for pair, r in rate.items() if 2 not in pair)
    test.check(others and max(r for pair, r in rate.items() if 2 in pair) < others[len(others) // 2] / 2,
               "the slow rank's links, both ways, and no others", rate)
    test.check("slow host  rank 2 on" in named.out and "slow host  rank 1 on" not in named.out, "it is named in place of its links", named)
    test.check(named.code == 1 and "below 0.5" in named.err, "--fail-below ends with 1 and names links", named)
    out = test.path("groups.jsonl")
    # Eight ranks wait for two cores in every window: messages and factor are so large that this is little beside them.
    groups = test.run("links", "--pattern", "groups", "--size", "512K", "--outstanding", "4", "--inject", "slow:rank=5,factor=20",
                      "--out", out, "--force", ranks=8)
    found = support.points(out)[0]["metrics"]
    test.check(groups.code == 0 and "5" in found["slow_ranks"].split(",") and "; slow: ranks " in groups.out,
               "groups that halve find it among eight", groups)
    damaged = test.run("links", *QUICK, "--inject", "flip:rank=1,call=200", "--json", ranks=3)
    bad = [p["factors"] for p in map(json.loads, damaged.out.splitlines()) if p.get("status") == "wrong"]
    test.check(damaged.code == 4 and bad and all(f["to_rank"] in (1, None) for f in bad), "one bit of a message that a rank receives", damaged)


def soak(test):
    out = test.path("soak.jsonl")
    done = test.run("links", "--soak", "8s", "--size", "512K", "--outstanding", "4", "--out", out, "--force",
                    "--inject", "slow:rank=2,factor=30,after=3,for=2", ranks=4, timeout=90)
    if not test.check(done.code == 0, "eight seconds, of which a rank is slow for two", done):
        return
    test.valid(out)
    points = support.points(out)
    intervals = {p["factors"]["interval"] for p in points}
    test.check(len(intervals) >= 6 and len(points) == 4 * len(intervals), "a row for each rank and interval", len(points))
    # "disturbed from 3.3 s to 4.8 s: host (rank 2), ...", or "disturbed at 4.1 s: ..." of one interval.
    spans = [[float(n) for n in re.findall(r"([\d.]+) s\b", line.split(": ")[0])] for line in done.out.splitlines()
             if line.startswith("disturbed ") and "(rank 2)" in line]
    # Crowded cores may disturb the rank before and after as well.
    test.check(any(span[0] < 5.5 and span[-1] > 3 for span in spans), "it says when and who", done.out)
    page = test.run("report", out, "-o", test.path("soak.html"))
    text = test.path("soak.html").read_text()
    test.check(page.code == 0 and "soak_hosts" in text and "soak_drift" in text, "both charts are on the page", page)


def short_soak(test):
    out = test.path("short.jsonl")
    flags = ("links", "--soak", "100ms", "--size", "64K", "--outstanding", "4", "--out", out, "--force")
    done = test.run(*flags, ranks=2)
    test.check(done.code == 0 and len(support.points(out)) == 2, "a soak shorter than an interval has its rows", done)
    done = test.run(*flags, "--inject", "flip:call=0,rank=0", ranks=2)
    test.check(done.code == 4 and any(p["status"] == "wrong" for p in support.points(out)),
               "wrong messages of a soak's last interval count", done)


def what_is_refused(test):
    for arguments, ranks, why in ((["--pattern", "ring"], 2, "one-way"), (["--size", "0"], 2, "1 byte"),
                                  (["--inject", "drop"], 2, "slow and flip"), (["--transport", "mpi"], 2, "processes"),
                                  (["--inject", "slow:after=1"], 2, "--soak"), (["--soak", "1s", "--pattern", "bisection"], 2, "one-way or both-ways"),
                                  (["--soak", "1s", "--fail-below", "0.5"], 2, "no meaning"),
                                  (["--pattern", "both-ways,bisection", "--fail-below", "0.5"], 2, "one-way"), ([], 1, "two or more")):
        done = test.run("links", *arguments, ranks=ranks)
        test.check(done.code == 2 and len(done.own_lines) == 1 and why in done.err, f"refused: {arguments or 'one rank'}", done)
    plan = test.run("links", "--dry-run", ranks=8)
    test.check(plan.code == 0 and "57 points on 8 ranks; every link once takes 7 rounds" in plan.out, "--dry-run", plan)


def page(test):
    done = test.run("report", test.path("l.jsonl"), "--text", "-o", test.path("l.html"))
    text = test.path("l.html").read_text()
    test.check(done.code == 0 and "bandwidth [" in done.out, "the tables again, from the file", done)
    test.check("link_bandwidth" in text and "link_latency" in text, "both heat maps are on the page")


def processes(test):
    done = test.run("links", *QUICK, "--size", "64K", "--outstanding", "4", ranks=2)
    test.check(done.code == 0 and " · mpi · 2 ranks" in done.out, "by MPI between processes", done)


def body(test):
    test.threads = True
    table_and_file(test)
    all_patterns(test)
    test.attempt(halves, "a busy machine may make other ranks as slow")
    test.attempt(what_is_injected, "a busy machine may make other ranks as slow")
    test.attempt(soak, "a busy machine may disturb other ranks more")
    short_soak(test)
    what_is_refused(test)
    page(test)
    test.threads = False
    processes(test)


support.main(__doc__, body)
