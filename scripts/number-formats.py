#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validation error by number format, over seeds: trains 784-100-10 on the digits with plain SGD.

Usage: scripts/number-formats.py [--gradmeter PROGRAM] [--formats LIST] [--seeds N] [--epochs N] [--samples N]
                                 [--batch N] [--step X] [--last N] [--data DIR] [--jobs N]
A format is PRODUCTS/WEIGHTS, as in lns16/bf16-kahan: what --precision and --update of train take.
Each run's figure is the mean over its last epochs (a single epoch's error has a standard deviation of its own); the
table has their mean over the seeds with Student's 95 % interval, and the same of the difference to the first format, seed by seed.
"""
import argparse
import concurrent.futures
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

# Student's t for 95 %, two-sided, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gradmeter", default="build/release/gradmeter")
    p.add_argument("--formats", default="fp32/fp32,fp32/bf16,fp32/bf16-kahan,fp32/bf16-sr,lns16/fp32,lns16/lns16,"
                   "lns16/lns16-kahan")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--samples", type=int, default=60000)
    p.add_argument("--batch", type=int, default=10)
    p.add_argument("--step", type=float, default=0.02)
    p.add_argument("--last", type=int, default=5, help="epochs whose mean is a run's figure")
    p.add_argument("--data", help="directory of MNIST's IDX files")
    p.add_argument("--jobs", type=int, default=1, help="trainings at a time; each has one thread")
    a = p.parse_args()
    a.formats = a.formats.split(",")
    if any(f.count("/") != 1 for f in a.formats):
        p.error("a format is PRODUCTS/WEIGHTS, as in fp32/bf16-kahan")
    if not 2 <= a.seeds <= 10 or not 1 <= a.last <= a.epochs:
        p.error("take 2 to 10 seeds, and of the epochs at most all")
    return a


def errors_by_epoch(path):
    """Percent of the validation data, epoch by epoch."""
    out = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            metrics = json.loads(line).get("metrics", {})
            if "accuracy" in metrics:
                out.append(100 * (1 - metrics["accuracy"]))
    return out


def train(a, formats, seed):
    precision, update = formats.split("/")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.jsonl")
        command = [a.gradmeter, "train", "--model", "mlp:784-100-10", "--optimizer", "sgd", "--lr", str(a.step),
                   "--batch", str(a.batch), "--epochs", str(a.epochs), "--train-samples", str(a.samples),
                   "--seed", str(seed), "--precision", precision, "--update", update, "--threads", "1", "--out", path]
        if a.data:
            command += ["--data", a.data]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"number-formats: {' '.join(command)}: {done.stderr.strip()}")
        found = errors_by_epoch(path)
    if len(found) != a.epochs:
        sys.exit(f"number-formats: {len(found)} epochs instead of {a.epochs}; is the file's format another one?")
    return statistics.mean(found[-a.last:])


def interval(values):
    """Mean and half of Student's 95 % interval."""
    half = STUDENT[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), half


def main():
    a = read_arguments()
    base = None
    print(f"{'products/weights':<24} {'error %':>14} {f'beyond {a.formats[0]}':>22}   by seed", flush=True)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for formats in a.formats:
            found = list(pool.map(lambda seed, f=formats: train(a, f, seed), range(1, a.seeds + 1)))
            mean, half = interval(found)
            beyond = ""
            if base:
                difference, around = interval([x - b for x, b in zip(found, base)])
                beyond = f"{difference:+.2f} ± {around:.2f}"
            base = base or found
            print(f"{formats:<24} {f'{mean:.2f} ± {half:.2f}':>14} {beyond:>22}   {' '.join(f'{x:.2f}' for x in found)}",
                  flush=True)


if __name__ == "__main__":
    main()
