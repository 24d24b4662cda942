# SPDX-License-Identifier: Apache-2.0
"""--device cuda end to end, on the emulated CUDA runtime: training has the host's losses, each command's results are right,
no time of an emulated device is taken for a measurement, and what a device has not or lacks is said."""
import math
import os
import pathlib

import support

TOLERANCE = 1e-5  # of a loss, in nats: a device's exponentials are not the host's
EMULATED = "an emulated device: its times measure nothing"
QUICK = ["--threads", "1", "--precision-goal", "0.5", "--time-budget", "500ms"]
QUICK_KERNELS = [*QUICK[:-1], "5s"]  # they end earlier, but on a busy machine


def losses(path):
    """Loss by step, from the rows of single steps; rows of whole epochs carry an accuracy."""
    return {p["metrics"]["step"]: p["metrics"]["loss"] for p in support.points(path) if "accuracy" not in p["metrics"]}


def trained(test, name, device, *arguments):
    out = test.path(f"{name}-{device}.jsonl")
    done = test.run("train", "--threads", "1", "--steps", "3", "--log-every", "1", "--validation-samples", "16", "--device", device,
                    "--out", out, *arguments, ranks=2, timeout=120)
    test.check(done.code == 0 and not done.own_lines, f"{name} trains on {device}", done)
    test.valid(out)
    rows = support.points(out)
    test.check(rows and all(p["factors"]["device"] == device for p in rows), f"its rows say {device}")
    test.equal(any("time_s" in p["metrics"] for p in rows), device == "cpu", "times are a real device's alone")
    return losses(out)


def training(test):
    models = [("mlp", ["--model", "mlp:784-32-10", "--batch", "8", "--train-samples", "64"]),
              ("cnn", ["--model", "cnn", "--batch", "2", "--train-samples", "16"]),
              ("lstm-lm", ["--model", "lstm-lm", "--batch", "2", "--data", "language:steps=6"])]
    for name, arguments in models:
        host, device = (trained(test, name, d, *arguments) for d in ("cpu", "cuda"))
        test.check(host and host.keys() == device.keys(), f"{name}: the same steps", f"{host}\n{device}")
        worst = max((abs(device.get(step, math.inf) - loss) for step, loss in host.items()), default=math.inf)
        test.check(worst <= TOLERANCE, f"{name}: losses of both devices are within {TOLERANCE}", f"{host}\n{device}")
        test.check(len(set(host.values())) > 1, f"{name}: it learns something meanwhile", host)


def rows_of(test, name, *arguments, ranks=None, env=None):
    """A sweep's rows: valid, on cuda, none of them ok or wrong."""
    out = test.path(f"{name}.jsonl")
    done = test.run(*arguments, "--device", "cuda", "--out", out, ranks=ranks, timeout=120, env=env)
    test.check(done.code == 0 and not done.own_lines, f"{name} ends with 0", done)
    test.valid(out)
    rows = support.points(out)
    test.check(rows and all(r["factors"]["device"] == "cuda" for r in rows), f"{name}: each row says cuda")
    test.check(all(r["status"] in ("mistrusted", "unsupported") and r["reason"] for r in rows),
               f"{name}: no row is ok, each says why", [(r["status"], r["reason"]) for r in rows])
    return rows


def timed(rows):
    return [r for r in rows if r["status"] == "mistrusted" and EMULATED in r["reason"]]


def scale(test):
    rows = rows_of(test, "scale", "scale", "--model", "mlp:784-16-10", "--ranks", "2", "--batch", "4", "--algorithm", "ring",
                   "--transport", "shm", *QUICK, ranks=2)
    test.equal(len(timed(rows)), len(rows), "scale: all rows are mistrusted, as an emulated device's")
    test.check(all(r["metrics"].get("limit_s") is None for r in rows), "scale: the host's limit is none of a device's", rows)
    rows = rows_of(test, "scale in 16 and 8 bits", "scale", "--model", "mlp:784-16-10", "--precision", "fp16,fp8-e4m3", "--ranks", "1",
                   "--batch", "4", *QUICK)
    test.equal({r["factors"]["precision"] for r in timed(rows)}, {"fp16", "fp8-e4m3"}, "scale: what a host rounds to, a GPU is timed in")
    for model, precision in (("cnn:convolutions=1,filters=2,hidden=8", "fp8-e4m3"), ("mlp:784-16-10", "int4")):
        done = test.run("scale", "--device", "cuda", "--model", model, "--precision", precision, "--ranks", "1")
        test.check(done.code == 2 and len(done.own_lines) == 1 and "software rounds to it" in done.own_lines[0],
                   f"scale: {precision} is refused where a GPU leaves it to the host", done)
    done = test.run("train", "--device", "cuda", "--model", "mlp:784-16-10", "--precision", "fp16", "--steps", "1", "--threads", "1")
    test.check(done.code == 0 and "fp16  1 rank" in done.out, "train: fp16 on a GPU is not called emulated", done)


def codecs(test):
    rows = rows_of(test, "codecs", "codecs", "--codec", "qsgd4,bf16,dgc", "--size", "4K", *QUICK[2:])
    by_name = {r["factors"]["codec"].split(":")[0]: r for r in rows}
    test.equal({n: r["status"] for n, r in by_name.items()},
               {"qsgd4": "mistrusted", "bf16": "mistrusted", "dgc": "unsupported"}, "codecs: those of a GPU are timed")


def allreduce(test):
    rows = rows_of(test, "allreduce", "allreduce", "-b", "1K", "-e", "1K", "--algorithm",
                   "ring,nccl,gpu-direct,gpu-ring,nccl-messages:schedule=ring", "--collective", "all", "-n", "1", "-w", "1", ranks=3)
    measured = timed(rows)
    of_nccl = {r["factors"]["collective"] for r in measured if r["factors"]["algorithm"].startswith("nccl:")}
    test.equal(of_nccl, {r["factors"]["collective"] for r in rows}, "allreduce: NCCL has every collective")
    test.check({"allreduce", "reduce_scatter", "all_gather"} <=
               {r["factors"]["collective"] for r in measured if r["factors"]["algorithm"] == "ring"},
               "allreduce: ring has those of its kind")
    rings = {"allreduce", "reduce_scatter", "all_gather"}
    for name, kinds in (("gpu-direct", {"allreduce"}), ("gpu-ring", rings | {"broadcast", "sendrecv"}), ("nccl-messages", rings)):
        mine = [r for r in measured if r["factors"]["algorithm"].split(":")[0] == name]
        test.equal({r["factors"]["collective"] for r in mine}, kinds, f"allreduce: {name} has its collectives, between processes")
        test.check(all("staged" not in r["metrics"]["implementation"] for r in mine), f"allreduce: {name} is not staged", mine)
    test.equal({r["metrics"]["wrong"] for r in measured}, {0}, "allreduce: no element is wrong")
    for command in (["allreduce", "--overlap", "gemm"], ["codecs", "--exchange", "sra"]):
        refused = test.run(*command, "--device", "cuda")
        test.check(refused.code == 2 and "host" in refused.err, f"{' '.join(command)}: what runs on the host is refused", refused)


def one_gpu_for_all(test):
    """Kernels that wait for each other, and NCCL, need a GPU a rank; a schedule of ours does not."""
    waiting = "nccl,nccl-messages:schedule=ring,gpu-direct,gpu-multimem,gpu-ring"
    rows = rows_of(test, "one GPU", "allreduce", "-b", "1K", "-e", "1K", "--algorithm", f"ring,{waiting}", "-n", "1", "-w", "1", ranks=2,
                   env={"GRADMETER_CUDA_EMULATOR_SHARED": "0"})
    test.equal({r["factors"]["algorithm"].split(":")[0] for r in timed(rows)}, {"ring"}, "one GPU: only staged messages are timed")
    for name in ("nccl", "nccl-messages", "gpu-direct", "gpu-multimem", "gpu-ring"):
        mine = [r for r in rows if r["factors"]["algorithm"].split(":")[0] == name]
        words = "ranks 0 and 1 share the GPU 0000:00:00.0"
        test.check(mine and all(r["status"] == "unsupported" and words in r["reason"] for r in mine), f"one GPU: {name} is unsupported",
                   mine)


def started_cuda(test):
    """What CUDA reads when it starts is set, unless the user has set it, and is in the run's line."""
    for given, wanted in (({}, ("EAGER", "32")), ({"CUDA_MODULE_LOADING": "LAZY", "CUDA_DEVICE_MAX_CONNECTIONS": "3"}, ("LAZY", "3"))):
        out = test.path(f"started-{len(given)}.jsonl")
        done = test.run("codecs", "--codec", "bf16", "--size", "4K", *QUICK[2:], "--device", "cuda", "--out", out, env=given)
        environment = support.runs(out)[0]["environment"]
        test.check(done.code == 0 and tuple(environment.get(k) for k in ("CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS")) == wanted,
                   f"CUDA starts with {wanted}", environment)


def coded_allreduce(test):
    """What a GPU encodes is sent from its memory; cuda-mpi is refused between threads."""
    rows = rows_of(test, "coded allreduce", "allreduce", "-b", "8K", "-e", "8K", "--algorithm", "ring,direct,auto", "--codec",
                   "none,qsgd4,topk,dgc", "--transport", "shm,cuda-mpi", "-n", "1", "-w", "1", ranks=2)
    ways = {(r["factors"]["algorithm"], r["factors"]["codec"].split(":")[0]): r["metrics"]["implementation"] for r in timed(rows)}
    test.equal({k for k, way in ways.items() if "messages staged" in way},
               {(a, c) for a in ("ring", "direct") for c in ("none", "qsgd4", "topk")}, "allreduce: whose messages a GPU sends")
    test.check(all(", staged through" in way for k, way in ways.items() if k[0].startswith("auto") or k[1] == "dgc"),
               "allreduce: all else is staged whole", ways)
    by_mpi = [r for r in rows if r["factors"]["transport"] == "cuda-mpi"]
    ours = [r for r in by_mpi if r["factors"]["algorithm"] != "auto"]
    test.check(ours and all("ranks as processes" in r["reason"] for r in ours) and all(r["status"] == "unsupported" for r in by_mpi),
               "allreduce: cuda-mpi is unsupported, with the reason", by_mpi)
    wrong = test.run("allreduce", "--device", "cuda", "-b", "1K", "-e", "1K", "--algorithm", "ring", "-n", "1", "-w", "1", "--inject",
                     "flip:rank=1", ranks=2, timeout=120)
    test.check(wrong.code == 4, "allreduce: an element made wrong on a GPU is found", wrong)


def graphs(test):
    """Captured calls: right, told apart by their factor, and refused where the host is in between."""
    names = ["nccl", "nccl-messages", "gpu-direct", "gpu-ring"]
    arguments = ["allreduce", "-b", "1K", "-e", "1K", "--algorithm", ",".join([*names, "ring"]), "-n", "2", "-w", "1", "--in-place", "both",
                 "--agg_iters", "3", "--cudagraph", "none,2"]
    rows = rows_of(test, "graphs", *arguments, ranks=3)
    of = {g: [r for r in rows if r["factors"]["cudagraph"] == g] for g in (None, 2)}
    test.equal([len(of[None]), len(of[2])], [10, 10], "graphs: none and captured")
    captured = timed(of[2])
    test.equal(sorted(r["factors"]["algorithm"].split(":")[0] for r in captured), sorted(2 * names), "graphs: of what runs in a stream")
    test.equal({r["metrics"]["wrong"] for r in captured}, {0}, "graphs: no element is wrong")
    test.equal({r["metrics"].get("bytes_per_rank") for r in captured if "messages" in r["factors"]["algorithm"]},
               {r["metrics"].get("bytes_per_rank") for r in timed(of[None]) if "messages" in r["factors"]["algorithm"]},
               "graphs: a captured call sends what a plain one does")
    test.check(all("cannot be captured" in r["reason"] for r in of[2] if r["factors"]["algorithm"] == "ring"), "graphs: ring is refused")
    out = test.path("graphs-wrong.jsonl")
    done = test.run(*arguments, "--device", "cuda", "--inject", "flip:rank=1", "--out", out, ranks=3, timeout=120)
    test.check(done.code == 4 and "graph×2" in done.out, "graphs: what is wrong in a captured iteration is found", done)
    test.equal({r["status"] for r in support.points(out) if r["factors"]["algorithm"] != "ring"}, {"wrong"}, "graphs: in every row")


def registered_buffers(test):
    """Of NCCL's own memory: right, also captured, and refused by all that registers none."""
    rows = rows_of(test, "registered", "allreduce", "-b", "1K", "-e", "1K", "--algorithm", "nccl,nccl-messages,gpu-ring,ring",
                   "--buffers", "arena,registered", "--in-place", "both", "--cudagraph", "none,2", "-n", "2", "-w", "1", ranks=2)
    mine = [r for r in rows if r["factors"]["buffers"] == "registered"]
    measured = timed(mine)
    test.equal(sorted((r["factors"]["algorithm"].split(":")[0], r["factors"]["cudagraph"] or 0) for r in measured),
               2 * [("nccl", 0)] + 2 * [("nccl", 2)], "registered: nccl alone")
    test.equal({r["metrics"]["wrong"] for r in measured}, {0}, "registered: no element is wrong")
    plain = [r for r in mine if r not in measured and r["factors"]["cudagraph"] is None]
    reasons = [r["reason"] for r in plain]
    test.check(plain and all("registers no buffers" in why for why in reasons), "registered: others say why", reasons)


def watched(test):
    """By a stand-in for NVML, which knows the emulated GPU as one of 1410 MHz with its power brake on."""
    build = pathlib.Path(test.gradmeter).parent
    library = next(build.glob("tests/interposed/*interposed_nvml.so"))
    folder = pathlib.Path(test.path("nvml"))
    folder.mkdir()
    (folder / "libnvidia-ml.so.1").symlink_to(library)
    there = {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}", "NVML_BUS_ID": "0000:00:00.0"}
    commands = {"allreduce": ["-b", "1K", "-e", "1K", "--algorithm", "nccl", "-n", "2", "-w", "1"],
                "kernels": ["--shape", "gemm:m=17,n=8,k=24", *QUICK],
                "codecs": ["--codec", "bf16", "--size", "4K", *QUICK[2:]],
                "infer": [*INFER[1:], "--model", "mlp:784-16-10", "--batch", "1", "--precision", "fp32"]}
    keys = ("gpu_clock_hz", "gpu_power_watts", "gpu_slowed_by")
    for command, arguments in commands.items():
        for env, wanted in ((there, (1410e6, 300.5, "power brake")), ({}, (None, None, None))):
            out = test.path(f"watched-{command}-{len(env)}.jsonl")
            done = test.run(command, *arguments, "--device", "cuda", "--out", out, env=env, timeout=120)
            test.check(done.code == 0, f"{command} ends with 0, watched by {'NVML' if env else 'nothing'}", done)
            test.valid(out)
            test.equal({tuple(r["metrics"].get(k) for k in keys) for r in timed(support.points(out))}, {wanted},
                       f"{command}: what NVML says of the GPU")


def train_between_gpus(test):
    ways = [trained(test, f"mlp-{a.split(':')[0]}", "cuda", "--model", "mlp:784-16-10", "--batch", "4", "--train-samples", "32",
                    "--algorithm", a) for a in ("ring", "gpu-ring", "nccl-messages:schedule=recursive-doubling")]
    test.check(ways[0] and all(w == ways[0] for w in ways), "two ranks' sums are the same whatever moves them", ways)


def kernels(test):
    shapes = {"gemm:m=17,n=8,k=24": "gemm", "conv:w=6,h=6,c=2,n=2,k=3,fw=3,fh=3": "conv",
              "rnn:cell=lstm,hidden=8,batch=2,steps=2": "rnn", "pointwise:kind=adam,elements=500": "pointwise"}
    for shape, name in shapes.items():
        for row in rows_of(test, f"kernels of {name}", "kernels", "--shape", shape, "--cache", "hot,cold", *QUICK_KERNELS):
            m = row["metrics"]
            good = row in timed([row]) and 0 <= m["error"] < 1e-4 and m["time_s"]["median"] > 0 and m["implementation"]
            test.check(good and "on the host" not in m["implementation"] and "onednn" not in m["implementation"],
                       f"kernels: {name} {row['factors']['cache']} is checked and timed by {m.get('implementation')}", row)
    for shape, precision, words in (("pointwise:kind=lstm-cell,elements=500", "fp32", "recurrent"),
                                    ("gemm:m=8,n=8,k=8", "int4", "on cuda")):
        rows = rows_of(test, f"kernels of {shape} in {precision}", "kernels", "--shape", shape, "--precision", precision, *QUICK_KERNELS)
        test.check(all(r["status"] == "unsupported" and words in r["reason"] for r in rows),
                   f"kernels: {shape} in {precision} is unsupported, with the reason", rows)
    rows = rows_of(test, "kernels with both searches", "kernels", "--shape", "gemm:m=17,n=8,k=24", "--search", "all", *QUICK_KERNELS)
    test.equal([row["factors"].get("search") for row in rows], [None, "exhaustive"], "kernels: the search is a factor")
    wrong = test.run("kernels", "--device", "cuda", "--shape", "gemm:m=17,n=8,k=24", "--damage", "0", *QUICK_KERNELS)
    test.check(wrong.code == 4, "kernels: an element made wrong is found", wrong)
    plan = test.run("kernels", "--device", "cuda", "--dry-run", "--op", "gemm", "--set", "device")
    test.check(plan.code == 0 and "points" in plan.out, "kernels: a plan for the device", plan)


INFER = ["infer", "--threads", "1", "--train-samples", "64", "--train-batch", "8", "--epochs", "1", "--validation-samples", "40",
         "--calibration-samples", "16", "--min-samples", "3", "--precision-goal", "0.5", "--time-budget", "500ms"]


def infer(test):
    """The host's logits are those that a GPU's are compared with, so the error says whether it computes the same network."""
    for name, precisions, on_the_host in (("mlp:784-16-10", "fp32,bf16,fp16,int8,int4", ["int4"]),
                                          ("cnn:convolutions=1,filters=2,hidden=8", "fp32,bf16,int8", ["int8"]),
                                          ("lstm:hidden=8", "fp32,bf16", [])):
        case = [*INFER, "--model", name, "--batch", "2", "--precision", precisions]
        rows = rows_of(test, f"infer {name}", *case)
        by_precision = {r["factors"]["precision"]: r for r in rows}
        on_cpu = test.path("infer-on-cpu.jsonl")
        test.run(*case, "--device", "cpu", "--force", "--out", on_cpu)
        error = {p: r["metrics"]["error"] for p, r in by_precision.items()}
        of_cpu = {p["factors"]["precision"]: p["metrics"]["error"] for p in support.points(on_cpu)}
        test.check(0 < error.pop("fp32") < 1e-5 and all(abs(error[p] / of_cpu[p] - 1) < 0.05 for p in error),
                   f"infer: a GPU's {name} has the host's logits in fp32, and loses as much in other precisions", (by_precision, of_cpu))
        test.check(all("accuracy" in r["metrics"] for r in rows), f"infer: {name} has an accuracy in each precision", rows)
        times = [p for p, r in by_precision.items() if "time_s" in r["metrics"]]
        test.equal(times, [p for p in precisions.split(",") if p not in on_the_host], f"infer: {name} is timed where a GPU computes it")
    test.check("int8" not in times and by_precision["fp32"]["metrics"]["implementation"].startswith("own"), "infer: by kernels of a GPU", rows)
    rows = rows_of(test, "infer a table", *INFER, "--model", "alexnet", "--shrink", "32", "--batch", "1", "--precision", "fp32,int8")
    test.equal([r["status"] for r in rows], ["mistrusted", "unsupported"], "infer: a layer table is timed in what a GPU computes")
    test.check("leaves a layer to the host" in rows[1]["reason"], "infer: what the host would compute is said to be", rows[1])
    rows = rows_of(test, "infer on two", *INFER, "--model", "mlp:784-16-10", "--batch", "2", "--precision", "fp32", ranks=2)
    test.check(rows[0]["metrics"]["ranks_spread"] >= 1, "infer: two ranks at once, a GPU each", rows)


def refusal(test, what, variables, wanted, *arguments, ranks=None):
    """Exit code 3, and one line that says all of `wanted`."""
    done = test.run(*arguments, "--device", "cuda", ranks=ranks, env=variables, timeout=120)
    test.check(done.code == 3 and len(done.own_lines) == 1 and all(w in done.own_lines[0] for w in wanted), what, done)


def short_of_memory(test):
    """Ranks of the emulator have a memory each."""
    small = {"GRADMETER_CUDA_EMULATOR_MEMORY": str(4 << 20)}
    needed = ("MiB more are needed", "of 4 MiB are free on GPU 0", "choose a smaller")
    refusal(test, "train: too little memory is one line", small, needed, "train", "--model", "mlp:784-2048-10", "--batch", "4",
            "--steps", "1", "--train-samples", "16", "--validation-samples", "16")
    out = test.path("short-of-memory.jsonl")
    sizes = ["allreduce", "--algorithm", "ring", "-n", "1", "-w", "1", "-f", "64", "-b", "1K", "--append", "--out", out]
    done = test.run(*sizes, "-e", "64K", "--device", "cuda", ranks=2, env=small)
    before = support.points(out)
    test.check(done.code == 0 and before, "allreduce: what fits is measured", done)
    refusal(test, "allreduce: too little memory is one line", small, needed, *sizes, "-e", "16M", ranks=2)
    test.equal(support.points(out), before, "allreduce: points measured before are kept")
    refusal(test, "infer: too little memory is one line", small, needed, *INFER, "--model", "mlp:784-2048-10")
    rows = test.path("small-codecs.jsonl")
    refusal(test, "codecs: too little memory is one line", small, needed, "codecs", "--codec", "bf16", "--size", "4K,16M", *QUICK[2:],
            "--out", rows)
    test.equal([r["factors"]["codec"] for r in support.points(rows)], ["bf16:ef=off,min=1024"], "codecs: the points measured before are kept")
    out = test.path("short-kernels.jsonl")
    room = {"GRADMETER_CUDA_EMULATOR_MEMORY": str(40 << 20)}  # cuBLASLt's workspace is 32 MiB
    command = ["kernels", "--device", "cuda", "--append", "--out", out, *QUICK]
    for shape in ("gemm:m=64,n=64,k=64", "gemm:m=2048,n=2048,k=2048"):
        done = test.run(*command, "--shape", shape, env=room)
        test.check(done.code == 0 and not done.own_lines, f"kernels: {shape} in 40 MiB ends with 0", done)
    before = support.points(out)
    test.equal([r["status"] for r in before], ["mistrusted", "skipped"], "kernels: what fits is measured, what does not is skipped")
    test.check("48 MiB of the device's memory, of which a rank has 40 MiB" in before[-1]["reason"],
               "kernels: the row that is skipped says what it needs and what there is", before[-1])
    refusal(test, "kernels: too little memory for a library is one line", small, needed, "kernels", "--shape", "gemm:m=65,n=64,k=64",
            "--append", "--out", out, *QUICK)
    test.equal(support.points(out), before, "kernels: points measured before are kept")


def short_on_one_rank(test):
    """What one rank alone has too little memory for is a row `failed` on all ranks; none waits for it in a library."""
    second = 'test "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" != 1 || export GRADMETER_CUDA_EMULATOR_MEMORY=%d; exec "$0" "$@"' % 1300000
    test.threads = False  # ranks with an environment each
    for collective, options in (("allreduce", ["--algorithm", "gpu-direct,gpu-ring,ring"]), ("allreduce", ["--algorithm", "nccl-messages,ring"]),
                                ("all_to_all", ["--algorithm", "nccl"])):
        out = test.path("short-on-one.jsonl")
        done = test.run("allreduce", "--collective", collective, *options, "--in-place", "in", "-b", "1M", "-e", "1M", "-n", "1", "-w", "1", "--timeout", "20",
                        "--device", "cuda", "--out", out, "--force", ranks=2, wrapper=("bash", "-c", second), timeout=60)
        rows = support.points(out)
        test.check(rows and all(r["status"] == "failed" and "rank 1" in r["reason"] or r["factors"]["algorithm"].startswith("ring") for r in rows)
                   and any(r["status"] == "failed" for r in rows), f"{' '.join(options)}: too little memory on one rank is a failed row", (done, rows))
    test.threads = True


def lost(test):
    """A kernel that ends by an illegal access leaves no GPU: the run stops with a code of its own, and no point gets the blame."""
    said = ("an illegal memory access", "GPU 0 answers no call any more", "this thread gave it last: ")
    commands = {"kernels": (["kernels", "--shape", "pointwise:kind=adam,elements=500", *QUICK_KERNELS], None, ("measuring ",)),
                "codecs": (["codecs", "--codec", "bf16", "--size", "4K", *QUICK[2:]], None, ("measuring ",)),
                "infer": ([*INFER, "--model", "mlp:784-16-10", "--batch", "2", "--precision", "fp32"], None, ()),
                "train": (["train", "--threads", "1", "--model", "mlp:784-16-10", "--batch", "8", "--steps", "2", "--train-samples", "64"], 2, ())}
    for name, (arguments, ranks, words) in commands.items():
        out = test.path(f"lost-{name}.jsonl")
        done = test.run(*arguments, "--device", "cuda", "--out", out, ranks=ranks, timeout=120, env={"GRADMETER_CUDA_EMULATOR_FAIL_KERNEL": "1"})
        lines = [line for line in done.own_lines if "GPU 0" in line]
        test.check(done.code == 5 and lines and all(w in lines[0] for w in (*said, *words)), f"{name}: a GPU that is lost ends it with 5", done)
        test.check(all(p["status"] not in ("failed", "unsupported") for p in support.points(out)), f"{name}: no row has the blame")
    out = test.path("lost-allreduce.jsonl")
    sweep = ["allreduce", "--device", "cuda", "-b", "1K", "-e", "4K", "-f", "2", "--algorithm", "gpu-direct", "-n", "1", "-w", "1", "--out", out]
    for kernel in (1, *range(12, 400, 24)):
        done = test.run(*sweep, "--force", ranks=2, timeout=120, env={"GRADMETER_CUDA_EMULATOR_FAIL_KERNEL": str(kernel)})
        kept = len(support.points(out))
        if done.code != 5 or kept > 0:
            break
    lines = [line for line in done.own_lines if "GPU 0" in line]
    test.check(done.code == 5 and 0 < kept < 3 and lines and all(w in lines[0] for w in (*said, "gpu-direct", "measuring ", "size_bytes=")),
               "allreduce: the points before the loss are kept, and the point is named", done)
    again = test.run(*sweep, "--resume", ranks=2, timeout=120)
    test.check(again.code == 0 and len(support.points(out)) >= 3, "allreduce: and the rest is measured by --resume", again)


def drivers(test):
    for ranks, arguments in ((2, ["train", "--steps", "1"]), (2, ["allreduce"]), (None, ["codecs"]), (None, ["kernels"]), (2, ["infer"])):
        refusal(test, f"{arguments[0]}: a driver older than the runtime is one line", {"GRADMETER_CUDA_EMULATOR_DRIVER": "12020"},
                ("driver is for 12.2 and the program for 13", "update the driver or use --device cpu"), *arguments, ranks=ranks)
    doctor = test.run("doctor", env={"GRADMETER_CUDA_EMULATOR_DRIVER": "12020"}, timeout=120)
    test.check("the CUDA driver is for 12.2" in doctor.out, "doctor: names the old driver", doctor)
    one = test.run("train", "--device", "cuda:7")
    test.check(one.code == 2 and len(one.own_lines) == 1 and "cpu, cuda" in one.err, "train: ranks choose their GPU, no number is taken", one)


def body(test):
    os.environ["GRADMETER_CUDA_EMULATOR_SHARED"] = "1"  # the emulated device stands for one each rank
    started_cuda(test)
    one_gpu_for_all(test)
    short_of_memory(test)
    short_on_one_rank(test)
    drivers(test)
    lost(test)
    kernels(test)
    codecs(test)
    infer(test)
    training(test)
    train_between_gpus(test)
    scale(test)
    allreduce(test)
    coded_allreduce(test)
    graphs(test)
    registered_buffers(test)
    watched(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
