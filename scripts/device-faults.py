#!/usr/bin/env python3
"""Which test or sanitizer finds each barrier, event and wait of the CUDA code when it is missing. Needs no GPU.

  scripts/device-faults.py [--only REGEX] [--seeds 5] [--scratch DIR] [--list]

In a scratch copy of the tree each barrier of src/*/cuda is deleted in turn, the module's device test is built by the
preset cuda-emulated and run; if that finds nothing, by cuda-emulated-tsan. Prints a table for docs/cuda.md. Fails when
a fault is found by nothing: the barrier needs a better test, or is superfluous.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Statements of one line. What waits on the host is found as an early read.
FAULTS = [
    ("block barrier", r"__syncthreads\(\);"),
    ("warp barrier", r"__syncwarp\([^;]*\);"),
    ("grid barrier", r"(?:gpu::)?grid_barrier\(\);"),
    ("fence", r"__threadfence(?:_block|_system)?\(\);"),
    ("event record", r"(?:check_cuda\(cudaEventRecord\([^;]*|\w+(?:\.|->)record\(\w[^;]*\)|done_ = queue_\.record\(\));"),
    ("wait for a peer", r"while \([^;]*acquire_from_all\([^;]*;"),
    ("wait for NCCL", r"if \((?:\w+ && )?!nccl_\.launched\(\)\) return false;"),
    ("stream wait", r"(?:return )?(?:check_cuda\(cudaStreamWaitEvent\([^;]*|stream_?(?:\.|->)wait\([^;]*\));"),
    ("stream synchronise", r"(?:check_cuda\()?(?:cudaStreamSynchronize\([^;]*|\w+(?:\.|->)synchronize\(\));"),
]
# What the device's language is made of; not code that is tested.
LEFT_OUT = {"src/runtime/cuda/launch.hpp"}
# Where it is not the module's device test.
TESTS = {
    "src/allreduce/cuda/nccl.cpp": "test_allreduce_nccl",
    "src/allreduce/cuda/nccl_messages.cpp": "test_allreduce_nccl_messages",
}


class Fault:
    def __init__(self, path, number, line, kind, match):
        self.path, self.number, self.kind = path, number, kind
        before, after = line[: match.start()], line[match.end() :]
        self.statement = match.group()
        # Compiled, so that nothing it names is unused; never run.
        never = f"if (false) {self.statement.removeprefix('return ')}"
        self.faulty = before + (f"{{ {never} return; }}" if self.statement.startswith("return ") else f"{{ {never} }}") + after

    @property
    def module(self):
        return self.path.parts[1]

    def __str__(self):
        return f"{self.path}:{self.number}"


def faults_of(path):
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        code = line.split("//")[0]
        if re.match(r"\s*(?:void|inline|__device__|#|const|template)\b", code):
            continue  # a definition
        for kind, pattern in FAULTS:
            match = re.search(r"(?<![\w.:>])" + pattern, code)
            if match:
                yield Fault(path, number, line, kind, match)
                break


def all_faults(only):
    tracked = subprocess.run(["git", "ls-files", "src/*/cuda/*"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in sorted(tracked.stdout.split()):
        if name in LEFT_OUT or pathlib.Path(name).suffix not in {".cu", ".cuh", ".cpp", ".hpp"}:
            continue
        yield from (f for f in faults_of(pathlib.Path(name)) if re.search(only, f"{f} {f.kind}"))


class Scratch:
    """A copy of the tree, with builds of its own."""

    def __init__(self, folder, jobs, seeds):
        self.folder, self.jobs = folder, jobs
        self.environment = dict(os.environ, GRADMETER_DEVICE_SEEDS=str(seeds), OMP_NUM_THREADS="1")
        self.environment.update(TSAN_OPTIONS="halt_on_error=1 atexit_sleep_ms=0")
        files = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in files.stdout.splitlines():
            source, target = ROOT / name, folder / name
            if not source.is_file():
                continue
            if target.exists() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def call(self, *words):
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, errors="replace", check=False
        )

    def build(self, preset, target):
        if not (self.folder / "build" / preset / "build.ninja").exists():
            done = self.call("cmake", "--preset", preset)
            if done.returncode:
                sys.exit(done.stdout + done.stderr)
        return self.call("cmake", "--build", "--preset", preset, "--target", target, "-j", str(self.jobs))

    def run(self, preset, target):
        """Builds and runs; None: nothing was found. Otherwise what."""
        built = self.build(preset, target)
        if built.returncode:
            return "the compiler"
        program = next((self.folder / "build" / preset / "tests").glob(f"*/{target}"))
        try:
            done = subprocess.run(
                ["setarch", "--addr-no-randomize", program, "--gtest_brief=1", "--gtest_fail_fast"],
                cwd=self.folder, env=self.environment, capture_output=True, text=True, errors="replace", check=False,
                timeout=900,
            )
        except subprocess.TimeoutExpired:
            return "time-out"
        return None if done.returncode == 0 else finder(done.stdout + done.stderr)


def finder(output):
    race = re.search(r"SUMMARY: ThreadSanitizer: (data race) \S+?([\w.]+:\d+)", output)
    if race:
        return f"ThreadSanitizer: {race.group(1)} at {race.group(2)}"
    test = re.search(r"\[  FAILED  \] (\S+?)(?:,| \()", output)
    seed = re.search(r"seed (\d+)", output)
    report = re.search(r"hang: [^\n]*|CUDA emulator: [^\n]*", output)
    words = [f"`{test.group(1)}`" if test else "the test ended"]
    if seed:
        words.append(f"at seed {seed.group(1)}")
    if report:
        words.append(f"({report.group()})")
    return " ".join(words)


def find(scratch, fault):
    path = scratch.folder / fault.path
    text = (ROOT / fault.path).read_text()
    lines = text.splitlines(keepends=True)
    lines[fault.number - 1] = fault.faulty + "\n"
    target = TESTS.get(str(fault.path), f"test_{fault.module}_device")
    path.write_text("".join(lines))
    try:
        return scratch.run("cuda-emulated", target) or scratch.run("cuda-emulated-tsan", target)
    finally:
        path.write_text(text)


def table(scratch, faults):
    missed = 0
    print("| missing | in | found by |\n| --- | --- | --- |", flush=True)
    for fault in faults:
        found = find(scratch, fault)
        missed += found is None
        print(f"| {fault.kind} | `{fault.path}:{fault.number}` | {found or '**nothing**'} |", flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose file, line and kind match")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--scratch", type=pathlib.Path, help="kept for the next run; otherwise a temporary folder")
    parser.add_argument("--list", action="store_true", help="only say what would be deleted")
    options = parser.parse_args()
    faults = list(all_faults(options.only))
    if options.list:
        for fault in faults:
            print(f"{fault}: {fault.kind}: {fault.statement}")
        return 0
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
        missed = table(Scratch(options.scratch.resolve(), options.jobs, options.seeds), faults)
    else:
        with tempfile.TemporaryDirectory() as folder:
            missed = table(Scratch(pathlib.Path(folder), options.jobs, options.seeds), faults)
    print(f"{len(faults) - missed} of {len(faults)} faults are found", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
