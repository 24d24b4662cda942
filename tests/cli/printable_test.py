# SPDX-License-Identifier: Apache-2.0
"""No text of a user, a file or a log commands the terminal: not in error messages, headings, tables, `watch`, `compare`, `report`, notes."""
import subprocess
import sys
import xml.etree.ElementTree

import support

# An escape sequence, the same in one character (C1), a line end that would forge a line, bidirectional controls, what XML forbids.
EVIL = "e\x1b[31mv\u009b2Ji\n\u202el\u2066\u200f\ufffe"
SHOWN = "e\ufffd[31mv\ufffd2Ji \ufffdl", "e[31mv\ufffd2Ji\ufffdl"
HARMFUL = {*map(chr, range(0x20)), *map(chr, range(0x7f, 0xa0)), *"\u061c\u200e\u200f\ufffe\uffff", *map(chr, range(0x202a, 0x202f)),
           *map(chr, range(0x2066, 0x206a))} - set("\n\t")


def clean(test, done, what, code=0, shows=""):
    text = done.out + done.err
    harmful = sorted(HARMFUL & set(text))
    forged = [line for line in text.splitlines() if line.startswith("\ufffdl")]
    test.check(done.code == code and not harmful and not forged and shows in text and any(s in text for s in SHOWN),
               f"{what}: shown without what commands a terminal", f"{code} {harmful} {forged}\n{done}")


def refused(test):
    """The argument or path is quoted in one line."""
    for arguments in (("list", EVIL), (EVIL,), ("scale", "--" + EVIL), ("allreduce", "--algorithm", EVIL), ("report", EVIL),
                      ("watch", EVIL), ("compare", EVIL, "b.jsonl"), ("import", EVIL, "--out", "i.jsonl"), ("replay", EVIL),
                      ("kernels", "--problems", EVIL), ("scale", "--out", EVIL + ".jsonl"), ("doctor", "--x" + EVIL)):
        done = test.run(*arguments)
        test.equal(len(done.err.splitlines()), 1, f"{arguments[0][:9]!r}: one line")
        clean(test, done, f"an error of {arguments[0][:9]!r}", code=2)


def measured(test):
    out = test.path(f"{EVIL}.jsonl".translate({0x1b: None, 0x0a: None}))  # others are refused
    sizes = ("allreduce", "--sizes", "1K", "--algorithm", "ring", "--min-samples", "5", "--interconnect", EVIL, "--thread-ranks", "2")
    clean(test, test.run(*sizes, "--out", out), "headings, tables and the closing of a run")
    clean(test, test.run(*sizes, "--out", out, "--resume"), "the notes of --resume")
    clean(test, test.run(*sizes, "--json"), "lines of JSON")
    clean(test, test.run(*sizes, "--csv"), "CSV")
    for extra in (("--text",), ("--markdown", "-"), ("--csv", "-"), ("--findings", "-")):
        clean(test, test.run("report", out, *extra), f"report {extra[0]}")
    page = test.run("report", out, "-o", "-")
    test.equal(sorted(HARMFUL & set(page.out)), [], "the page has none either")
    clean(test, test.run("watch", out, "--once"), "watch")
    clean(test, test.run("watch", out), "watch, a line for each point")
    return out


def compared(test, out):
    other = out.with_name("2" + out.name)
    other.write_text(out.read_text().replace('"run_id":"', '"run_id":"2').replace('"binding":"', '"binding":"\\u001b[31m\\u202e'))
    junit = test.path("junit.xml")
    done = test.run("compare", out, other, "--all", "--fail-below", "0.001", "--junit", junit)
    clean(test, done, "compare, its heading and its next command", code=1, shows="differs: ")
    try:
        name = xml.etree.ElementTree.parse(junit).find("testsuite").get("name")
        test.equal(sorted((HARMFUL | {"\n"}) & set(name)), [], "JUnit is XML, and its names have none")
    except xml.etree.ElementTree.ParseError as e:
        test.check(False, "JUnit is XML", e)


def named_by_the_kernel(test):
    """The host's own name, in a namespace of its own."""
    script = "import socket, subprocess, sys; socket.sethostname(sys.argv[1]); sys.exit(subprocess.call(sys.argv[2:]))"
    wrapper = ("unshare", "--uts", sys.executable, "-c", script, EVIL)
    try:
        allowed = subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        return print("note   skipped: this user may not name a host", flush=True)
    clean(test, test.run("allreduce", "--sizes", "1K", "--algorithm", "ring", "--min-samples", "5", "--thread-ranks", "2", "--json",
                         wrapper=wrapper), "the host's name")
    return None


def body(test):
    refused(test)
    compared(test, measured(test))
    named_by_the_kernel(test)


support.main(__doc__, body)
