#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same networks from the same weights on the same batches in gradmeter and in PyTorch: do the losses agree,
and which is faster? On several ranks PyTorch uses DistributedDataParallel over gloo.

    compare-pytorch.py GRADMETER [--models mlp,cnn,lstm,lstm-lm] [--ranks 1,2] [--batches 64] [--launches 0]
    compare-pytorch.py GRADMETER --device cuda [--products fp32,tf32,bf16,fp16] [--edge 8192] [--mib 256] [--launches 2]

With --device cuda both sides use the first GPU, on one rank. Products of matrices and a copy of memory are timed first,
then training steps, by the GPU's own events on both sides. --products and --mib do the same on the CPU.

Without --launches losses alone are compared. With them both sides are launched in turn so many times, and the table has
the medians over launches of a step's median time and the 95 % interval of their ratio (bootstrap over launches). Each
model is also trained in PyTorch with a mistake, which the comparison must find: one weight off by 0.01 or, of an LSTM, two
gates in the wrong order.
Exit codes: 1 when losses differ by more than 1e-5, or do not with the mistake; 2 when something is missing.
"""
import argparse
import collections
import importlib
import importlib.util
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    numpy = None  # main says so

TOLERANCE = 1e-5
SAMPLES, SIDE, WORDS, SENTENCE = 12800, 28, 200, 20
WARM_UP = 10  # steps that are not timed
# Larger ones make training unstable: rounding then grows beyond any tolerance. Of thousands of ReLUs some lie within
# rounding of their kink, and the gradient of their weights, as large as the image, is there on one side only.
STEP_SIZES = {"mlp": 0.02, "cnn": 0.001, "lstm": 0.1, "lstm-lm": 2.0}
SEED = 1


class Failed(Exception):
    """One line for the user."""


def philox(counter, key):
    """Philox4x32-10 of arrays; the first two words."""
    c = [numpy.asarray(w, dtype=numpy.uint64) for w in counter]
    low, shift = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    k0, k1 = key
    for _ in range(10):
        a, b = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(b >> shift) ^ c[1] ^ numpy.uint64(k0), b & low, (a >> shift) ^ c[3] ^ numpy.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c[0], c[1]


def permutation(n, seed):
    """core::Permutation of [0, n): a Feistel network of six rounds, walked on until the image lies inside."""
    half = 1
    while (n - 1) >> (2 * half):
        half += 1
    mask, bits, zero = numpy.uint64(2**half - 1), numpy.uint64(half), numpy.zeros(1, numpy.uint64)

    def encrypt(x):
        left, right = x >> bits, x & mask
        for turn in range(6):
            word, _ = philox((right, zero + numpy.uint64(turn), zero, zero), (seed % 2**32, seed >> 32))
            left, right = right, left ^ (word & mask)
        return left << bits | right

    places = encrypt(numpy.arange(n, dtype=numpy.uint64))
    while (outside := places >= n).any():
        places[outside] = encrypt(places[outside])
    return places.astype(numpy.int64)


def samples_of_steps(steps, batch):
    """model::Sampler: which samples [steps, batch] the global batches have; an epoch's incomplete last one is left out."""
    rows = []
    for epoch in range(math.ceil(steps / (SAMPLES // batch))):
        low, high = philox(([0], [0], [epoch], [0]), (SEED, 0))
        order = permutation(SAMPLES, int(low[0]) | int(high[0]) << 32)
        rows.append(order[:SAMPLES // batch * batch].reshape(-1, batch))
    return numpy.concatenate(rows)[:steps]


def write_images(folder):
    """Noisy copies of ten random images, as MNIST's files and as PyTorch takes them."""
    rng = numpy.random.default_rng(SEED)
    ideal = rng.integers(0, 256, (10, SIDE, SIDE))
    for part, count in (("t10k", 100), ("train", SAMPLES)):
        labels = rng.integers(0, 10, count, dtype=numpy.uint8)
        images = (ideal[labels] // 4 + rng.integers(0, 64, (count, SIDE, SIDE))).astype(numpy.uint8)  # dark: see STEP_SIZES
        head = struct.pack(">4I", 0x803, count, SIDE, SIDE), struct.pack(">2I", 0x801, count)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head[0] + images.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(head[1] + labels.tobytes())
    inputs = (images.reshape(SAMPLES, -1).astype(numpy.float32) / 255 - 0.1307) / 0.3081
    numpy.savez(folder / "images.npz", inputs=inputs.astype(numpy.float32), labels=labels[:, None])
    return folder, folder / "images.npz"


def write_text(folder):
    """A text in which four words may follow each word; gradmeter numbers words by their frequency, then their letters."""
    rng = numpy.random.default_rng(SEED)
    follow = rng.integers(0, WORDS, (WORDS, 4))
    words, word = [], 0
    for choice in rng.integers(0, 4, SAMPLES * SENTENCE * 9 // 8):  # a tenth of the windows is for validation
        word = follow[word, choice]
        words.append(f"w{word}")
    lines = [words[i:i + 25] for i in range(0, len(words), 25)]
    (folder / "text").write_text("".join(" ".join(line) + "\n" for line in lines))
    text = [w for line in lines for w in (*line, "<eos>")]
    counts = collections.Counter(text, **{"<unk>": 0})
    numbers = {w: i for i, w in enumerate(sorted(counts, key=lambda w: (-counts[w], w)))}
    text = numpy.array([numbers[w] for w in text[:SAMPLES * SENTENCE + 1]], dtype=numpy.int64)
    numpy.savez(folder / "text.npz", inputs=text[:-1].reshape(SAMPLES, -1), labels=text[1:].reshape(SAMPLES, -1))
    return f"{folder / 'text'}:steps={SENTENCE}", folder / "text.npz"


def launch(o, ranks, command):
    """More than one rank under mpirun: both sides get the same cores."""
    if ranks > 1:
        command = [o.mpiexec, "-np", str(ranks), *command]
    environment = {**os.environ, "OMP_NUM_THREADS": str(o.threads)}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900, check=False,
                          env=environment)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")


class Case:
    """One model on so many ranks, trained by either side."""

    def __init__(self, o, folder, data, model, ranks, batch):
        self.o, self.folder, self.data, self.model, self.ranks, self.batch = o, folder, data, model, ranks, batch
        self.weights, self.samples = folder / "weights", folder / "samples.npy"
        numpy.save(self.samples, samples_of_steps(o.steps, batch * ranks))

    def gradmeter(self):
        """(losses, times [s]) of each step."""
        out = self.folder / "gradmeter.jsonl"
        launch(self.o, self.ranks, [
            self.o.gradmeter, "train", "--model", self.model, "--data", self.data[0], "--batch", self.batch, "--threads",
            self.o.threads, "--steps", self.o.steps, "--lr", STEP_SIZES[self.model], "--warmup", "0", "--optimizer",
            "sgd", "--seed", SEED, "--train-samples", SAMPLES, "--validation-samples", "100", "--epochs", "1000",
            "--log-every", "1", "--dump-weights", self.weights, "--out", out, "--force", *on_device(self.o)])
        points = [p for p in map(json.loads, out.read_text().splitlines()) if p["kind"] == "point"]
        losses = {p["metrics"]["step"]: p["metrics"]["loss"] for p in points if "accuracy" not in p["metrics"]}
        times = [t for p in points for t in p.get("raw_times_s", [])]
        return [losses[step] for step in range(self.o.steps)], times

    def pytorch(self, wrong=False):
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = pathlib.Path(name)
            (folder / "job.json").write_text(json.dumps({
                "weights": str(self.weights), "data": str(self.data[1]), "samples": str(self.samples), "ranks": self.ranks,
                "threads": self.o.threads, "lr": STEP_SIZES[self.model], "wrong": wrong, "folder": name,
                "device": self.o.pytorch_device}))
            worker = pathlib.Path(__file__).with_name("pytorch_training.py")
            launch(self.o, self.ranks, [sys.executable, worker, folder / "job.json"])
            ranks = [json.loads((folder / f"rank-{r}.json").read_text()) for r in range(self.ranks)]
        return [statistics.fmean(step) for step in zip(*(r["losses"] for r in ranks))], ranks[0]["times"]


def on_device(o):
    return [] if o.device == "cpu" else ["--device", o.device, "--thread-ranks", "1"]


def measured(o, folder, *command):
    """The first row of a command of gradmeter that measures."""
    out = folder / "measured.jsonl"
    launch(o, 1, [o.gradmeter, *command, "--time-budget", f"{o.seconds}s", "--out", out, "--force"])
    points = [p for p in map(json.loads, out.read_text().splitlines()) if p["kind"] == "point"]
    if not points or points[0]["status"] not in ("ok", "mistrusted"):
        raise Failed(f"{' '.join(map(str, command))} measured nothing: {points[0]['reason'] if points else 'no row'}")
    return points[0]["metrics"]


def median_of(metric):
    return metric["median"] if isinstance(metric, dict) else metric


def compare_in_turn(o, what, work, ours, theirs):
    """Prints a row: medians over launches of both sides, each launched in turn; work: what a second is divided into."""
    times = ([], [])
    for number in range(max(1, o.launches)):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side].append((ours, theirs)[side]())
    amount, unit = work
    medians = [statistics.median(t) for t in times]
    print_row([what, *(f"{amount / m:.1f}" for m in medians), unit, f"{medians[1] / medians[0]:.2f}",
               " ".join(f"{b / a:.2f}" for a, b in zip(*times))])


def compare_operations(o, folder):
    """Products of each precision, and a copy."""
    worker = importlib.import_module("pytorch_training")
    worker.torch.set_num_threads(o.threads)
    device = ["--device", o.device, *([] if o.device == "cuda" else ["--threads", o.threads])]
    print_row(["operation", "gradmeter", "PyTorch", "unit", "time of PyTorch / of gradmeter", "of each launch"])
    print_row(["---"] * 6)
    n = o.edge
    for precision in o.products:
        def product():
            return measured(o, folder, "kernels", *device, "--thread-ranks", "1", "--shape", f"gemm:m={n},n={n},k={n}",
                            "--precision", precision)["time_s"]["median"]
        compare_in_turn(o, f"product of {n}³ in {precision}", (2e-12 * n**3, "TFLOP/s"), product,
                        lambda: worker.time_product(o.pytorch_device, precision, n))
    if o.mib:
        size = o.mib << 20

        def copy():
            return median_of(measured(o, folder, "codecs", "--device", o.device, "--codec", "bf16", "--size",
                                      f"{o.mib}M")["memcpy_s"])
        compare_in_turn(o, f"copy of {o.mib} MiB, read and written", (2e-9 * size, "GB/s"), copy,
                        lambda: worker.time_copy(o.pytorch_device, size))
    print(flush=True)


def difference(one, other):
    return max(abs(a - b) if math.isfinite(a - b) else math.inf for a, b in zip(one, other, strict=True))


def compare(case, o):
    """The row of a case; whether its losses agree, and the control's do not."""
    times = ([], [])
    losses = [None, None]
    worst = 0.0
    for number in range(max(1, o.launches)):
        # gradmeter begins the first launch, since it writes the weights; then who begins alternates.
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            losses[side], steps = (case.gradmeter, case.pytorch)[side]()
            times[side].append(1e3 * statistics.median(steps[WARM_UP:]))
        worst = max(worst, difference(*losses))
    control = difference(losses[0], case.pytorch(wrong=True)[0])
    row = [case.model, case.batch, case.ranks, f"{losses[0][0]:.4f}", f"{losses[0][-1]:.4f}", f"{worst:.1e}",
           f"{control:.1e}"]
    if o.launches:
        ratio, low, high = importlib.import_module("compare-speed").ratio_interval(*times)
        row += [f"{statistics.median(t):.3f}" for t in times] + [f"{ratio:.2f}", f"{low:.2f}-{high:.2f}"]
    return row, worst <= TOLERANCE < control


def print_row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def numbers(text):
    return [int(part) for part in text.split(",")]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradmeter", type=pathlib.Path, help="the program")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(STEP_SIZES),
                        help="'' compares none")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--pytorch-device", help="of PyTorch alone, where gradmeter's is emulated (default: as --device)")
    parser.add_argument("--products", type=lambda text: text.split(","), help="precisions of products (default: none on a CPU)")
    parser.add_argument("--edge", type=int, default=8192, help="of the matrices that are multiplied")
    parser.add_argument("--mib", type=int, help="of the memory that is copied (default: 256 on a GPU, 0 on a CPU)")
    parser.add_argument("--seconds", type=int, default=4, help="that gradmeter may take for a product or a copy")
    parser.add_argument("--ranks", type=numbers, help="(default: 1,2, on a GPU 1)")
    parser.add_argument("--batches", type=numbers, default=[64], help="of a rank")
    parser.add_argument("--threads", type=int, default=1, help="of a rank, on both sides")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--launches", type=int, help="of each side; 5 or more tell something about times (default: 0, on a GPU 2)")
    parser.add_argument("--mpiexec", default="mpirun")
    o = parser.parse_args()
    gpu = o.device == "cuda"
    o.pytorch_device = o.pytorch_device or o.device
    o.ranks = o.ranks or ([1] if gpu else [1, 2])
    if o.launches is None:
        o.launches = 2 if gpu else 0
    if o.products is None:
        o.products = ["fp32", "tf32", "bf16", "fp16"] if gpu else []
    if o.mib is None:
        o.mib = 256 if gpu else 0
    if gpu and o.ranks != [1]:
        parser.error("--device cuda compares one rank: leave --ranks out")
    if unknown := set(o.products) - {"fp32", "tf32", "bf16", "fp16"}:
        parser.error(f"--products: '{unknown.pop()}' has no counterpart here; choose from fp32, tf32, bf16, fp16")
    if min(o.edge, o.seconds) < 1 or o.mib < 0:
        parser.error("give an edge and seconds from 1, and no negative MiB")
    for model in filter(None, o.models):
        if model not in STEP_SIZES:
            parser.error(f"model '{model}' has no counterpart here; choose from {', '.join(STEP_SIZES)}")
    if o.steps <= WARM_UP or min(o.ranks + o.batches + [o.threads]) < 1 or max(o.ranks) * max(o.batches) > SAMPLES:
        parser.error(f"give more than {WARM_UP} steps, and ranks, batches and threads from 1, {SAMPLES} samples a step at "
                     "most")
    if not os.access(o.gradmeter, os.X_OK):
        parser.error(f"'{o.gradmeter}' is not a program; build gradmeter and name it, such as build/release/gradmeter")
    return o


def main():
    o = read_options()
    if not numpy or importlib.util.find_spec("torch") is None:
        print("compare-pytorch: PyTorch or numpy is missing; python3 -m venv FOLDER && FOLDER/bin/pip install torch numpy, "
              "then start this with FOLDER/bin/python", file=sys.stderr)
        return 2
    if o.pytorch_device == "cuda" and not importlib.import_module("torch").cuda.is_available():
        print("compare-pytorch: PyTorch finds no GPU here, or was built without CUDA", file=sys.stderr)
        return 2
    if o.products or o.mib:
        with tempfile.TemporaryDirectory() as name:
            compare_operations(o, pathlib.Path(name))
    good = True
    if not any(o.models):
        return 0
    print_row(["model", "batch", "ranks", "first loss", "last loss", "largest difference", "with a mistake"]
              + ["gradmeter [ms]", "PyTorch [ms]", "PyTorch/gradmeter", "95 % interval"] * bool(o.launches))
    print_row(["---"] * (11 if o.launches else 7))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        images, text = write_images(folder), write_text(folder)
        for model in o.models:
            for batch in o.batches:
                for ranks in o.ranks:
                    data = text if model == "lstm-lm" else images
                    row, agrees = compare(Case(o, folder, data, model, ranks, batch), o)
                    print_row(row)
                    good = good and agrees
    if not good:
        print(f"compare-pytorch: losses differ by more than {TOLERANCE}, or do not with a mistake",
              file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"compare-pytorch: {e}")
