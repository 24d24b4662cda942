#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws command lines with a time budget by a seed, runs each, and compares its wall time, from the start of the process
to its end, with the budget. It must be within 1.25 times the budget and two seconds, unless the program has said before
its first point that the budget cannot be kept, and how long it needs at least. Exit code 1: one was neither.

    scripts/budgets.py build/release/gradmeter --seed 1 --count 20
"""
import argparse
import random
import re
import subprocess
import sys
import time

WARNING = re.compile(r"gradmeter: a time budget of .* cannot be kept: it needs at least ([\d.]+ \w+)")
FIRST_POINT = re.compile(r"^\[[1-9]\d*/")


def some(draw, items):
    return ",".join(draw.sample(items, draw.randint(1, len(items))))


def draw_command(draw):
    """Flags, budget [s]. Ranks are threads, so that nothing but the program takes time."""
    ranks = ("--thread-ranks", "2")
    name = draw.choice(["allreduce", "allreduce", "scale", "scale", "kernels", "infer", "codecs", "links"])
    budget = draw.choice([3, 5, 8, 12, 20, 30])
    if name == "allreduce":
        words = [*ranks, "-b", draw.choice(["8", "4K", "256K"]), "-e", draw.choice(["64K", "1M", "16M"]), "-f",
                 draw.choice(["2", "4", "16"]), "--algorithm", some(draw, ["ring", "direct", "rabenseifner", "swing", "double-tree"]),
                 "--in-place", draw.choice(["out", "in", "both"])]
        if draw.random() < 0.4:
            words += ["--codec", some(draw, ["none", "bf16", "qsgd4", "topk"])]
        if draw.random() < 0.2:
            words += ["--algorithm", "all"]
    elif name == "scale":
        words = [*ranks, "--batch", some(draw, ["8", "64", "256", "1024"]), "--strategy",
                 some(draw, ["independent", "sync", "model-averaging", "ps-async"])]
        words += draw.choice([["--model", some(draw, ["mlp", "cnn", "lstm"])],
                              ["--model", "vgg16", "--shrink", "8", "--batch", "2"],
                              ["--model", "resnet50", "--shrink", "8", "--batch", "2,4"]])
    elif name == "kernels":
        words = draw.choice([["--op", "gemm", "--set", "server", "--filter", "k=2048"], ["--op", "rnn", "--filter", "lstm"],
                             ["--op", "gemm,conv", "--set", "device"]])
    elif name == "infer":
        words = ["--model", some(draw, ["mlp", "cnn"]), "--batch", some(draw, ["1", "4", "16"])]
    elif name == "codecs":
        words = ["--codec", some(draw, ["bf16", "qsgd4", "topk", "onebit", "powersgd"]), "--size", draw.choice(["256K", "4M,16M", "64M"])]
    else:
        words = [*ranks, "--size", draw.choice(["64K", "1M", "64K,4M"])]
    last = {}  # of a flag that was drawn twice
    flags = iter(words)
    for flag in flags:
        last[flag] = next(flags)
    return [name, *(word for pair in last.items() for word in pair), "--time-budget", f"{budget}s"], budget


def run(program, command):
    """Seconds, exit code, the time that it said it needs, whether that was before the first point, its last complaint. One
    that has said so in time is ended."""
    begin = time.monotonic()
    said, early, measured, why = None, False, False, ""
    with subprocess.Popen([program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        for line in job.stderr:
            measured |= bool(FIRST_POINT.match(line))
            if match := WARNING.match(line):
                said, early = match[1], not measured
                if early:
                    job.terminate()
                    return time.monotonic() - begin, 0, said, early, ""
            if line.startswith("gradmeter:"):
                why = line.strip()
        job.wait()
    return time.monotonic() - begin, job.returncode, said, early, why


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", default="", help="one command's lines")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    print("| command | took, s | over budget | said before | as it must be |\n| --- | --- | --- | --- | --- |", flush=True)
    bad = 0
    for _ in range(options.count):
        command, budget = draw_command(draw)
        while options.only and command[0] != options.only:
            command, budget = draw_command(draw)
        took, code, said, early, why = run(options.gradmeter, command)
        fine = code == 0 and (took <= 1.25 * budget + 2 or (said is not None and early))
        bad += not fine
        note = f"needs {said}{'; ended' if early else ', too late'}" if said else ""
        failed = f" (exit {code}: {why})" if code else ""
        print(f"| `{' '.join(command)}`{failed} | {took:.1f} | {took / budget:.2f} | {note} | {'yes' if fine else '**NO**'} |", flush=True)
    print(f"\n{bad} of {options.count} are not as they must be" if bad else "\nall are as they must be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
