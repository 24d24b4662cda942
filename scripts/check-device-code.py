#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of every .cu of a build: registers, spills and fused multiply-adds. Needs no GPU.

  scripts/check-device-code.py [build/cuda]

Kernels have the host's bits, so products and sums must stay two roundings. Fails when PTX has a fused multiply-add
outside the files that say they do not have the host's bits, when a kernel spills registers, or when a block of 512
threads would need more registers than a multiprocessor has.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# Their exponentials are CUDA's, which are made of fused multiply-adds, or their sums are stated to be fused.
OTHER_BITS = {"conv.cu", "gemm.cu", "loss.cu", "rnn.cu", "transformer.cu"}
MOST_REGISTERS = 128  # 65,536 of a multiprocessor by 512 threads


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
        sys.exit(f"{entry['file']} does not compile:\n{done.stderr}")
    return done.stdout + done.stderr


def examine(entry, architecture, folder):
    name = pathlib.Path(entry["file"]).name
    text = run(entry, [f"-arch=sm_{architecture}", "-Xptxas", "-v"], f"{folder}/code.o")
    registers = max((int(n) for n in re.findall(r"Used (\d+) registers", text)), default=0)
    spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", text))
    run(entry, [f"-arch=sm_{architecture}", "-ptx"], f"{folder}/code.ptx")
    fused = len(re.findall(r"\bfma\.|\bmad\.(?:rn|rz|rm|rp)\.", pathlib.Path(f"{folder}/code.ptx").read_text()))
    faults = []
    if spilled:
        faults.append("spills")
    if registers > MOST_REGISTERS:
        faults.append(f"more than {MOST_REGISTERS} registers")
    if fused and name not in OTHER_BITS:
        faults.append("fused multiply-adds: compile it with --fmad=false")
    print(f"sm_{architecture}  {name:28} {registers:4} registers  {spilled:3} bytes spilled  {fused:3} fused", *faults)
    return not faults


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/cuda")
    entries = list(kernels_of(build))
    if not entries:
        sys.exit(f"{build} compiles no .cu: configure it with cmake --preset cuda")
    with tempfile.TemporaryDirectory() as folder:
        results = [examine(entry, architecture, folder) for entry in entries for architecture in (80, 90)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
