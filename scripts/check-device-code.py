#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of every .cu of a build: traps, registers, spills and fused multiply-adds. Needs no GPU.

  scripts/check-device-code.py [build/cuda]            for two architectures, assembled
  scripts/check-device-code.py --ptx-only [build/cuda] for one, which is not assembled: no registers and spills

Kernels have the host's bits, so products and sums must stay two roundings. Fails when PTX has a fused multiply-add
outside the files that say they do not have the host's bits, when a kernel spills registers, or when a block of 512
threads would need more registers than a multiprocessor has.

PTX may have no trap: nvcc makes one of each read of a constant that only the host has in memory, without a word, and
the first launch that comes there ends the whole context. So constexpr functions of the host may not be called from
kernels either (--expt-relaxed-constexpr), and every kernel is launched by runtime/cuda/launch.hpp, which checks the
grid's limits.

PTX may have no division of 64 bits: a GPU takes some 70 to 150 instructions for one. kernels/cuda/divisor.cuh divides by
a number that the host knows, and 32 bits are enough for most indices. Its LongDivisor has the others.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Their exponentials are CUDA's, which are made of fused multiply-adds, or their sums are stated to be fused.
OTHER_BITS = {"conv/gpu_kernels.cu", "gemm/gpu_kernels.cu", "rnn/gpu_kernels.cu", "attention/gpu_kernels.cu", "pointwise/gpu_layers.cu"}
MOST_REGISTERS = 128  # 65,536 of a multiprocessor by 512 threads
DIVISIONS = re.compile(r"\b(?:div|rem)\.[us]64\b")
LAUNCHER = "launch.hpp"
UNCHECKED_LAUNCH = re.compile(r"<<<|\bcuda(Launch(Cooperative)?Kernel(ExC)?|LaunchDevice)\b|\bcuLaunchKernel")


def kernels_of(build):
    """Every .cu with its command, also those that a unit includes."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if not entry["file"].endswith(".cu"):
            continue
        included = re.findall(r'#include "(.*\.cu)"', pathlib.Path(entry["file"]).read_text())
        for name in included or [entry["file"]]:
            yield {**entry, "file": name, "command": entry["command"].replace(entry["file"], name)}


def command_for(entry, extra, output):
    """The build's own command without its architectures and output."""
    words = shlex.split(entry["command"])
    words = [w for w in words if not w.startswith(("--generate-code", "-gencode", "-arch"))]
    while words and "nvcc" not in pathlib.Path(words[0]).name:
        words.pop(0)  # a compiler launcher
    at = words.index("-o")
    del words[at : at + 2]
    if "-ptx" in extra:  # nothing is assembled
        words = [w for w in words if w != "-c" and not w.startswith("--maxrregcount")]
    return words + extra + ["-o", output]


def run(entry, extra, output):
    done = subprocess.run(
        command_for(entry, extra, output), cwd=entry["directory"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ValueError(f"{entry['file']} does not compile:\n{done.stderr}")
    return done.stdout + done.stderr


def unchecked_launches(entry):
    """Lines of the file, and of the project's headers in its folder, that launch a kernel past the launcher."""
    file = pathlib.Path(entry["file"])
    for path in [file, *file.parent.glob("*.cuh"), *file.parent.glob("*.hpp")]:
        if path.name == LAUNCHER:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if UNCHECKED_LAUNCH.search(line.split("//")[0]):
                yield f"{path.name}:{number}"


def long_divisions(ptx):
    """Divisions of 64 bits outside the kernels for more than 2^31 elements, which have LongDivisor in their names."""
    entries = re.split(r"^(?=\.visible \.entry |\.entry |\.func |\.visible \.func )", ptx, flags=re.MULTILINE)
    return sum(len(DIVISIONS.findall(e)) for e in entries if "LongDivisor" not in e.split("(")[0])


def examine(entry, architecture, folder, assembles):
    name = pathlib.Path(entry["file"]).relative_to(ROOT) if pathlib.Path(entry["file"]).is_relative_to(ROOT) else entry["file"]
    faults, said = [], ""
    if assembles:
        text = run(entry, [f"-arch=sm_{architecture}", "-Xptxas", "-v"], f"{folder}/code.o")
        registers = max((int(n) for n in re.findall(r"Used (\d+) registers", text)), default=0)
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", text))
        said = f"{registers:4} registers  {spilled:3} bytes spilled  "
        if spilled:
            faults.append("spills")
        if registers > MOST_REGISTERS:
            faults.append(f"more than {MOST_REGISTERS} registers")
    run(entry, [f"-arch=sm_{architecture}", "-ptx"], f"{folder}/code.ptx")
    ptx = pathlib.Path(f"{folder}/code.ptx").read_text()
    fused = len(re.findall(r"\bfma\.|\bmad\.(?:rn|rz|rm|rp)\.", ptx))
    traps = len(re.findall(r"^\s*(?:@!?%p\d+\s+)?trap;", ptx, re.MULTILINE))
    if fused and not str(name).endswith(tuple(OTHER_BITS)):
        faults.append("fused multiply-adds: compile it with --fmad=false")
    if traps:
        faults.append("traps: it reads a constant that only the host has in memory; make that a scalar or device code")
    divisions = long_divisions(ptx)
    if divisions:
        faults.append(f"{divisions} divisions of 64 bits: see kernels/cuda/divisor.cuh")
    if "relaxed-constexpr" in entry["command"]:
        faults.append("--expt-relaxed-constexpr: mark what kernels call GRADMETER_HOST_DEVICE")
    faults += [f"{place} launches a kernel without gpu::launch, which checks its grid" for place in unchecked_launches(entry)]
    print(f"sm_{architecture}  {name!s:44} {said}{fused:3} fused  {traps:2} traps", *faults, sep="  ", flush=True)
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=pathlib.Path("build/cuda"))
    parser.add_argument("--ptx-only", action="store_true")
    o = parser.parse_args()
    entries = list(kernels_of(o.build))
    if not entries:
        sys.exit(f"{o.build} compiles no .cu: configure it with cmake --preset cuda")
    architectures = (90,) if o.ptx_only else (80, 90)

    def examined(job):
        try:
            with tempfile.TemporaryDirectory() as folder:
                return examine(*job, folder, not o.ptx_only)
        except ValueError as fault:
            print(fault, flush=True)
            return False

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(examined, itertools.product(entries, architectures)))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
