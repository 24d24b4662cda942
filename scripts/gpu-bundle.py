#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs a finished build of CUDA code for a machine with a GPU: scripts/gpu-check.sh --bundle FILE calls this.

    gpu-bundle.py BUILD FILE.tar.xz [--debs FOLDER]
    gpu-bundle.py BUILD --tests              # prints the test programs of CUDA code, one a line

In the archive, under gpu-check/: bin/ with stripped programs and the libraries that they need, found by RPATH $ORIGIN;
source/, the tree that a machine without a matching loader or library builds; tests.txt, bundle.txt; debs/. Left out are
the C and C++ libraries, which every machine with g++ has, and CUDA's own, which gpu-check.sh finds there.
Exit codes: 0 done; 1 the bundle would not run there, or is larger than 48 MiB (--most); 2 wrong arguments.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Debian 12's, the oldest system that a bundle is to run on.
NEWEST = {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so\.\d+$")
CUDA = re.compile(r"lib(cu[a-z]+|nccl|nv[a-z0-9-]+)\.so[.\d]*$", re.IGNORECASE)
# A build with these would drag along what no single GPU needs.
UNWANTED = re.compile(r"lib(dnnl|mpi|gloo|open-pal|open-rte)\.so")


class Refused(Exception):
    """One line for the user."""


def output_of(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{command[0]} fails on {command[-1]}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout


def test_programs(build):
    """Those of ctest's label `device`, as paths."""
    listed = json.loads(output_of("ctest", "--test-dir", build, "--label-regex", "device", "--show-only=json-v1"))
    programs = {pathlib.Path(t["command"][0]) for t in listed["tests"] if "command" in t}
    return sorted((p for p in programs if p.name.startswith("test_")), key=lambda p: p.name)


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "--dynamic", "--wide", path))


def libraries_of(program):
    """Name -> path of all that the loader takes for a program; None: it finds none."""
    found = {}
    for line in output_of("ldd", program).splitlines():
        if match := re.match(r"\t(\S+) => (not found|/\S+)", line):
            found[match.group(1)] = None if match.group(2) == "not found" else pathlib.Path(match.group(2))
    return found


def copy_programs(programs, target, emulated):
    libraries = {}
    for program in programs:
        if not os.access(program, os.X_OK):
            raise Refused(f"{program} is not built: cmake --build FOLDER --target gradmeter device_tests")
        output_of("strip", "--strip-all", "-o", target / program.name, program)
        libraries |= libraries_of(program)
    for name, path in libraries.items():
        if SYSTEM.match(name) or CUDA.match(name):
            continue
        if UNWANTED.match(name) and not emulated:
            raise Refused(f"the build needs {name}, which no single GPU does: configure it with -DGRADMETER_MPI=OFF "
                          "-DGRADMETER_ONEDNN=OFF -DGRADMETER_GLOO=OFF, or leave --build out")
        if path is None:
            raise Refused(f"{name} is not found, so it cannot be packed")
        shutil.copy(path, target / name)
        output_of("strip", "--strip-unneeded", target / name)
    for path in target.iterdir():
        # As DT_RPATH, which the libraries' own needs are looked up by too.
        output_of("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", path)


def newer_symbols(path):
    """Versions that the oldest system has not, such as GLIBC_2.38."""
    text = output_of("readelf", "--version-info", "--wide", path)
    wanted = set(re.findall(r"Name: ((GLIBC|GLIBCXX|CXXABI)_([\d.]+))", text.partition("Version needs section")[2]))
    return sorted(name for name, kind, version in wanted if tuple(map(int, version.split("."))) > NEWEST[kind])


def check(folder):
    """Nothing in it needs a newer system, or a library that is neither beside it nor CUDA's."""
    for path in sorted(folder.iterdir()):
        if newer := newer_symbols(path):
            raise Refused(f"{path.name} needs {', '.join(newer)}, which Debian 12 has not: build the bundle there")
        for name in needed(path):
            if not (SYSTEM.match(name) or CUDA.match(name) or (folder / name).exists()):
                raise Refused(f"{path.name} needs {name}, which the bundle has not")
        if (rpath := output_of("patchelf", "--print-rpath", path).strip()) != "$ORIGIN":
            raise Refused(f"{path.name} looks for libraries in '{rpath}'")


def commit():
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    head = git("rev-parse", "--short", "HEAD").stdout.strip() or "unknown"
    return head if git("diff", "--quiet", "HEAD").returncode == 0 else f"{head}, changed"


def sources():
    """Files of the tree, new ones included; without git (a bundle's own tree) all that are there."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True,
                            check=False)
    names = listed.stdout.split("\0")[:-1] if listed.returncode == 0 else [
        str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and p.relative_to(ROOT).parts[0] != "build"]
    return sorted(n for n in names if (ROOT / n).is_file())


def pack(build, target, debs, most_mib):
    cache = (build / "CMakeCache.txt").read_text() if (build / "CMakeCache.txt").exists() else ""
    emulated = "GRADMETER_CUDA_EMULATED:BOOL=ON" in cache
    architectures = re.search(r"^GRADMETER_CUDA_ARCHITECTURES:\w+=(.*)$", cache, re.MULTILINE)
    if not emulated and (not architectures or architectures.group(1) != "90"):
        raise Refused("the build is not for compute capability 9.0 alone: configure it with -DGRADMETER_CUDA_ARCHITECTURES=90")
    tests = test_programs(build)
    programs = [build / "gradmeter", build / "tests/bench/bench_device", build / "tests/runtime/ipc_probe",
                build / "tests/runtime/streams_probe", *tests]
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        (top / "bin").mkdir()
        copy_programs(programs, top / "bin", emulated)
        check(top / "bin")
        (top / "tests.txt").write_text("".join(f"{p.name}\n" for p in tests))
        (top / "bundle.txt").write_text(f"commit: {commit()}\ndevice: {'emulated' if emulated else 'sm_90'}\n"
                                        f"made: {time.strftime('%Y-%m-%dT%H:%MZ', time.gmtime())}\n")
        plain = top / "bundle.tar"
        with tarfile.open(plain, "w") as archive:
            for path in ("bundle.txt", "tests.txt", "bin"):
                archive.add(top / path, f"gpu-check/{path}")
            for path in sources():
                archive.add(ROOT / path, f"gpu-check/source/{path}")
            for path in sorted(debs.glob("*.deb")) if debs else []:
                archive.add(path, f"gpu-check/debs/{path.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Programs share most of their code, so the window is as large as all of them together.
        with target.open("wb") as to:
            subprocess.run(["xz", "--stdout", "--threads=1", "--lzma2=preset=2,dict=256MiB", str(plain)], stdout=to, check=True)
        count, unpacked = len(list((top / "bin").iterdir())), plain.stat().st_size
    packed = target.stat().st_size
    print(f"{target}: {packed / 2**20:.1f} MiB, unpacked {unpacked / 2**20:.0f} MiB; {count} programs and libraries")
    if packed > most_mib << 20:
        raise Refused(f"{target} is larger than {most_mib} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path, nargs="?")
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--debs", type=pathlib.Path)
    parser.add_argument("--most", type=int, default=48, help="MiB that the archive may have")
    o = parser.parse_args()
    if o.tests == bool(o.file):
        parser.error("give a FILE, or --tests")
    if o.tests:
        print("\n".join(p.name for p in test_programs(o.build)))
        return
    for tool in ("patchelf", "xz", "strip", "readelf", "ctest"):
        if not shutil.which(tool):
            raise Refused(f"{tool} is missing: scripts/packages.sh build test installs it")
    pack(o.build.resolve(), o.file, o.debs, o.most)


if __name__ == "__main__":
    try:
        main()
    except Refused as e:
        sys.exit(f"gpu-bundle: {e}")
