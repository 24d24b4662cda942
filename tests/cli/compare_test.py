# SPDX-License-Identifier: Apache-2.0
"""`gradmeter compare` over files of launches whose truth is known: verdicts, exit codes of a bar that fails closed, JUnit, CSV
whose numbers are scipy's, sides by a factor, a machine's history, and files that are torn, foreign or of a newer schema."""
import csv
import io
import json
import math
import random
import shlex
import xml.etree.ElementTree

import support

SIZES = (1024, 65536, 1048576)


def run_line(name, second, **changed):
    head = {"kind": "run", "schema": 2, "run_id": name, "time": f"2026-01-01T00:00:{second:02d}Z", "command": "made by a test",
            "version": "0.1", "commit": "c0", "hosts": ["n1"], "ranks": 4, "nodes": 1, "cpu": "a cpu", "mpi": "an MPI"}
    return json.dumps({**head, **changed})


def point_line(name, seconds, **factors):
    return json.dumps({"kind": "point", "run_id": name, "experiment": "allreduce", "status": "ok", "reason": "",
                       "factors": {"ranks": 4, **factors}, "metrics": {"time_s": seconds}})


def launches(path, times, first_second=0, step=2, algorithm="ring", **changed):
    """One run for each row of `times`, a point for each size."""
    lines = []
    for i, row in enumerate(times):
        name = f"{path.stem}-{algorithm}-{i}"
        lines.append(run_line(name, first_second + step * i, **changed))
        lines += [point_line(name, t, size_bytes=s, algorithm=algorithm) for s, t in zip(SIZES, row)]
    with open(path, "a", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    return path


def relaunched(text):
    """The same lines as other launches: one that is on both sides is refused."""
    return text.replace('"run_id": "', '"run_id": "again-')


def next_words(done):
    return shlex.split(next(line for line in done.out.splitlines() if line.startswith("next: ")).removeprefix("next: "))


def drawn(seed, factors, spread=0.01, count=5):
    draw = random.Random(seed)
    return [[f * 1e-3 * math.exp(draw.gauss(0, spread)) for f in factors] for _ in range(count)]


def verdicts(done):
    return {int(row["size_bytes"]): row["verdict"] for row in csv.DictReader(io.StringIO(done.out))}


def judges(test, a, b):
    done = test.run("compare", a, b, "--csv", "-")
    test.equal(verdicts(done), {1024: "slower", 65536: "same", 1048576: "faster"}, "each point has its verdict")
    back = test.run("compare", b, a, "--csv", "-")
    test.equal(verdicts(back), {1024: "faster", 65536: "same", 1048576: "slower"}, "and the opposite the other way round")
    shown = test.run("compare", a, b)
    test.check("3 points: 1 slower, 1 faster, 1 same" in shown.out, "the summary counts them", shown)
    test.check("µs" not in shown.out and "ms" in shown.out, "times have a unit that suits them", shown)
    test.check("drift" not in shown.out, "launches in turn have no remark on drift", shown)


def is_scipys(test, a, b):
    try:
        import numpy
        from scipy import stats
    except ImportError:
        print("note   scipy is not here: the formulas are not held against it")
        return
    done = test.run("compare", a, b, "--csv", "-")
    sides = [[p for p in support.points(f)] for f in (a, b)]
    for row in csv.DictReader(io.StringIO(done.out)):
        x, y = (numpy.log([p["metrics"]["time_s"] for p in side if p["factors"]["size_bytes"] == int(row["size_bytes"])])
                for side in sides)
        welch = stats.ttest_ind(x, y, equal_var=False)
        vx, vy = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
        degrees = (vx + vy) ** 2 / (vx**2 / (len(x) - 1) + vy**2 / (len(y) - 1))
        half = stats.t.ppf(0.975, degrees) * math.sqrt(vx + vy)
        centre = x.mean() - y.mean()
        wanted = [math.exp(centre), math.exp(centre - half), math.exp(centre + half), welch.pvalue]
        found = [float(row[k]) for k in ("ratio", "ci95_low", "ci95_high", "p")]
        test.check(numpy.allclose(found, wanted, rtol=1e-6), f"{row['size_bytes']} bytes: scipy's numbers", (found, wanted))


def says_it_to_programs(test, a, b):
    """The sentence below the tables is that of the finding."""
    told, path = test.run("compare", a, b), test.path("verdict.jsonl")
    done = test.run("compare", a, b, "--findings", "-")
    lines = [json.loads(line) for line in done.out.splitlines()]
    if test.equal([line["kind"] for line in lines], ["compared"], "--findings - has the verdict alone"):
        figures = lines[0]["figures"]
        test.check(lines[0]["sentence"] in told.out.splitlines(), "its sentence is the one that is printed", (lines[0], told.out))
        test.equal([figures[v]["value"] for v in ("slower", "faster", "same", "missing")], [1, 1, 1, 0], "its figures count the points")
        most = figures["most_slower"]
        test.check(most["low"] < most["value"] < most["high"] < 1, "and have the largest ratio with its interval", figures)
    test.run("compare", a, b, "--findings", path)
    test.equal(path.read_text(), done.out, "in a file it is the same, beside the tables")


def bars(test, a, b):
    junit = test.path("junit.xml")
    done = test.run("compare", a, b, "--fail-below", 0.95, "--junit", junit)
    test.check(done.code == 1 and len(done.own_lines) == 1, "a slower point is below the bar: 1, and one line", done)
    suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
    test.equal((suite.get("tests"), suite.get("failures")), ("3", "1"), "JUnit has the same")
    done = test.run("compare", a, b, "--fail-below", 0.95, "--where", "size_bytes=65536")
    test.check(done.code == 0, "a point of the same speed passes", done)
    few = launches(test.path("few.jsonl"), drawn(5, (1, 1, 1))[:1], 1)
    done = test.run("compare", a, few, "--fail-below", 0.5)
    test.check(done.code == 1 and "one launch" in done.err, "one launch decides nothing, so the bar is not met", done)
    lacking = test.path("lacking.jsonl")
    lacking.write_text("\n".join(line for line in relaunched(a.read_text()).splitlines() if '"size_bytes": 1024' not in line) + "\n")
    done = test.run("compare", a, lacking, "--fail-below", 0.5)
    test.check(done.code == 1 and "missing" in done.err, "a point that the second side lacks does not pass", done)


def attacks(test, a):
    """What would make a gate pass, or an interval narrow, without anything being as fast."""
    whole = launches(test.path("whole.jsonl"), drawn(6, (1, 1, 1)), 1)
    wrong = test.path("wrong.jsonl")
    lines = whole.read_text().splitlines()
    for i, status in ((1, "wrong"), (5, "mistrusted")):
        lines[i] = lines[i].replace('"status": "ok", "reason": ""', f'"status": "{status}", "reason": "elements differ"')
    wrong.write_text("\n".join(lines) + "\n")
    done = test.run("compare", a, whole, "--fail-below", 0.9)
    test.check(done.code == 0, "five right launches pass", done)
    done = test.run("compare", a, wrong, "--fail-below", 0.9)
    test.check(done.code == 1 and "wrong: elements differ" in done.err, "launches with a wrong result do not, though three others are fast", done)
    done = test.run("compare", wrong, a, "--fail-below", 0.9)
    test.check(done.code == 0, "a first side with such launches is held against by its others", done)
    for sides in ((a, a), (f"{a},{a}", whole), (a, f"{whole},{whole}")):
        done = test.run("compare", *sides)
        test.check(done.code == 2 and len(done.own_lines) == 1 and "twice" in done.err, "a launch that is named twice is refused", done)
    crowded = test.path("crowded.jsonl")
    crowded.write_text(whole.read_text().replace('"time_s":', '"oversubscribed": true, "time_s":'))
    done = test.run("compare", a, crowded)
    test.check("more busy threads than cores" in done.out, "crowded points are marked, and the mark explained", done)


def sides_by_factor(test):
    path = test.path("both.jsonl")
    launches(path, drawn(1, (1, 1, 1)), algorithm="ring")
    launches(path, drawn(2, (2, 1, 0.5)), algorithm="direct")
    done = test.run("compare", path, "--by", "algorithm", "--csv", "-")
    test.equal(verdicts(done), {1024: "slower", 65536: "same", 1048576: "faster"}, "--by algorithm holds direct against ring")
    done = test.run("compare", path, "--by", "algorithm", "--baseline", "direct", "--csv", "-")
    test.equal(verdicts(done)[1024], "faster", "--baseline direct the other way round")
    launches(test.path("newer.jsonl"), drawn(3, (1, 1, 1)), 40, algorithm="tree", mpi="a newer MPI")
    done = test.run("compare", path, test.path("newer.jsonl"), "--by", "algorithm", "--where", "size_bytes=65536")
    test.check("differs: MPI: an MPI to a newer MPI" in done.out and "drift" in done.out,
               "what else differs between the sides is said with --by, too", done)
    again = next_words(done)
    test.check(again[-1] == "--all" and test.run(*again[1:]).out.count("size_bytes=65536") == done.out.count("size_bytes=65536"),
               "the next command compares the same points in the same way", again)


def history(test):
    past = test.path("past")
    first = launches(test.path("first.jsonl"), drawn(1, (1, 1, 1)), 0)
    slow = launches(test.path("slow.jsonl"), drawn(2, (1.5, 1, 1)), 20, mpi="a newer MPI")
    good = launches(test.path("good.jsonl"), drawn(3, (1, 1, 1)), 40)
    gate = ("--history", past, "--fail-below", 0.9)
    done = test.run("compare", first, *gate)
    test.check(done.code == 0 and "first" in done.out, "the first result begins the history", done)
    done = test.run("compare", slow, *gate)
    test.check(done.code == 1 and "MPI: an MPI to a newer MPI" in done.out, "an update that slows a point is refused, with what changed", done)
    test.equal(len(list(past.iterdir())), 1, "and is not kept")
    test.check("drift" in done.out, "launches in two blocks are remarked on", done)
    done = test.run("compare", good, *gate)
    test.check(done.code == 0, "one as fast passes", done)
    test.equal(len(list(past.iterdir())), 2, "and is kept")
    other = launches(test.path("other.jsonl"), drawn(4, (9, 9, 9)), 50, hosts=["n2"])
    done = test.run("compare", other, *gate)
    test.check(done.code == 0 and "first" in done.out, "another machine has a past of its own", done)
    done = test.run("compare", good, *gate)
    again = test.run(*next_words(done)[1:])
    test.check(again.code == 0 and "drift" in again.out, "the next command compares with the history again", again)


def grown_file(test):
    """A nightly job appends its launches to one file; the history kept the first ones."""
    past, nightly = test.path("nights"), test.path("nightly.jsonl")
    gate = ("--history", past, "--fail-below", 0.9)
    kept = lambda: sum(line.startswith('{"kind": "run"') for f in past.iterdir() for line in f.read_text().splitlines())
    launches(nightly, drawn(1, (1, 1, 1)), 0)
    done = test.run("compare", nightly, *gate)
    test.check(done.code == 0 and kept() == 5, "the first night begins the history", done)
    done = test.run("compare", nightly, *gate)
    test.check(done.code == 1 and len(done.own_lines) == 1 and "nothing is compared" in done.err,
               "the same launches again have nothing to be compared with, and pass no bar", done)
    done = test.run("compare", nightly, "--history", past)
    test.check(done.code == 0 and "nothing is compared" in done.out, "without a bar that is said", done)
    before = nightly.read_text()
    launches(nightly, drawn(2, (1.5, 1, 1)), 20, algorithm="ring")
    nightly.write_text(before + nightly.read_text()[len(before):].replace("nightly-ring", "night-2"))
    done = test.run("compare", nightly, *gate)
    test.check(done.code == 1 and "below" in done.err and "(5 launches)" in done.out and kept() == 5,
               "appended launches are compared with those that were kept: a slower point is found", done)
    nightly.write_text(before)
    launches(nightly, drawn(3, (1, 1, 1)), 40)
    nightly.write_text(before + nightly.read_text()[len(before):].replace("nightly-ring", "night-3"))
    done = test.run("compare", nightly, *gate)
    test.check(done.code == 0 and len(list(past.iterdir())) == 1 and kept() == 10, "and others as fast pass, and are kept too", done)
    nightly.write_text("".join(line + "\n" for line in nightly.read_text().splitlines() if '"night-3' in line))
    launches(nightly, drawn(4, (1, 1, 1)), 50)
    nightly.write_text(nightly.read_text().replace('"nightly-ring', '"night-4'))
    done = test.run("compare", nightly, *gate)
    test.check(done.code == 0 and kept() == 20, "a file of old and new launches under another name loses none", (done, kept()))


def history_of_builds(test):
    """Launches of two builds are no replicates: the baseline is the newest build."""
    past = test.path("builds")
    past.mkdir()
    launches(past / "old.jsonl", drawn(1, (2, 2, 2)), 0, commit="c1")
    launches(past / "newer.jsonl", drawn(2, (1, 1, 1)), 20, commit="c2")
    now = launches(test.path("now.jsonl"), drawn(3, (1.5, 1, 1)), 40, commit="c3")
    done = test.run("compare", now, "--history", past, "--fail-below", 0.9)
    test.check(done.code == 1 and len(done.own_lines) == 1 and "below 0.9" in done.err and "commit" not in done.err,
               "a result is compared with the newest build that was kept", done)
    test.check("5 launches of other builds or conditions" in done.out, "and how many launches are left out is said", done)


def refusals(test, a):
    whole = relaunched(a.read_text()).splitlines()
    broken, newer, foreign = test.path("broken.jsonl"), test.path("newer.jsonl"), test.path("foreign.jsonl")
    broken.write_text("\n".join([*whole[:3], "{not json}", *whole[3:]]) + "\n")
    newer.write_text("\n".join(whole).replace('"schema": 2', '"schema": 3') + "\n")
    foreign.write_text("# nccl-tests\n 8 2 float\n")
    for path, line in ((broken, 4), (newer, 1), (foreign, 1)):
        done = test.run("compare", a, path)
        test.check(done.code == 2 and len(done.own_lines) == 1 and f"{path.name}:{line}:" in done.err,
                   f"{path.name}: one line with file and line number, and 2", done)
    for path in (broken, newer):
        done = test.run("compare", a, path, "--lenient", "--csv", "-")
        test.check(done.code == 0 and len(verdicts(done)) == 3, f"{path.name} --lenient: what can be read is used", done)
    done = test.run("compare", a, broken, "--lenient")
    test.check("left out:" in done.err and "broken.jsonl:4" in done.err, "and what was left out is said", done)
    done = test.run("compare", a, foreign, "--lenient")
    test.check(done.code == 2 and len(done.own_lines) == 1, "a file without any run is refused also then", done)
    for arguments in ((), (a,), (a, a, "--by", "nonsense"), (a, "--by", "ranks"), (a, a, "--metric", "blocks"),
                      (a, a, "--junit", "x"), (a, test.path("none.jsonl")), (a, a, "--where", "size_bytes")):
        done = test.run("compare", *arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1, f"compare {' '.join(map(str, arguments[1:]))} is refused in one line", done)


def keeps_files(test, a, b):
    """No output of a command that reads results takes the place of measurements."""
    other = launches(test.path("other.jsonl"), drawn(3, (1, 1, 1)), 3)
    before = {file: file.read_bytes() for file in (a, other)}
    for command in (("report", a, "--csv"), ("report", a, "--markdown"), ("report", a, "--findings"), ("report", a, "--out"),
                    ("compare", a, b, "--csv"), ("compare", a, b, "--findings"), ("compare", a, b, "--fail-below", "0.1", "--junit")):
        for file in (a, other):
            done = test.run(*command, file)
            test.check(done.code == 2 and len(done.own_lines) == 1 and "another name" in done.err and file.read_bytes() == before[file],
                       f"{command[0]} {command[-1]} {file.name} is refused in one line", done)
    twice = test.path("twice.csv")
    for _ in range(2):
        done = test.run("report", a, "--csv", twice)
        test.check(done.code == 0, "what was written before is written anew", done)


def names_of_files(test, a, b):
    """A path may have what parts lists and parameters."""
    folder = test.path("lr=0.1,batch=4")
    folder.mkdir()
    for name, file in (("a=1.jsonl", a), ("b,2.jsonl", b)):
        (folder / name).write_bytes(file.read_bytes())
    done = test.run("compare", folder / "a=1.jsonl", folder / "b,2.jsonl", "--csv", "-")
    test.equal(verdicts(done), {1024: "slower", 65536: "same", 1048576: "faster"}, "files with = and commas in their names are read")
    done = test.run("report", folder, "--csv", "-")
    test.check(done.code == 0, "and so is a folder", done)
    plain = test.path("k=1.jsonl")
    plain.write_bytes(a.read_bytes())
    done = test.run("report", f"{plain},{b}", "--csv", "-")
    test.check(done.code == 0, "lists of them are parted at their commas", done)


def body(test):
    a = launches(test.path("a.jsonl"), drawn(1, (1, 1, 1)), 0)
    b = launches(test.path("b.jsonl"), drawn(2, (1.3, 1, 0.7)), 1)
    judges(test, a, b)
    is_scipys(test, a, b)
    says_it_to_programs(test, a, b)
    bars(test, a, b)
    attacks(test, a)
    sides_by_factor(test)
    history(test)
    grown_file(test)
    history_of_builds(test)
    refusals(test, a)
    keeps_files(test, a, b)
    names_of_files(test, a, b)


if __name__ == "__main__":  # launches of known truth are drawn elsewhere too
    support.main(__doc__, body)
