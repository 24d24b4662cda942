#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What gradmeter finds on links whose rate and latency are known, on clusters of four virtual hosts: bytes on the link are the bytes that
it counts; a ring comes near the link's limit; ring and recursive doubling cross where latency and rate say; a hierarchical schedule spares
the trunk between two racks; a codec of 4 bits loses in shared memory and gains on a link; a slow link is named; a host that is cut off ends the job, and a
sweep goes on afterwards. Times are the least of some repetitions of calls that the wire bounds, so that a busy machine does not spoil them.

usage: virtual_links_test.py GRADMETER MPIRUN [--timed] [--long]    ends with 77 (skipped) where the system makes no such cluster
--timed: also what takes long or depends on times (the sweep, the limit, the crossover, the codec, the slow link), as scripts/virtual-cluster.sh test does; ctest counts bytes alone
--long: more sizes and latencies, for results/virtual-links.md"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADMETER, MPIRUN = sys.argv[1:3]
LONG = "--long" in sys.argv
TIMED = LONG or "--timed" in sys.argv
HOSTS = 4
GOODPUT = 0.94  # of a link's rate: what the headers of Ethernet, IP and TCP leave
failures = 0


def check(good, what):
    global failures
    failures += not good
    print(f"{'ok    ' if good else 'FAILED'} {what}", flush=True)


class Skipped(Exception):
    pass


def on_cluster(options, script, timeout=120):
    """Runs a shell script on the head node of a cluster. Returns what it printed."""
    command = [ROOT / "scripts/virtual-cluster.sh", *options.split(), "--", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    for line in done.stderr.splitlines():
        if line.startswith("virtual-cluster: ") and "hosts: " in line:
            print("      " + line, flush=True)
    if done.returncode == 69:
        raise Skipped(done.stderr.strip())
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def allreduce(out, arguments, ranks=HOSTS, more=""):
    return (f"{MPIRUN} {more} -np {ranks} {GRADMETER} allreduce --in-place out -c 0 {arguments} --out {out} --force >/dev/null || exit\n")


def rows(path):
    with open(path, encoding="utf-8") as file:
        return [p for p in map(json.loads, file) if p["kind"] == "point"]


def least(path):
    """Seconds of the fastest call, by size and algorithm or codec."""
    return {tuple(p["factors"][k] for k in ("size_bytes", "algorithm", "codec")): p["metrics"]["time_s"]["min"] for p in rows(path)}


def counter(device, where=""):
    """Shell that prints what a device has sent so far: COUNTED <bytes>."""
    return f"""{where} cat /proc/net/dev | awk '/{device}:/ {{ sub(/.*:/, ""); print "COUNTED", $9 }}'\n"""


def counted(text):
    """Sums of the counts of each run of counters; MARK stands between."""
    return [sum(int(line.split()[1]) for line in part.splitlines() if line.startswith("COUNTED")) for part in text.split("MARK\n")]


STEPS = 8  # of an epoch


def train(out, epochs, arguments, ranks=HOSTS, more=""):
    """Nothing but steps is between the start and the end of an epoch, so two runs differ by what steps send."""
    return (f"{MPIRUN} {more} -np {ranks} {GRADMETER} train --model mlp:784-64-10 --batch 4 --train-samples {4 * ranks * STEPS} "
            f"--validation-samples 64 --threads 1 --overlap none --transport mpi --epochs {epochs} {arguments} --out {out} --force "
            ">/dev/null || exit\n")


def sent_by_steps(options, cases, look, folder):
    """Bytes that devices sent in a step, by case: arguments of `train` after a name."""
    few, many, script = 1, 4, look
    for i, case in enumerate(cases.values()):
        for epochs in (few, many):
            script += train(f"{folder}/{i}.jsonl", epochs, *case) + look
    at = counted(on_cluster(options, script))
    return [((at[2 * i + 2] - at[2 * i + 1]) - (at[2 * i + 1] - at[2 * i])) / (STEPS * (many - few)) for i in range(len(cases))]


def bytes_on_links(folder):
    cases = {a: (f"--algorithm {a}",) for a in ("ring", "recursive-doubling", "direct")}
    look = "".join(counter("eth0", f"$GRADMETER_ENTER_HOST host{h}") for h in range(1, HOSTS + 1)) + "echo MARK\n"
    for i, (a, link) in enumerate(zip(cases, sent_by_steps("4 500Mbit", cases, look, folder))):
        said = rows(f"{folder}/{i}.jsonl")[-1]["metrics"]["bytes_sent_total"]
        check(abs(link / said - 1) < 0.05, f"{a}: {link:.0f} bytes a step on the links, {said} counted: {link / said:.3f}")


def near_the_limit(folder):
    size, rate = 64 << 20, 500e6
    on_cluster("4 500Mbit",
               allreduce(f"{folder}/limit.jsonl", f"--sizes {size} --algorithm ring -n {6 if LONG else 2} -w 1"))
    limit = 2 * size * (HOSTS - 1) / HOSTS * 8 / rate
    took = least(f"{folder}/limit.jsonl")[size, "ring", "none"]
    check(limit <= took < limit / 0.9,
          f"a ring of 64 MiB at 500 Mbit/s takes {took:.3f} s, at the link's rate {limit:.3f}: {limit / took:.3f}")


def crossing(times, sizes):
    """Where recursive doubling stops being faster, interpolated between sizes; 0 and infinity: outside of them."""
    ratio = [math.log(times[s, "ring", "none"] / times[s, "recursive-doubling", "none"]) for s in sizes]
    for s, t, a, b in zip(sizes, sizes[1:], ratio, ratio[1:]):
        if a >= 0 > b:
            return s * (t / s) ** (a / (a - b))
    return 0 if ratio[0] < 0 else math.inf


def crossover(folder):
    """Ring: 6 messages one after another and 1.5 n bytes; recursive doubling: 2 and 2 n. So they cross at twice the rate times the
    difference of their times without data, which is 8 times rate and latency where nothing else delays a message."""
    rate, found = 200e6 * GOODPUT / 8, []
    for latency in (0.5, 1, 2, 4, 8) if LONG else (1, 4):
        near = 8 * rate * latency * 1e-3
        sizes = [int(near * f) // 16 * 16 for f in (0.5, 1.4, 4)]
        listed = ",".join(map(str, (16, *sizes)))
        on_cluster(f"--latency {latency}ms 4 200Mbit", allreduce(
            f"{folder}/x.jsonl", f"--sizes {listed} --algorithm ring,recursive-doubling --transport mpi -n {10 if LONG else 3} -w 5"), 600)
        times = least(f"{folder}/x.jsonl")
        computed = 2 * rate * (times[16, "ring", "none"] - times[16, "recursive-doubling", "none"])
        found.append(crossing(times, sizes))
        check(computed / 1.6 < found[-1] < computed * 1.6, f"{latency} ms: ring and recursive doubling cross at {found[-1] / 1e3:.0f} kB, "
              f"by their latencies at {computed / 1e3:.0f}, by the link's at {near / 1e3:.0f}")
        wrong = [p["reason"] for p in rows(f"{folder}/x.jsonl") if p["status"] != "ok"]
        check(not wrong, f"no row is mistrusted: {wrong}")
    check(found[-1] > 1.8 * found[0], f"with the latency the crossover moves up: {found[-1] / found[0]:.2f} times")


def racks(folder):
    """Two ranks on each host. Buffers through the trunk, both ways: a ring in order crosses it twice, 1.75 each time; shuffled, all of its
    8 edges do; each of two lanes sums half a buffer in a ring of the hosts, which crosses it twice, 0.75 each time."""
    hosts = pathlib.Path(folder, "shuffled")
    hosts.write_text("".join(f"host{h} slots=2\n" for h in (1, 3, 2, 4)), encoding="utf-8")
    in_order = "--host host1:2,host2:2,host3:2,host4:2 --map-by slot"
    cases = {"ring": ("--algorithm ring", 8, in_order),
             "ring of shuffled ranks": ("--algorithm ring", 8, f"--hostfile {hosts} --map-by node"),
             "hierarchical-lane": ("--algorithm hierarchical-lane", 8, in_order)}
    look = counter("trunk0") + counter("trunk1") + "echo MARK\n"
    sent, took = {}, {}
    for i, (name, link) in enumerate(zip(cases, sent_by_steps("--profile two-racks 4", cases, look, folder))):
        metrics = rows(f"{folder}/{i}.jsonl")[-1]["metrics"]
        sent[name], took[name] = link / (metrics["bytes_sent_total"] / 14), metrics["time_s"]["min"]
    for name, computed in {"ring": 3.5, "ring of shuffled ranks": 14, "hierarchical-lane": 3}.items():
        check(abs(sent[name] / computed - 1) < 0.05, f"{name}: {sent[name]:.2f} buffers through the trunk, {computed} computed")
    check(not TIMED or 2 * took["hierarchical-lane"] < took["ring of shuffled ranks"],
          "the least time of a step: " + ", ".join(f"{n} {1e3 * t:.0f} ms" for n, t in took.items()))


def four_bits(folder):
    """How many times faster than without: in one host's memory, then on links ever slower."""
    gains, size = {}, 4 << 20
    links = ("1 0", "2 1Gbit", "2 100Mbit") if not LONG else ("1 0", "2 0", "2 2.5Gbit", "2 1Gbit", "2 500Mbit", "2 100Mbit")
    for link in links:
        more = "--oversubscribe" if link == "1 0" else ""
        on_cluster(link, allreduce(f"{folder}/c.jsonl", f"--sizes {size} --algorithm ring --codec none,qsgd4 -n {10 if LONG else 3} -w 2",
                                   2, more))
        times = {codec.partition(":")[0]: t for (_, _, codec), t in least(f"{folder}/c.jsonl").items()}
        gains["memory" if link == "1 0" else link.partition(" ")[2]] = times["none"] / times["qsgd4"]
    text = ", ".join(f"{k} {v:.2f}" for k, v in gains.items())
    ordered = list(gains.values())
    check(ordered[0] < 1 < ordered[-1] and ordered[1] < ordered[-1] * 1.1, f"4 bits turn from loss to gain, times faster: {text}")


def slow_link(folder):
    """Of the 28 links among eight hosts, the one of half the rate and the one of 2 ms more are named, each in under a minute."""
    for what, word in (("100Mbit", "slow"), ("2ms", "late")):
        begin = time.monotonic()
        said = on_cluster(f"--link 2-6:{what} 8 200Mbit", f"{MPIRUN} -np 8 {GRADMETER} links --pattern one-way --out {folder}/l.jsonl --force || exit")
        took = time.monotonic() - begin
        named = [line for line in said.splitlines() if re.match("(slow|late) (link|host)", line)]
        check(named and named[0].startswith(f"{word} link  host2 (rank 1) <> host6 (rank 5)") and took < 60,
              f"one link of {what}, among eight hosts, in {took:.0f} s: {'; '.join(named)}")


def cut_link(folder):
    """A host that is cut off while it trains: all others say for whom they wait, the job ends."""
    out = f"{folder}/cut.jsonl"
    command = (f"{GRADMETER} train --model mlp:784-32-10 --batch 4 --train-samples 4000 --validation-samples 64 --algorithm ring "
               "--threads 1 --timeout 30s")
    said = on_cluster("4 500Mbit", f"""
        timeout -k 5 60 {MPIRUN} -np 4 {command} --epochs 100000 --log-every 50 --out {out} 2>{folder}/said >/dev/null & job=$!
        for i in $(seq 300); do [ "$(cat {out} 2>/dev/null | wc -l)" -ge 4 ] && break; sleep 0.1; done
        cp {out} {folder}/before; $GRADMETER_ENTER_HOST host3 ip link set eth0 down; wait $job; echo CODE $?; cat {folder}/said""")
    check("CODE 0" not in said and "CODE 124" not in said and "CODE 137" not in said, "a host that is cut off ends the job: "
          + next(line for line in said.splitlines() if line.startswith("CODE")))
    waits = {int(a): int(b) for a, b in re.findall(r"rank (\d) waits for rank (\d): all-reduce ring", said)}
    # Which of the others wait when the job is ended, and for whom, depends on what is still under way on their links.
    check("on node host3" in said and 2 not in waits, f"mpirun names the host, and its rank alone is silent: {waits}")
    before, after = (pathlib.Path(p).read_text(encoding="utf-8") for p in (f"{folder}/before", out))
    valid = subprocess.run([sys.executable, ROOT / "scripts/validate-results.py", out], capture_output=True, text=True, check=False)
    check(before.count("\n") >= 4 and after.startswith(before) and valid.returncode == 0, "the file keeps its rows, and is valid")


def resumed_after_a_cut(folder):
    """A sweep whose link is cut in its middle goes on with --resume where it was, once the link is there again."""
    out, sizes = f"{folder}/resumed.jsonl", [f"{2 ** k}K" for k in range(7)]
    sweep = (f"{MPIRUN} -np 2 {GRADMETER} allreduce --algorithm ring,mpi --sizes {','.join(sizes)} --in-place out -n 40 -w 2 --timeout 5s "
             f"--out {out}")
    said = on_cluster("2 20Mbit", f"""
        timeout -k 5 60 {sweep} >/dev/null 2>&1 & job=$!
        for i in $(seq 300); do [ "$(grep -c '"kind":"point"' {out} 2>/dev/null)" -ge 3 ] && break; sleep 0.1; done
        $GRADMETER_ENTER_HOST host2 ip link set eth0 down; wait $job; echo CODE $?; cp {out} {folder}/cut.jsonl
        $GRADMETER_ENTER_HOST host2 ip link set eth0 up; sleep 1; {sweep} --resume >/dev/null 2>{folder}/said; echo RESUMED $?; cat {folder}/said""")
    cut, whole = rows(f"{folder}/cut.jsonl"), rows(out)
    points = [(p["factors"]["algorithm"], p["factors"]["size_bytes"]) for p in whole]
    check("CODE 0" not in said and 3 <= len(cut) < 2 * len(sizes), f"the cut ends the sweep after {len(cut)} of {2 * len(sizes)} points")
    check("RESUMED 0" in said and whole[:len(cut)] == cut and len(set(points)) == len(points) == 2 * len(sizes),
          f"--resume keeps them and measures the rest, each once: {len(whole)}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for part in (bytes_on_links, racks, cut_link, *((resumed_after_a_cut, near_the_limit, crossover, four_bits, slow_link) if TIMED else ())):
            begin = time.monotonic()
            print(f"--- {part.__name__.replace('_', ' ')}", flush=True)
            try:
                part(folder)
            except Skipped as why:
                print(f"skipped: {why}")
                raise SystemExit(1 if failures else 77) from why
            print(f"      {time.monotonic() - begin:.0f} s", flush=True)
    raise SystemExit(failures > 0)


main()
