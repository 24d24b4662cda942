# SPDX-License-Identifier: Apache-2.0
"""A time budget is the wall time of the whole launch, from the start of the process to its end. Where it cannot be kept,
one line says so before the first point, and with --strict the launch ends there with 2."""
import re
import time

import support

LINE = re.compile(r"gradmeter: a time budget of 1\.00 s cannot be kept: it needs at least ([\d.]+) (ms|s|min|h) \(.+\)")
# None of these can be had in a second.
TOO_MUCH = {
    "scale": ("--model", "vgg16", "--shrink", "8", "--batch", "1", "--strategy", "sync", "--thread-ranks", "2"),
    "allreduce": ("-b", "8", "-e", "64K", "-f", "2", "--algorithm", "ring,direct,swing,bcube", "--thread-ranks", "2"),
    "infer": ("--model", "mlp", "--batch", "1", "--epochs", "20"),
}
SAID = re.compile(r"(?:it needs at least|the run takes) ([\d.]+) (ms|s|min|h)\b")
SECONDS = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600}
# Preparing and checking these takes a good part of the time. The share that samples had was all of it once.
KEPT = {
    "allreduce": ("-b", "1M", "-e", "4M", "-f", "2", "--algorithm", "ring,direct", "--thread-ranks", "2"),
    "scale": ("--model", "mlp:784-128-10", "--batch", "16,64", "--strategy", "sync,ps-async,model-averaging", "--thread-ranks", "2"),
}


def refused(test):
    for command, arguments in TOO_MUCH.items():
        done = test.run(command, *arguments, "--time-budget", "1s", "--strict")
        test.check(done.code == 2 and not done.own_lines and len(done.unkept_budgets) == 1 and LINE.fullmatch(done.unkept_budgets[0]),
                   f"{command}: --strict refuses a budget that cannot be kept, in one line", done)
        test.check(not re.search(r"(?m)^\[[1-9]", done.err), f"{command}: before the first point", done)


def said(test):
    done = test.run("allreduce", *TOO_MUCH["allreduce"], "--time-budget", "1s")
    lines = done.err.splitlines()
    told = [(i, SAID.search(line)) for i, line in enumerate(lines) if line.startswith("gradmeter:")]
    first = next((i for i, line in enumerate(lines) if line.startswith("[1/")), 0)
    test.check(done.code == 0 and told and all(match for _, match in told) and told[0][0] < first,
               "without --strict it is said before the first point, and everything is measured", done)
    seconds = [float(match[1]) * SECONDS[match[2]] for _, match in told if match]
    test.check(all(later >= 1.4 * before for before, later in zip(seconds, seconds[1:])),
               f"it is said again where the run takes half as long again: {seconds}", done)


def half_is_left(test):
    """Of a budget that the roofline takes, the points have half."""
    done = test.run("kernels", "--shape", "gemm:m=8,n=8,k=8", "--time-budget", "500ms")
    test.check(done.code == 0 and "1 skipped" not in done.out and "skipped" not in done.err, "kernels measures a point in half a second",
               done)


def kept(test):
    budget = 5
    for command, arguments in KEPT.items():
        begin = time.monotonic()
        done = test.run(command, *arguments, "--time-budget", f"{budget}s", timeout=120)
        took = time.monotonic() - begin
        warned = "cannot be kept" in done.err
        test.check(done.code == 0 and (warned or took <= 1.25 * budget + 2), f"{command}: {took:.1f} s of {budget} s", done)


def body(test):
    refused(test)
    said(test)
    half_is_left(test)
    kept(test)


support.main(__doc__, body)
