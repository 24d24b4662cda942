# SPDX-License-Identifier: Apache-2.0
"""Labels and paths with blanks: the next command has them as words of a shell, and rows of different labels are different points."""
import json
import shlex
import subprocess

import support

MEASURE = ("allreduce", "--sizes", "1K", "--algorithm", "ring", "--min-samples", "5", "--thread-ranks", "2")


def next_of(done):
    return shlex.split(next(line for line in done.out.splitlines() if line.startswith("next: ")).removeprefix("next: "))


def commands(test):
    out = test.path("my results.jsonl")
    arguments = (*MEASURE, "--interconnect", "it's $HOME; ls", "--out", out)
    done = test.run(*arguments)
    if not test.check(done.code == 0, "a label and a path with blanks", done):
        return None
    run, = support.runs(out)
    test.equal(shlex.split(run["command"])[1:], [str(a) for a in arguments], "the recorded command makes the same words")
    following = next_of(done)
    test.check(str(out) in following or "doctor" in following, "the next command has the path as one word", following)
    if following[0] == "gradmeter":
        again = subprocess.run([test.gradmeter, *following[1:]], cwd=test.folder, capture_output=True, text=True, check=False)
        test.check(again.returncode == 0, "and works", again.stderr)
    other = test.path("other side.jsonl")
    other.write_text(out.read_text().replace('"run_id":"', '"run_id":"2'))
    following = next_of(test.run("compare", out, other))
    test.equal(following[following.index("--interconnect") + 1:][:3:2], ["it's $HOME; ls", str(out)], "compare's next command too")
    logs = [test.path("my log.txt"), test.path("its log.txt")]
    imported = [log.with_suffix(".jsonl") for log in logs]
    for log, result in zip(logs, imported):
        log.write_text((test.source / "tests/importers/logs/osu_latency.txt").read_text())
        test.run("import", log, "--out", result)
    test.equal(next_of(test.run("compare", *imported)), ["gradmeter", "compare", *map(str, imported), "--all"], "and where it names its files")
    return out


def identities(test, out):
    """The label "x model=m" is not the label x and the model m."""
    def with_factors(path, run_id, **factors):
        lines = support.read_lines(out)
        for line in lines:
            line["run_id"] = run_id
            if line["kind"] == "point":
                line["factors"].update(factors)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path
    one = with_factors(test.path("one.jsonl"), "1", interconnect="x model=m")
    two = with_factors(test.path("two.jsonl"), "2", interconnect="x", model="m")
    done = test.run("compare", one, two, "--all")
    test.check(done.code == 2 and "no point in common" in done.err, "compare does not join them", done)
    both = test.path("both.jsonl")
    both.write_text(one.read_text() + two.read_text())
    done = test.run("report", both, "--findings", "-", "--csv", test.path("both.csv"))
    test.check(done.code == 0 and len(test.path("both.csv").read_text().splitlines()) == 5, "report does not merge them as launches", done)
    done = test.run("report", both, "--markdown", "-")
    test.equal(len([line for line in done.out.splitlines() if line.startswith("| x")]), 4, "nor in its tables")
    done = test.run(*MEASURE, "--interconnect", "x model=m", "--out", two, "--resume=any")
    test.check("0 kept" in done.out, "--resume keeps no row of another label", done)


def body(test):
    out = commands(test)
    if out:
        identities(test, out)


support.main(__doc__, body)
