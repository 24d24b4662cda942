# SPDX-License-Identifier: Apache-2.0
"""`gradmeter allreduce --dry-run --goal FILE`: a schedule as a file for network simulators, and what is no schedule."""
import re

import support


def export(test, path, *flags):
    return test.run("allreduce", "--dry-run", "--goal", path, *flags)


def body(test):
    path = test.path("ring.goal")
    done = export(test, path, "--algorithm", "ring", "--sizes", "25MB", "--thread-ranks", 16)
    text = path.read_text() if path.exists() else ""
    said = re.search(r"takes at most ([\d.]+) KiB", done.err)
    test.check(done.code == 0 and said and path.stat().st_size <= float(said[1]) * 1024 * 1.01,
               "how large the file becomes at most is said before", done)
    test.check("ring on" not in done.out and f"{path}: allreduce by ring, 6250000 elements of fp32 on 16 ranks" in done.out,
               "what was written is said after", done)
    test.equal((text.count("\nrank "), len(re.findall(": send ", text)), len(re.findall(": recv ", text)), len(re.findall(": calc ", text))),
               (16, 16 * 30 * 2, 16 * 30 * 2, 16 * 15 * 2), "16 ranks send and receive 30 messages in each of two slices, and add half")
    sent = sum(map(int, re.findall(r": send (\d+)b", text)))
    test.equal(sent, 30 * 25_000_000, "all bytes of the algorithm are sent")
    seconds = sum(map(int, re.findall(r": calc (\d+)", text)))
    test.check(abs(seconds - 15 * 25_000_000 / 10) < 16 * 30, "sums take their bytes at 10 GB/s", seconds)

    done = export(test, path, "--algorithm", "ring", "--sizes", "1K", "--thread-ranks", 4)
    test.check(done.code == 2 and "exists; give --force" in done.err and path.read_text() == text, "a file that exists stays", done)
    done = export(test, path, "--algorithm", "ring", "--sizes", "1K", "--thread-ranks", 4, "--force", "--goal-sums", "0")
    test.check(done.code == 0 and "num_ranks 4\n" in path.read_text() and not re.search(r"calc [1-9]", path.read_text()),
               "--force replaces it, and sums may take no time", done)
    done = export(test, test.path("lane.goal"), "--algorithm", "hierarchical-lane", "--sizes", "1K", "--fake-nodes", "0,0,1,1")
    test.check(done.code == 0 and "4 ranks" in done.out, "--fake-nodes gives the ranks and their nodes", done)
    many = test.path("many.goal")
    done = export(test, many, "--algorithm", "binomial-tree", "--sizes", "1K", "--thread-ranks", 65536)
    test.check(done.code == 0 and many.read_text().count(": send ") == 2 * 65535, "65,536 ranks", done)

    for flags, said in (
            (["--algorithm", "ring,direct", "--sizes", "1K"], "--goal holds one schedule, but these flags describe allreduce by ring"),
            (["--algorithm", "ring", "--sizes", "1K,2K"], "give one --collective, --algorithm, --datatype, --sizes and --root"),
            (["--algorithm", "mpi", "--sizes", "1K"], "--goal: mpi has no schedule of ours; take ring"),
            (["--algorithm", "swing", "--sizes", "1K", "--thread-ranks", "6"], "--goal: swing"),
            (["--algorithm", "ring", "--sizes", "1K", "--codec", "bf16"], "leave out --codec"),
            (["--algorithm", "ring", "--sizes", "1K", "--thread-ranks", "65537"], "--thread-ranks 65537"),
            (["--algorithm", "ring", "--sizes", "1K", "--goal-sums", "fast"], "--goal-sums")):
        ranks = [] if "--thread-ranks" in flags else ["--thread-ranks", "4"]
        refused = test.path("refused.goal")
        done = export(test, refused, *flags, *ranks)
        test.check(done.code == 2 and said in done.err and len(done.err.splitlines()) == 1 and not refused.exists(),
                   f"{' '.join(flags)}: one line", done)
    done = test.run("allreduce", "--goal", test.path("a.goal"), "--algorithm", "ring")
    test.check(done.code == 2 and "give it with --dry-run" in done.err, "it measures nothing", done)
    done = test.run("allreduce", "--dry-run", "--goal-sums", "1GB/s")
    test.check(done.code == 2 and "--goal-sums is for the file of --goal" in done.err, "no rate without a file", done)
    done = export(test, test.path("no such folder") / "a.goal", "--algorithm", "ring", "--sizes", "1K", "--thread-ranks", 4)
    test.check(done.code == 3 and "could not be written" in done.err, "a file that cannot be written", done)
    done = export(test, "/dev/full", "--algorithm", "ring", "--sizes", "1M", "--thread-ranks", 64, "--force")
    test.check(done.code == 3 and "could not be written" in done.err, "a full disk", done)


if __name__ == "__main__":
    support.main(__doc__, body)
