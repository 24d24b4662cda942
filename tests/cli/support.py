# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: starting the program, looking at its ranks, reading result files, saying what was
checked.

Each test is run as  NAME_test.py GRADMETER MPIEXEC SOURCE_DIR  and needs Python 3.8. As root, in a container or with
more ranks than cores Open MPI wants settings; ctest gives them, by hand do  . scripts/environment.sh
"""
import concurrent.futures
import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

# What launchers leave in the environment: a test that itself runs under one must look as if started from a shell.
LAUNCHER_VARIABLES = ("OMPI_COMM_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "SLURM_")


class Outcome:
    """How one command ended: exit code (negative: the signal), what it printed, how long it took [s]."""

    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds

    @property
    def own_lines(self):
        """What gradmeter itself complained about: mpirun adds lines of its own around them. That the small budgets of tests
        are not kept is no complaint."""
        return [line for line in self.err.splitlines() if re.match("gradmeter: (?!(a|the) time budget of )", line)]

    @property
    def unkept_budgets(self):
        return [line for line in self.err.splitlines() if line.startswith("gradmeter: a time budget of ")]

    def __str__(self):
        return (f"$ {' '.join(map(str, self.command))}\nexit code {self.code} after {self.seconds:.1f} s\n"
                f"--- standard output\n{self.out}--- standard error\n{self.err}---")


class Test:
    """One script: the program under test, a temporary folder, and a count of what failed."""

    threads = False  # ranks are threads, which start sooner, where a test is not about processes; or run(threads=True)

    def __init__(self, description):
        if len(sys.argv) != 4:
            print(f"{description.strip()}\n\nusage: {sys.argv[0]} GRADMETER MPIEXEC SOURCE_DIR", file=sys.stderr)
            raise SystemExit(2)
        self.gradmeter, self.mpiexec = sys.argv[1], sys.argv[2]
        self.source = pathlib.Path(sys.argv[3])
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradmeter-test-"))
        self.checks = self.failures = 0
        self.validator = None  # the module, once a file has been validated
        self.jobs = []  # seconds and command of each that ended
        print(description.strip(), flush=True)

    # --- saying what was checked

    def check(self, good, what, detail=""):
        """Prints one line; a failed check is counted and told in full, and the test goes on."""
        self.checks += 1
        if not good:
            self.failures += 1
        print(f"{'ok    ' if good else 'FAILED'} {what}", flush=True)
        if not good and str(detail):
            print("       " + str(detail).replace("\n", "\n       "), flush=True)
        return bool(good)

    def equal(self, found, wanted, what):
        return self.check(found == wanted, what, f"found  {found}\nwanted {wanted}")

    def attempt(self, part, why):
        """Runs part(self), and once more when a check of it failed: for what something else than the program under test
        may spoil now and then, as `why` says. A fault of the program fails both times."""
        before, files = self.failures, set(self.folder.iterdir())
        try:
            part(self)
        except RuntimeError as e:
            self.check(False, str(e))
        if self.failures == before:
            return
        self.failures = before
        print(f"note   once more: {why}", flush=True)
        # The program adds to no file that is there: what the first attempt has left would spoil the second.
        for left in set(self.folder.iterdir()) - files:
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        part(self)

    @staticmethod
    def side_by_side(work, cases, at_once=8):
        """work(case) for each. A process that is refused spends its time waiting for MPI to start: a few at once take no
        longer than one. Not for what is timed."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            list(pool.map(work, cases))

    # --- starting the program

    def command(self, arguments, ranks=None, wrapper=(), threads=False):
        own = [*wrapper, self.gradmeter, *map(str, arguments)]
        if ranks is None:
            return own
        return [*own, "--thread-ranks", str(ranks)] if threads or self.threads else [self.mpiexec, "-np", str(ranks), *own]

    @staticmethod
    def environment(extra=None):
        """This one without a launcher's variables; tables in full, since tests read them."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
        return {**kept, "COLUMNS": "400", **(extra or {})}

    def run(self, *arguments, ranks=None, timeout=60, env=None, wrapper=(), threads=False):
        """Runs to the end; one that is still there after `timeout` seconds is ended and counts as a failed check."""
        with self.started(*arguments, ranks=ranks, env=env, wrapper=wrapper, threads=threads) as job:
            return job.wait(timeout)

    def started(self, *arguments, ranks=None, env=None, wrapper=(), threads=False):
        return Job(self, self.command(arguments, ranks, wrapper, threads), self.environment(env))

    # --- result files

    def path(self, name):
        return self.folder / name

    def valid(self, *files, what=""):
        """Each line of these files is valid against the schema."""
        names = ", ".join(pathlib.Path(f).name for f in files)
        done = self.validate(*files)
        return self.check(done.returncode == 0, what or f"{names}: each line is valid against the schema",
                          done.stdout + done.stderr)

    def validate(self, *files):
        """What scripts/validate-results.py says and ends with, without its start: that takes longer than most files."""
        if self.validator is None:
            place = importlib.util.spec_from_file_location("validate_results", self.source / "scripts" / "validate-results.py")
            self.validator = importlib.util.module_from_spec(place)
            place.loader.exec_module(self.validator)
        said = []
        code = self.validator.check_files(files, said.append, said.append)
        return subprocess.CompletedProcess(files, code, "\n".join(said), "")


def main(description, body, threads=False):
    """Runs body(test), tidies up whatever happens, and ends the script: 0 when every check was good, else 1."""
    test = Test(description)
    test.threads = threads
    try:
        body(test)
    except Exception:  # a check that could not even be made is a failed one
        traceback.print_exc(file=sys.stdout)
        test.check(False, "the test itself goes through")
    finally:
        shutil.rmtree(test.folder, ignore_errors=True)
    print(f"{test.checks} checks, {test.failures} failed; {len(test.jobs)} commands, the longest:")
    for seconds, command in sorted(test.jobs, key=lambda job: -job[0])[:int(os.environ.get("GRADMETER_LONGEST", "3"))]:
        print(f"{seconds:6.1f} s  {' '.join(map(str, command[1:]))}", flush=True)
    raise SystemExit(1 if test.failures or not test.checks else 0)


class Job(contextlib.AbstractContextManager):
    """A command that runs beside the test. Leaving the `with` block ends it if it still runs."""

    def __init__(self, test, command, env):
        self.test, self.command, self.begin, self.rank_pids = test, command, time.monotonic(), {}
        # Into files, not pipes: a job that nobody reads must not block on a full pipe. Not in the test's folder, where
        # fingerprint() of a job beside this one might see them before they lose their names.
        self.streams = [tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2)]
        self.process = subprocess.Popen(command, env=env, cwd=test.folder, stdin=subprocess.DEVNULL,
                                        stdout=self.streams[0], stderr=self.streams[1], start_new_session=True)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()
        self.test.jobs.append((time.monotonic() - self.begin, self.command))
        for stream in self.streams:
            stream.close()

    def end(self):
        """mpirun takes its ranks along when asked; what does not listen is killed, each by its own number."""
        self.rank_pids.update(self.ranks())
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in self.rank_pids.values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    def text(self, number):
        self.streams[number].seek(0)
        return self.streams[number].read()

    def wait(self, timeout):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.end()
            self.test.check(False, f"ends by itself within {timeout} s", self.outcome())
        return self.outcome()

    def outcome(self):
        return Outcome(self.command, self.process.returncode, self.text(0), self.text(1),
                       time.monotonic() - self.begin)

    def ranks(self):
        """The process number of each rank that runs on this host, by rank: children of mpirun that carry one."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent != self.process.pid:
                    continue
                for variable in (entry / "environ").read_bytes().split(b"\0"):
                    name, _, value = variable.partition(b"=")
                    if name == b"OMPI_COMM_WORLD_RANK":
                        found[int(value)] = int(entry.name)
            except (OSError, ValueError):
                continue  # it ended while we looked, or is not ours to look at
        self.rank_pids.update(found)
        return found


def says_how_bf16_is_multiplied(point):
    """By instructions, emulated or by conversion to fp32: as rows in bf16 have to, and no others."""
    return ("bf16" in point["reason"]) == (point["factors"]["precision"] == "bf16")


def is_alive(pid):
    """False for a process that is gone, and for one that ended and waits to be collected."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, timeout, period=0.05):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(period)
    return condition()


def whole_lines(path):
    """The lines that were written to their end."""
    try:
        text = pathlib.Path(path).read_bytes()
    except FileNotFoundError:
        return []
    return text[: text.rfind(b"\n") + 1].decode().splitlines()


def read_lines(path):
    return [json.loads(line) for line in whole_lines(path)]


def runs(path):
    return [line for line in read_lines(path) if line["kind"] == "run"]


def points(path):
    return [line for line in read_lines(path) if line["kind"] == "point"]


def key(point):
    """What makes two points the same: all their factors."""
    return json.dumps(point["factors"], sort_keys=True)


def brief(point):
    return {k: v for k, v in point["factors"].items() if v is not None}


def fingerprint(folder):
    """Names and contents of all files in a folder: equal before and after when nothing was touched."""
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "" for p in
            sorted(pathlib.Path(folder).rglob("*"))}
