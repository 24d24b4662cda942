#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions an element of the codecs' kernels, counted in what ptxas makes of them for an H100. Needs no GPU.

  scripts/count-instructions.py [build/cuda] [--nvdisasm PATH] [--markdown]

Compiles the codecs' .cu for sm_90 with the build's own flags, disassembles them, and counts the instructions on one
path through each kernel: the one that a lane takes with whole pieces of a long, aligned tensor. The bound that follows
is compared with the budget: the time in which an H100 SXM moves the element's bytes at 85 % of its copy rate, for which
the data sheet's 3.35 TB/s stand, the memory's peak. Exit 1 when a kernel takes longer, 77 when there is no nvcc or no
nvdisasm.

The path. Of all ways from a kernel's entry to an exit that enter no loop and make no call, the script takes the one
with the most accesses of 128 bits, of these the one with the fewest narrower loads, then the fewest instructions in fp64
(norm=l2 has them), and of these the longest. So it counts no path for ragged ends and unaligned tensors, which load less
at a time or in loops, and none for rare cases that ptxas puts into calls (divisions of subnormal numbers, warps whose
lanes have come apart). What is left errs on the long side: where two arms of a branch are alike in all this, the longer
one counts. The path must move as many floats as rows() says, else the script fails: then the kernel has changed, and so
must its row.

The bound. It is the longest of these times of a warp's instructions on all multiprocessors together: every instruction
takes an issue slot of one of the four schedulers, and those of each class take their share of the class's units.

What it cannot know: how long warps wait for memory, for each other and for results, so whether the schedulers find an
instruction at each clock; how many warps are resident, but for the registers that it prints; lanes that diverge; conflicts
in caches and shared memory; the clock under load. A kernel within its budget can be slow; one beyond it cannot
reach 85 % of that peak.
"""
import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# H100 SXM, from NVIDIA's data sheet: 132 multiprocessors, 3.35 TB/s. No copy is faster than that peak, so that a kernel
# within this budget is within that of any copy which is measured. The clock is the boost clock.
MULTIPROCESSORS, CLOCK_HZ, COPY_BYTES_PER_S, SHARE = 132, 1.755e9, 3.35e12, 0.85
# Results a clock of one multiprocessor, for compute capability 9.0 from the table "Throughput of native arithmetic
# instructions" of CUDA's programming guide. Products of integers (IMAD) are computed by half of the units of fp32, so both
# count for these; XU computes special functions and converts; memory instructions begin at one warp a clock.
RATES = {"issue": 128, "FP32": 128, "INT": 64, "IMAD": 64, "FP64": 64, "XU": 16, "memory": 32}

CLASSES = [  # the first that matches the opcode
    ("control", r"(BRA|BRX|JMP|EXIT|RET|CALL|BSSY|BSYNC|BREAK|WARPSYNC|BAR|NOP|YIELD|BMOV|DEPBAR|ERRBAR|MEMBAR|CCTL)\b"),
    ("memory", r"(LD|ST|LDG|STG|LDS|STS|LDL|STL|LDC|ATOM\w*|RED|SHFL|LDGSTS)\b"),
    ("FP64", r"(DADD|DMUL|DFMA|DSETP|DMNMX)\b"),
    ("XU", r"(MUFU|F2I|I2F|F2F|FRND|POPC|FLO|BREV|FCHK|REDUX)\b"),
    ("IMAD", r"IMAD\b(?!\.(MOV|U32\s))"),
    ("FP32", r"(FADD|FMUL|FFMA|I2FP|IMAD)\b"),  # a move by IMAD takes these units
    ("INT", r"."),
]


class Kernel:
    """A row: which kernel by its mangled name, elements of a lane on its path, bits of a code, floats that are read and
    written for each element. `narrow`: floats are read one at a time."""

    def __init__(self, row, pattern, elements, codes_bits, floats_read, floats_written=0, narrow=False):
        self.row, self.pattern, self.elements = row, re.compile(pattern), elements
        self.bytes = codes_bits / 8 + 4 * (floats_read + floats_written)
        self.float_bytes = 4 * elements * (floats_read + floats_written)
        self.narrow = narrow


def rows():
    for bits in (8, 4, 2):
        rule = rf"QsgdRuleILm{bits}ELNS\w+RoundingE"
        yield Kernel(f"qsgd{bits}: encode", rf"encode_buckets\w*{rule}0E\w*FromFloats", 16, bits, 1)
        yield Kernel(f"qsgd{bits}: encode, to nearest", rf"encode_buckets\w*{rule}1E\w*FromFloats", 16, bits, 1)
        yield Kernel(f"qsgd{bits}: decode and add", rf"decode_buckets\w*{rule}0E", 4, bits, 1, 1)
    for name, rule, bits in (
        ("fp8-e4m3", "Fp8RuleILb1E", 8),
        ("fp8-e5m2", "Fp8RuleILb0E", 8),
        ("natural8", "NaturalRule", 8),
        ("lns4", "Lns4Rule", 4),
        ("qsgd1", "Qsgd1Rule", 1),
    ):
        yield Kernel(f"{name}: encode", rf"encode_buckets\w*{rule}\w*FromFloats", 16, bits, 1)
        yield Kernel(f"{name}: decode and add", rf"decode_buckets\w*{rule}", 4, bits, 1, 1)
    yield Kernel("terngrad: scale", r"measure_pieces\w*FromFloats", 16, 0, 1)
    yield Kernel("terngrad: encode", r"encode_pieces\w*FromFloats", 16, 2, 1)
    yield Kernel("onebit: encode", r"encode_signsILb0E\w*FromFloats", 16, 1, 1, narrow=True)
    yield Kernel("onebit: decode and add", r"decode_buckets\w*SignRuleILb0E", 4, 1, 1, 1)
    for name, half in (("fp16", 1), ("bf16", 0)):
        yield Kernel(f"{name}: encode", rf"encode_castsILb{half}E", 4, 16, 1)
        yield Kernel(f"{name}: decode and add", rf"decode_castsILb{half}E", 4, 16, 1, 1)


Instruction = collections.namedtuple("Instruction", "opcode text target guarded")
LINE = re.compile(r"/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(.*);")


def functions(text):
    """Each function's instructions, and the place of each label among them."""
    for part in re.split(r"^//-+ \.text\.", text, flags=re.MULTILINE)[1:]:
        name, code, labels = part.split(None, 1)[0], [], {}
        for line in part.splitlines():
            if label := re.match(r"(\.L_\w+|\$\w+):", line):
                labels[label[1]] = len(code)
            elif found := LINE.search(line):
                guard, opcode, rest = found.groups()
                target = re.search(r"`\((\S+)\)", rest)
                guarded = bool(guard) or bool(re.match(r"\s*!?U?P\d,", rest))
                code.append(Instruction(opcode, opcode + rest, target[1] if target else None, guarded))
        yield name, code, labels


def successors(code, labels, i):
    """Where a warp whose lanes stay together may go after instruction i; None is the kernel's end."""
    op = code[i].opcode.split(".")[0]
    after = [i + 1] if i + 1 < len(code) else [None]
    if code[i].opcode == "BRA.DIV":
        return after
    if op in ("BRA", "JMP"):
        there = [labels[code[i].target]]
        return there + after if code[i].guarded else there
    if op == "EXIT":
        return [None] + after if code[i].guarded else [None]
    if op in ("CALL", "RET", "BRX", "JMX", "BPT"):
        return after if code[i].guarded else []
    return after


def width(instruction):
    """Bits of an access to global memory, else 0."""
    if not re.match(r"(LDG|STG|LD|ST)\b", instruction.opcode):
        return 0
    bits = re.search(r"\.(U?8|S8|U16|S16|64|128)\b", instruction.opcode)
    return int(bits[1].lstrip("US")) if bits else 32


def in_order(code, labels):
    """The places that a warp may come to, each behind all that it may go on to, without those in loops (Tarjan's
    strongly connected components)."""
    number, lowest, open_, order, stack = {}, {}, [], [], []

    def enter(i):
        number[i] = lowest[i] = len(number)
        open_.append(i)
        stack.append((i, iter(successors(code, labels, i))))

    enter(0)
    while stack:
        i, rest = stack[-1]
        onward = next((n for n in rest if n is not None and n not in number), None)
        if onward is not None:
            enter(onward)
            continue
        stack.pop()
        for n in successors(code, labels, i):
            lowest[i] = min(lowest[i], lowest.get(n, lowest[i]))
        if lowest[i] != number[i]:
            continue
        component = open_[open_.index(i) :]
        del open_[-len(component) :]
        if len(component) == 1 and i not in successors(code, labels, i):
            order.append(i)
        for n in component:
            lowest[n] = len(code)  # closed: of no further component
    return order


def hot_path(code, labels, narrow):
    """The places of the instructions on the path that the docstring describes; None where there is none."""
    best = {None: ((0, 0, 0, 0), None)}  # of each place: the worth of the way to the end, and the next place
    for i in in_order(code, labels):
        bits, loads = width(code[i]), code[i].opcode.startswith("LD")
        wide = bits == 32 and loads if narrow else bits == 128
        own = (int(wide), -int(bits > 0 and loads and not wide), -int(class_of(code[i]) == "FP64"), 1)
        onward = [n for n in successors(code, labels, i) if n in best]
        if onward:
            then = max(onward, key=lambda n: best[n][0])
            best[i] = (tuple(map(sum, zip(own, best[then][0]))), then)
    if 0 not in best:
        return None
    path, at = [], 0
    while at is not None:
        path.append(at)
        at = best[at][1]
    return path


def class_of(instruction):
    return next(name for name, pattern in CLASSES if re.match(pattern, instruction.text))


def seconds_an_element(count, rate):
    return count / (rate * MULTIPROCESSORS * CLOCK_HZ)


class Counted:
    def __init__(self, kernel, code, path, registers):
        self.kernel, self.registers = kernel, registers
        of_class = collections.Counter(class_of(code[i]) for i in path)
        self.classes = {name: of_class[name] / kernel.elements for name, _ in CLASSES}
        self.issued = len(path) / kernel.elements
        moved = [width(code[i]) / 8 for i in path]
        floats = 4 if kernel.narrow else 16
        self.float_bytes = sum(b for b in moved if b == floats)
        if kernel.narrow:
            self.float_bytes = sum(b for i, b in zip(path, moved) if b == floats and code[i].opcode.startswith("LD"))
        times = {name: seconds_an_element(self.classes[name], rate) for name, rate in RATES.items() if name != "issue"}
        times["FP32"] += seconds_an_element(self.classes["IMAD"], RATES["FP32"])
        times["issue"] = seconds_an_element(self.issued, RATES["issue"])
        self.limit = max(times, key=times.get)
        self.budget = kernel.bytes / (SHARE * COPY_BYTES_PER_S)
        self.slots = self.budget * RATES["issue"] * MULTIPROCESSORS * CLOCK_HZ
        self.share = times[self.limit] / self.budget

    def faults(self):
        if self.float_bytes != self.kernel.float_bytes:
            yield (
                f"{self.kernel.row}: the path moves {self.float_bytes:g} bytes of floats a lane, not "
                f"{self.kernel.float_bytes}: see rows() of this script"
            )
        elif self.share > 1:
            yield (
                f"{self.kernel.row}: {self.issued:.1f} instructions an element take {self.share:.2f} of the time in "
                f"which {SHARE:.0%} of the copy rate moves {self.kernel.bytes:g} bytes ({self.limit})"
            )


def find_nvdisasm(given):
    triton = importlib.util.find_spec("triton")
    places = [given] if given else ["nvdisasm", "/usr/local/cuda/bin/nvdisasm"]
    if triton and triton.origin and not given:  # Python's wheel brings it along
        places.append(str(pathlib.Path(triton.origin).parent / "backends/nvidia/bin/nvdisasm"))
    return next(filter(None, map(shutil.which, places)), None)


def commands(build):
    """The build's own command of each .cu of the codecs, also of those that a unit includes."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.suffix != ".cu":
            continue
        for name in re.findall(r'#include "(.*\.cu)"', file.read_text()) or [entry["file"]]:
            if pathlib.Path(name).name in ("bucketed.cu", "terngrad.cu"):
                yield entry["directory"], shlex.split(entry["command"].replace(entry["file"], name))


def disassembled(directory, words, nvdisasm, folder):
    """The text of nvdisasm, and registers by kernel."""
    words = [w for w in words if not w.startswith(("--generate-code", "-gencode", "-arch")) and w != "-c"]
    while words and "nvcc" not in pathlib.Path(words[0]).name:
        words.pop(0)  # a compiler launcher
    if not words or not shutil.which(words[0]):
        sys.exit(skipped("there is no nvcc"))
    at = words.index("-o")
    del words[at : at + 2]
    cubin = f"{folder}/code.cubin"
    words += ["-arch=sm_90", "-cubin", "-Xptxas", "-v", "-o", cubin]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)}\n{done.stderr}")
    registers = dict(re.findall(r"entry function '(\w+)'(?:.*\n)+?.*Used (\d+) registers", done.stdout + done.stderr))
    text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=False)
    if text.returncode != 0:
        sys.exit(f"{nvdisasm} does not read what nvcc writes: {text.stderr.strip()}")
    return text.stdout, registers


def skipped(reason):
    print(f"no instructions are counted: {reason}")
    return 77


def count_all(units, wanted):
    """Each wanted kernel that the units have, in their order, and a fault for each other."""
    found = {}
    for text, registers in units:
        for name, code, labels in functions(text):
            kernel = next((k for k in wanted if k.pattern.search(name)), None)
            path = hot_path(code, labels, kernel.narrow) if kernel else None
            if path:
                found[kernel.row] = Counted(kernel, code, path, int(registers.get(name, 0)))
    missing = [f"{k.row}: no such kernel, or none with a path without loops" for k in wanted if k.row not in found]
    return [found[k.row] for k in wanted if k.row in found], missing


def cells(c):
    return [
        c.kernel.row,
        str(c.registers),
        f"{c.issued:.1f}",
        *(f"{c.classes[name]:.1f}" for name in ("FP32", "INT", "IMAD", "FP64", "XU", "memory", "control")),
        f"{c.kernel.bytes:g}",
        f"{c.slots:.0f}",
        f"{c.share:.2f} ({c.limit})",
    ]


def show(counted, markdown):
    head = ["kernel", "registers", "instructions", "FP32", "INT", "IMAD", "FP64", "XU", "memory", "control", "bytes"]
    table = [[*head, "issue slots", "of the budget"], *map(cells, counted)]
    wide = [max(map(len, column)) for column in zip(*table)]
    for n, row in enumerate(table):
        aligned = [row[0].ljust(wide[0]), *(cell.rjust(w) for cell, w in zip(row[1:], wide[1:]))]
        print("| " + " | ".join(row) + " |" if markdown else "  ".join(aligned))
        if markdown and n == 0:
            print("| --- |" + " ---: |" * (len(row) - 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build/cuda")
    parser.add_argument("--nvdisasm", help="where it is, if not on PATH and not in Python's package triton")
    parser.add_argument("--markdown", action="store_true", help="the table as in results/device-code.md")
    parser.add_argument("--rows", type=re.compile, default=re.compile(""), help="count only rows that match")
    o = parser.parse_args()
    nvdisasm = find_nvdisasm(o.nvdisasm)
    if not nvdisasm:
        return skipped("there is no nvdisasm; it is in CUDA's toolkit and in Python's package triton")
    if not (o.build / "compile_commands.json").exists():
        return f"{o.build} has no compile_commands.json: configure it with cmake --preset cuda"
    jobs = list(commands(o.build))
    if not jobs:
        return f"{o.build} compiles no codecs for a GPU"
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def unit(job):
            place = tempfile.mkdtemp(dir=folder)
            return disassembled(*job, nvdisasm, place)

        counted, faults = count_all(pool.map(unit, jobs), [k for k in rows() if o.rows.search(k.row)])
    show(counted, o.markdown)
    faults += [fault for c in counted for fault in c.faults()]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
