#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which test or sanitizer finds each barrier, event and wait of the device code when it is missing. Needs no GPU.

  scripts/device-faults.py [--only REGEX] [--first REGEX] [--seeds 20] [--no-sanitizer] [--scratch DIR [--resume]]
                           [--out FILE] [--list | --check]

A scratch copy of the tree gets a switch at each barrier, fence, event and wait chosen, so one build has all faults and
GRADMETER_FAULT chooses one. A first run notes which tests come past which switch. Each fault is then switched on under
those tests alone: at seed 0, at the other seeds, at last by cuda-emulated-tsan. Prints a table, or writes it to
results/device-faults.md by --out. Fails when nothing finds a fault: the barrier needs a better test, or is superfluous.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHAIN = r"(?:\w+(?:\(\))?(?:\.|->))"
QUEUE = rf"{CHAIN}*(?:\w*queue_?|\w*fabric_?|copies_|inner_|probe_|verifier_)(?:\(\))?(?:\.|->)"
# What can be missing. A statement is not executed; an event is null, which counts as reached; a question is answered
# by yes, without asking.
STATEMENTS = [
    ("block barrier", r"__syncthreads\(\);"),
    ("warp barrier", r"__syncwarp\([^;]*\);"),
    ("grid barrier", r"(?:gpu::)?grid_barrier\(\);"),
    ("fence", r"__threadfence(?:_block|_system)?\(\);"),
    ("event record", r"(?:check_cuda\(cudaEventRecord\([^;]*|\w+(?:\.|->)record\(\w[^;]*\));"),
    ("stream wait", rf"(?:return )?(?:check_cuda\(cudaStreamWaitEvent\([^;]*|stream_?\.wait\([^;]*\)|{CHAIN}+begin_after\([^;]*\));"),
    ("wait", r"(?:runtime::)?(?:(?:check_cuda|note_cuda_error)\()?cuda(?:Stream|Event|Device)Synchronize\([^;]*\);"),
    ("wait", rf"{CHAIN}*synchroni[sz]e\(\);"),
    ("barrier of ranks", rf"{CHAIN}+barrier\(\);"),
    ("refusal", r"refuse_shared_gpus\([^;]*\);"),
    ("word to leave", r"signals_\.tell_to_leave\(\);"),
]
VALUES = [
    ("event", rf"{QUEUE}record\(\)", "decltype({0})()"),
    ("question", rf"{CHAIN}+reached\(\)", "true"),
    ("wait for a peer", r"await_flag\([^;]*\)", "true"),
]
# The host's half of the device code: what queues work, and waits for it.
FOLDERS = ["src/*.cu", "src/*.cuh", "src/*/cuda/*", "src/runtime/nccl/*", "src/runtime/device.hpp", "src/runtime/transport/decorators*",
           "src/allreduce/executor/*", "src/allreduce/coded/*", "src/allreduce/gpu/*", "src/allreduce/vendor/nccl*", "src/dataparallel/*",
           "src/kernels/cases/*", "src/kernels/*/gpu_*.cpp", "src/kernels/*/cublaslt*.cpp", "src/kernels/*/cudnn*.cpp",
           "src/kernels/*/cusparse*.cpp", "src/kernels/*/case.cpp", "src/kernels/gemm/gemm.cpp", "src/kernels/conv/reference.cpp", "src/model/*"]
# The device's language itself, virtual time, which has no queue of a device, what forwards a call, and what only bench_device runs.
LEFT_OUT = [r"src/runtime/cuda/launch\.hpp", r"src/dataparallel/fabric/simulation/", r"src/dataparallel/fabric/fabric\.hpp",
            r"src/bench/codecs/device_calls\.cpp"]
# A server's clock; members that forward a call; a graph's launch is said, not asked for.
NOT_WAITS = r"server_client_->reached|override \{|^\s*inner_->launched\(\);"
# Places, kinds and statements of which no test finds a fault, and why.
REASONS = {
    r"src/kernels/(?:conv|rnn|cuda)/cudnn": "cuDNN is not emulated",
    r"src/kernels/sparse/cusparse(?!lt)": "cuSPARSE is not emulated",
    r"src/kernels/sparse/cusparselt": "a copy into pageable memory waits by itself under CUDA, and no late device has cuSPARSELt",
    r"src/runtime/cuda/queue\.cpp:\d\d wait": "HostView, at the top: pinned memory goes there when an address comes back, and the emulated device gives none out again",
    r".* fence": "memory has one order on the emulated device, so that ThreadSanitizer alone sees one",
}
BEFORE = r"(?<![\w.:>])"
PROGRAMS = {
    "runtime": ["test_runtime_device", "test_runtime_nccl"],
    "compression": ["test_compression_device"],
    "kernels": ["test_kernels_device", "test_kernels_late"],
    "allreduce": ["test_allreduce_device", "test_allreduce_nccl", "test_allreduce_nccl_messages", "test_allreduce"],
    "dataparallel": ["test_dataparallel_device", "test_dataparallel_device_losses", "test_dataparallel_threads"],
    "model": ["test_model"],
}
# Where tests of a program say what they came past: what all device tests have, and a file of those that run queues of their
# own, later than any device's.
LISTENERS = ["tests/support/device_environment.cpp", "tests/allreduce/late_queue_test.cpp", "tests/dataparallel/deferred_test.cpp",
             "tests/kernels/late_cases_test.cpp", "tests/model/network_test.cpp"]
# Of these: what runs on such queues. DeferredEvents* leaves events out itself.
ONLY = {"test_allreduce": "LateQueue*:CollectiveSequence*", "test_dataparallel_threads": "*Deferred*-*DeferredEvents*",
        "test_model": "*WorksLater*"}
# Code of the scratch copy. The first line of its files is for who reads them here.
SWITCH, LISTENER = ((ROOT / "scripts/faults" / name).read_text().split("\n", 1)[1] for name in ("switch.inc", "listener.inc"))



class Fault:
    def __init__(self, path, line_number, kind, statement):
        self.path, self.line_number, self.kind, self.statement = path, line_number, kind, statement
        # Of its switch: where another file changes, this one need not be compiled again.
        self.number = zlib.crc32(f"{path}:{line_number}".encode()) & 0xFFFF

    @property
    def module(self):
        return self.path.parts[1]

    def __str__(self):
        return f"{self.path}:{self.line_number}"


def switched(line, number, kind, match, instead):
    """The line with a switch."""
    before, after, statement = line[: match.start()], line[match.end() :], match.group()
    missing = f"device_faults::missing({number})"
    if instead:
        return f"{before}({missing} ? {instead.format(statement)} : {statement}){after}"
    returns = " return;" if statement.startswith("return ") else ""
    return f"{before}{{ if (!{missing}) {statement.removeprefix('return ')}{returns} }}{after}"


def fault_in(code):
    """The first: kind, match, what stands instead of a value."""
    if re.match(r"\s*(?:void|inline|__device__|#|template|virtual)\b", code):
        return None  # a definition
    if re.search(NOT_WAITS, code):
        return None
    for kind, pattern in STATEMENTS:
        if match := re.search(BEFORE + pattern, code):
            return kind, match, None
    for kind, pattern, instead in VALUES:
        if match := re.search(BEFORE + pattern, code):
            return kind, match, instead
    return None


def tracked(*patterns):
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(listed.stdout.split("\n")[:-1])


def all_faults():
    """Faults, and the files that have them, switched."""
    faults, files = [], {}
    for name in tracked(*FOLDERS):
        path = pathlib.Path(name)
        if path.suffix not in {".cu", ".cuh", ".cpp", ".hpp"} or any(re.match(p, name) for p in LEFT_OUT):
            continue
        lines, before = (ROOT / path).read_text().splitlines(), len(faults)
        for at, line in enumerate(lines):
            if found := fault_in(line.split("//")[0]):
                kind, match, instead = found
                faults.append(Fault(path, at + 1, kind, match.group()))
                lines[at] = switched(line, faults[-1].number, kind, match, instead)
        if len(faults) > before:
            files[name] = '#include "core/device_faults.hpp"\n#line 1\n' + "\n".join(lines) + "\n"
    if len({f.number for f in faults}) < len(faults):
        sys.exit("two faults have one number: take other bits of the checksum")
    return faults, files


class Scratch:
    """A copy of the tree with switches, and builds of its own."""

    def __init__(self, folder, jobs, seeds, files):
        self.folder, self.jobs, self.seeds = folder, jobs, seeds
        self.built = set()
        files = dict(files)
        files["src/core/device_faults.hpp"] = "// Written by scripts/device-faults.py.\n" + SWITCH
        for name in LISTENERS:
            files[name] = (ROOT / name).read_text() + "\n" + LISTENER
        for name in tracked():
            if name not in files and (ROOT / name).is_file():
                files[name] = (ROOT / name).read_bytes()
        for name, content in files.items():
            target = folder / name
            content = content if isinstance(content, bytes) else content.encode()
            if target.exists() and target.read_bytes() == content:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def build(self, preset, program):
        if (preset, program) in self.built:
            return
        commands = [["cmake", "--build", "--preset", preset, "--target", program, "-j", str(self.jobs)]]
        if not (self.folder / "build" / preset / "build.ninja").exists():
            commands.insert(0, ["cmake", "--preset", preset])
        for command in commands:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                sys.exit(f"{' '.join(command)} fails:\n{(done.stdout + done.stderr)[-4000:]}")
        self.built.add((preset, program))

    def program(self, preset, name):
        return next((self.folder / "build" / preset / "tests").glob(f"*/{name}"))

    def run(self, preset, program, seeds, *arguments, fault=-1, limit=3600.0):
        """Output, exit code (None: out of time)."""
        self.build(preset, program)
        suppressions = self.folder / "tests/thread_sanitizer.supp"
        environment = dict(
            os.environ, GRADMETER_DEVICE_SEEDS=seeds, GRADMETER_SEEDS="2" if seeds == "1" else str(self.seeds),
            OMP_NUM_THREADS="1", GRADMETER_FAULT=str(fault),
            TSAN_OPTIONS=f"halt_on_error=1 atexit_sleep_ms=0 suppressions={suppressions}",
        )
        path = self.program(preset, program)
        try:
            done = subprocess.run(
                ["setarch", "--addr-no-randomize", path, *arguments], cwd=self.folder, env=environment, timeout=limit,
                capture_output=True, text=True, errors="replace", check=False,
            )
        except subprocess.TimeoutExpired as e:
            return (e.stdout or b"").decode(errors="replace"), None
        return done.stdout + done.stderr, done.returncode


class Passes:
    """Which tests come past a switch, and how many seconds each takes at seed 0."""

    def __init__(self, scratch, resume):
        self.tests = {}  # program -> [(test, seconds, switches)]
        for program in (p for programs in PROGRAMS.values() for p in programs):
            kept = scratch.folder / f"passes-{program}.txt"
            scratch.build("cuda-emulated", program)
            if not resume or not kept.exists() or kept.stat().st_mtime < scratch.program("cuda-emulated", program).stat().st_mtime:
                output, code = scratch.run("cuda-emulated", program, "1", f"--gtest_filter={ONLY.get(program, '*')}")
                if code not in (0, 1):
                    sys.exit(f"{program} fails without a fault:\n{output[-4000:]}")
                kept.write_text(output)
            output = kept.read_text()
            wrong = set(re.findall(r"^\[  FAILED  \] (\S+?)(?:,| \()", output, re.MULTILINE))
            for test in wrong:  # it can find nothing
                print(f"{program}: {test} fails without a fault", file=sys.stderr)
            found = re.findall(r"^@passed (\S+) (\d+)([ \d]*)$", output, re.MULTILINE)
            self.tests[program] = [
                (t, int(ms) / 1e3, {int(n) for n in numbers.split()}) for t, ms, numbers in found if t not in wrong
            ]

    def of(self, fault, budget):
        """(program, tests, seconds), the fault's own module first: the shortest tests, within the seconds of all together."""
        for module in sorted(PROGRAMS, key=lambda m: m != fault.module):
            for program in PROGRAMS[module]:
                chosen, total = [], 0.0
                for test, seconds, switches in sorted(self.tests[program], key=lambda t: t[1]):
                    if fault.number in switches and (not chosen or total + seconds <= budget):
                        chosen.append(test)
                        total += seconds
                budget -= total
                if chosen:
                    yield program, chosen, total
                if budget <= 0:
                    return


def failed_test(output):
    found = re.search(r"\[  FAILED  \] (\S+?)(?:,| \()", output)
    return found and found.group(1)


def last_test(output):
    """The one that failed; else the one that the program was in when it ended."""
    tests = re.findall(r"\[ RUN      \] (\S+)", output)
    return failed_test(output) or (tests[-1] if tests else None)


def finder(output, code):
    race = re.search(r"SUMMARY: ThreadSanitizer: (\S.*?) (?:\S*/)?([\w.]+:\d+)", output)
    if race:
        return f"ThreadSanitizer: {race.group(1)} at `{race.group(2)}`"
    failed, name = failed_test(output), last_test(output)
    words = [f"`{name}`" if name else "the test program"]
    if code is None:
        words.append("does not end")
    elif not failed:
        words.append(f"ends with {code}")
    if seed := re.search(r"seed (\d+)", output):
        words.append(f"at seed {seed.group(1)}")
    if report := re.search(r"(hang: [^\n]*|CUDA emulator: [^\n]*?)(?: 0x\w+| \(|$)", output, re.MULTILINE):
        words.append(f"({report.group(1)[:120]})")
    return " ".join(words).replace("|", r"\|")


def finder_of(scratch, preset, program, seeds, tests, fault, limit):
    """What finds the fault, of these tests; None: nothing does. Time-outs are of a busy machine until the test that was cut off
    ends without the fault, and does not with it."""
    while tests:
        def run(chosen, number, most):
            return scratch.run(preset, program, seeds, f"--gtest_filter={chosen}", "--gtest_fail_fast", fault=number, limit=most)

        output, code = run(":".join(tests), fault.number, limit)
        if code == 0:
            return None
        test, begin = last_test(output), time.monotonic()
        has_passed = seeds == "1" and code is not None  # when it was noted what it passes
        if test and not has_passed and run(test, -1, 600)[1] != 0:
            print(f"{program}: {test} fails without a fault at seeds {seeds}", file=sys.stderr)
            return None
        if code is not None:
            return finder(output, code)
        ended = [test, *re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE)]
        output, code = run(test, fault.number, 30 + 10 * (time.monotonic() - begin))
        if code != 0:
            return finder(output, code)
        tests = [t for t in tests if t not in ended]
    return None


def find(scratch, passes, fault, sanitizer):
    # Preset, seeds, seconds of tests at seed 0, and how many times as long they may take.
    plans = [("cuda-emulated", "1", 8, 1), ("cuda-emulated", "1", 40, 1),
             ("cuda-emulated", f"1-{scratch.seeds - 1}", 2, scratch.seeds), ("cuda-emulated-tsan", "2", 2, 200)]
    for preset, seeds, budget, times in plans if sanitizer else plans[:-1]:
        for program, tests, seconds in passes.of(fault, budget):
            if found := finder_of(scratch, preset, program, seeds, tests, fault, 30 + 4 * times * seconds):
                return found
    return None


HEAD = """# Faults on purpose

`scripts/device-faults.py --seeds {seeds}{sanitizer} --out results/device-faults.md`, {when}. Each barrier, fence, event and wait of the
device code, and of the host code that queues work on a device, was missing once; {counts}.
A test that is named without ThreadSanitizer found it by what it asserts, on the emulated runtime at the seed named or, for tests
`Deferred…`, `Late…`, `Networks`, `TableNetwork` and `ForwardOperations`, on a device of the tests' own whose work comes late. A `question` is answered by yes.

"""


NOTHING, NO_TEST = "**nothing**", "**no test comes there**"


def key_of(fault):
    return f"{fault} {fault.statement}"


# Of the device's language, and of no kernel at present.
NOT_USED = {"warp barrier", "grid barrier"}


def stale(faults):
    """What names nothing in the tree any more: it would leave out faults without a word."""
    wrong = [f"FOLDERS: no file is {p}" for p in FOLDERS if not tracked(p)]
    wrong += [f"LEFT_OUT: no file is {p}" for p in LEFT_OUT if not any(re.match(p, name) for name in tracked("src"))]
    for kind, pattern, *_ in STATEMENTS + VALUES:
        found = any(f.kind == kind and re.search(BEFORE + pattern, f.statement) for f in faults)
        if found == (kind in NOT_USED):
            wrong.append(f"{pattern} ({kind}): " + ("is used now" if found else "no statement is one"))
    wrong += [f"{f}: half of a call is a statement: {f.statement}" for f in faults if f.statement.count("(") != f.statement.count(")")]
    wrong += [f"REASONS: no fault is {p}" for p in REASONS if not any(re.match(p, f"{f} {f.kind}") for f in faults)]
    wrong += [f"LISTENERS: there is no {name}" for name in LISTENERS if not (ROOT / name).is_file()]
    made = "\n".join((ROOT / name).read_text() for name in tracked("tests/*CMakeLists.txt"))
    for program in (p for programs in PROGRAMS.values() for p in programs):
        if not re.search(rf"PROGRAM {program}\b|gradmeter_test\({program.removeprefix('test_')}\b", made):
            wrong.append(f"PROGRAMS: nothing makes {program}")
    covered = set(tracked(*FOLDERS))
    for name in tracked("src/*.cpp", "src/*.hpp"):
        text = (ROOT / name).read_text()
        if name in covered or any(re.match(p, name) for p in LEFT_OUT) or not re.search(r'#include [<"](cuda_|runtime/cuda/)', text):
            continue
        if any(fault_in(line.split("//")[0]) for line in text.splitlines()):
            wrong.append(f"FOLDERS: {name} includes CUDA, waits, and is left out")
    return wrong


def find_all(scratch, faults, resume, sanitizer):
    """Outcomes by key, and by `resume` those that an earlier run has left in the scratch folder. An interrupt ends it early."""
    kept = scratch.folder / "outcomes.json"
    outcomes = json.loads(kept.read_text()) if resume and kept.exists() else {}
    begin = time.monotonic()
    try:
        passes = Passes(scratch, resume)
        for fault in faults:
            if outcomes.get(key_of(fault), NOTHING) not in (NOTHING, NO_TEST):
                continue
            outcome = find(scratch, passes, fault, sanitizer) or (NOTHING if list(passes.of(fault, 1)) else NO_TEST)
            outcomes[key_of(fault)] = outcome
            kept.write_text(json.dumps(outcomes, indent=1))
            print(f"{time.monotonic() - begin:6.0f} s  {key_of(fault)}: {outcome}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return outcomes


def write_table(scratch, faults, outcomes, options):
    """How many of the faults are not found, of those that were run, and have no reason for it."""
    run = [f for f in faults if key_of(f) in outcomes]
    missed = excused = 0
    rows = ["| missing | at | kind | found by |", "| --- | --- | --- | --- |"]
    for fault in run:
        outcome = outcomes[key_of(fault)]
        if outcome in (NOTHING, NO_TEST):
            reason = next((why for place, why in REASONS.items() if re.match(place, f"{fault} {fault.kind}")), None)
            missed, excused = missed + (not reason), excused + bool(reason)
            outcome = f"nothing: {reason}" if reason else outcome
        statement = fault.statement.removesuffix(";").removeprefix("return ").replace("|", r"\|")
        rows.append(f"| `{statement}` | `{fault}` | {fault.kind} | {outcome} |")
    counts = f"{len(run) - missed - excused} of {len(run)} were found, and {excused} were not, for the reasons in their rows"
    if len(run) < len(faults):
        counts += f"; {len(faults) - len(run)} more have not been run"
    print(counts, file=sys.stderr)
    sanitizer = " --no-sanitizer" if options.no_sanitizer else ""
    head = HEAD.format(when=time.strftime("%Y-%m-%d"), seeds=scratch.seeds, sanitizer=sanitizer, counts=counts)
    if options.out:
        options.out.write_text(head + "\n".join(rows) + "\n")
    else:
        print("\n".join(rows))
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose file, line and kind match")
    parser.add_argument("--first", default="", help="of these, the ones to begin with")
    parser.add_argument("--seeds", type=int, default=20, help="at most; 0 is the first")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--scratch", type=pathlib.Path, help="kept for the next run; otherwise a temporary folder")
    parser.add_argument("--resume", action="store_true", help="keep what an earlier run in this scratch folder has found")
    parser.add_argument("--no-sanitizer", action="store_true", help="without the build for ThreadSanitizer")
    parser.add_argument("--out", type=pathlib.Path, help="the file to write")
    parser.add_argument("--list", action="store_true", help="only say what would be missing")
    parser.add_argument("--check", action="store_true", help="only whether all that this script names is in the tree")
    options = parser.parse_args()
    if options.check and subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        print("device-faults: nothing was checked: git does not know this tree")
        return 77
    faults, files = all_faults()
    if options.check:
        wrong = stale(faults)
        print("\n".join(f"device-faults: {line}" for line in wrong) or f"{len(faults)} faults, and all that is named is there")
        return 1 if wrong else 0
    chosen = [f for f in faults if re.search(options.only, f"{f} {f.kind}")]
    if not options.resume:
        faults = chosen
    files = {name: text for name, text in files.items() if any(str(f.path) == name for f in chosen)}
    if options.list:
        for fault in chosen:
            print(f"{fault.number} {fault}: {fault.kind}: {fault.statement}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        at = options.scratch.resolve() if options.scratch else pathlib.Path(folder)
        scratch = Scratch(at, options.jobs, options.seeds, files)
        order = sorted(chosen, key=lambda f: not re.search(options.first or "$^", f"{f} {f.kind}"))
        outcomes = find_all(scratch, order, options.resume, not options.no_sanitizer)
        missed = write_table(scratch, faults, outcomes, options)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
