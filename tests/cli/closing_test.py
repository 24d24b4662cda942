# SPDX-License-Identifier: Apache-2.0
"""What commands say below their tables: five questions, each answered by one command in a sentence that is held against the
rows of its file; how many points were measured, unsupported, skipped; and a next command that works."""
import csv
import io
import json
import re
import shlex
import subprocess

import support
from compare_test import drawn, launches


def closing(done):
    """The sentences, and the command behind "next: "."""
    lines = done.out.splitlines()
    at = [i for i, line in enumerate(lines) if line.startswith("next: ")]
    if len(at) != 1:
        return [], ""
    begin = max((i for i in range(at[0]) if not lines[i]), default=-1) + 1
    return lines[begin:at[0]], lines[at[0]].removeprefix("next: ")


def says(test, done, what, most=3):
    sentences, following = closing(done)
    good = 0 < len(sentences) <= most and following and all(s.endswith(".") for s in sentences)
    test.check(done.code == 0 and good, f"{what}: sentences and a next command", done)
    return " ".join(sentences), following


def works(test, following, what):
    """As it stands, in the test's folder; a plan in place of what takes long, and one launch in place of several."""
    words = shlex.split(following)
    if words[0] == "scripts/launches.sh":
        words[:2] = [str(test.source / words[0]), "1"]
    program = words.index("gradmeter")
    plans = words[program + 1] in ("scale", "allreduce", "kernels", "infer", "links")
    words[program] = test.gradmeter
    if "mpirun" in words:
        words[words.index("mpirun")] = test.mpiexec
    done = subprocess.run(words + (["--dry-run"] if plans else []), cwd=test.folder, env=test.environment(),
                          capture_output=True, text=True, timeout=90, check=False)
    test.check(done.returncode == 0, f"{what}: the next command works", f"$ {following}\n{done.stdout[-2000:]}{done.stderr}")


def counts(test, done, rows, what):
    by_status = {s: sum(r["status"] == s for r in rows) for s in ("unsupported", "skipped", "failed", "wrong", "mistrusted")}
    wanted = f"{sum(r['status'] == 'ok' for r in rows)} points measured, 0 kept"
    wanted += "".join(f", {n} {s}" for s, n in by_status.items() if n)
    test.check(f"\n{wanted}; " in done.out, f"{what}: what was not measured is not counted as measured: {wanted}", done)


def median(row):
    return row["metrics"]["time_s"]["median"]


def in_text(seconds):
    """As texts have it: three digits."""
    value, unit = (1e3 * seconds, "ms") if seconds >= 1e-3 else (1e6 * seconds, "µs")
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}" if value >= 9.995 else f"{value:.2f} {unit}"


def which_all_reduce(test):
    out = test.path("all.jsonl")
    done = test.run("allreduce", "-b", "1M", "-e", "1M", "--algorithm", "ring,swing,rabenseifner,gloo,mpi", "--time-budget", "2s",
                    "--out", out, ranks=2, timeout=120)
    text, following = says(test, done, "which all-reduce")
    rows = support.points(out)
    counts(test, done, rows, "which all-reduce")
    test.check(any(r["status"] == "unsupported" for r in rows), "MPI's own is unsupported between threads")
    for place, is_in in (("in place", True), ("out of place", False)):
        timed = [r for r in rows if r["status"] == "ok" and r["factors"]["in_place"] is is_in]
        best = min(timed, key=median)
        name, own = best["factors"]["algorithm"].split(":")[0], in_text(median(best))
        sentence = next((s for s in closing(done)[0] if f", {place}:" in s), "")
        test.check(re.search(rf": {name}\S* (takes|is the fastest with) {re.escape(own)}", sentence),
                   f"the fastest {place} is the file's, {name} with {own}", sentence)
        for vendor in (r for r in timed if r["factors"]["algorithm"].startswith("gloo")):
            test.check(vendor is best or f"takes {in_text(median(vendor))}" in sentence, f"with the vendor's time {place}", sentence)
        row = next((line.split() for line in done.out.splitlines() if line.split()[:2] == ["1048576", "in" if is_in else "out"]), [])
        test.check(row[2:3] and row[2].startswith(name) and abs(float(row[3]) / (1e6 * median(best)) - 1) < 0.01,
                   f"the table of winners has it {place}", (row, name))
    works(test, following, "which all-reduce")


CAUSES = {"memory": "slow each other down", "cores": "share cores", "straggle": "computes longer", "interference": "the exchange makes slower",
          "wait": "waiting for other ranks", "wire": "the transfer itself", "other": "does not do"}


def how_much_is_lost(test):
    # One run has one cause, so that the words of the others are held against the source.
    named = dict(re.findall(r'{"(\w+)", "([^"]+)"}', (test.source / "src/analysis/sentences/step.cpp").read_text()))
    test.equal({cause: cause in named and words in named[cause] for cause, words in CAUSES.items()}, dict.fromkeys(CAUSES, True),
               "each cause has the words that the test expects")
    out = test.path("lost.jsonl")
    done = test.run("scale", "--batch", "32", "--ranks", "1,2", "--algorithm", "ring", "--time-budget", "4s", "--out", out, ranks=2,
                    timeout=120)
    text, following = says(test, done, "how much is lost")
    rows = support.points(out)
    counts(test, done, rows, "how much is lost")
    # Where other programs took the cores, what is lost without any exchange is the finding.
    strategy = "independent" if ", no exchange:" in text else "sync"
    row, = (r for r in rows if r["factors"]["ranks"] == 2 and r["factors"]["strategy"] == strategy)
    m = row["metrics"]
    test.check("2 ranks" in text, "the sentence is of two ranks", text)
    lost = re.search(r"(\d+) % \((\d+)–(\d+) %\) of the speed is lost, (.*)", text)
    if lost:
        test.check(abs(int(lost[1]) - 100 * (1 - m["efficiency"])) <= 1, "the loss is what the row's efficiency lacks", (text, m["efficiency"]))
        test.check(CAUSES.get(m["bound_by"], "undecided") in lost[4], "its cause is the row's", (text, m["bound_by"]))
    elif "efficiency is" in text:
        shown = int(re.search(r"efficiency is (\d+) %", text)[1])
        test.check(abs(shown - 100 * m["efficiency"]) <= 1, "the efficiency is the row's", (text, m["efficiency"]))
    else:  # beside other programs a row may have no interval, or be faster than one rank alone
        test.check(row["status"] != "ok" or m.get("efficiency_ci95_low") is None or m["efficiency_ci95_low"] > 1.05,
                   "nothing is concluded only from a row that cannot be trusted", (text, m))
    works(test, following, "how much is lost")


def is_a_codec_worth_it(test):
    out = test.path("codecs.jsonl")
    done = test.run("codecs", "--codec", "bf16,qsgd4", "--size", "4M", "--link", "1Gbit", "--time-budget", "3s", "--out", out)
    text, following = says(test, done, "is bf16 or 4-bit worth it")
    test.check("against the dense exchange in fp32 between 8 ranks" in done.out, "the table says against what", done)
    gains = {}
    for row in support.points(out):
        m = row["metrics"]
        wire, crossover = m["wire_bits"], m["crossover_bytes_per_s"]
        name = row["factors"]["codec"].split(":")[0]
        test.check(crossover > 0, f"{name} pays below some link: fp32 has more bits than it", m)
        gains[name] = 32 / (wire + (32 - wire) * 1e9 / 8 / crossover)
    for name, words in (("bf16", "bf16"), ("qsgd4", "4-bit gradients")):
        test.check(re.search(rf"× {gains[name]:.2f} \([\d.–]+\) with {words}", text), f"{name}: the gain is the formula's", (text, gains))
    test.check("On a link of 1 Gbit/s" in text and "most is won with 4-bit gradients" in text, "and 4-bit gradients win there", text)
    works(test, following, "is bf16 or 4-bit worth it")
    dense = test.run("codecs", "--codec", "bf16", "--size", "1M", "--baseline", "bf16", "--link", "1Gbit", "--time-budget", "1s")
    test.check("never" in dense.out and "saves no bits" in dense.out and "in bf16 between" in dense.out,
               "against an exchange in bf16 bf16 saves nothing, and that is said", dense)


def is_a_node_slow(test):
    out = test.path("links.jsonl")
    done = test.run("links", "--pattern", "one-way", "--time-budget", "2s", "--out", out, ranks=4, timeout=120)
    text, following = says(test, done, "is a node slow")
    quiet = "no link and no host stands out" in done.out
    named = "usual" in text or "the other way" in text  # by itself, or beside its own other direction
    test.check(quiet != named, "a link is named only where one stands out in the matrix", done)
    works(test, following, "is a node slow")
    done = test.run("links", "--pattern", "one-way", "--time-budget", "3s", "--inject", "slow:rank=2,factor=6", ranks=4, timeout=120)
    text, following = says(test, done, "a slowed rank")
    test.check("rank 2" in text.lower() and "usual" in text, "the slowed rank is named", done)


def did_settings_make_it_slower(test):
    times = (1, 1, 1), (1.3, 1, 1)
    old, new = (launches(test.path(f"{name}.jsonl"), drawn(seed, factors), first) for name, seed, factors, first in
                (("old", 1, times[0], 0), ("new", 2, times[1], 1)))
    done = test.run("compare", old, new)
    text, following = says(test, done, "did the settings make anything slower")
    test.check("slower at 1 of 3 points" in text and "size_bytes=1024" in text, "what is slower is named", text)
    row = next(line.split() for line in done.out.splitlines() if line.startswith("1024 "))
    first, second, ratio = map(float, row[1:4])
    test.check(abs(first / second - ratio) < 0.01, "the ratio is the quotient of the figures beside it", row)
    test.check(f"{row[2]} instead of {row[1]} ms" in text and f"× {ratio:.2f}" in text, "and the sentence has the same figures", (text, row))
    works(test, following, "did the settings make anything slower")
    same = launches(test.path("same.jsonl"), drawn(3, (1, 1, 1)), 1)
    text, following = says(test, test.run("compare", old, same), "the same settings")
    test.check("No difference is shown" in text and "3 of 3 points the same" in text, "and no difference where there is none", text)
    works(test, following, "the same settings")


def others(test):
    small = ["--epochs", "1", "--train-samples", "640", "--validation-samples", "100"]
    trace = test.source / "tests/importers/logs/kineto_gloo.json"
    for what, arguments in (("infer", ["infer", "--batch", "1", "--precision", "fp32,bf16", "--time-budget", "2s", *small]),
                            ("kernels", ["kernels", "--shape", "gemm:m=64,n=64,k=64", "--precision", "fp32,bf16", "--time-budget", "2s"]),
                            ("train", ["train", "--steps", "5", *small[2:]]), ("replay", ["replay", trace, "--seconds", "0.5"])):
        _, following = says(test, test.run(*arguments, ranks=2, timeout=120), what)
        works(test, following, what)
    errors = test.run("codecs", "--codec", "qsgd8", "--exchange", "ring", "--ranks", "2", "--size", "64K")
    text, following = says(test, errors, "errors of exchanges")
    test.check("No difference is shown" in text, "where nothing is concluded, that is said", text)
    works(test, following, "errors of exchanges")
    for what, arguments in (("allreduce", ["-b", "1K", "-e", "1K", "--algorithm", "ring", "--time-budget", "1s"]),
                            ("scale", ["--model", "mlp:784-16-10", "--batch", "8,16", "--ranks", "2", "--algorithm", "ring", "--time-budget", "2s"]),
                            ("train", ["--steps", "5", *small[2:]]), ("replay", [trace, "--seconds", "0.5"])):
        as_csv, as_json = (test.run(what, *arguments, form, ranks=2, timeout=120) for form in ("--csv", "--json"))
        for done in (as_csv, as_json):
            test.check(done.code == 0 and "next:" not in done.out, f"{what}: rows and no sentences", done)
        rows = [json.loads(line) for line in as_json.out.splitlines()]
        table = list(csv.DictReader(io.StringIO(as_csv.out)))
        test.equal([r["kind"] for r in rows], ["run"] + ["point"] * len(table), f"{what}: a line of JSON for the run and each row of CSV")
        same = [key for key in ("model", "batch_per_rank", "strategy", "algorithm", "problem", "step") if key in table[0]]
        test.check(len(same) > 0 and all(row["status"] == "ok" and "ranks" in row for row in table), f"{what}: rows say what they are of", as_csv)
        told = [[str({**r["factors"], **r["metrics"]}.get(key)).replace("None", "") for key in same] for r in rows[1:]]
        test.equal([[row[key] for key in same] for row in table], told, f"{what}: CSV and JSON have the same points")


def body(test):
    for part in (which_all_reduce, how_much_is_lost, is_a_codec_worth_it, is_a_node_slow, did_settings_make_it_slower, others):
        part(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
