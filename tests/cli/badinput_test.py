# SPDX-License-Identifier: Apache-2.0
"""Bad input gets one line from gradmeter that says what is wrong and what would be right, and exit code 2, before any
rank works; nothing is written. Every case runs as one process; those that more ranks could treat otherwise run under
mpirun too."""
import gzip
import os
import re
import struct

import support

ALGORITHMS, STRATEGIES = ("mpi", "ring"), ("independent", "sync")


# What is wrong on the command line: the arguments, and the words that the line must have.
PREDICTED = ["predict", "--model", "llama3-8b", "--machine", "A100", "--ranks", "8", "--batch-global", "16"]
FLAGS = [
    # commands and flags
    (["scael"], ["scael", "scale", "train", "list", "doctor"]),
    (["scale", "--bacth", "16"], ["--bacth", "--batch", "--help"]),
    (["train", "--strategies", "sync"], ["--strategies", "--strategy"]),
    (["doctor", "--fix"], ["--fix", "--help"]),
    (["list", "--jsn"], ["--jsn", "--json"]),
    (["list", "algorythms"], ["algorythms", "algorithms", "strategies", "models"]),
    (["scale", "--batch", "16", "--batch", "64"], ["--batch", "twice", "comma"]),
    (["scale", "--dry-run", "--dry-run"], ["--dry-run", "twice"]),
    (["scale", "--batch"], ["--batch", "missing"]),
    (["scale", "--out", "--dry-run"], ["--out", "missing"]),
    (["scale", "--batch", "--help"], ["--batch", "missing"]),
    (["scale", "--interconnect", "-h"], ["--interconnect", "missing"]),
    (["scale", "--resume=yes", "--out", "x"], ["--resume"]),
    (["scale", "64"], ["64", "flags", "--help"]),
    (["doctor", "now"], ["now", "flags", "--help"]),
    # counts, sizes, durations
    (["scale", "--batch", "0"], ["--batch", "0", "whole number", "from 1"]),
    (["scale", "--batch", "16,0"], ["--batch", "0", "from 1"]),
    (["scale", "--batch", "-4"], ["--batch"]),
    (["scale", "--batch", "sixteen"], ["--batch", "sixteen", "whole number"]),
    (["scale", "--batch", "16,,64"], ["--batch", "16,,64", "empty"]),
    (["scale", "--batch", ""], ["--batch", "empty"]),
    (["scale", "--batch", "99999999999999999999"], ["--batch", "99999999999999999999"]),
    (["train", "--batch", "1.5"], ["--batch", "1.5", "whole number"]),
    (["scale", "--ranks", "0"], ["--ranks", "0", "from 1"]),
    (["scale", "--ranks", "1,64"], ["--ranks", "64", "mpirun -np 64"]),
    (["scale", "--threads", "0"], ["--threads", "0", "from 1"]),
    (["train", "--threads", "many"], ["--threads", "many"]),
    (["scale", "--bucket", "25X"], ["--bucket", "25X", "1.5M"]),
    (["scale", "--bucket", "-1M"], ["--bucket"]),
    (["scale", "--bucket", "M"], ["--bucket", "M"]),
    (["scale", "--bucket", "100"], ["--bucket", "100", "1K"]),
    (["scale", "--bucket", "64K,12Q"], ["--bucket", "12Q"]),
    (["scale", "--time-budget", "soon"], ["--time-budget", "soon"]),
    (["scale", "--time-budget", "-3s"], ["--time-budget"]),
    (["scale", "--timeout", "5 parsecs"], ["--timeout", "5 parsecs"]),
    (["scale", "--seed", "-1"], ["--seed"]),
    (["scale", "--min-samples", "1"], ["--min-samples", "1", "from 3"]),
    (["scale", "--precision-goal", "7"], ["--precision-goal", "7", "to 1"]),
    (["train", "--target", "97"], ["--target", "97", "from 0 to 1"]),
    (["train", "--lr", "fast"], ["--lr", "fast"]),
    (["train", "--epochs", "0"], ["--epochs", "0", "from 1"]),
    (["train", "--train-samples", "10", "--batch", "64"], ["64", "10"]),
    (["infer", "--epochs", "0"], ["--epochs", "0", "from 1"]),
    (["infer", "--batch", "1,0"], ["--batch", "0", "from 1"]),
    (["infer", "--precision", "int5"], ["int5", "int4", "int8"]),
    (["infer", "--train-samples", "10"], ["--train-batch", "64", "10", "smaller"]),
    (["infer", "--optimizer", "adma"], ["adma", "adam"]),
    (["infer", "--model", "mlp:784-10,lstmm"], ["lstmm", "lstm"]),
    (["infer", "--csv", "--json"], ["--csv", "--json"]),
    (["infer", "--steps", "5"], ["--steps", "--help"]),
    # models
    (["scale", "--model", "resnet"], ["resnet", "mlp"]),
    (["scale", "--model", "mlp,vgg"], ["vgg", "mlp"]),
    (["train", "--model", "mlp:100-10"], ["mlp:100-10", "100", "784"]),
    (["scale", "--model", "mlp:784-64-7"], ["mlp:784-64-7", "7", "10"]),
    (["scale", "--model", "mlp:784-x-10"], ["mlp:784-x-10", "x"]),
    (["scale", "--model", "mlp:784-0-10"], ["mlp:784-0-10", "0"]),
    (["scale", "--model", "mlp:784"], ["mlp:784"]),
    (["scale", "--model", "mlp:depth=3"], ["depth", "mlp:784"]),
    # names: refused by name, with those that there are
    (["scale", "--algorithm", "rng"], ["rng", *ALGORITHMS]),
    (["scale", "--algorithm", "ring,hypercube"], ["hypercube", *ALGORITHMS]),
    (["train", "--algorithm", "ring,mpi"], ["--algorithm", "one value"]),
    (["scale", "--strategy", "ps-late"], ["ps-late", *STRATEGIES]),
    (["train", "--strategy", "ps-late"], ["ps-late", *STRATEGIES]),
    (["train", "--strategy", "ps-async:staleness=3"], ["staleness", "push", "fetch"]),
    (["train", "--strategy", "ps-ssp:staleness=-1"], ["staleness", "-1", "from 0"]),
    (["train", "--strategy", "sync", "--servers", "1"], ["--servers", "ps-async"]),
    (["train", "--strategy", "ps-async", "--servers", "0,1"], ["--servers", "one value"]),
    (["train", "--strict", "--strategy", "gossip", "--codec", "qsgd4"], ["--codec qsgd4", "change nothing", "ps-sync"]),
    (["train", "--strict", "--strategy", "ad-psgd", "--codec", "qsgd4"], ["--codec qsgd4", "change nothing", "ps-sync"]),
    (["train", "--strategy", "ad-psgd", "--servers", "1"], ["--servers", "ps-async"]),
    (["train", "--strict", "--strategy", "model-averaging", "--overlap", "bucketed"], ["--overlap bucketed", "change nothing"]),
    (["train", "--strategy", "diloco:every=4,overlap=4"], ["overlap is 4", "every=4"]),
    (["train", "--strategy", "slowmo:buffers=keep"], ["buffers is 'keep'", "maintain, average or reset"]),
    (["train", "--strict", "--strategy", "ps-sync", "--bucket", "1M"], ["--bucket 1M", "sharded, sync"]),
    (["scale", "--strict", "--strategy", "sync", "--codec", "qsgd4"], ["--codec qsgd4", "two or more ranks"]),
    (["scale", "--dry-run", "--ranks", "2", "--strategy", "gossip,ps-sync,easgd", "--algorithm", "ring"],
     ["--algorithm ring", "change nothing", "sharded, slowmo, sync"]),
    (["scale", "--dry-run", "--ranks", "2", "--strategy", "sync", "--algorithm", "mpi", "--transport", "shm"],
     ["--transport shm", "change nothing", "not the vendor's"]),
    (["scale", "--strict", "--transport", "mpi"], ["--transport mpi", "two or more ranks"]),
    (["scale", "--strict", "--bucket", "1M"], ["--bucket 1M", "two or more ranks"]),
    (["train", "--strict", "--strategy", "ps-async", "--servers", "1"], ["no worker", "start more ranks"]),
    (["scale", "--codec", "qsgd3"], ["qsgd3", "qsgd2"]),
    (["train", "--codec", "qsgd3"], ["qsgd3", "qsgd2"]),
    (["train", "--dump-step", "5"], ["--dump-step", "--dump-gradients", "--dump-weights"]),
    (["train", "--dump-gradients", "no/such/folder/g"], ["no/such/folder", "make it first"]),
    (["train", "--dump-weights", "no/such/folder/w"], ["no/such/folder", "make it first"]),
    (["train", "--dump-weights", "w", "--dump-gradients", "w"], ["the same file", "give two"]),
    (["codecs", "--codec", "qsgd4:bucket=0"], ["bucket", "from 64"]),
    (["scale", "--precision", "fp31"], ["fp31", "fp32", "bf16"]),
    (["scale", "--precision", "int8"], ["int8", "inference"]),
    (["train", "--precision", "lns16", "--model", "lstm"], ["lstm", "lns16", "no backend has rnn"]),
    (["scale", "--precision", "fp16"], ["fp16", "software", "train"]),
    (["train", "--precision", "fp8-e4m3", "--model", "gru"], ["gru", "fp8-e4m3", "no backend has rnn"]),
    (["train", "--model", "lstm-lm"], ["lstm-lm", "--data language"]),
    (["train", "--data", "language"], ["mlp", "lstm-lm"]),
    (["train", "--data", "language:words=3", "--model", "gru-lm"], ["words", "vocabulary"]),
    (["train", "--data", "language", "--model", "transformer-lm:heads=5"], ["5 heads", "64"]),
    (["train", "--data", "language", "--model", "lstm-lm:tied=2"], ["tied", "1"]),
    (["train", "--data", "language:vocabulary=2", "--model", "gru-lm"], ["vocabulary", "4"]),
    (["train", "--precision", "fp32,bf16"], ["--precision"]),
    (["train", "--update", "lns17"], ["lns17", "lns16", "fp32"]),
    (["train", "--update", "bf16", "--optimizer", "sgd:update=lns16"], ["lns16", "bf16", "two formats"]),
    (["train", "--loss-scale", "many"], ["--loss-scale", "many", "dynamic"]),
    (["train", "--loss-scale", "0"], ["--loss-scale", "'0'", "1024"]),
    (["train", "--loss-scale", "dynamic:grow=0"], ["--loss-scale", "grow", "from 1"]),
    (["train", "--loss-scale", "dynamic:stop=1"], ["--loss-scale", "stop"]),
    (["train", "--loss-scale", "2,4"], ["--loss-scale", "one value"]),
    (["train", "--loss-scale", "dynamic", "--strategy", "ps-async"], ["ps-async", "sync, sharded or independent"]),
    (["train", "--loss-scale", "dynamic", "--strategy", "gossip"], ["gossip", "sync, sharded or independent"]),
    (["train", "--loss-scale", "16", "--strategy", "es"], ["es", "no gradient"]),
    (["train", "--gradients", "own"], ["--gradients own", "--precision bf16"]),
    (["train", "--gradients", "bf17"], ["bf17", "fp32", "own"]),
    (["train", "--gradients", "own", "--codec", "fp16"], ["fp16", "give one"]),
    (["scale", "--gradients", "own", "--precision", "fp32"], ["--gradients own", "bf16"]),
    (["scale", "--device", "tpu"], ["tpu", "cpu", "cuda"]),
    (["kernels", "--device", "tpu"], ["tpu", "cpu", "cuda"]),
    # one word, no list, and no "all"
    (["scale", "--device", "all"], ["all", "cpu", "cuda"]),
    (["kernels", "--device", "cpu,cuda"], ["cpu,cuda", "device"]),
    (["kernels", "--sweep", "all"], ["all", "batch"]),
    ([*PREDICTED, "--precision", "fp32,bf16"], ["precision", "fp32,bf16", "tf32"]),
    ([*PREDICTED, "--recompute", "none,full"], ["recompute", "none,full", "selective"]),
    ([*PREDICTED, "--what-if", "precision=all"], ["precision", "all", "bf16"]),
    (["scale", "--transport", "nccl"], ["nccl", "auto", "mpi", "shm"]),
    (["train", "--transport", "nccl"], ["nccl", "auto", "mpi", "shm"]),
    (["scale", "--overlap", "full"], ["full", "none", "bucketed"]),
    (["scale", "--scaling", "medium"], ["medium", "weak", "strong"]),
    (["scale", "--cadence", "allegro"], ["allegro", "barrier", "none", "window"]),
    (["train", "--mesh", "data=4,tensor=2"], ["data=4,tensor=2", "8 ranks", "there are 1"]),
    (["train", "--mesh", "data=4,data=2"], ["data", "twice"]),
    (["train", "--mesh", "schedule=gpipe"], ["schedule", "pipeline"]),
    (["scale", "--mesh", "tensor"], ["tensor", "data"]),
    (["scale", "--accumulate", "0"], ["accumulate", "0", "from 1"]),
    (["train", "--accumulate", "3"], ["64", "3 micro-batches"]),
    (["scale", "--learn", "many"], ["--learn", "many", "whole number"]),
    (["scale", "--lr-rule", "linear"], ["--lr-rule", "--learn"]),
    (["scale", "--learn", "64", "--lr-rule", "cosine"], ["cosine", "linear"]),
    (["codecs", "--codec", "randomk:scale=on"], ["scale", "density"]),
    (["scale", "--optimizer", "adagrad"], ["adagrad", "adamw", "sgd", "momentum"]),
    (["scale", "--optimizer", "momentum:mu=2"], ["mu", "2"]),
    (["train", "--optimizer", "sgd:mu=0.9"], ["sgd", "takes no parameters"]),
    (["train", "--lr-rule", "cosinus"], ["cosinus", "cosine", "constant"]),
    # flags that do not go together
    (["scale", "--out", "x.jsonl", "--force", "--resume"], ["--force", "--resume", "one of"]),
    (["scale", "--out", "x.jsonl", "--append", "--resume"], ["--append", "--resume", "one of"]),
    (["scale", "--resume"], ["--resume", "--out"]),
    (["scale", "--shrink", "2"], ["--shrink 2", "layer tables", "resnet50"]),
    (["infer", "--model", "cnn,mlp", "--shrink", "2"], ["--shrink 2", "layer tables", "cnn,mlp"]),
    (["train", "--shrink", "2"], ["--shrink"]),
    (["train", "--resume", "--out", "x.jsonl"], ["train", "--resume"]),
]

LANGUAGE = ["--data", "language:steps=6", "--model"]

# A rank of its own could miss these, or every rank could print its line.
UNDER_MPIRUN = [
    (["scael"], ["scael"]),
    (["scale", "--bacth", "16"], ["--bacth", "--batch"]),
    (["scale", "--batch", "0"], ["--batch", "0", "from 1"]),
    (["scale", "--ranks", "1,3"], ["--ranks", "3", "the world has 2", "mpirun -np 3"]),
    (["train", "--algorithm", "rng"], ["rng", *ALGORITHMS]),
    (["train", "--strict", "--strategy", "ps-async", "--algorithm", "ring"], ["--algorithm ring", "change nothing"]),
    (["train", "--strict", "--algorithm", "mpi", "--transport", "shm"], ["--transport shm", "change nothing", "not the vendor's"]),
    (["train", "--model", "lstm", "--mesh", "tensor=2"], ["lstm", "dense", "leave tensor out"]),
    (["train", "--model", "mlp:784-10", "--mesh", "pipeline=2"], ["1 layers", "2 pipeline stages"]),
    (["train", *LANGUAGE, "transformer-lm:heads=3,hidden=12", "--mesh", "tensor=2"], ["3 heads", "2 tensor ranks", "multiple of 2"]),
    (["train", *LANGUAGE, "transformer-lm:ff=21", "--mesh", "tensor=2"], ["dense:21", "2 tensor ranks", "multiple of 2"]),
    (["train", *LANGUAGE, "lstm-lm", "--mesh", "tensor=2"], ["lstm-lm", "dense", "leave tensor out"]),
]

# Not refused: the flag means something to one of the strategies, or says no more than its default.
USED = [
    ["--strategy", "sync,gossip", "--algorithm", "ring"],
    ["--strategy", "gossip", "--transport", "mpi"],
    ["--strategy", "sync", "--algorithm", "mpi,ring", "--transport", "shm"],
    ["--strategy", "sync", "--algorithm", "mpi", "--transport", "auto"],
    ["--mesh", "tensor=3", "--strategy", "sync", "--algorithm", "ring"],
]


def refused(test, what, arguments, words, ranks=None, timeout=30, **more):
    """Exit code 2, one line of ours with all the words, no result, no file made or changed."""
    before = support.fingerprint(test.folder)
    done = test.run(*arguments, ranks=ranks, timeout=timeout, **more)
    lines = done.own_lines
    problems = []
    if done.code != 2:
        problems.append(f"exit code {done.code}, not 2")
    if len(lines) != 1:
        problems.append(f"{len(lines)} lines from gradmeter, not 1")
    if ranks is None and len(done.err.splitlines()) != 1:
        problems.append("standard error has more than the one line")
    missing = [word for word in words if lines and word.lower() not in lines[0].lower()]
    if missing:
        problems.append(f"the line does not say {', '.join(map(repr, missing))}")
    if done.out.strip():
        problems.append("something was printed as a result")
    if support.fingerprint(test.folder) != before:
        problems.append("a file was made or changed")
    label = f"{what or ' '.join(map(str, arguments))}{'' if ranks is None else f' on {ranks} ranks'}"
    test.check(not problems, label, "; ".join(problems) + f"\n{done}")
    return done


def all_refused(test, cases):
    """Each case: what refused() takes after the test. Nobody makes a file, so none sees another's."""
    test.side_by_side(lambda case: refused(test, *case), cases)


def idx_images(count, side=28):
    return struct.pack(">IIII", 0x803, count, side, side) + bytes(i % 251 for i in range(count * side * side))


def idx_labels(count):
    return struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))


def data_directory(test, name, **changed):
    """MNIST's four files, small; `changed` replaces the contents of some, None leaves one out."""
    folder = test.folder / "files" / name
    folder.mkdir(parents=True)
    contents = {"train_images": idx_images(64), "train_labels": idx_labels(64), "t10k_images": idx_images(16),
                "t10k_labels": idx_labels(16), **changed}
    for part, content in contents.items():
        if content is None:
            continue
        kind = "idx3" if part.endswith("images") else "idx1"
        suffix = ".gz" if content[:2] == b"\x1f\x8b" else ""
        (folder / f"{part.replace('_', '-')}-{kind}-ubyte{suffix}").write_bytes(content)
    return folder


def data_files(test):
    small = ["--model", "mlp:784-16-10", "--batch", "16"]
    good = data_directory(test, "good")
    done = test.run("train", *small, "--data", good, "--epochs", "1", timeout=60)
    test.check(done.code == 0, "control: the same four files undamaged are trained on", done)

    zipped = gzip.compress(idx_images(64))
    cases = [
        ("a truncated images file", {"train_images": idx_images(64)[:-1]}, ["train-images", "cut short"]),
        ("a file that ends in its header", {"train_images": idx_images(64)[:10]}, ["train-images", "cut short"]),
        ("an empty labels file", {"train_labels": b""}, ["train-labels", "cut short"]),
        ("a truncated gzip file", {"train_images": zipped[: len(zipped) // 2]}, ["train-images", "gz"]),
        ("a foreign file", {"train_images": b"GIF89a" + bytes(100)}, ["train-images", "not an IDX file"]),
        ("labels where images belong", {"train_images": idx_labels(64)}, ["train-images", "labels", "images"]),
        ("a file that goes on", {"t10k_labels": idx_labels(16) + b"x"}, ["t10k-labels", "goes on"]),
        ("a label past 9", {"train_labels": idx_labels(63)[:4] + struct.pack(">I", 64) + bytes([17] * 64)},
         ["train-labels", "17"]),
        ("images without their labels", {"train_labels": idx_labels(63)}, ["63", "64"]),
        ("a missing file", {"t10k_images": None}, ["t10k-images", "four files"]),
        ("images of other sizes", {"t10k_images": idx_images(16, 8)}, ["28x28", "8x8"]),
        ("images that the model is not made for", {"train_images": idx_images(64, 8), "t10k_images": idx_images(16, 8)},
         ["784", "64", "width"]),
    ]
    wrong = [("train --data with a missing directory", ["train", "--data", test.folder / "nowhere"],
              ["nowhere", "directory"])]
    for number, (what, changed, words) in enumerate(cases):
        folder = data_directory(test, f"data{number}", **changed)
        command = ("train", "scale")[number % 2]
        wrong.append((f"{command} --data with {what}", [command, *small, "--data", folder], words))
    for command in ("train", "scale"):
        wrong.append((f"{command} --data with a foreign file",
                      [command, *small, "--data", test.folder / "files" / "data4"], ["not an IDX file"], 2))
        wrong.append((f"{command} with fewer samples than one batch takes",
                      [command, "--model", "mlp:784-16-10", "--batch", "48", "--data", good], ["96", "64"], 2))
    all_refused(test, wrong)


def result_files(test):
    small = ["scale", "--model", "mlp:784-16-10", "--batch", "4", "--time-budget", "1s"]
    files = test.folder / "files"
    good = files / "good.jsonl"
    done = test.run(*small, "--out", good)
    test.check(done.code == 0 and len(support.points(good)) == 2, "control: a file that can be written is", done)
    lines = good.read_text().splitlines()

    exists = ["good.jsonl", "exists", "--force"]
    wrong = [("scale --out with an existing file", ["scale", "--out", good], exists, 2),
             ("--out with a directory", ["scale", "--out", files], ["files", "is a directory"]),
             ("--out in a missing directory", ["scale", "--out", files / "missing" / "r.jsonl"],
              ["missing", "no directory"]),
             ("--out where nothing can be written", ["scale", "--out", "/proc/gradmeter-test.jsonl"],
              ["/proc/gradmeter-test.jsonl"], 2)]
    for command in ("scale", "train"):
        wrong.append((f"{command} --out with an existing file", [command, "--out", good], exists))
        for place in ("/proc/gradmeter-test.jsonl", "/sys/gradmeter-test.jsonl"):
            wrong.append((f"{command} --out {place}, which not even root may make", [command, "--out", place],
                          [place, "write"]))
    if os.geteuid() != 0:
        locked = test.folder / "locked"
        locked.mkdir(mode=0o500)
        wrong.append(("--out in a directory of others", ["scale", "--out", locked / "r.jsonl"],
                      ["locked", "permission"]))
    all_refused(test, wrong)

    point = next(line for line in lines if '"kind":"point"' in line)
    damaged = {
        "cut.jsonl": (lines[0] + "\n" + lines[1][:60] + "\n" + lines[2] + "\n", ["cut.jsonl:2"]),
        "notes.jsonl": ("milk\nbread\n", ["notes.jsonl:1"]),
        "other.jsonl": ('{"event": "login"}\n', ["other.jsonl:1", "kind"]),
        "orphan.jsonl": (point + "\n", ["orphan.jsonl:1", "run"]),
        "newer.jsonl": (lines[0].replace('"schema":2', '"schema":99') + "\n", ["newer.jsonl:1", "schema", "99"]),
        "binary.jsonl": ("\x7fELF\x02\x01\x01\x00\x00\n", ["binary.jsonl:1"]),
        "status.jsonl": (lines[0] + "\n" + re.sub('"status":"[a-z]+"', '"status":"fine"', point) + "\n",
                         ["status.jsonl:2", "fine"]),
    }
    for name, (text, _) in damaged.items():
        (files / name).write_text(text)
    all_refused(test, [(f"{how} with {name}", [*small, "--out", files / name, how], words)
                       for name, (_, words) in damaged.items() for how in ("--resume", "--append")])
    refused(test, "--resume with cut.jsonl", [*small, "--out", files / "cut.jsonl", "--resume"], ["cut.jsonl:2"],
            ranks=2)
    bad = test.validate(files / "cut.jsonl").returncode == 1 and test.validate(files / "status.jsonl").returncode == 1
    test.check(bad, "control: the validator refuses two of these files as well")


def launches(test):
    """Four processes that each believe to be alone: what an mpirun of another MPI library makes of `-np 4`."""
    for rank in range(4):
        env = {"PMI_SIZE": "4", "PMI_RANK": str(rank)}
        arguments = ["scale", "--out", test.folder / "files" / "separate.jsonl"]
        if rank == 0:
            refused(test, "four separate worlds of one rank", arguments, ["4 separate one-rank worlds", "mpirun"],
                    env=env)
            refused(test, "four separate worlds of one rank: train", ["train"], ["4 separate one-rank worlds"],
                    env=env)
            continue
        done = test.run(*arguments, env=env)
        test.check(done.code == 2 and not done.err and not done.out,
                   f"process {rank} of the four ends with exit code 2 and leaves the talking to the first", done)
    test.check(not (test.folder / "files" / "separate.jsonl").exists(), "none of them made the file")
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
    for size in ({"SLURM_STEP_NUM_TASKS": "4"}, {}, {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.7.0"}):
        refused(test, f"a task of srun that MPI does not hear of {size}", ["allreduce"], ["srun started 4 separate one-rank worlds", "--mpi=pmix"],
                env={**step, **size})
    small = ("allreduce", "--sizes", "8", "-n", "1", "-w", "0", "--algorithm", "ring")
    for what, ranks, env in (("srun -n1", None, {**step, "SLURM_NTASKS": "1"}), ("--thread-ranks in a batch script", 2, {**step, "SLURM_STEP_ID": "4294967291"})):
        done = test.run(*small, ranks=ranks, threads=True, env=env)
        test.check(done.code == 0, f"{what} stays fine", done)
    done = test.run("list", "algorithms", env={"PMI_SIZE": "4", "PMI_RANK": "0"})
    test.check(done.code == 0, "a command that needs no ranks does not mind", done)


def one_rank_alone(test):
    """A rank that alone finds its input wrong, as one node may: the others would wait for it for minutes."""
    good = (test.gradmeter, "allreduce", "--sizes", "64", "--algorithm", "ring")
    for bad in (0, 1):
        parts = [(*good, "--no-such-flag") if rank == bad else good for rank in range(2)]
        with support.Job(test, [test.mpiexec, "-np", "1", *parts[0], ":", "-np", "1", *parts[1]], test.environment()) as job:
            done = job.wait(60)
        reasons = [line for line in done.own_lines if "ended by SIG" not in line]  # what the other rank says
        test.check(done.code == 2 and len(reasons) == 1 and "--no-such-flag" in reasons[0],
                   f"bad input of rank {bad} alone ends the job with 2 and one line", done)


def body(test):
    (test.folder / "files").mkdir()
    all_refused(test, [("", *case) for case in FLAGS])
    all_refused(test, [("", *case, 2) for case in UNDER_MPIRUN])
    for flags in USED:
        done = test.run("scale", "--dry-run", "--ranks", "2", *flags)
        test.check(done.code == 0, f"control: {' '.join(flags)} is taken", done)
    data_files(test)
    result_files(test)
    launches(test)
    one_rank_alone(test)


if __name__ == "__main__":
    support.main(__doc__, body)
