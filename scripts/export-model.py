#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a layer table (docs/models.md) of a PyTorch module.

usage: scripts/export-model.py torchvision.models:resnet50 --input 3x224x224 [--record FILE.json] >resnet50.csv
       scripts/export-model.py --listing FILE.json >model.csv

MODULE:CALLABLE is imported and called without arguments; it gives the module. One sample of the --input's shape goes through
it, "25:long" for 25 token numbers; several inputs are several --input. Hooks record the shapes that each layer sees; --record
keeps them as a listing, from which --listing makes the same table without PyTorch. Products outside of layers, such as
torch.matmul in a module of your own, are not seen: add their rows by hand.
"""
import argparse
import importlib
import json
import math
import pathlib
import sys

COLUMNS = "layer kind shape params forward_flops_per_sample input stride padding groups steps heads".split()
GEOMETRY = COLUMNS[5:]
RECURRENT = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm2d", "LayerNorm", "RMSNorm")


class Refused(Exception):
    """The module has no table; the reason is one line."""


def extents(values):
    return "x".join(str(v) for v in values)


class Rows:
    """The rows of a table, and the tensors that have one already."""

    def __init__(self):
        self.rows = []

    def add(self, layer, kind, shape, flops=0, has_tensor=True, **geometry):
        params = math.prod(shape) if shape and has_tensor else 0
        values = [layer, kind, extents(shape) or "-", params, flops] + [geometry.get(c, "") for c in GEOMETRY]
        self.rows.append([str(v) for v in values])

    def add_bias(self, module, names=("bias",)):
        for name in names:
            if name in module["parameters"]:
                self.add(f"{module['name']}.{name}", "bias", module["parameters"][name])

    def text(self):
        return "\n".join(",".join(row) for row in [COLUMNS] + self.rows) + "\n"


def rows_before(shape, trailing):
    """Rows of a sample's product: the extents between the batch and the last `trailing` ones."""
    return math.prod(shape[1:len(shape) - trailing])


def add_convolution(rows, module):
    """Conv2d, and Conv1d: grouped ones as images of height 1, since conv1d rows have no groups."""
    weight, seen, given = module["parameters"]["weight"], module["input"][1:], module["output"][2:]
    flops = 2 * math.prod(weight) * math.prod(given)
    stride, padding, groups = module["stride"], module["padding"], module["groups"]
    # "same" is a padding by name, which may differ between the two sides; only zeros round an image are in the format.
    plain = isinstance(padding, list) and set(module["dilation"]) == {1} and module["padding_mode"] == "zeros"
    name = f"{module['name']}.weight"
    if len(weight) == 3 and groups == 1:
        geometry = {"input": extents(seen), "stride": stride[0], "padding": extents(padding)} if plain else {}
        rows.add(name, "conv1d", [weight[2], weight[1], weight[0]], flops, **geometry)
    else:
        if len(weight) == 3:
            weight, seen = weight[:2] + [1] + weight[2:], seen[:1] + [1] + seen[1:]
            stride, padding = [1] + stride, [0] + padding if plain else padding
        geometry = {"input": extents(seen), "stride": extents(stride), "padding": extents(padding), "groups": groups}
        rows.add(name, "conv", weight, flops, **(geometry if plain else {}))
    rows.add_bias(module)


def add_product(rows, name, weight, steps, tied=False):
    rows.add(name, "linear_tied" if tied else "linear", weight, 2 * math.prod(weight) * steps, not tied,
             input=weight[1], steps=steps)


def add_linear(rows, module):
    steps = rows_before(module["input"], 1)
    add_product(rows, f"{module['name']}.weight", module["parameters"]["weight"], steps, module.get("tied", False))
    rows.add_bias(module)


def add_recurrent(rows, module):
    """Weights of the input and of the state, for each layer and direction; an LSTM's projection is a linear row."""
    shape, kind = module["input"], RECURRENT[module["type"]]
    steps = shape[1] if module["batch_first"] else shape[0]
    for name, weight in module["parameters"].items():
        full, flops = f"{module['name']}.{name}", 2 * math.prod(weight) * steps
        if name.startswith("weight_hr"):
            add_product(rows, full, weight, steps)
        elif name.startswith("weight_hh") and weight[1] == module["hidden"]:
            rows.add(full, kind, weight, flops, steps=steps)
        elif name.startswith("weight"):
            rows.add(full, kind, weight, flops, input=weight[1], steps=steps)
        else:
            rows.add(full, "bias", weight)


def add_embedding(rows, module):
    if "weight" in module["parameters"]:  # else it is an earlier layer's, whose row is the gradient
        rows.add(f"{module['name']}.weight", "embedding", module["parameters"]["weight"],
                 steps=rows_before(module["input"], 0))


def add_attention(rows, module):
    """MultiheadAttention: queries, keys and values, the scores and the context, and the product behind them."""
    query, key = module["input"], module["key"]
    axis = 1 if module["batch_first"] else 0
    steps, width = query[axis], query[2]
    if key[axis] != steps:
        raise Refused(f"{module['name']}: {steps} tokens attend to {key[axis]}; the format has one count of both")
    for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        if name in module["parameters"]:
            add_product(rows, f"{module['name']}.{name}", module["parameters"][name], steps)
    rows.add_bias(module, ("in_proj_bias", "bias_k", "bias_v"))
    rows.add(f"{module['name']}.scores+context", "attention_matmul", [], 4 * steps * steps * width, input=width,
             steps=steps, heads=module["heads"])
    add_product(rows, f"{module['name']}.out_proj.weight", module["parameters"]["out_proj.weight"], steps)
    rows.add_bias(module, ("out_proj.bias",))


def add_tensors(rows, module):
    """What no known product belongs to: a norm's, or only sent."""
    kind = "norm" if module["type"] in NORMS else "vector"
    for name, shape in module["parameters"].items():
        rows.add(f"{module['name']}.{name}".lstrip("."), kind, shape or [1])


WRITERS = {"Conv1d": add_convolution, "Conv2d": add_convolution, "Linear": add_linear, "Embedding": add_embedding,
           "MultiheadAttention": add_attention, **dict.fromkeys(RECURRENT, add_recurrent),
           **dict.fromkeys(NORMS, add_tensors)}


def table(listing):
    """The table's text, and names of modules whose products, if they have any, are not in it."""
    rows, unknown = Rows(), []
    for module in listing["modules"]:
        if module["type"] not in WRITERS or not module.get("input"):
            unknown.append(f"{module['name']} ({module['type']})".lstrip())
            add_tensors(rows, module)
        else:
            WRITERS[module["type"]](rows, module)
    return rows.text(), unknown


def facts(module):
    """What a listing has of a layer besides its tensors and the shapes that went through it."""
    kind = type(module).__name__
    if kind in ("Conv1d", "Conv2d"):
        padding = module.padding if isinstance(module.padding, str) else list(module.padding)
        return {"stride": list(module.stride), "padding": padding, "groups": module.groups,
                "dilation": list(module.dilation), "padding_mode": module.padding_mode}
    if kind in RECURRENT:
        return {"batch_first": module.batch_first, "hidden": module.hidden_size}
    if kind == "MultiheadAttention":
        return {"batch_first": module.batch_first, "heads": module.num_heads}
    return {}


class Recorder:
    """Hooks on all layers of a module: a listing in the order in which they ran."""

    def __init__(self, model):
        self.modules, self.seen, self.inside, self.names = [], {}, set(), {}
        for name, module in model.named_modules():
            if module in self.inside:
                continue
            known = type(module).__name__ in WRITERS
            if not list(module.parameters(recurse=known)):
                continue
            if known:
                self.inside.update(module.modules())
            self.names[module] = name
            module.register_forward_hook(self.record, with_kwargs=True)

    def listing(self):
        ran = {m["name"] for m in self.modules}
        idle = [self.entry(module, name) for module, name in self.names.items() if name not in ran]
        return {"modules": self.modules + [m for m in idle if m["parameters"]]}

    def entry(self, module, name):
        recurse = type(module).__name__ in WRITERS
        entry = {"name": name, "type": type(module).__name__, "parameters": {}, **facts(module)}
        for key, tensor in module.named_parameters(recurse=recurse):
            if self.seen.setdefault(tensor, (name, key)) == (name, key):
                entry["parameters"][key] = list(tensor.shape)
            elif entry["type"] == "Linear" and key == "weight":
                entry["parameters"][key], entry["tied"] = list(tensor.shape), True
        return entry

    def record(self, module, given, named, result):
        name = self.names[module]
        if any(m["name"] == name for m in self.modules):
            raise Refused(f"{name} runs twice for a sample; the format has each layer once")
        given = list(given) + [named[k] for k in ("input", "query", "key") if k in named]
        entry = self.entry(module, name)
        entry["input"] = list(given[0].shape)
        if entry["type"] == "MultiheadAttention":
            entry["key"] = list(given[1].shape)
        if hasattr(result, "shape"):
            entry["output"] = list(result.shape)
        self.modules.append(entry)


def sample_input(torch, text):
    """ "3x224x224" is numbers, "25:long" token numbers; a batch of one."""
    shape, _, kind = text.partition(":")
    shape = [1] + [int(e) for e in shape.split("x")]
    return torch.zeros(shape, dtype=torch.long) if kind == "long" else torch.zeros(shape)


def record(maker, inputs):
    import torch  # pylint: disable=import-outside-toplevel # a listing needs none
    module, _, name = maker.partition(":")
    model = getattr(importlib.import_module(module), name)()
    recorder = Recorder(model.eval())
    # The fast paths of evaluation run a whole attention in one call, round the hooks.
    with torch.enable_grad():
        model(*(sample_input(torch, text) for text in inputs))
    return recorder.listing()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", metavar="MODULE:CALLABLE")
    parser.add_argument("--input", action="append", default=[], metavar="SHAPE")
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument("--listing", type=pathlib.Path, metavar="FILE.json")
    given = parser.parse_args()
    if bool(given.module) == bool(given.listing) or (given.module and not given.input):
        parser.error("give MODULE:CALLABLE with --input, or --listing FILE.json")
    try:
        listing = json.loads(given.listing.read_text()) if given.listing else record(given.module, given.input)
        text, unknown = table(listing)
    except Refused as reason:
        sys.exit(f"export-model: {reason}")
    except (OSError, json.JSONDecodeError, KeyError) as reason:
        sys.exit(f"export-model: {given.listing or given.module}: {reason!r}")
    if given.record:
        given.record.write_text(json.dumps(listing, indent=1) + "\n")
    if unknown:
        print(f"export-model: tensors alone, without products: {', '.join(unknown)}", file=sys.stderr)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
