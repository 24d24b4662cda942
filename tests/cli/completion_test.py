# SPDX-License-Identifier: Apache-2.0
"""Completions and the manual page: both say what --help says, in shells and formatters as they are. zsh and fish where they are."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import support

BASH = """
source <({program} completion bash)
complete -p {of}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); {function}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(test, *words, function="_gradmeter gradmeter"):
    """What bash's completion puts into COMPREPLY for `gradmeter WORDS`, of which the last is incomplete; with another
    function, for the words alone."""
    completes, of = function.split()
    quoted = " ".join(f"'{w}'" for w in ((of, *words) if of == "gradmeter" else words))
    done = subprocess.run(["bash", "--norc", "-c", BASH.format(program=test.gradmeter, words=quoted, of=of, function=completes)],
                          capture_output=True, text=True, timeout=30, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or done.stderr or not lines or f"-F {function}" not in lines[0]:
        test.check(False, f"bash completes after {words}", f"{done.returncode}\n{done.stdout}{done.stderr}")
    return [line for line in lines[1:] if line]


def help_flags(test, command):
    return set(re.findall(r"^  (?:-\w \[ )?(--[a-z0-9_-]+)", test.run(command, "--help").out, re.M))


def commands_of(test):
    return re.findall(r"^  (\w+) ", test.run("--help").out, re.M)


def in_bash(test, commands, members):
    test.equal(offered(test, ""), [*commands, "--help", "--version"], "bash offers every command")
    test.equal(offered(test, "tr"), ["train"], "and those that begin as what is typed")
    for command in commands:
        test.equal(set(offered(test, command, "--")), help_flags(test, command), f"bash offers the flags of {command} --help")
    test.equal(offered(test, "train", "--codec", "qs"), [c for c in members["codecs"] if c.startswith("qs")],
               "values of --codec are the codecs of list")
    test.equal(offered(test, "train", "--codec", "=", "qs"), [c for c in members["codecs"] if c.startswith("qs")],
               "also of --codec=, which bash takes apart")
    test.equal(offered(test, "scale", "--codec", "none,bf"), ["none,bf16"], "and of a comma list the last")
    test.equal(offered(test, "scale", "--strategy", ""), members["strategies"], "--strategy has the strategies")
    test.equal(offered(test, "list", "co"), ["codecs"], "words of list are its kinds")
    test.equal(offered(test, "train", "--lr", ""), [], "a number is left alone")
    test.equal(offered(test, "report", ""), [], "files are left to readline")
    for launcher in ("mpirun", "mpiexec"):
        after = [launcher, "-np", "2", "build/gradmeter"]
        test.equal(offered(test, *after, "scale", "--over", function=f"_gradmeter_launched {launcher}"), ["--overlap"],
                   f"after {launcher} -np 2 PATH/gradmeter bash offers the same")
        test.equal(offered(test, launcher, "-n", function=f"_gradmeter_launched {launcher}"), [],
                   f"other words of {launcher} are left to readline")


def typed(test, program, steps, seconds=30):
    """Types into a shell in a terminal; each step is (keys, what must then be shown). Gives the step that showed it not."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(test.folder)
        os.environ.update(PATH=f"{test.path('bin')}:{os.environ['PATH']}", TERM="dumb", PS1="$ ", HOME=str(test.folder))
        os.execvp(program[0], program)
    failed = None
    for keys, wanted in steps:
        os.write(terminal, keys.encode())
        seen, end = b"", time.monotonic() + seconds
        while wanted not in plain(seen) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
        if wanted not in plain(seen):
            failed = f"typed {keys!r}, wanted {wanted!r}, shown {plain(seen)!r}"
            break
    os.close(terminal)  # the shell gets SIGHUP
    os.waitpid(pid, 0)
    return failed


def plain(seen):
    """What is shown, without escape sequences and what is overwritten."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|.\x08|\r", "", seen.decode(errors="replace"))


def in_terminals(test):
    """Keys in a real line editor: words are taken apart by the shell itself. ^U empties the line."""
    (test.path("bin")).mkdir()
    (test.path("bin") / "gradmeter").symlink_to(test.gradmeter)
    failed = typed(test, ["bash", "--norc"], [("source <(gradmeter completion bash); echo rea''dy\n", "ready"),
                                             ("gradmeter train --codec=tern\t", "--codec=terngrad"),
                                             ("\x15gradmeter scale --batc\t", "scale --batch ")])
    test.check(not failed, "bash's line editor completes a value and a flag", failed)
    zsh = shutil.which("zsh")
    if not zsh:
        print("note   no zsh: its completion is not run", flush=True)
        return
    failed = typed(test, [zsh, "-f"], [
        ("autoload -Uz compinit; compinit -u; source <(gradmeter completion zsh); echo rea''dy\n", "ready"),
        ("gradmeter scale --codec=none,tern\t", "none,terngrad"), ("\x15gradmeter train --noise-s\t", "--noise-scale"),
        ("\x15gradmeter complet\t", "gradmeter completion")])
    test.check(not failed, "zsh completes a value, a flag and a command", failed)


def in_fish(test, commands, members):
    fish = shutil.which("fish")
    if not fish:
        print("note   no fish: its completion is not run", flush=True)
        return

    def complete(line):
        script = f"complete -e -c gradmeter; {test.gradmeter} completion fish | source; complete -C '{line}'"
        done = subprocess.run([fish, "--no-config", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        return [entry.split("\t")[0] for entry in done.stdout.splitlines()]

    test.equal(sorted(complete("gradmeter ")), sorted(commands), "fish offers every command")
    for command in commands:
        test.equal(set(complete(f"gradmeter {command} --")), help_flags(test, command), f"fish offers the flags of {command}")
    test.equal(set(complete("gradmeter train --codec qsgd")), {c for c in members["codecs"] if c.startswith("qsgd")},
               "values of --codec are the codecs of list")


def manual(test, commands):
    page = test.path("gradmeter.1")
    page.write_text(test.run("manual").out)
    formatters = (["groff", "-man", "-ww", "-Tutf8", "-P-c", "-rLL=200n"], ["man", "-l", "--warnings"],
                  ["mandoc", "-Tlint", "-Wwarning"])
    for formatter in formatters:
        if not shutil.which(formatter[0]):
            print(f"note   no {formatter[0]}: it does not render the manual", flush=True)
            continue
        done = subprocess.run([*formatter, page], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"})
        test.check(done.returncode == 0 and not done.stderr, f"{formatter[0]} has no warning about the manual",
                   f"{done.stdout[:500]}\n{done.stderr}")
        if formatter[0] == "mandoc":
            test.check(not done.stdout, "nor has its lint", done.stdout)
            continue
        text = re.sub(r".\x08", "", done.stdout)
        missing = [f"{c} {f}" for c in commands for f in help_flags(test, c)
                   if not re.search(rf"{f}(?![a-z_-])", section(text, c))]
        test.check(not missing, f"each command's section has the flags of its --help, as {formatter[0]} shows it", missing)
    roff = page.read_text()
    test.check(all(ord(c) < 128 for c in roff), "the page is ASCII, which every roff reads")


def section(text, command):
    found = re.search(rf"^{command}\n(.*?)(?=^\S)", text, re.M | re.S)
    return found[1] if found else ""


def installed(test):
    """cmake --install puts the manual and completions where man and shells look."""
    build = pathlib.Path(test.gradmeter).parent
    done = subprocess.run(["cmake", "--install", build, "--prefix", test.path("prefix")], capture_output=True, text=True,
                          timeout=60, check=False)
    prefix = test.path("prefix") / "share"
    wanted = {"man/man1/gradmeter.1": ["manual"], "bash-completion/completions/gradmeter": ["completion", "bash"],
              "zsh/site-functions/_gradmeter": ["completion", "zsh"], "fish/vendor_completions.d/gradmeter.fish": ["completion", "fish"]}
    for path, arguments in wanted.items():
        test.check(done.returncode == 0 and (prefix / path).exists() and (prefix / path).read_text() == test.run(*arguments).out,
                   f"share/{path} is installed", done.stdout + done.stderr)


def refusals(test):
    for arguments in ([], ["tcsh"], ["bash", "zsh"]):
        done = test.run("completion", *arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1 and "bash" in done.err, f"completion {arguments} is refused", done)


def body(test):
    commands = commands_of(test)
    members = {kind: [m["name"] for m in rows] for kind, rows in json.loads(test.run("list", "--json").out).items()}
    in_bash(test, commands, members)
    in_terminals(test)
    in_fish(test, commands, members)
    manual(test, commands)
    installed(test)
    refusals(test)


if __name__ == "__main__":
    support.main(__doc__, body)
