# SPDX-License-Identifier: Apache-2.0
"""Where standard error is a pipe or a log, a person sees each point there as it is measured, and standard output has
results only. A run that is interrupted says what is kept and how it goes on."""
import re
import signal
import time

import support

LINE = re.compile(r"\[(\d+)/(\d+)\] (.+)")
TINY = {
    "allreduce": ("-b", "1K", "-e", "4K", "-f", "4", "--algorithm", "ring,direct", "-n", "5"),
    "scale": ("--model", "mlp:784-16-10", "--batch", "4,8", "--transport", "shm", "--strategy", "sync", "--algorithm", "ring",
              "--time-budget", "2s"),
    "links": ("--time-budget", "1s"),
    "codecs": ("--codec", "bf16,qsgd4", "--size", "4K", "--time-budget", "1s"),
}
LONG = ("allreduce", "-b", "8", "-e", "64K", "--algorithm", "ring,direct", "--time-budget", "40s")


def on_ranks(command, *arguments):
    return (command, *arguments, *(() if command == "codecs" else ("--thread-ranks", "2")))


def each_point(test):
    for command, arguments in TINY.items():
        for style in ((), ("--csv",)):
            done = test.run(*on_ranks(command, *arguments), *style)
            said = [match.groups() for line in done.err.splitlines() if (match := LINE.fullmatch(line))]
            counts = [int(count) for count, _, _ in said]
            total = int(said[-1][1]) if said else 0
            # A line that says what is measured next, where that is slow, has the count of the line before.
            points = [text for before, (count, _, text) in zip(counts, said[1:]) if int(count) > before]
            test.check(done.code == 0 and total > 0 and counts == sorted(counts) and set(counts) == set(range(total + 1)),
                       f"{command} {' '.join(style)}: a line of standard error when it begins, and for each point", done)
            test.check(len(points) == total and all(re.search(r": [\d.]+ (ns|µs|ms|s)\b", text) for text in points),
                       f"{command}: each with its time", done)
            test.check(not re.search(r"(?m)^\[\d+", done.out), f"{command} {' '.join(style)}: none on standard output", done)


def as_measured(test):
    """Lines of a run that is not over yet are in its file."""
    file = test.path("under_way.jsonl")
    with test.started(*on_ranks(*LONG), "--out", file) as job:
        support.wait_until(lambda: len(support.points(file)) >= 2 or job.process.poll() is not None, 60)
        job.process.send_signal(signal.SIGINT)
        done = job.wait(30)
    kept = len(support.points(file))
    said = re.findall(r"(?m)^\[(\d+)/(\d+)\]", done.err)
    test.equal(done.code, 130, "an interrupt ends the run with 130")
    test.check(said and int(said[-1][0]) == kept < int(said[-1][1]), f"the {kept} points that are in the file were said", done)
    wanted = f"gradmeter: interrupted; {kept} of {said[-1][1] if said else '?'} points are in {file}; go on with --resume"
    test.equal(done.own_lines, [wanted], "and what is kept, and how it goes on")


def without_file(test):
    with test.started(*on_ranks(*LONG)) as job:
        time.sleep(2)
        job.process.send_signal(signal.SIGINT)
        done = job.wait(30)
    test.check(done.code == 130 and len(done.own_lines) == 1 and "nothing was kept" in done.own_lines[0] and "--resume" not in done.err,
               "without --out it says that nothing was kept", done)


def body(test):
    each_point(test)
    as_measured(test)
    without_file(test)


support.main(__doc__, body)
