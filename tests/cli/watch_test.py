# SPDX-License-Identifier: Apache-2.0
"""`gradmeter watch` follows running jobs in a terminal: what its screen shows while points come, when the terminal is
resized, when the job ends, is killed or interrupted; and as plain lines in a pipe. Result files say what is planned and
how a run ended; those of older programs, which do not, are read as before."""
import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import support

SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
# Enough points, each short, for a look at the screen between two of them.
SWEEP = ["codecs", "--codec", "qsgd8,qsgd4,bf16,fp16,onebit,terngrad", "--size", "4K,16K", "--precision-goal", "0.001"]
POINTS = 12
FIRST_LOOK = 1.0  # seconds after which a watch that was started has looked at its file, also where cores are busy


class Terminal:
    """A command in a terminal of its own, and what that shows: as far as `watch` draws, by sequences of xterm."""

    def __init__(self, test, arguments, env=None, rows=24, columns=100):
        self.begin, self.command = time.monotonic(), test.command(arguments)
        self.test, self.code, self.sequences = test, None, set()
        self.decoder, self.rest = codecs.getincrementaldecoder("utf-8")(), ""
        self.screens, self.is_other = [[""], [""]], False
        environment = {k: v for k, v in test.environment(env).items() if k not in ("COLUMNS", "NO_COLOR") or k in (env or {})}
        environment["TERM"] = "xterm"
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(self.command[0], self.command, environment)
        self.resize(rows, columns)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.wait(0) is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)
        self.test.jobs.append((time.monotonic() - self.begin, self.command))

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, seconds):
        """False once the other side has closed."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            return False
        self.feed(self.decoder.decode(data))
        return bool(data)

    def feed(self, text):
        text, at = self.rest + text, 0
        self.rest = ""
        while at < len(text):
            if text[at] != "\x1b":
                self.put(text[at])
                at += 1
                continue
            found = SEQUENCE.match(text, at)
            if not found:
                self.rest = text[at:]
                return
            self.obey(found.group(1), found.group(2))
            at = found.end()

    def put(self, letter):
        screen = self.screens[self.is_other]
        if letter == "\n":
            self.row += 1
            screen.extend([""] * (self.row + 1 - len(screen)))
        elif letter == "\r":
            self.column = 0
        else:
            line = screen[self.row].ljust(self.column)
            screen[self.row] = line[:self.column] + letter + line[self.column + 1:]
            self.column += 1

    row = column = 0

    def obey(self, numbers, kind):
        self.sequences.add(kind)
        screen = self.screens[self.is_other]
        if kind == "H":
            self.row = self.column = 0
        elif kind == "K":
            screen[self.row] = screen[self.row][:self.column]
        elif kind == "J":
            screen[self.row] = screen[self.row][:self.column]
            del screen[self.row + 1:]
        elif numbers == "?1049":
            self.is_other = kind == "h"
            self.row, self.column = (0, 0) if self.is_other else (len(self.screens[0]) - 1, 0)
            if self.is_other:
                self.screens[1] = [""]

    @property
    def text(self):
        return "\n".join(self.screens[self.is_other])

    def shows(self, pattern, seconds=30):
        return self.until(lambda: re.search(pattern, self.text), seconds)

    def until(self, condition, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            if not self.read(0.1):
                break
        return bool(condition())

    def wait(self, seconds):
        """The exit code; None: it still runs."""
        end = time.monotonic() + seconds
        while self.code is None:
            while self.read(0.02) and time.monotonic() < end:
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    break
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                while self.read(0):
                    if not select.select([self.master], [], [], 0)[0]:
                        break
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                return None
        return self.code


def follows_a_job(test):
    out = test.path("followed.jsonl")
    with Terminal(test, ["watch", "--wait", "--every", "0.2s", out]) as watch:
        test.check(watch.shows("waiting for .*followed.jsonl: No such file"), "it waits for the file", watch.text)
        with test.started(*SWEEP, "--time-budget", "12s", "--out", out) as job:
            seen = watch.shows(rf"[3-9] of {POINTS} points · 00:\d\d elapsed · 00:\d\d left")
            test.check(seen, "points done, time gone and time left", watch.text)
            test.check(watch.is_other, "on the terminal's other screen")
            lines = watch.text.splitlines()
            test.check(lines[0].startswith("gradmeter codecs --codec qsgd8") and re.match(r"on 1 rank on 1 node \(", lines[1]),
                       "what runs, and on what", watch.text)
            test.check(watch.shows(r"running; it wrote 00:\d\d ago"), "that it runs", watch.text)
            test.check(watch.shows(r"(?m)^ *codec .*size_bytes .*error *\n +B .*bits.*\n─+\n"), "a table with units", watch.text)
            test.check("m" in watch.sequences, "in colours")
            watch.resize(9, 40)
            small = watch.until(lambda: len(watch.screens[1]) <= 9 and max(map(len, watch.screens[1])) <= 40, 10)
            test.check(small and watch.is_other and "gradmeter codecs" in watch.text, "fits a terminal that became small", watch.text)
            watch.resize(40, 120)
            large = watch.until(lambda: max(map(len, watch.screens[1])) > 40, 10)
            test.check(large and watch.is_other, "and one that became large", watch.text)
            done = job.wait(60)
        test.equal((done.code, watch.wait(20)), (0, 0), "it ends with the job, and with its exit status")
        test.check(not watch.is_other and "ended with exit status 0" in watch.text and f"{POINTS} of {POINTS} points" in watch.text,
                   "the former screen comes back, with how it ended", watch.text)
    lines = support.read_lines(out)
    test.equal([line["kind"] for line in lines], ["run", "plan", *["point"] * POINTS, "end"], "the file has its plan and its end")
    test.equal({k: lines[1][k] for k in ("points", "kept")}, {"points": POINTS, "kept": 0}, "as many as planned")
    test.equal((lines[-1]["exit"], lines[-1]["reason"]), (0, ""), "how it ended")
    test.valid(out)
    return out


def notices_a_dead_writer(test):
    out = test.path("killed.jsonl")
    with test.started(*SWEEP, "--time-budget", "600s", "--out", out) as job:
        support.wait_until(lambda: support.points(out), 60)
        with Terminal(test, ["watch", "--every", "0.2s", out], env={"NO_COLOR": "1"}) as watch:
            test.check(watch.shows("running; it wrote"), "a job that runs", watch.text)
            os.kill(job.process.pid, signal.SIGKILL)
            test.equal(watch.wait(20), 3, "is killed: watch ends with 3")
            test.check("the writer is gone and left no end: it was killed" in watch.text, "and says so", watch.text)
            test.check("m" not in watch.sequences, "with NO_COLOR there is none")
    test.check(all(line["kind"] != "end" for line in support.read_lines(out)), "the file has no end")
    done = test.run("watch", "--once", out)
    test.check(done.code == 3 and "gone" in done.out, "--once says the same", done)
    # It goes on, and is watched as plain lines.
    known = len(support.points(out))
    with test.started("watch", "--wait", out) as watch:
        time.sleep(FIRST_LOOK)
        first, again = test.run(*SWEEP, "--time-budget", "3s", "--out", out, "--resume"), watch.wait(60)
    plan = [line for line in support.read_lines(out) if line["kind"] == "plan"][-1]
    test.equal((first.code, plan["points"] + plan["kept"]), (0, POINTS), "--resume plans what is missing")
    test.check(1 <= plan["kept"] <= known, "and says what it keeps", plan)
    test.check(again.code == 0 and "waiting for the next run" in again.out, "--wait waits for the run that goes on", again)
    test.valid(out)


def prints_lines(test):
    out = test.path("lines.jsonl")
    with test.started("watch", "--wait", "--every", "0.2s", out) as watch:
        time.sleep(FIRST_LOOK)
        done = test.run("scale", "--model", "mlp:784-32-10", "--batch", "4,8", "--strategy", "independent,sync", "--algorithm", "ring",
                        "--thread-ranks", "2", "--ranks", "1,2", "--time-budget", "2s", "--precision-goal", "0.5", "--out", out)
        seen = watch.wait(30)
    points = support.points(out)
    lines = seen.out.splitlines()
    test.equal((done.code, seen.code), (0, 0), "a curve on threads, watched through a pipe")
    test.equal(len([line for line in lines if re.match(r"\d+ of \d+ points · ", line)]), len(points), "a line a point")
    test.check(lines[0].startswith("waiting for ") and lines[-1] == "ended with exit status 0" and "\x1b" not in seen.out,
               "waits, and says the end, without sequences for terminals", seen)
    test.check("efficiency" in lines[-2] and "time" in lines[-2], "with figures and units", lines[-2])


def tells_of_signals(test):
    out = test.path("interrupted.jsonl")
    with test.started(*SWEEP, "--time-budget", "600s", "--out", out) as job:
        support.wait_until(lambda: support.points(out), 60)
        with Terminal(test, ["watch", out]) as watch:
            watch.shows("running")
            watch.type("\x03")
            test.equal(watch.wait(10), 130, "ctrl-C ends watch")
            test.check(not watch.is_other and "running" in watch.text, "the former screen comes back, with the last state", watch.text)
        test.check(job.process.poll() is None, "and not the job")
        job.process.send_signal(signal.SIGTERM)
        job.wait(20)
    end = support.read_lines(out)[-1]
    test.equal((end["kind"], end.get("exit")), ("end", 143), "SIGTERM is the job's end")
    done = test.run("watch", "--once", out)
    test.check(done.code == 143 and "ended with exit status 143: interrupted by signal 15" in done.out, "and is told", done)


def reads_older_files(test, out):
    """Without plan and end, as before; and with them, for every reader."""
    old = test.path("old.jsonl")
    kept = [line for line in support.whole_lines(out) if json.loads(line)["kind"] not in ("plan", "end")]
    own = json.loads(kept[0])["run_id"]
    old.write_text("\n".join(kept).replace(own, "of-an-older-program") + "\n", encoding="utf-8")
    done = test.run("watch", "--once", old)
    test.check(done.code == 3 and f"{POINTS} points; how many are planned is unknown" in done.out and "no plan says whether it was done" in done.out,
               "watch says what is unknown", done)
    for arguments in (["report", "--text"], ["report", "--csv", "-"]):
        test.equal(test.run(*arguments, out).out, test.run(*arguments, old).out, f"{' '.join(arguments)}: the same of both")
    done = test.run("compare", old, out)
    test.check(done.code == 0 and f"{POINTS} points" in done.out, "compare joins both", done)
    again = test.run(*SWEEP, "--time-budget", "6s", "--out", old, "--resume")
    test.check(again.code == 0 and support.points(old) and support.read_lines(old)[-1]["kind"] == "end", "--resume goes on with it", again)


def refuses(test):
    foreign = test.path("foreign.jsonl")
    foreign.write_text("Whose woods these are I think I know\n", encoding="utf-8")
    for arguments, word in ((["no-such.jsonl"], "--wait"), ([foreign], "not JSON"), ([test.folder], "directory"), ([], "name one"),
                            (["--once", "--wait", foreign], "one of --once and --wait"), (["--every", "soon", foreign], "--every"),
                            (["--every", "0", foreign], "100ms or more")):
        done = test.run("watch", *arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1 and word in done.own_lines[0],
                   f"watch {' '.join(map(str, arguments))}: one line", done)


def body(test):
    out = follows_a_job(test)
    notices_a_dead_writer(test)
    prints_lines(test)
    tells_of_signals(test)
    reads_older_files(test, out)
    refuses(test)


if __name__ == "__main__":
    support.main(__doc__, body)
