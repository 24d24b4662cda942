# SPDX-License-Identifier: Apache-2.0
"""What a person reads before the first run: help, version, lists, a dry run, the doctor. All but the doctor work
without MPI and with an empty environment."""
import json
import re
import subprocess
import unicodedata

import support

# Flags that these commands must have, whatever they have besides. Those that are not here have flags too.
FLAGS = {
    "scale": """model batch ranks strategy algorithm transport overlap bucket scaling threads cadence precision update loss-scale gradients codec
                device mesh accumulate interconnect optimizer data seed time-budget min-samples precision-goal timeout learn lr-rule
                warmup strict dry-run wide out force resume append help""".split(),
    "train": """model batch strategy algorithm transport overlap bucket threads precision update loss-scale gradients codec device epochs
                steps target lr lr-rule warmup optimizer data train-samples validation-samples seed log-every timeout
                trace trace-steps noise-scale dump-gradients dump-weights dump-step strict out force append help""".split(),
    "kernels": """op set problems shape filter precision pass cache sweep batch-max packed against threads solo device check
                  seed time-budget min-samples precision-goal timeout damage dry-run csv json wide out force resume
                  append help""".split(),
    "infer": """model shrink batch precision epochs train-batch train-samples optimizer lr validation-samples
                calibration-samples threads device data seed time-budget min-samples precision-goal timeout dry-run csv
                json wide out force resume append help""".split(),
    "replay": "overlap seconds interconnect timeout wide out force append help".split(),
    "codecs": """codec size distribution parts ranks exchange baseline seed time-budget min-samples precision-goal csv
                 json wide out force resume append help""".split(),
    "predict": """calibrate score leave-out rows calibrate-rows choose-rows output model machine ranks nodes gpus-per-node link seq system
        batch batch-global micro-batch mesh sequence-parallel zero precision recompute attention codec what-if price out force append
        wide json outliers fail-above help""".split(),
    "list": ["json", "wide", "help"],
    "doctor": ["help"],
}
# What must be there, whatever else is: the registry, and some of its members.
MEMBERS = {
    "algorithms": ["mpi", "ring"], "codecs": ["none", "bf16", "qsgd4"], "data": ["digits", "idx", "language", "text"], "kernels": ["conv/onednn", "gemm/lns", "gemm/onednn", "gemm/converted", "gemm/reference", "gemm/emulated", "conv/emulated",
    "pointwise/highway", "rnn/onednn", "sparse/highway"],
    "links": ["100 GbE", "NDR InfiniBand 4x", "NVLink 5"], "machines": ["K80", "H100 SXM5", "TPU v4"],
    "lr-rules": ["constant", "linear"], "models": ["mlp", "ptb_lstm_large", "resnet50"], "optimizers": ["sgd", "adamw", "lars"],
    "precisions": ["fp32", "lns16", "fp16"],
    "problems": ["training/gemm", "server/sparse"], "published": ["v100-mixed", "knl7250-fp32"],
    "strategies": ["independent", "sync"], "transports": ["auto", "mpi", "shm"],
    "updates": ["fp32", "bf16-kahan", "lns16"],
}

# Lines of doctor, whatever was built in.
GPU_LIBRARIES = ["CUDA", "NCCL", "cuBLASLt", "cuDNN", "cuSPARSE", "cuSPARSELt", "MPI on GPUs", "NVML"]


def bare(test, *arguments):
    """With no environment at all: no PATH, no HOME, no launcher."""
    return test.run(*arguments, wrapper=("/usr/bin/env", "-i"), timeout=20)


def help_texts(test):
    for arguments in (["--help"], ["-h"], ["help"], []):
        done = bare(test, *arguments)
        test.check(done.code == 0 and not done.err and all(command in done.out for command in FLAGS),
                   f"gradmeter {' '.join(arguments)} names every command", done)
    commands = re.findall(r"^  (\w+) +\S", bare(test, "--help").out, re.M)
    test.check(set(FLAGS) < set(commands), "the help lists the commands, one a line", commands)
    for command in commands:
        done = bare(test, command, "--help")
        listed = re.findall(r"--([a-z][a-z-]*)", done.out.partition("Flags")[2])
        missing = set(FLAGS.get(command, ["help"])) - set(listed)
        test.check(done.code == 0 and not done.err and not missing, f"{command} --help lists its {len(listed)} flags",
                   f"missing: {missing}\n{done}")
        test.equal(bare(test, command, "-h").out, done.out, f"{command} -h says the same")
        test.equal(bare(test, "help", command).out, done.out, f"help {command} too")
    unknown = bare(test, "help", "scael")
    test.check(unknown.code == 2 and "scale" in unknown.err, "help of what is no command names the nearest", unknown)
    done = test.run("scale", "--help", ranks=2)
    test.check(done.code == 0 and done.out.count("gradmeter scale:") == 1, "under mpirun help is printed once", done)


def version(test):
    done = bare(test, "--version")
    declared = re.search(r"project\(gradmeter VERSION ([\d.]+)", (test.source / "CMakeLists.txt").read_text())[1]
    test.check(done.code == 0 and re.fullmatch(rf"gradmeter {re.escape(declared)} \(.+\)\n", done.out),
               f"--version says {declared} and the commit", done)
    test.equal(bare(test, "-v").out, done.out, "-v says the same")


def lists(test):
    done = bare(test, "list", "--json")
    everything = json.loads(done.out) if done.code == 0 else {}
    for kind, names in MEMBERS.items():
        members = everything.get(kind, [])
        found = [member["name"] for member in members]
        test.check(set(names) <= set(found) and len(found) == len(set(found)),
                   f"list --json: {kind} has {', '.join(names)}, and none twice", f"found {found}")
        one = bare(test, "list", kind, "--json")
        test.check(one.code == 0 and json.loads(one.out) == {kind: members}, f"list {kind} --json is that part of it",
                   one)
        table = bare(test, "list", kind)
        test.check(table.code == 0 and all(name in table.out for name in found), f"list {kind} names them too", table)
    sourced = [m for kind in ("algorithms", "strategies", "models", "optimizers") for m in everything.get(kind, [])]
    test.check(sourced and all(m["source"] for m in sourced),
               "each algorithm, strategy, model and optimizer names its source", sourced)
    vgg = next((m for m in everything.get("models", []) if m["name"] == "vgg16"), {})
    # fc6 has 4096 x 25088 of the 138 million parameters; the results of a sample's 16 products are 13,556,712 numbers.
    wanted = {"tensors": 32, "parameter_count": 138357544, "largest_tensor": "fc6.weight",
              "largest_share": 102760448 / 138357544, "forward_flop_per_sample": 30940528640,
              "activation_bytes_per_sample": 4 * 13556712, "about": "1 image 3x224x224"}
    test.equal({k: vgg.get(k) for k in wanted}, wanted, "a layer table's figures are in its row")
    two = bare(test, "list", "models", "algorithms", "--json")
    test.check(two.code == 0 and set(json.loads(two.out)) == {"models", "algorithms"}, "list takes several kinds", two)
    index = bare(test, "list")
    counts = dict(re.findall(r"^([\w-]+) +(\d+) +gradmeter list \1$", index.out, re.M))
    test.equal(counts, {kind: str(len(members)) for kind, members in everything.items()},
               "list without a kind is an index: each kind, its count, and the command that prints it")
    test.check(len(index.out.splitlines()) < 25, "which fits a screen", index)
    whole = bare(test, "list", "all")
    test.check(all(m["name"] in whole.out for members in everything.values() for m in members), "list all prints every one")
    test.equal(bare(test, "list", "--all").out, whole.out, "list --all too")


def widths(test):
    """Lines of all lists in a pipe, in a terminal, and with --wide [columns]."""
    def longest(done):
        return max(map(len, done.out.splitlines()))

    prose = ["list", *(kind for kind in MEMBERS if kind != "models")]
    piped, wide = bare(test, *prose), bare(test, *prose, "--wide")
    test.equal(longest(piped), 80, "tables in a pipe have 80 columns")
    test.check(longest(wide) > 200, "with --wide as many as they need", longest(wide))
    test.equal("".join(sorted(piped.out.replace("\n", "").replace("─", "").replace(" ", ""))),
               "".join(sorted(wide.out.replace("\n", "").replace("─", "").replace(" ", ""))), "and nothing is lost in 80")
    models = bare(test, "list", "models")
    test.check("left out: " in models.out and "; --wide shows all" in models.out, "figures that do not fit are named", models)
    narrow = test.run("list", "codecs", env={"COLUMNS": "90"})
    test.equal(longest(narrow), 90, "COLUMNS=90 gives 90")
    listing = f"stty cols 100; '{test.gradmeter}' list codecs"
    done = subprocess.run(["script", "-qec", listing, "/dev/null"], capture_output=True, text=True, timeout=20,
                          stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"}, check=False)
    test.equal(max(map(len, done.stdout.splitlines())), 100, "a terminal of 100 columns has 100")


def cells(line):
    """Terminal cells of a line."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def lines_of_tables(text):
    """The lines of each table: head and units above its rule, rows and notes below it up to an empty line."""
    lines = text.splitlines()
    for rule in (i for i, line in enumerate(lines) if line.startswith("──")):
        first = max(rule - 2, 0)
        after = next((i for i in range(rule, len(lines)) if not lines[i]), len(lines))
        # A table without units has one line of head; what stands above that is prose.
        head = lines[first:rule] if re.match(r" |size|ranks|batch", lines[first]) else lines[rule - 1:rule]
        yield from [*head, *lines[rule:after]]
    yield from (line for line in lines if re.match(r"\s+(epoch\b|\d+\.\d\d )", line))  # of train, which has no rule


def tables_fit(test):
    """In a pipe no line of a table is wider than 80 cells, and the words of its head are whole."""
    out, of_calls, quick = test.path("narrow.jsonl"), test.path("calls.jsonl"), ["--time-budget", "2s", "--precision-goal", "0.5"]
    few = ["--train-samples", "640", "--validation-samples", "64"]  # each is drawn
    trace = test.source / "tests" / "data" / "logs" / "kineto.json.gz"
    commands = [
        ["allreduce", "--algorithm", "all", "--sizes", "4K", "-n", "3", "--thread-ranks", "2", "--out", of_calls],
        ["allreduce", "--algorithm", "ring", "--sizes", "64K", "-n", "3", "--codec", "none,qsgd4:bucket=512", "--per-rank", "--thread-ranks", "2"],
        ["allreduce", "--algorithm", "ring,direct", "--sizes", "64K", "--dry-run"],
        ["scale", "--batch", "4", "--strategy", "all", "--codec", "none,qsgd4", "--dry-run", "--ranks", "1,2"],
        ["scale", "--model", "mlp:784-16-10", "--batch", "4", "--strategy", "sync,ps-async:servers=1", "--codec", "none,qsgd4",
         "--learn", "100", "--per-rank", "--per-bucket", "--thread-ranks", "2", "--out", out, *quick],
        ["train", "--model", "mlp:784-16-10", "--steps", "4", "--log-every", "2", *few],
        ["kernels", "--shape", "gemm:m=1760,n=16,k=1760,a=N,b=T", "--shape", "gemm:m=64,n=1,k=64,a=N,b=N", "--against", "knl7250-fp32", *quick],
        ["kernels", "--shape", "gemm:m=64,n=1,k=64,a=N,b=N", "--sweep", "batch", "--batch-max", "2", "--precision", "fp32,int8", *quick],
        ["kernels", "--op", "rnn", "--set", "server", "--dry-run"],
        ["infer", "--model", "mlp:784-16-10", "--batch", "1,16", "--precision", "fp32,int8", *few, *quick],
        ["infer", "--model", "mlp", "--dry-run"],
        ["codecs", "--codec", "bf16,qsgd4:bucket=512,dgc", "--size", "64K", *quick],
        ["codecs", "--exchange", "ring", "--codec", "qsgd4:bucket=512", "--ranks", "2,4", "--size", "64K"],
        ["links", "--thread-ranks", "2", *quick],
        ["links", "--thread-ranks", "2", "--pattern", "multi-pair", *quick],
        ["links", "--thread-ranks", "2", "--soak", "1s"],
        ["replay", trace, "--thread-ranks", "2", "--seconds", "1"],
        ["compare", of_calls, "--by", "in_place", "--all"],
        ["report", out, "--text"],
        ["list", "all"],
        ["list", "problems", "training/conv"],
    ]
    for arguments in commands:
        done = test.run(*arguments, env={"COLUMNS": "80"}, timeout=100)
        lines = list(lines_of_tables(done.out))
        wide = [line for line in lines if cells(line) > 80]
        label = " ".join(map(str, arguments[:2]))
        test.check(done.code == 0 and (lines or "multi" in label) and not wide, f"{label}: {len(lines)} lines of tables fit 80 cells",
                   "\n".join(wide) or done)


def legends(test):
    links = ["links", "--thread-ranks", "2", "--time-budget", "2s"]
    brief, whole = bare(test, *links).out, bare(test, *links, "--legend").out
    test.check("--legend explains" in brief and "robust deviations" not in brief, "a legend is brief", brief)
    test.check("robust deviations" in whole and "--legend explains" not in whole, "--legend prints all of it", whole)
    curve = ["scale", "--model", "mlp:784-16-10", "--batch", "4", "--time-budget", "1s"]
    explained = test.run(*curve, "--legend").out
    columns = "efficiency exchange scaling step exposed contend straggle interfere wait wire other limit rate".split()
    test.equal([c for c in columns if not re.search(rf"(?m)^{c} .{{20}}", explained)], [], "scale's legend explains each column")
    short = ["train", "--model", "mlp:784-16-10", "--steps", "2", "--train-samples", "640", "--validation-samples", "64", "--legend"]
    explained = test.run(*short).out
    test.equal([c for c in ("epoch", "loss", "validation", "step time", "rate") if not re.search(rf"(?m)^{c}  .*[a-z]{{3}}", explained)], [],
               "and train's")
    lines = test.run(*curve).out.splitlines()
    last = next(i for i, line in enumerate(lines) if line.startswith("--legend explains"))
    test.check(lines[last - 3] == "" and all(lines[last - 2:last]) and max(map(cells, lines[last - 2:last + 1])) <= 80,
               "it has three lines of at most 80 cells", lines)


def dry_run(test):
    out = test.path("dry.jsonl")
    done = bare(test, "scale", "--dry-run", "--batch", "16,64,256", "--ranks", "1,2,4", "--strategy",
                "independent,sync", "--algorithm", "mpi,ring", "--time-budget", "48s", "--out", out)
    test.check(done.code == 0 and not done.err, "a dry run for 4 ranks needs no mpirun", done)
    test.check(done.seconds < 2, "it takes less than 2 s", f"{done.seconds:.2f} s")
    rows = [line.split() for line in done.out.splitlines() if re.match(r"\s*\d+\s", line) and "mlp:784" in line]
    test.equal(len(rows), 24, "it lists all 24 points")
    planned = sorted((int(r[0]), int(r[2]), r[4], r[5] if r[5] in ("mpi", "ring") else "") for r in rows)
    wanted = sorted((ranks, batch, strategy, algorithm) for batch in (16, 64, 256) for ranks in (1, 2, 4)
                    for strategy in ("independent", "sync")
                    for algorithm in (("mpi", "ring") if strategy == "sync" and ranks > 1 else ("",)))
    test.equal(planned, wanted, "each with its ranks, batch, strategy and algorithm")
    test.check(all(re.search(r"[\d.]+ [KMG]iB +2\.0$", line) for line in done.out.splitlines() if "mlp:784" in line),
               "each with its memory and its share of the time", done)
    test.check(re.search(r"24 points, at most 48\.0 s in all; up to [\d.]+ [MG]iB of memory", done.out),
               "and the sums", done)
    test.check(not out.exists(), "it writes no file")

    alike = bare(test, "scale", "--dry-run", "--batch", "4", "--ranks", "2", "--strategy", "sync", "--precision", "fp32,bf16",
                 "--update", "fp32,bf16", "--bucket", "25MB,1M", "--wide")
    rows = [line.split() for line in alike.out.splitlines() if "mlp:784" in line]
    told = {tuple(r[:-3]) for r in rows}  # without memory and time
    test.equal(len(told), len(rows), "points that differ in further factors do not look alike")
    for factor in ("precision=bf16", "update=bf16", "bucket_bytes=25000000", "bucket_bytes=1048576"):
        test.check(factor in alike.out, f"{factor} is told", alike)

    strong = bare(test, "scale", "--dry-run", "--batch", "6", "--ranks", "1,4", "--scaling", "strong")
    test.check(strong.code == 0 and "unsupported: batch 6 does not divide by 4 ranks" in strong.out,
               "points that cannot be are shown with the reason", strong)
    under = test.run("scale", "--dry-run", ranks=2)
    test.check(under.code == 0 and under.out.count(" points, at most ") == 1 and re.search(r"^ +2 ", under.out, re.M),
               "under mpirun -np 2 it plans for 2 ranks, once", under)


def doctor(test):
    """Returns what it says of one rank."""
    outs = []
    for ranks in (None, 2):
        done = test.run("doctor", ranks=ranks, env={"COLUMNS": "80"}, timeout=90)
        outs.append(done.out)
        label = "doctor" if ranks is None else f"doctor on {ranks} ranks"
        test.equal([line for line in lines_of_tables(done.out) if cells(line) > 80], [], f"{label}: its tables fit 80 cells")
        test.check(done.code == 0 and not done.own_lines, f"{label} ends with 0", done)
        test.check("oversubscription" in done.out and re.search(r"each computes at \d+ % of its rate", done.out),
                   f"{label} says what oversubscription does to the numbers, measured", done)
        test.check(all(word in done.out for word in ("processor", "cores", "memory", "MPI", "fingerprint", "CUDA")),
                   f"{label} tells the machine", done)
        for name in GPU_LIBRARIES:
            line = re.search(rf"^{re.escape(name):11} (.+)$", done.out, re.M)
            test.check(line and ("needed for" in line[1]) != bool(re.match(r"\d|CUDA-aware|NVML \d", line[1])),
                       f"{label} says the version of {name}, or what it is needed for", done)
        count = "2 ranks on" if ranks else "1 rank on"
        test.check(count in done.out and done.out.count("fingerprint") == 1, f"{label} sees {count}, and speaks once",
                   done)
    test.check("all-reduce" in done.out and "barrier" in done.out, "with 2 ranks it times the exchange", done)
    return outs[0]


def no_device(test, machine):
    """Without a GPU, or built without CUDA, what is to compute on one ends with a line. Not bad input: exit code 3."""
    if re.search(r"^GPU \d", machine, re.M):
        print("note   there is a GPU: nothing is refused", flush=True)
        return
    for command in ("train", "scale", "allreduce", "codecs", "kernels"):
        done = test.run(command, "--device", "cuda")
        test.check(done.code == 3 and not done.out and len(done.own_lines) == 1 and "--device cuda" in done.err,
                   f"{command} --device cuda without a GPU: one line and exit code 3", done)
    plan = test.run("kernels", "--dry-run", "--device", "cuda")
    test.check(plan.code == 3 and len(plan.own_lines) == 1, "so does a plan that needs to know the GPU", plan)


def body(test):
    help_texts(test)
    version(test)
    lists(test)
    widths(test)
    tables_fit(test)
    legends(test)
    dry_run(test)
    no_device(test, doctor(test))


if __name__ == "__main__":
    support.main(__doc__, body)
