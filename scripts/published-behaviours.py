#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats three published behaviours of training strategies on this machine; results/strategies.md has the tables.

  stale      stale gradients hurt more at larger step sizes
  averaging  model averaging every H steps sends 1/H of the bytes, and its accuracy falls slowly
  batch      a large batch without warm-up ends worse than with it
  table      every strategy at one setting, side by side (gradmeter scale --strategy all --learn)

Usage: scripts/published-behaviours.py [--quick] [--seeds N] [--only NAME[,NAME...]] [--tables]
                                       [--gradmeter PATH] [--out FOLDER] [--force]

Each experiment leaves FOLDER/NAME.jsonl, from which its tables are made. Runs that the file has are not repeated, so
an interrupted experiment goes on where it was, and more seeds add to it; --force begins anew, --tables runs nothing.
Needs mpirun and no Python packages; two idle cores take some minutes, with --quick about one.
Exit codes: 0 done, 1 a run failed, 2 bad usage.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMON = {"model": "mlp:784-64-10", "threads": 1, "validation-samples": 5000}

# One sequence of updates of 16 samples each, whose gradients are late by about 0, 1, 3, 7, 7 and 15 updates.
DELAYED = [(1, "ps-async:scale=sum"), (2, "ps-async:scale=sum"), (4, "ps-async:scale=sum"), (8, "ps-async:scale=sum"),
           (4, "ps-async:scale=sum,prefetch=1"), (8, "ps-async:scale=sum,prefetch=1")]
# Four workers whose updates add up to the same movement a sample.
SAME_MOVEMENT = [(4, "ps-sync"), (4, "ps-ssp:staleness=1"), (4, "ps-async"), (4, "ps-async:prefetch=1")]
PERIODS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
BATCHES = [128, 256, 512, 1024, 2048, 4096, 8192]


def stale(quick, seed):
    """Runs as (ranks, flags); equal samples in all."""
    fixed = {"optimizer": "sgd", "batch": 16, "train-samples": 16384, "epochs": 2, "warmup": 0, "seed": seed}
    sizes = [0.0125, 0.05, 0.2] if quick else [0.0125, 0.025, 0.05, 0.1, 0.2, 0.4]
    rounds = [0.1, 0.4, 1.6] if quick else [0.1, 0.2, 0.4, 0.8, 1.6]
    for columns, steps in ((DELAYED, sizes), (SAME_MOVEMENT, rounds)):
        for size in reversed(steps):
            for ranks, strategy in columns:
                yield ranks, {**fixed, "strategy": strategy, "lr": size}


def averaging(quick, seed):
    fixed = {"optimizer": "momentum:mu=0.9", "batch": 16, "train-samples": 16384, "epochs": 2, "warmup": 0,
             "seed": seed}
    periods = PERIODS[::4] if quick else PERIODS
    for size in (0.01, 0.05):
        for strategy in [f"model-averaging:every={h}" for h in periods] + ["sync", "independent"]:
            yield 4, {**fixed, "strategy": strategy, "lr": size}
    for every in periods[::2]:
        yield 4, {**fixed, "strategy": f"bmuf:every={every}", "lr": 0.01}
        yield 4, {**fixed, "strategy": f"diloco:every={every}", "optimizer": "adamw", "lr": 0.001}


def batch(quick, seed):
    fixed = {"strategy": "sync", "train-samples": 60000, "epochs": 10, "seed": seed}
    scaled = {**fixed, "optimizer": "momentum:mu=0.9", "lr": 0.005, "lr-rule": "linear:batch=64"}
    for warmup in (0, 3):
        yield 4, {**fixed, "optimizer": "lars:eta=0.01", "lr": 3, "batch": 2048, "warmup": warmup}
    for whole in reversed(BATCHES[::3] if quick else BATCHES):
        for warmup in (0, 3):
            yield 4, {**scaled, "batch": whole // 4, "warmup": warmup}
    if seed == 1:
        yield 4, {**scaled, "batch": 16, "warmup": 0, "noise-scale": 20}


EXPERIMENTS = {"stale": stale, "averaging": averaging, "batch": batch}


def environment():
    """As scripts/environment.sh, for more ranks than cores; what is set already stays."""
    e = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
         "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}
    if os.geteuid() == 0:
        e |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**e, **os.environ}


def command_of(gradmeter, ranks, flags, out):
    words = [f"--{name}={value}" for name, value in {**COMMON, **flags}.items()]
    return ["mpirun", "-np", str(ranks), gradmeter, "train", *words, f"--out={out}", "--append"]


def note(out, text):
    with open(out, "a", encoding="utf-8") as f:
        f.write(json.dumps({"kind": "note", "text": text}) + "\n")


def train(gradmeter, ranks, flags, out):
    command = command_of(gradmeter, ranks, flags, out)
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=900)
    if done.returncode == 0:
        return
    if done.returncode == 4 and "the loss is" in done.stderr:  # diverged: a result of its own
        note(out, "diverged: " + json.dumps({"ranks": ranks, **{k: str(v) for k, v in flags.items()}}))
        return
    sys.exit(f"published-behaviours: exit code {done.returncode} of {shlex.join(command)}\n{done.stderr[-2000:]}")


def run(name, options, out):
    runs = [r for seed in range(1, options.seeds + 1) for r in EXPERIMENTS[name](options.quick, seed)]
    finished = load(out) if out.exists() else []
    for i, (ranks, flags) in enumerate(runs, 1):
        if select(finished, ranks=ranks, **{k.replace("-", "_"): v for k, v in flags.items()}):
            continue
        if sys.stderr.isatty():
            print(f"\r{name}: run {i} of {len(runs)} ", end="", file=sys.stderr, flush=True)
        train(options.gradmeter, ranks, flags, out)
    if sys.stderr.isatty():
        print(file=sys.stderr)


def run_table(options, out):
    command = ["mpirun", "-np", "4", options.gradmeter, "scale", "--strategy", "all", "--ranks", "4", "--model",
               COMMON["model"], "--batch", "16", "--algorithm", "ring", "--threads", "1", "--learn",
               "8192" if options.quick else "32768", "--time-budget", "30s" if options.quick else "90s",
               "--out", str(out), "--force"]
    text = out.with_suffix(".txt")
    with open(text, "w", encoding="utf-8") as f:
        code = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, stdout=f, check=False).returncode
    if code:
        sys.exit(f"published-behaviours: exit code {code} of {shlex.join(command)}")


def load(path):
    """Finished runs: {"ranks", every flag's text, "metrics" of the last epoch, or None for one that diverged}."""
    runs, current = [], None  # a run whose last epoch is missing was interrupted, or diverged and has a note
    for line in map(json.loads, open(path, encoding="utf-8")):
        if line["kind"] == "run":
            words = (w[2:].split("=", 1) for w in shlex.split(line["command"]) if w.startswith("--") and "=" in w)
            current = {"ranks": line["ranks"], **dict(words)}
        elif line["kind"] == "point" and line["metrics"].get("epoch") == float(current["epochs"]):
            runs.append({**current, "metrics": line["metrics"]})
        elif line["kind"] == "note" and line["text"].startswith("diverged: "):
            runs.append({"metrics": None, **json.loads(line["text"][len("diverged: "):])})
    return runs


def select(runs, **flags):
    def fits(r):
        return all(r.get(k.replace("_", "-")) == str(v) if k != "ranks" else r["ranks"] == v for k, v in flags.items())
    return [r for r in runs if fits(r)]


def accuracy(runs):
    """Median and, of several runs, range in percent; a run that diverged counts as one that guesses, 10 %."""
    if not runs:
        return "-"
    values = sorted(100 * r["metrics"]["accuracy"] if r["metrics"] else 10.0 for r in runs)
    lost = sum(r["metrics"] is None for r in runs)
    lost_text = f", {lost} of {len(runs)} NaN" if lost else ""
    spread = f" ({values[0]:.1f}–{values[-1]:.1f}{lost_text})" if len(values) > 1 else ""
    return f"{statistics.median(values):.2f}{spread}"


def metric(runs, name):
    values = [r["metrics"][name] for r in runs if r["metrics"] and r["metrics"].get(name) is not None]
    return statistics.median(values) if values else None


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for r in rows:
        print("| " + " | ".join(r) + " |")
    print()


def values_of(runs, flag):
    return sorted({r[flag] for r in runs if flag in r}, key=float)


def staleness_text(runs):
    mean, p99, top = (metric(runs, n) for n in ("staleness", "staleness_p99", "staleness_max"))
    return "-" if mean is None else f"{mean:.2f} / {p99:.0f} / {top:.0f}"


def print_grid(runs, columns):
    mine = [r for r in runs if (r["ranks"], r["strategy"]) in columns]
    sizes = values_of(mine, "lr")
    cells = {(c, s): select(mine, ranks=c[0], strategy=c[1], lr=s) for c in columns for s in sizes}
    head = ["step size"] + [f"P={p} `{s}`" for p, s in columns]
    rows = [[s] + [accuracy(cells[c, s]) for c in columns] for s in sizes]
    seen = [[r for s in sizes for r in cells[c, s]] for c in columns]
    rows.append(["staleness mean / p99 / largest"] + [staleness_text(r) for r in seen])
    table(head, rows)


def print_stale(runs):
    print("Every update is 16 samples at the step size of the row; columns differ by the delay alone.\n")
    sums = [r for r in runs if r["strategy"].startswith("ps-async:scale=sum")]
    print_grid(sums, DELAYED)
    print("Four workers, updates of step size / 4 (ps-sync: one of their mean): equal movement a sample.\n")
    print_grid([r for r in runs if r not in sums], SAME_MOVEMENT)


def print_averaging(runs):
    def cell(strategy, size):
        return select(runs, strategy=strategy, lr=size)
    whole = metric(cell("model-averaging:every=1", 0.01), "bytes_sent_per_rank_max")
    rows = []
    for every in PERIODS:
        mine = cell(f"model-averaging:every={every}", 0.01)
        if not mine:
            continue
        sent, due = metric(mine, "bytes_sent_total"), metric(mine, "bytes_predicted")
        per_rank = metric(mine, "bytes_sent_per_rank_max")
        rows.append([str(every), f"{per_rank:.0f}", "yes" if sent == due else f"NO: {due:.0f}",
                     f"{whole / per_rank:.2f}", accuracy(mine),
                     accuracy(cell(f"model-averaging:every={every}", 0.05)), accuracy(cell(f"bmuf:every={every}", 0.01)),
                     accuracy(cell(f"diloco:every={every}", 0.001))])
    for name in ("sync", "independent"):
        mine = cell(name, 0.01)
        rows.append([f"`{name}`", f"{metric(mine, 'bytes_sent_per_rank_max') or 0:.0f}", "yes" if metric(
            mine, "bytes_sent_total") == metric(mine, "bytes_predicted") else "NO", "-", accuracy(mine),
            accuracy(cell(name, 0.05)), "-", "-"])
    table(["H", "bytes a rank and step", "as forecast", "times fewer", "averaging, step size 0.01", "averaging, 0.05",
           "`bmuf`, 0.01", "`diloco`, adamw 0.001"], rows)


def print_batch(runs):
    rows = []
    for whole in BATCHES:
        mine = select(runs, batch=whole // 4, lr=0.005)
        if mine:
            rows.append([str(whole), f"{0.005 * whole / 64:g}", str(10 * (60000 // whole)),
                         accuracy(select(mine, warmup=0)), accuracy(select(mine, warmup=3))])
    lars = select(runs, optimizer="lars:eta=0.01")
    rows.append(["8192, LARS", "3", str(10 * (60000 // 8192)), accuracy(select(lars, warmup=0)),
                 accuracy(select(lars, warmup=3))])
    table(["global batch", "step size", "steps", "no warm-up", "3 epochs of warm-up"], rows)
    for r in select(runs, noise_scale=20):
        print(f"Gradient noise scale in the last epoch at batch 64: {r['metrics'].get('noise_scale_samples')} samples\n")


PRINTERS = {"stale": print_stale, "averaging": print_averaging, "batch": print_batch}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed and fewer points")
    parser.add_argument("--seeds", type=int, help="default 3; 1 with --quick")
    parser.add_argument("--only", default="stale,averaging,batch,table")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    parser.add_argument("--gradmeter", default=str(ROOT / "build/release/gradmeter"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results/strategies")
    parser.add_argument("--force", action="store_true", help="forget earlier runs")
    options = parser.parse_args()
    options.seeds = options.seeds or (1 if options.quick else 3)
    names = options.only.split(",")
    for name in names:
        if name not in (*EXPERIMENTS, "table"):
            parser.error(f"--only {name}: there are stale, averaging, batch, table")
    files = {name: options.out / f"{name}.jsonl" for name in names}
    if not options.tables:
        if not os.access(options.gradmeter, os.X_OK):
            parser.error(f"{options.gradmeter} is no program: build it, or name it by --gradmeter")
        options.out.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        if not options.tables:
            if options.force:
                file.unlink(missing_ok=True)
            run_table(options, file) if name == "table" else run(name, options, file)
        if not file.exists():
            continue
        print(f"## {name}\n")
        if name == "table":
            print(file.with_suffix(".txt").read_text(encoding="utf-8"))
        else:
            PRINTERS[name](load(file))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
