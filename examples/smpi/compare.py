#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares times of our schedules on SimGrid's SMPI, an independent simulator, with an evaluation by latency and rate.

Usage: examples/smpi/compare.py [--gradmeter PROGRAM] [--ranks LIST] [--algorithm LIST] [--sizes LIST] [--latency SECONDS]
                                [--rate BYTES/S] [--sums RATE] [--share N] [--draws N] [--check] [--fail-above PERCENT] [--predict COMMAND] [--keep DIR]
It needs Debian's libsimgrid-dev (smpicxx, smpirun); without it, it ends with 77, which tests count as skipped.
For each point gradmeter writes the schedule (--dry-run --goal), smpirun replays it (replay.cpp) on hosts that have a link
of the given latency and rate to each other, and this script evaluates the same file:
  a rank's port carries one message at a time in each direction; sums are done one after another;
  a message that is sent waits for the latency, and then until both its ports are free, which it takes for bytes / rate. While
  it waits it holds none;
  when a message ends, its sender's port goes to the first of those that wait for it and whose other port is free; then so does
  its receiver's;
  which of several events of one instant is first is drawn, and the median of --draws draws is taken.
"with memory" takes the two ports one after the other, as through a switch with memory between them.
SimGrid's correction factors are off, and there is no window of TCP. A link carries --share messages at once, one by default;
0 is SimGrid's own default, in which all messages on their way share the links.
--check also carries numbers and compares every rank's result with the sum.
--predict COMMAND adds a column: a shell command with {algorithm} {ranks} {bytes} {latency_s} {bytes_per_s} {sums} in it, whose last
line is a JSON object with time_s, such as gradmeter predict prints.
Prints a table in Markdown. Ends with 1 where an error of "evaluated" is above --fail-above, or a number is wrong.
"""
import argparse
import collections
import heapq
import json
import math
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
INSTANT = 1e-9  # [s]; SimGrid's surf/precision: events no further apart are at one time
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
    p.add_argument("--draws", type=int, default=5, help="of the order of events of one instant; the median is taken")
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


class Ports:
    """A message takes both ports at once, and holds none while it waits."""

    def __init__(self, ranks, latency, rate):
        self.busy, self.waiting = [False] * (2 * ranks), [{} for _ in range(2 * ranks)]  # sets that keep their order
        self.ranks, self.latency, self.rate = ranks, latency, rate

    def ports(self, message):
        return message[0], self.ranks + message[1]

    def send(self, now, message, push):
        push(now + self.latency, "first byte", message)

    def arrive(self, now, message, push):
        if not self.begin(now, message, push):
            for port in self.ports(message):
                self.waiting[port][message] = None

    def begin(self, now, message, push):
        ports = self.ports(message)
        if any(self.busy[p] for p in ports):
            return False
        for p in ports:
            self.busy[p] = True
        push(now + message[2] / self.rate, "last byte", message)
        return True

    def end(self, now, message, push):
        """The receiver's port is still taken while the sender's is offered, so another pair's message goes first."""
        for port in self.ports(message):
            self.busy[port] = False
            for other in self.waiting[port]:
                if self.begin(now, other, push):
                    for its in self.ports(other):
                        del self.waiting[its][other]
                    break


class PortsWithMemory:
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


class Evaluation:
    """One walk through the operations of all ranks. A message is (from, to, bytes, number)."""

    def __init__(self, programs, latency, rate, ports, draw):
        self.programs, self.network, self.draw = programs, ports(len(programs), latency, rate), draw
        self.core, self.last = [0.0] * len(programs), 0.0
        self.posted, self.arrived = collections.defaultdict(collections.deque), collections.Counter()
        self.waits = [list(p[1]) for p in programs]
        self.ready = {r: [i for i, n in enumerate(w) if n == 0] for r, w in enumerate(self.waits)}
        self.events, self.pushed = [], 0
        self.keys = []  # by message: what its receiver asks for

    def push(self, at, what, item):
        heapq.heappush(self.events, (at, self.pushed, what, item))
        self.pushed += 1

    def finish(self, rank, operation, now):
        self.last = max(self.last, now)
        for a in self.programs[rank][2][operation]:
            self.waits[rank][a] -= 1
            if self.waits[rank][a] == 0:
                self.ready.setdefault(rank, []).append(a)

    def deliver(self, message, now):
        key = self.keys[message[3]]
        if self.posted[key]:
            self.finish(key[1], self.posted[key].popleft(), now)
        else:
            self.arrived[key] += 1

    def start(self, rank, i, now):
        x = self.programs[rank][0][i]
        if x.kind == "send":
            self.keys.append((rank, x.peer, x.tag))
            self.network.send(now, (rank, x.peer, x.bytes, len(self.keys) - 1), self.push)
            self.finish(rank, i, now)
        elif x.kind == "calc":
            self.core[rank] = max(now, self.core[rank]) + x.seconds
            if x.seconds > 0:
                self.push(self.core[rank], "sum", (rank, i))
            else:
                self.finish(rank, i, now)
        elif self.arrived[(x.peer, rank, x.tag)] > 0:
            self.arrived[(x.peer, rank, x.tag)] -= 1
            self.finish(rank, i, now)
        else:
            self.posted[(x.peer, rank, x.tag)].append(i)

    def start_ready(self, now):
        """Ranks begin one message a turn, each its own in the order in which they became ready."""
        while self.ready:
            ranks = list(self.ready)
            self.draw.shuffle(ranks)
            for rank in ranks:
                is_message = False
                while self.ready[rank] and not is_message:
                    i = self.ready[rank].pop(0)
                    is_message = self.programs[rank][0][i].kind != "calc"
                    self.start(rank, i, now)
            self.ready = {r: waiting for r, waiting in self.ready.items() if waiting}

    def run(self):
        """The time at which the last rank is done [s]."""
        self.start_ready(0.0)
        while self.events:
            now, due = self.events[0][0], collections.defaultdict(list)
            while self.events and self.events[0][0] <= now + INSTANT:
                _, _, what, item = heapq.heappop(self.events)
                due[what].append(item)
            for message in due["first byte"]:
                self.network.arrive(now, message, self.push)
            self.draw.shuffle(due["last byte"])
            for message in due["last byte"]:
                self.network.end(now, message, self.push)
            for message in due["last byte"]:
                self.deliver(message, now)
            for rank, i in due["sum"]:
                self.finish(rank, i, now)
            self.start_ready(now)
        if any(any(n > 0 for n in w) for w in self.waits) or any(self.posted.values()):
            raise RuntimeError("the file's operations cannot all run")
        return self.last


def evaluate(programs, arguments, ports):
    return statistics.median(Evaluation(programs, arguments.latency, arguments.rate, ports, random.Random(n)).run()
                             for n in range(arguments.draws))


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
    columns = ["algorithm", "ranks", "size", "SMPI [ms]", "evaluated [ms]", "off by", "with memory [ms]", "off by"]
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
                times = [evaluate(programs, arguments, ports) for ports in (Ports, PortsWithMemory)]
                if arguments.predict:
                    times.append(predicted(arguments, algorithm, ranks, size))
                errors = [t / simulated - 1 for t in times]
                worst, wrong = max(worst, abs(errors[0])), wrong + wrong_here
                cells = [algorithm, ranks, size, milliseconds(simulated)]
                for t, e in zip(times, errors):
                    cells += [milliseconds(t), f"{100 * e:+.1f} %"]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
                if not arguments.keep:
                    goal.unlink()
    print(f"\nThe evaluation is off by {100 * worst:.1f} % at most.{' Every number is the sum.' if arguments.check and wrong == 0 else ''}")
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
