#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares times of our schedules on SimGrid's SMPI, an independent simulator, with an evaluation by latency and rate.

Usage: examples/smpi/compare.py [--gradmeter PROGRAM] [--ranks LIST] [--algorithm LIST] [--sizes LIST] [--latency SECONDS]
                                [--rate BYTES/S] [--sums RATE] [--share N] [--check] [--fail-above PERCENT] [--predict COMMAND] [--keep DIR]
It needs Debian's libsimgrid-dev (smpicxx, smpirun); without it, it ends with 77, which tests count as skipped.
For each point gradmeter writes the schedule (--dry-run --goal), smpirun replays it (replay.cpp) on hosts that have a link
of the given latency and rate to each other, and this script evaluates the same file:
  a message leaves when it is ready and the sender's port is free, takes bytes / rate of both ports, and the latency between;
  a rank's port carries one message at a time in each direction; sums are done one after another.
"evaluated" takes the two ports one after the other, as a switch with memory between them does; "together" takes both at once.
SimGrid's correction factors are off, and there is no window of TCP. A link carries --share messages at once, one by default, and takes
both ports together; 0 is SimGrid's own default, in which all messages on their way share the links.
--check also carries numbers and compares every rank's result with the sum.
--predict COMMAND adds a column: a shell command with {algorithm} {ranks} {bytes} {latency_s} {bytes_per_s} {sums} in it, whose last
line is a JSON object with time_s, such as gradmeter predict prints.
Prints a table in Markdown. Ends with 1 where an error is above --fail-above, or a number is wrong.
"""
import argparse
import collections
import heapq
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
# No correction of latency or rate, no window, no reverse traffic, no time of calls; every message leaves when it is sent, as a
# message that MPI sends eagerly.
SETTINGS = {
    "network/model": "CM02",
    "network/latency-factor": "1",
    "network/bandwidth-factor": "1",
    "network/weight-S": "0",
    "network/TCP-gamma": "0",
    "network/crosstraffic": "0",
    "surf/precision": "1e-9",
    "smpi/async-small-thresh": "2000000000",
    "smpi/send-is-detached-thresh": "2000000000",
    "smpi/simulate-computation": "no",
    "smpi/cpu-threshold": "0",
    "smpi/host-speed": "1Gf",
    "smpi/wtime": "0",
    "smpi/privatization": "no",
}


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gradmeter", default="build/release/gradmeter")
    p.add_argument("--ranks", default="64,256")
    p.add_argument("--algorithm", default="ring,rabenseifner,double-tree")
    p.add_argument("--sizes", default="64K,1M,25MB", help="bytes of a buffer of fp32, as gradmeter reads them")
    p.add_argument("--latency", type=float, default=10e-6, help="[s]")
    p.add_argument("--rate", type=float, default=12.5e9, help="[bytes/s]")
    p.add_argument("--sums", default="0", help="--goal-sums of gradmeter; 0: sums take no time")
    p.add_argument("--share", type=int, default=1, help="messages that a link carries at once; 0: any number")
    p.add_argument("--check", action="store_true")
    p.add_argument("--fail-above", type=float, default=math.inf)
    p.add_argument("--predict", default="")
    p.add_argument("--keep", help="folder in which files stay")
    a = p.parse_args()
    a.ranks, a.algorithm, a.sizes = (text.split(",") for text in (a.ranks, a.algorithm, a.sizes))
    return a


Operation = collections.namedtuple("Operation", "kind peer tag bytes seconds")


def read_goal(path):
    """By rank: its operations, how many each requires, and which require it."""
    programs = []
    labels = {}
    with open(path, encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if not words or words[0] in ("//", "num_ranks", "}"):
                continue
            if words[0] == "rank":
                labels = {}
                operations, waits, after = [], [], []
                programs.append((operations, waits, after))
            elif words[1] == "requires":
                later, before = labels[words[0]], labels[words[2]]
                waits[later] += 1
                after[before].append(later)
            else:
                labels[words[0][:-1]] = len(operations)
                if words[1] == "calc":
                    operations.append(Operation("calc", 0, 0, 0, int(words[2]) * 1e-9))
                else:
                    operations.append(Operation(words[1], int(words[4]), int(words[6]), int(words[2][:-1]), 0.0))
                waits.append(0)
                after.append([])
    return programs


class PortsInTurn:
    """A message takes the sender's port, and then, the latency later, the receiver's."""

    def __init__(self, ranks, latency, rate):
        self.out, self.into, self.latency, self.rate = [0.0] * ranks, [0.0] * ranks, latency, rate

    def send(self, now, message, push):
        source, _, size, _ = message
        begin = max(now, self.out[source])
        self.out[source] = begin + size / self.rate
        push(begin + self.latency, "first byte", message)

    def arrive(self, now, message, push):
        _, target, size, _ = message
        self.into[target] = max(now, self.into[target]) + size / self.rate
        push(self.into[target], "last byte", message)

    def end(self, now, message, push):
        pass


class PortsTogether:
    """A message waits for the latency, then takes both ports at once; those that wait begin in their order where they can."""

    def __init__(self, ranks, latency, rate):
        self.busy, self.waiting = [False] * (2 * ranks), [collections.deque() for _ in range(2 * ranks)]
        self.ranks, self.latency, self.rate = ranks, latency, rate

    def ports(self, message):
        return message[0], self.ranks + message[1]

    def send(self, now, message, push):
        push(now + self.latency, "first byte", message)

    def arrive(self, now, message, push):
        if not self.begin(now, message, push):
            for port in self.ports(message):
                self.waiting[port].append(message)

    def begin(self, now, message, push):
        out, into = self.ports(message)
        if self.busy[out] or self.busy[into]:
            return False
        self.busy[out] = self.busy[into] = True
        push(now + message[2] / self.rate, "last byte", message)
        return True

    def end(self, now, message, push):
        for port in self.ports(message):
            self.busy[port] = False
        for port in self.ports(message):
            for other in self.waiting[port]:
                if self.begin(now, other, push):
                    for its in self.ports(other):
                        self.waiting[its].remove(other)
                    break


def evaluate(programs, latency, rate, ports=PortsInTurn):
    """The time at which the last rank is done [s]. A message is (from, to, bytes, number)."""
    ranks = len(programs)
    core, network = [0.0] * ranks, ports(ranks, latency, rate)
    posted, arrived = collections.defaultdict(collections.deque), collections.defaultdict(collections.deque)
    waits = [list(p[1]) for p in programs]
    first = [(r, i) for r in range(ranks) for i, n in enumerate(waits[r]) if n == 0]
    events = [(0.0, n, "ready", item) for n, item in enumerate(first)]
    order = len(events)  # events of one time are taken in the order in which they came to be
    keys = []  # by message: what its receiver asks for
    last = 0.0

    def push(at, what, item):
        nonlocal order
        heapq.heappush(events, (at, order, what, item))
        order += 1

    def finish(rank, operation, at):
        nonlocal last
        last = max(last, at)
        for a in programs[rank][2][operation]:
            waits[rank][a] -= 1
            if waits[rank][a] == 0:
                push(at, "ready", (rank, a))

    while events:
        now, _, what, item = heapq.heappop(events)
        if what == "first byte":
            network.arrive(now, item, push)
        elif what == "last byte":
            network.end(now, item, push)
            key = keys[item[3]]
            if posted[key]:
                finish(key[1], posted[key].popleft(), now)
            else:
                arrived[key].append(now)
        elif what == "sum":
            finish(*item, now)
        else:
            rank, i = item
            x = programs[rank][0][i]
            if x.kind == "send":
                keys.append((rank, x.peer, x.tag))
                network.send(now, (rank, x.peer, x.bytes, len(keys) - 1), push)
                finish(rank, i, now)
            elif x.kind == "recv":
                key = (x.peer, rank, x.tag)
                if arrived[key]:
                    arrived[key].popleft()
                    finish(rank, i, now)
                else:
                    posted[key].append(i)
            else:
                core[rank] = max(now, core[rank]) + x.seconds
                push(core[rank], "sum", (rank, i))
    if any(any(n > 0 for n in w) for w in waits) or any(posted.values()):
        raise RuntimeError("the file's operations cannot all run")
    return last


def write_platform(folder, ranks, latency, rate):
    """Hosts with a link up and a link down of this rate each, which two messages between the same hosts share."""
    platform, hosts = folder / "platform.xml", folder / "hosts"
    platform.write_text(f"""<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="h" suffix="" radical="0-{ranks - 1}" speed="1Gf" bw="{rate:.17g}Bps" lat="{latency / 2:.17g}s"
           sharing_policy="SPLITDUPLEX"/>
</platform>
""")
    hosts.write_text("".join(f"h{r}\n" for r in range(ranks)))
    return platform, hosts


def simulate(program, goal, folder, ranks, arguments, check):
    platform, hosts = write_platform(folder, ranks, arguments.latency, arguments.rate)
    command = ["smpirun", "-np", str(ranks), "-platform", platform, "-hostfile", hosts, *(f"--cfg={k}:{v}" for k, v in SETTINGS.items()),
               f"--cfg=maxmin/concurrency-limit:{arguments.share or -1}",
               "--log=root.thres:error", program, goal, *(["check"] if check else [])]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    answer = re.search(r"^([0-9.e+-]+) s, (\d+) wrong$", done.stdout, re.M)
    if not answer:
        raise RuntimeError(f"smpirun ended with {done.returncode}: {done.stdout}{done.stderr}")
    return float(answer[1]), int(answer[2])


def bytes_of(text):
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text).groups()
    factors = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
    return int(float(number) * factors[unit])


def predicted(arguments, algorithm, ranks, size):
    command = arguments.predict
    for name, value in (("algorithm", algorithm), ("ranks", ranks), ("bytes", bytes_of(size)), ("latency_s", arguments.latency),
                        ("bytes_per_s", arguments.rate), ("sums", arguments.sums)):
        command = command.replace("{" + name + "}", str(value))
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["time_s"])


def milliseconds(seconds):
    return f"{seconds * 1e3:.4g}"


def compare(arguments, program, folder):
    columns = ["algorithm", "ranks", "size", "SMPI [ms]", "evaluated [ms]", "off by", "together [ms]", "off by"]
    if arguments.predict:
        columns += ["predicted [ms]", "off by"]
    print("| " + " | ".join(columns) + " |\n| --- |" + " ---: |" * (len(columns) - 1), flush=True)
    worst, wrong = 0.0, 0
    for algorithm in arguments.algorithm:
        for ranks in map(int, arguments.ranks):
            for size in arguments.sizes:
                goal = folder / f"{algorithm}-{ranks}-{size}.goal".replace(":", "_")
                subprocess.run([arguments.gradmeter, "allreduce", "--dry-run", "--algorithm", algorithm, "--sizes", size,
                                "--thread-ranks", str(ranks), "--goal-sums", arguments.sums, "--goal", goal], capture_output=True,
                               check=True)
                simulated, wrong_here = simulate(program, goal, folder, ranks, arguments, arguments.check)
                programs = read_goal(goal)
                times = [evaluate(programs, arguments.latency, arguments.rate, ports) for ports in (PortsInTurn, PortsTogether)]
                if arguments.predict:
                    times.append(predicted(arguments, algorithm, ranks, size))
                errors = [t / simulated - 1 for t in times]
                worst, wrong = max(worst, *map(abs, errors)), wrong + wrong_here
                cells = [algorithm, ranks, size, milliseconds(simulated)]
                for t, e in zip(times, errors):
                    cells += [milliseconds(t), f"{100 * e:+.1f} %"]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
                if not arguments.keep:
                    goal.unlink()
    print(f"\nEvaluations are off by {100 * worst:.1f} % at most.{' Every number is the sum.' if arguments.check and wrong == 0 else ''}")
    if wrong:
        print(f"{wrong} numbers are not the sum.")
    return 1 if wrong or 100 * worst > arguments.fail_above else 0


def main():
    arguments = read_arguments()
    missing = [name for name in ("smpicxx", "smpirun") if not shutil.which(name)]
    if missing:
        print(f"skipped: needs {' and '.join(missing)}, of Debian's libsimgrid-dev (scripts/packages.sh test)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "replay"
        subprocess.run(["smpicxx", "-std=c++20", "-O2", "-Wall", "-Wextra", HERE / "replay.cpp", "-o", program], check=True)
        return compare(arguments, program, folder)


if __name__ == "__main__":
    sys.exit(main())
