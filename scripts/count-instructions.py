#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions an element of the codecs' kernels, and bytes under way of the kernels that read their peers' memory,
counted in what ptxas makes of them for an H100. Needs no GPU.

  scripts/count-instructions.py [build/cuda] [--nvdisasm PATH] [--markdown]
  scripts/count-instructions.py --rows '^gpu-' --compare results/device-code.md    the latter kernels alone

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

Bytes under way. A link is busy only while about 1 MB of loads is under way (latency by bandwidth: some 2 us by 450 GB/s
of NVLink). In each stretch of instructions without a branch the script follows loads of 16 bytes until an instruction
names one of the registers that they load, where the thread must wait. The most loads that are open at once, the share of
them that reads peers, threads and blocks give the bytes. A row's loops are those that copy or add whole packs: as many
stretches as it states, those with the most loads, of which the least counts. Of several kernels that a row stands for the
least counts too, and the most registers. Fails below 1 MB, for 8-bit floats below half of it, and for extremes and
products of small floats below a quarter.
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


# Bytes of loads from peers that NVLink 4 has under way when it is busy: 450 GB/s in one direction, by about 2 us.
BYTES_UNDER_WAY = 1e6
REGISTERS = 65536  # of a multiprocessor


class PeerRow:
    """Kernels by their mangled name, the loops that work on whole packs, and the share of a loop's loads that reads
    peers at least. `least`: bytes under way [B]."""

    def __init__(self, row, pattern, loops, share, least=BYTES_UNDER_WAY):
        self.row, self.pattern, self.loops, self.share, self.least = row, re.compile(pattern), loops, share, least


def peer_rows():
    for ranks in (2, 4, 8):
        yield PeerRow(f"gpu-direct: one shot, {ranks} ranks", rf"sum_at_once\w*Lj{ranks}E", 2, (ranks - 1) / ranks)
        yield PeerRow(f"gpu-direct: two shots, {ranks} ranks", rf"sum_by_blocks\w*Lj{ranks}E", 3, (ranks - 1) / ranks)
    # Two sources at a time, of which one may be the rank's own; a ring's sum reads twice as many of the neighbour's packs
    # as of its own before it waits. 8-bit floats have half as many loads under way, since their sums fill the registers,
    # and rare operations on small floats a quarter, since they are not worth the code.
    small, rare = r"(?=\w*SmallI)", r"(?=\w*2OpE[234]E)"
    narrow = r"(?=\w*SmallIh)(?=\w*2OpE0E)"
    for what, pattern, least in (
        ("8-bit floats", narrow, BYTES_UNDER_WAY / 2),
        ("extremes and products of small floats", small + rare, BYTES_UNDER_WAY / 4),
        ("all else", rf"(?!{narrow})(?!{small}{rare})", BYTES_UNDER_WAY),
    ):
        # One shot is for short messages, which have no megabyte.
        yield PeerRow(f"gpu-direct: one shot, any ranks, {what}", rf"sum_at_once{pattern}(?=\w*Lj0E)", 2, 1 / 2, least / 2)
        yield PeerRow(f"gpu-direct: two shots, any ranks, {what}", rf"sum_by_blocks{pattern}(?=\w*Lj0E)", 3, 1 / 2, least)
        yield PeerRow(f"gpu-ring: reductions, {what}", rf"reduce_in_ring{pattern}", 3, 2 / 3, least)
    yield PeerRow("gpu-ring: all-gather", r"gather_in_ring", 2, 1)
    yield PeerRow("gpu-ring: broadcast", r"broadcast_in_ring", 2, 1)
    yield PeerRow("gpu-ring: send-receive", r"pass_in_ring", 2, 1)


def peer_launch():
    """Threads of a block and the most blocks, as the sources state them."""

    def constant(file, name):
        return int(re.search(rf"constexpr unsigned {name} = (\d+);", (ROOT / "src/allreduce/gpu" / file).read_text())[1])

    return constant("peer_kernels.cuh", "peer_threads"), constant("peer_kernels.hpp", "most_peer_blocks")


def open_loads(lines):
    """The most loads of 16 bytes that are open at once in each stretch without a branch. A line is (is it a boundary,
    registers that it loads, registers that it names)."""
    stretches, most, waiting = [], 0, {}
    for boundary, loaded, named in lines:
        if boundary:
            stretches.append(most)
            most, waiting = 0, {}
        for register in named:
            if register in waiting:
                load = waiting[register]
                waiting = {r: l for r, l in waiting.items() if l != load}
        if loaded:
            waiting.update(dict.fromkeys(loaded, loaded[0]))
            most = max(most, len(set(waiting.values())))
    return sorted([*stretches, most], reverse=True)


def lines_of_sass(code, labels):
    begins = set(labels.values())
    for i, one in enumerate(code):
        is_jump = one.opcode.split(".")[0] in ("BRA", "EXIT", "BRX", "CALL", "RET", "BAR", "WARPSYNC")
        registers = [int(r) for r in re.findall(r"\bR(\d+)\b", one.text)]
        if width(one) == 128 and one.opcode.startswith("LD"):
            yield i in begins, [registers[0] + k for k in range(4)], registers
        else:
            yield i in begins or is_jump, [], registers


def entries_of_ptx(text):
    """Each kernel's name, and its lines for open_loads."""
    for part in re.split(r"^\.visible \.entry |^\.entry ", text, flags=re.MULTILINE)[1:]:
        lines = []
        for line in part.splitlines():
            registers = re.findall(r"%\w+", line)
            load = re.match(r"\s*ld(?:\.\w+)*\.(v4\.[bfsu]32|v2\.[bfsu]64)\s+\{([^}]*)\}", line)
            boundary = bool(re.match(r"\$?\w+:|\s*(@!?%p\d+\s+)?(bra|ret|bar)\b", line))
            if load and ".param" not in line:
                lines.append((boundary, re.findall(r"%\w+", load[2]), registers))
            else:
                lines.append((boundary, [], registers))
        yield part.split("(")[0].strip(), lines


class PeerLoads:
    """A row's count: of several kernels the worst."""

    def __init__(self, row):
        self.row, self.kernels, self.loads, self.registers = row, 0, None, 0

    def add(self, stretches, registers):
        least = stretches[: self.row.loops][-1] if len(stretches) >= self.row.loops else 0
        self.loads = least if self.loads is None else min(self.loads, least)
        self.kernels, self.registers = self.kernels + 1, max(self.registers, registers)

    def under_way(self):
        threads, blocks = peer_launch()
        if self.registers:
            blocks = min(blocks, MULTIPROCESSORS * (REGISTERS // (threads * -(-self.registers // 8) * 8)))
        return 16 * threads * blocks * self.loads * self.row.share

    def faults(self):
        if self.loads is None:
            yield f"{self.row.row}: no such kernel"
        elif self.under_way() < self.row.least:
            yield (
                f"{self.row.row}: {self.loads} loads of 16 bytes before the first use are {self.under_way() / 1e6:.2f} MB "
                f"from peers under way, less than {self.row.least / 1e6:g} MB"
            )


def count_peers(kernels, wanted):
    """kernels: (name, lines for open_loads, registers)."""
    counted = [PeerLoads(row) for row in wanted]
    for name, lines, registers in kernels:
        for c in counted:
            if c.row.pattern.search(name):
                c.add(open_loads(lines), registers)
    return counted


def peer_cells(c):
    threads, blocks = peer_launch()
    return [
        c.row.row,
        str(c.kernels),
        str(c.registers),
        f"{threads} x {blocks}",
        str(c.loads),
        f"{c.loads * c.row.share:.1f}",
        f"{c.under_way() / 1e6:.2f}",
    ]


PEER_HEAD = ["kernel", "kernels", "registers", "threads", "loads", "from peers", "MB under way"]

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


def commands(build, wanted):
    """The build's own command of each wanted .cu, also of those that a unit includes."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.suffix != ".cu":
            continue
        for name in re.findall(r'#include "(.*\.cu)"', file.read_text()) or [entry["file"]]:
            if pathlib.Path(name).name in wanted:
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


HEAD = ["kernel", "registers", "instructions", "FP32", "INT", "IMAD", "FP64", "XU", "memory", "control", "bytes",
        "issue slots", "of the budget"]


def in_markdown(table):
    row = ["| " + " | ".join(cells) + " |" for cells in table]
    return [row[0], "| --- |" + " ---: |" * (len(table[0]) - 1), *row[1:]]


def show(table, markdown):
    if markdown:
        return print(*in_markdown(table), "", sep="\n")
    wide = [max(map(len, column)) for column in zip(*table)]
    for row in table:
        print("  ".join([row[0].ljust(wide[0]), *(cell.rjust(w) for cell, w in zip(row[1:], wide[1:]))]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build/cuda")
    parser.add_argument("--nvdisasm", help="where it is, if not on PATH and not in Python's package triton")
    parser.add_argument("--markdown", action="store_true", help="the table as in results/device-code.md")
    parser.add_argument("--rows", type=re.compile, default=re.compile(""), help="count only rows that match")
    parser.add_argument("--compare", type=pathlib.Path, help="fail where this file has other rows than are counted")
    o = parser.parse_args()
    nvdisasm = find_nvdisasm(o.nvdisasm)
    if not nvdisasm:
        return skipped("there is no nvdisasm; it is in CUDA's toolkit and in Python's package triton")
    if not (o.build / "compile_commands.json").exists():
        return f"{o.build} has no compile_commands.json: configure it with cmake --preset cuda"
    kernels = [k for k in rows() if o.rows.search(k.row)]
    peers = [k for k in peer_rows() if o.rows.search(k.row)]
    wanted = ["bucketed.cu", "terngrad.cu"] * bool(kernels) + ["peer_kernels.cu"] * bool(peers)
    jobs = list(commands(o.build, wanted))
    if not jobs:
        return f"{o.build} compiles no such kernels for a GPU"
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def unit(job):
            place = tempfile.mkdtemp(dir=folder)
            return disassembled(*job, nvdisasm, place)

        units = list(pool.map(unit, jobs))
    tables, faults = [], []
    if kernels:
        counted, faults = count_all(units, kernels)
        tables.append([HEAD, *map(cells, counted)])
        faults += [fault for c in counted for fault in c.faults()]
    if peers:
        found = [
            (name, list(lines_of_sass(code, labels)), int(registers.get(name, 0)))
            for text, registers in units
            for name, code, labels in functions(text)
        ]
        loads = count_peers(found, peers)
        tables.append([PEER_HEAD, *(peer_cells(c) for c in loads if c.loads is not None)])
        faults += [fault for c in loads for fault in c.faults()]
    for table in tables:
        show(table, o.markdown)
        if o.compare:
            recorded = o.compare.read_text().splitlines()
            faults += [f"{o.compare} does not say: {row}" for row in in_markdown(table) if row not in recorded]
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
