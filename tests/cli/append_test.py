# SPDX-License-Identifier: Apache-2.0
"""Runs that share a file: --append adds one, --force replaces all. A file that one rank lacks is told once. The other
factors of a sweep: weak and strong scaling, cadence, overlap, bucket, transport."""
import hashlib
import re
import struct

import support

SMALL = ["--model", "mlp:784-64-10"]


def values(points, factor):
    return {p["factors"][factor] for p in points}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sharing_a_file(test):
    out = test.path("shared.jsonl")
    sweep = ["scale", *SMALL, "--batch", "16", "--ranks", "1,2", "--algorithm", "ring", "--time-budget", "1s",
             "--precision-goal", "0.5", "--out", out]
    first = test.run(*sweep, ranks=2, threads=True)
    test.check(first.code == 0, "a first run makes the file", first)
    before = support.whole_lines(out)
    added = test.run(*sweep, "--append", ranks=2, threads=True)
    test.check(added.code == 0 and support.whole_lines(out)[: len(before)] == before,
               "--append leaves what was there", added)
    ids = [run["run_id"] for run in support.runs(out)]
    test.check(len(ids) == len(set(ids)) == 2, "and adds a run of its own", ids)
    by_run = [sorted(support.key(p) for p in support.points(out) if p["run_id"] == i) for i in ids]
    test.check(by_run[0] == by_run[1] and len(by_run[0]) == 4, "with all 4 points measured again", by_run)
    test.valid(out)

    train = ["train", *SMALL, "--batch", "16", "--train-samples", "640", "--validation-samples", "100", "--epochs", "1"]
    trained = test.run(*train, "--out", out, "--append")
    test.check(trained.code == 0 and len(support.runs(out)) == 3, "a training run goes into the same file", trained)
    test.equal([p["experiment"] for p in support.points(out)], ["scale"] * 8 + ["train"], "under its own experiment")
    test.valid(out)

    kept = test.run(*sweep, "--resume", ranks=2, threads=True)
    test.check(kept.code == 0 and "0 points measured, 4 kept" in kept.out, "--resume finds the finished points", kept)
    forced = test.run(*sweep, "--force", ranks=2, threads=True)
    test.check(forced.code == 0 and len(support.runs(out)) == 1 and len(support.points(out)) == 4,
               "--force replaces the file", forced)
    test.check(not set(ids) & {run["run_id"] for run in support.runs(out)}, "by a run of its own")
    test.valid(out)

    fresh = test.path("fresh.jsonl")
    done = test.run("scale", *SMALL, "--batch", "16", "--threads", "1", "--time-budget", "1s", "--precision-goal", "0.5", "--out", fresh,
                    "--append")
    test.check(done.code == 0 and len(support.runs(fresh)) == 1, "--append to no file makes one", done)


def other_machine(test):
    """Points of another machine are not this one's: --resume measures them again."""
    out = test.path("elsewhere.jsonl")
    sweep = ["scale", *SMALL, "--batch", "16", "--threads", "1", "--time-budget", "1s", "--precision-goal", "0.5", "--out", out]
    test.run(*sweep)
    fingerprint = support.runs(out)[0]["fingerprint"]
    out.write_text(out.read_text().replace(fingerprint, "0" * len(fingerprint)))
    done = test.run(*sweep, "--resume")
    test.check(done.code == 0 and "2 points measured, 0 kept" in done.out,
               "points of another machine are measured again", done)


def other_conditions(test):
    """One table mixed rows over shared memory and over TCP: --resume measures anew what was measured otherwise, and names what differs."""
    out = test.path("otherwise.jsonl")
    sweep = ["allreduce", "--algorithm", "mpi", "--sizes", "64,128", "--in-place", "out", "-n", "10", "-w", "2", "--out", out]
    test.run(*sweep, ranks=2)
    tcp = {"OMPI_MCA_btl": "tcp,self"}
    again = test.run(*sweep, "--resume", ranks=2)
    test.check(again.code == 0 and "0 points measured, 2 kept" in again.out, "--resume under the same conditions keeps both points", again)
    done = test.run(*sweep, "--resume=any", ranks=2, env=tcp)
    test.check(done.code == 0 and "0 points measured, 2 kept" in done.out, "--resume=any keeps them under others", done)
    done = test.run(*sweep, "--resume", ranks=2, env=tcp)
    test.check(done.code == 0 and "2 points measured, 0 kept" in done.out, "--resume measures them anew", done)
    test.check("environment OMPI_MCA_btl" in done.out + done.err and "--resume=any" in done.out + done.err, "and says what differs", done)
    mechanism = support.runs(out)[0]["mpi_single_copy"]
    if "Open MPI 4" not in support.runs(out)[0]["mpi"] or mechanism in ("", "none"):
        return
    test.run(*sweep[:-1], test.path("one-copy.jsonl"), ranks=2)
    done = test.run(*sweep[:-1], test.path("one-copy.jsonl"), "--resume", ranks=2, env={"OMPI_MCA_btl_vader_single_copy_mechanism": "none"})
    test.check("2 points measured, 0 kept" in done.out and f"MPI's single copy {mechanism} (now none)" in done.out + done.err,
               "so it does where MPI copies otherwise", done)
    test.equal([r["mpi_single_copy"] for r in support.runs(test.path("one-copy.jsonl"))], [mechanism, "none"], "which files record")
    test.valid(test.path("one-copy.jsonl"))


def local_files(test):
    """One rank works in another folder, where a relative --data leads nowhere. The first rank of a node reads the files for
    all of it."""
    folder, away = test.path("digits"), test.path("away")
    folder.mkdir()
    away.mkdir()
    for part, count in (("train", 64), ("t10k", 16)):
        images = struct.pack(">IIII", 0x803, count, 28, 28) + bytes(28 * 28 * count)
        labels = struct.pack(">II", 0x801, count) + bytes(count)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)

    def away_is(rank):
        return "sh", "-c", f'if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then cd away; fi; exec "$@"', "sh"

    wrapper = away_is(1)

    def read_once_a_node(case):
        command, short = case
        out = test.path(f"local-{command}.jsonl")
        arguments = [command, *SMALL, *short, "--batch", "8", "--out", out, "--data"]
        for data, first in (("digits", away_is(0)), ("nowhere", wrapper)):
            done = test.run(*arguments, data, ranks=3, wrapper=first, timeout=30)
            test.check(done.code == 2 and len(done.own_lines) == 1 and data in done.own_lines[0]
                       and "rank" not in done.own_lines[0], f"{command}: data that a node lacks is told once", done)
            test.check(not out.exists(), "no file was made")
        done = test.run(*arguments, "digits", ranks=3, wrapper=wrapper, timeout=60)
        test.check(done.code == 0 and out.exists(), f"{command}: files are read once a node", done)

    test.side_by_side(read_once_a_node, (("train", ("--epochs", "1")), ("scale", ("--ranks", "3", "--time-budget", "1s", "--precision-goal", "0.5"))))
    # Only rank 0 writes: where the others' folders have no place for the file does not matter.
    (test.folder / "results").mkdir()
    done = test.run("scale", *SMALL, "--batch", "8", "--ranks", "2", "--algorithm", "ring", "--time-budget", "1s",
                    "--precision-goal", "0.5", "--out", "results/r.jsonl", ranks=2, wrapper=wrapper)
    test.check(done.code == 0 and test.path("results/r.jsonl").exists() and not list(away.iterdir()),
               "only rank 0 needs the place of the result file", done)
    done = test.run("scale", *SMALL, "--out", "results/r.jsonl", ranks=2, wrapper=wrapper)
    test.check(done.code == 2 and len(done.own_lines) == 1 and "exists" in done.own_lines[0],
               "and what it finds there is told once", done)


CADENCES, SCALINGS = ("barrier", "window"), ("weak", "strong")
OVERLAPS, BUCKETS = ("none", "bucketed"), (64 << 10, 1 << 20)
FACTORS = ("cadence", "ranks", "scaling", "batch_per_rank", "strategy", "algorithm", "overlap", "bucket_bytes",
           "transport")
BATCH = 16  # divides by 2 and not by 3


def wanted_points():
    """All combinations of the factors that mean something, with their controls: a one-rank row and `independent` have
    no exchange, one rank has no scaling, and the library chooses its own transport."""
    wanted = []
    for cadence in CADENCES:
        for strategy in ("independent", "sync"):
            wanted.append((cadence, 1, None, BATCH, strategy, None, None, None, None))
        for ranks in (2, 3):
            for scaling in SCALINGS:
                place = (cadence, ranks, scaling, BATCH if scaling == "weak" else BATCH // ranks)
                wanted.append((*place, "independent", None, None, None, None))
                wanted += [(*place, "sync", algorithm, overlap, bucket, transport)
                           for algorithm, transports in (("mpi", (None,)), ("ring", ("mpi", "shm")))
                           for overlap in OVERLAPS for bucket in BUCKETS for transport in transports]
    return wanted


def curve(point):
    return tuple(point["factors"][f] for f in ("ranks", "cadence", "scaling"))


def every_factor(test):
    out = test.path("factors.jsonl")
    done = test.run("scale", "--model", "mlp:784-32-10", "--batch", BATCH, "--ranks", "1,2,3", "--algorithm", "mpi,ring", "--scaling",
                    ",".join(SCALINGS), "--cadence", ",".join(CADENCES), "--overlap", ",".join(OVERLAPS), "--bucket",
                    "64K,1M", "--transport", "mpi,shm", "--min-samples", "3", "--precision-goal", "0.9", "--time-budget", "5s",
                    "--out", out, ranks=3, timeout=280)
    if not test.check(done.code == 0 and not done.own_lines, "a sweep over all factors ends with 0", done):
        return
    test.valid(out)
    points = support.points(out)
    found = [tuple(p["factors"][f] for f in FACTORS) for p in points]
    test.equal(sorted(found, key=str), sorted(wanted_points(), key=str),
               f"it has its {len(wanted_points())} combinations, each once")
    impossible = [p for p in points if p["factors"]["scaling"] == "strong" and p["factors"]["ranks"] == 3]
    test.equal({(p["status"], p["reason"], len(p["raw_times_s"])) for p in impossible},
               {("unsupported", f"batch {BATCH} does not divide by 3 ranks", 0)},
               "strong scaling that does not divide is unsupported, and says why")
    rest = [p for p in points if p not in impossible]
    # Of so short measurements one may be faster than its base; what is compared with it has no base.
    doubted = {curve(p) for p in rest if p["status"] == "mistrusted" and "% of one rank's rate, " in p["reason"]}
    sure = [p for p in rest if curve(p) not in doubted]
    # Budgets this short may leave too few blocks for an interval.
    test.equal({(p["status"], re.sub("^[0-5] blocks? in turn with the baseline and the control: no interval and no verdict$", "", p["reason"]))
                for p in sure}, {("ok", "")}, "all others are ok")
    test.check(len(doubted) <= 2, "but for few that are mistrusted", doubted)
    alone = {p["factors"]["cadence"]: p["metrics"]["time_s"]["median"] for p in rest
             if p["factors"]["ranks"] == 1 and p["factors"]["strategy"] == "independent"}
    wrong = [support.brief(p) for p in sure if p["metrics"].get("baseline_batch") != BATCH or
             p["metrics"].get("baseline_time_s") != alone[p["factors"]["cadence"]]]
    test.check(not wrong, "each has the baseline of its cadence and batch: one rank's independent, weak and strong", wrong)
    counted = [p for p in rest if p["factors"]["algorithm"] == "ring"]
    wrong = [support.brief(p) for p in counted if p["metrics"]["bytes_sent_total"] != p["metrics"]["bytes_predicted"]]
    test.check(counted and not wrong, "each ring sent what its schedule says, over both transports", wrong)
    sent = {(p["factors"]["ranks"], p["metrics"]["bytes_sent_total"]) for p in counted}
    test.equal(len(sent), 2, "the same bytes whatever the bucket, overlap, transport and scaling")
    threads = {(p["factors"]["overlap"], p["metrics"]["progress_threads"]) for p in rest}
    test.equal(threads, {(None, 0), ("none", 0), ("bucketed", 1)}, "only bucketed overlap has a progress thread")


def body(test):
    sharing_a_file(test)
    other_machine(test)
    other_conditions(test)
    local_files(test)
    test.attempt(every_factor, "beside other programs several points may be faster than their base")


if __name__ == "__main__":
    support.main(__doc__, body)
