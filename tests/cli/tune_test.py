# SPDX-License-Identifier: Apache-2.0
"""--tune-auto measures a table for auto and keeps it in the user's cache. A later run takes it only if it says --tune-auto
too; rows of different tables are different rows; a damaged file is measured again."""
import json

import support

SWEEP = ("allreduce", "--sizes", "1K,16K", "--algorithm", "auto", "--in-place", "in", "-n", "7", "-w", "2")


def cache(test, name):
    return {"XDG_CACHE_HOME": str(test.path(name))}


def kept(test, name):
    return sorted(test.path(name).glob("gradmeter/*"))


def hashes(path):
    return [p["factors"]["tuned_table"] for p in support.points(path)]


def tuned(test, env, *more, **how):
    return test.run(*SWEEP, "--tune-auto", "2s", *more, ranks=2, env=env, **how)


def a_table_is_kept(test):
    env, out, again = cache(test, "kept"), test.path("first.jsonl"), test.path("again.jsonl")
    done = tuned(test, env, "--out", out)
    files = kept(test, "kept")
    test.check(done.code == 0 and "gradmeter: tuned table " in done.err and "Unable to locate" not in done.err,
               "a run measures its table, and mpirun does not take the flag for its own", done)
    test.check(len(files) == 1 and files[0].name.startswith("auto-2x2-shm-") and files[0].suffix == ".json",
               "one file is kept, and no part of one", files)
    text = files[0].read_text(encoding="utf-8")
    content = json.loads(text)
    test.check(content["version"] == 1 and "Open MPI" in content["made_for"] and len(content["tables"]) == 1
               and content["tables"][0]["in_place"] and content["tables"][0]["table"].startswith("0-"), "with a table", text)
    test.check(all(h and h in done.err for h in hashes(out)) and len(hashes(out)) == 2, "rows have the table's hash", hashes(out))
    test.valid(out)
    done = tuned(test, env, "--out", again)
    test.check(done.code == 0 and f"auto has its tables of {files[0]}, which fit" in done.err
               and files[0].read_text(encoding="utf-8") == text, "a later run takes the kept table", done)
    test.equal(hashes(again), hashes(out), "with the same hash")
    done = test.run(*SWEEP, "--out", test.path("without.jsonl"), ranks=2, env=env)
    test.check(done.code == 0 and "tuned" not in done.err, "a run without the flag says nothing of it", done)
    test.equal(hashes(test.path("without.jsonl")), [None, None], "and does not use it")
    old = test.path("without.jsonl")
    old.write_text(old.read_text(encoding="utf-8").replace(',"tuned_table":null', ""), encoding="utf-8")
    done = test.run(*SWEEP, "--out", old, "--resume", ranks=2, env=env)
    test.check("tuned_table" not in old.read_text(encoding="utf-8") and "0 points measured, 2 kept" in done.out,
               "rows of a file from before the factor are kept", done)
    done = test.run(*SWEEP, "--tune-auto", "3s", ranks=2, env=env)
    test.check(done.code == 0 and "which fit" not in done.err and files[0].read_text(encoding="utf-8") != text,
               "a table that was given less time does not fit", done)


def check_value(content):
    """What the program writes under "check": its hash of everything before, in 16 hexadecimal digits."""
    data, mask, odd, h = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(), 2**64 - 1, 0x9E3779B97F4A7C15, [1, 2, 3, 4]
    padded = data + bytes(32 - len(data) % 32)
    for at in range(0, len(padded), 8):
        lane = at // 8 % 4
        h[lane] = (h[lane] ^ int.from_bytes(padded[at:at + 8], "little")) * odd & mask
        h[lane] ^= h[lane] >> 29
    out = len(data)
    for x in h:
        out = (out ^ x) * odd & mask
        out ^= out >> 32
    return f"{out:016x}"


def rewrite(path, change):
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["check"]
    change(content)
    path.write_text(json.dumps({**content, "check": check_value(content)}), encoding="utf-8")


def resumes_by_hash(test):
    """The second table is made up: its ranges end where those of no measured table do, so it cannot be the same by luck."""
    env, out = cache(test, "resume"), test.path("resume.jsonl")
    done = tuned(test, env, "--out", out)
    first = hashes(out)
    done = tuned(test, env, "--out", out, "--resume")
    test.check(done.code == 0 and "0 points measured, 2 kept" in done.out, "--resume keeps rows of the same table", done)
    (path,) = kept(test, "resume")
    rewrite(path, lambda content: content["tables"][0].update(table="0-3000:ring,3000-:direct"))
    done = tuned(test, env, "--out", out, "--resume")
    both = hashes(out)
    test.check(done.code == 0 and "2 points measured, 0 kept" in done.out and "warning" not in done.err,
               "--resume measures again with another table", done)
    test.check(len(both) == 4 and both[:2] == first and len(set(both)) == 2 and both[2] == both[3],
               "whose rows have another hash", both)
    rows = support.points(out)[2:]
    test.check(all(p["factors"]["algorithm"] == "auto" for p in rows) and "by direct" in done.out and "by ring" in done.out,
               "auto chooses by that table", done)
    other = test.path("other.jsonl")
    done = tuned(test, env, "--out", other)
    done = test.run("compare", test.path("first.jsonl"), other)
    test.check(done.code == 2 and len(done.own_lines) == 1, "compare finds no common point in rows of two tables", done)


def damaged(test):
    env = cache(test, "damaged")
    tuned(test, env)
    (path,) = kept(test, "damaged")
    whole = path.read_text(encoding="utf-8")
    for what, text in (("cut off", whole[: len(whole) // 2]), ("changed", whole.replace('"ranks": 2', '"ranks": 3')),
                       ("of another machine", None)):
        path.write_text(text or whole, encoding="utf-8")
        if text is None:
            rewrite(path, lambda content: content.update(made_for="another"))
        done = tuned(test, env)
        warnings = [line for line in done.err.splitlines() if line.startswith("gradmeter: warning:")]
        test.check(done.code == 0 and len(warnings) == 1 and str(path) in warnings[0] and "measures again" in warnings[0],
                   f"a file that is {what} is measured again, with one warning", done)
        test.check(json.loads(path.read_text(encoding="utf-8"))["made_for"] != "another", "and replaced")


def unwritable(test):
    file = test.path("a-file")
    file.write_text("", encoding="utf-8")
    done = tuned(test, {"XDG_CACHE_HOME": str(file)})
    warnings = [line for line in done.err.splitlines() if line.startswith("gradmeter: warning:")]
    test.check(done.code == 0 and len(warnings) == 1 and "cannot be kept" in warnings[0],
               "where nothing can be written the run goes on, with one warning", done)


def refusals(test):
    for flags, words in ((("--tune-auto", "2s", "--algorithm", "mpi"), "add auto"), (("--tune-auto", "x"), "--tune-auto"),
                         (("--tune-auto", "0s"), "too short")):
        done = test.run("allreduce", "--sizes", "8", *flags, ranks=2, threads=True)
        test.check(done.code == 2 and len(done.own_lines) == 1 and words in done.own_lines[0], f"refused: {' '.join(flags)}", done)


def trains(test):
    env, out = cache(test, "train"), test.path("train.jsonl")
    done = test.run("train", "--algorithm", "auto", "--tune-auto", "1s", "--steps", "3", "--train-samples", "1000",
                    "--validation-samples", "100", "--out", out, ranks=2, env=env)
    test.check(done.code == 0 and all(hashes(out)), "train takes a tuned table", done)
    out = test.path("scale.jsonl")
    done = test.run("scale", "--model", "mlp:784-16-10", "--algorithm", "auto", "--tune-auto", "1s", "--ranks", "2,3", "--batch", "8", "--time-budget", "3s",
                    "--out", out, ranks=3, env=env, threads=True, timeout=120)
    rows = [p["factors"] for p in support.points(out)]
    exchanging = [f for f in rows if f["algorithm"] == "auto"]
    test.check(done.code == 0 and {f["ranks"] for f in exchanging if f["tuned_table"]} == {2, 3},
               "scale has a table for each number of ranks", done)
    test.check(not any(f["tuned_table"] for f in rows if f["algorithm"] != "auto"), "and none for rows that exchange nothing")


def body(test):
    a_table_is_kept(test)
    resumes_by_hash(test)
    damaged(test)
    unwritable(test)
    refusals(test)
    trains(test)


support.main(__doc__, body)
