#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains in PyTorch what `gradmeter train` trains: a job of scripts/compare-pytorch.py, as one of its ranks.

    pytorch_training.py JOB.json      # alone, or under mpirun

The job names weights (train --dump-weights), data, the samples of each step, step size, threads and a folder. Rank r
writes its losses and step times [s] to rank-r.json there.
"""
import json
import os
import pathlib
import statistics
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn.functional import cross_entropy


def read_dump(path):
    """Layer -> tensor -> values: {1: {"weight": …, "bias": …}, …} of the format in docs/using.md."""
    with open(path, "rb") as f:
        if f.readline() != b"GMGRAD1\n":
            sys.exit(f"pytorch_training: {path} is not a file of train --dump-weights")
        head = json.loads(f.readline())
        values = torch.from_numpy(numpy.fromfile(f, "<f4", head["elements"]))
    layers = {}
    for t in head["tensors"]:
        layer, name = t["name"].split(".")
        part = values[t["offset"]:t["offset"] + t["count"]].reshape(t["shape"])
        layers.setdefault(int(layer.removeprefix("layer")), {})[name] = part
    return [layers[number] for number in sorted(layers)]


def dense(t):
    layer = nn.Linear(t["weight"].shape[1], t["weight"].shape[0])  # both keep [out, in]
    layer.weight.data, layer.bias.data = t["weight"], t["bias"]
    return layer


def convolution(t):
    filters, channels, side, _ = t["filters"].shape  # both keep [filters, channels, height, width]
    layer = nn.Conv2d(channels, filters, side, stride=2, padding=side // 2)
    layer.weight.data, layer.bias.data = t["filters"], t["bias"]
    return layer


def lstm(t):
    """oneDNN keeps [in, gates, hidden] and PyTorch [gates * hidden, in]; both order the gates i, f, g, o. PyTorch has two
    biases that are added. Training both would move their sum twice as far, so one of them stays zero."""
    width, _, hidden = t["weights"].shape
    layer = nn.LSTM(width, hidden, batch_first=True)
    layer.weight_ih_l0.data = t["weights"].reshape(width, -1).T.contiguous()
    layer.weight_hh_l0.data = t["recurrent"].reshape(hidden, -1).T.contiguous()
    layer.bias_ih_l0.data = t["bias"].reshape(-1)
    layer.bias_hh_l0.data.zero_()
    layer.bias_hh_l0.requires_grad_(False)
    return layer


def embedding(t):
    return nn.Embedding.from_pretrained(t["weight"], freeze=False)


MAKERS = {frozenset(["weight", "bias"]): dense, frozenset(["filters", "bias"]): convolution,
          frozenset(["weights", "recurrent", "bias"]): lstm, frozenset(["weight"]): embedding}


class States(nn.Module):
    """The states of a layer after each step, or after the last alone."""

    def __init__(self, layer, last):
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, x):
        states, _ = self.layer(x)
        return states[:, -1] if self.last else states


def network(layers, labels_each):
    """The models mlp, cnn, lstm and lstm-lm, as the tensors of a dump say."""
    parts = []
    for t, following in zip(layers, [*layers[1:], {}]):
        layer = MAKERS[frozenset(t)](t)
        if "recurrent" in t:
            layer = States(layer, last=labels_each == 1 and "recurrent" not in following)
        parts.append(layer)
        if following and isinstance(layer, (nn.Linear, nn.Conv2d)):
            parts.append(nn.ReLU())
        if "filters" in t and "filters" not in following:
            parts.append(nn.Flatten())
    return nn.Sequential(*parts)


def shaped(inputs, first):
    """Inputs [samples, features] as the first layer takes them."""
    side = round(inputs.shape[1] ** 0.5)
    if isinstance(first, nn.Embedding):
        return inputs.long()
    if isinstance(first, nn.Conv2d):
        return inputs.reshape(-1, 1, side, side)
    return inputs.reshape(-1, side, side) if isinstance(first, States) else inputs


def make_wrong(layers):
    """What the comparison must find: the gates f and g taken for each other, or else one weight off by 0.01."""
    recurrent = [t for t in layers if "recurrent" in t]
    for t in recurrent:
        t["weights"], t["recurrent"] = t["weights"][:, [0, 2, 1, 3]], t["recurrent"][:, [0, 2, 1, 3]]
    if not recurrent:
        layers[-1]["weight"][0, 0] += 0.01


def train(job, rank, ranks):
    with numpy.load(job["data"]) as data:
        inputs, labels = torch.from_numpy(data["inputs"]), torch.from_numpy(data["labels"]).long()
    samples = torch.from_numpy(numpy.load(job["samples"]))  # [steps, samples of all ranks]
    layers = read_dump(job["weights"])
    if job["wrong"]:
        make_wrong(layers)
    device = job.get("device", "cpu")
    net = model = network(layers, labels.shape[1]).to(device)
    inputs = shaped(inputs, net[0])
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=job["lr"], fused=True)
    losses, marks = [], []
    for step in samples:
        mine = step.chunk(ranks)[rank]
        # Not timed: gradmeter times no reading either.
        x, y = inputs[mine].to(device), labels[mine].flatten().to(device)
        marks.append((mark(device), []))
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(model(x).flatten(0, -2), y)  # a sentence has a label for each word
        loss.backward()
        optimizer.step()
        marks[-1][1].append(mark(device))
        losses.append(loss.detach())  # read at the end: the host need not wait for a GPU's step
    losses = [loss.item() for loss in losses]
    return {"losses": losses, "times": [between(begin, *end, device) for begin, end in marks]}


def mark(device):
    """Now, on the clock of the device: of a GPU an event in its stream."""
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(begin, end, device):
    """Seconds between two marks that have happened."""
    return 1e-3 * begin.elapsed_time(end) if device == "cuda" else end - begin


def median_time(call, device, samples=21, calls=3):
    """The median of a call's time [s], of samples of some calls each."""
    for _ in range(calls):
        call()
    marks = []
    for _ in range(samples):
        begin = mark(device)
        for _ in range(calls):
            call()
        marks.append((begin, mark(device)))
    if device == "cuda":
        torch.cuda.synchronize()
    return statistics.median(between(*m, device) for m in marks) / calls


def time_product(device, precision, n):
    """Of matrices of n², normally distributed as gradmeter's."""
    choose_arithmetic(precision == "tf32")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
    c = torch.empty(n, n, device=device, dtype=kind)
    return median_time(lambda: torch.mm(a, b, out=c), device)


def time_copy(device, size):
    a, b = (torch.ones(size // 4, device=device) for _ in range(2))
    return median_time(lambda: b.copy_(a), device)


def choose_arithmetic(tf32):
    """Of products and convolutions in fp32 on a GPU: PyTorch takes tf32 for convolutions unless told otherwise."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    names = ("OMPI_COMM_WORLD", "PMI")
    rank = next((int(os.environ[f"{n}_RANK"]) for n in names if f"{n}_RANK" in os.environ), 0)
    ranks = job["ranks"]
    torch.set_num_threads(job["threads"])
    choose_arithmetic(tf32=False)
    folder = pathlib.Path(job["folder"])
    if ranks > 1:
        torch.distributed.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    (folder / f"rank-{rank}.json").write_text(json.dumps(train(job, rank, ranks)))
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
