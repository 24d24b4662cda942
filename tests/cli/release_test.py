# SPDX-License-Identifier: Apache-2.0
"""What people install: cmake --install gives a program that runs from there alone, and every place names the same version."""
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import support

# Paths whose files must name their licence; [] is the whole tree.
LICENSED = []


def run(*command, env=None, cwd=None):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60, check=False, env=env, cwd=cwd)


def said(done):
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


def installed(test):
    """Into an empty prefix, and nowhere else: DESTDIR keeps in the test's folder what would go elsewhere. Gives where it then is."""
    root = test.path("root")
    prefix = root / "prefix"
    done = run("cmake", "--install", pathlib.Path(test.gradmeter).parent, "--prefix", "/prefix", env={**os.environ, "DESTDIR": str(root)})
    places = re.findall(r"^-- (?:Installing|Up-to-date): (.*)", done.stdout, re.M)
    test.check(done.returncode == 0 and places, "cmake --install ends well", said(done))
    outside = [p for p in places if prefix not in pathlib.Path(p).parents]
    test.check(not outside, "nothing is installed outside the prefix", outside)
    return prefix.rename(test.path("moved"))


def program(test, prefix, version):
    """With an environment that has nothing of the build's or of the user's."""
    bare = {"PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(test.folder)}
    done = run("gradmeter", "--version", env=bare)
    test.check(re.fullmatch(rf"gradmeter {re.escape(version)} \(\S+\)\n", done.stdout), "it says CMake's version", said(done))
    done = run("gradmeter", "list", "models", env=bare)
    test.check(done.returncode == 0 and "resnet50" in done.stdout, "it has its layer tables with it", said(done))
    result = test.path("codecs.jsonl")
    done = run("gradmeter", "codecs", "--codec", "bf16", "--size", "1K", "--time-budget", "1s", "--out", result, env=bare, cwd=test.folder)
    test.check(done.returncode == 0 and any(p["status"] == "ok" for p in support.points(result)), "it measures", said(done))
    done = run("gradmeter", "report", result, "-o", test.path("page.html"), env=bare, cwd=test.folder)
    test.check(done.returncode == 0 and test.path("page.html").stat().st_size > 10000, "it writes a page", said(done))


def manual(test, prefix, version):
    page = (prefix / "share/man/man1/gradmeter.1").read_text()
    sections = re.findall(r'^\.SH "?([A-Z ]+)', page, re.M)
    wanted = ["NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "EXAMPLES", "ENVIRONMENT", "FILES"]
    test.equal([s for s in sections if s in wanted], wanted, "the manual page has the usual sections")
    test.check(f"gradmeter {version}" in page.splitlines()[0], "and the version", page.splitlines()[0])
    examples = re.findall(r"\\fB((?:mpirun|gradmeter) .*)\\fR", page.partition(".SH EXAMPLES")[2].partition("\n.SH")[0])
    test.check(len(examples) >= 5, "it has examples", examples)
    for example in examples:
        _, command, *arguments = example.replace("\\-", "-").partition("gradmeter")[2].split(" ")
        known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", test.run(command, "--help").out))
        unknown = [a for a in arguments if a.startswith("-") and a not in known]
        test.check(not unknown, f"flags of the example {command} exist", unknown)


def completion(test, prefix):
    script = prefix / "share/bash-completion/completions/gradmeter"
    done = run("bash", "--norc", "-euc", f"source {script}; complete -p gradmeter", env={"PATH": "/usr/bin:/bin"})
    test.check(done.returncode == 0 and not done.stderr and "gradmeter" in done.stdout, "bash loads the completion", said(done))


def documents(test, prefix):
    """They stand as in the tree, so that their links hold."""
    doc = prefix / "share/doc/gradmeter"
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "docs/using.md", "jobs/settings.sh",
                 "data/schema/result.schema.json"):
        test.check((doc / name).is_file() and (doc / name).stat().st_size > 0, f"{name} is installed")
    done = run(sys.executable, doc / "scripts/validate-results.py", test.path("codecs.jsonl"))
    test.check(done.returncode == 0, "the installed validator finds its schema", said(done))


def versions(test):
    """Gives CMake's, with which the others agree."""
    def found(path, pattern):
        match = re.search(pattern, (test.source / path).read_text(encoding="utf-8"), re.M)
        return match[1] if match else f"none in {path}"
    version = found("CMakeLists.txt", r"^project\(gradmeter VERSION (\d+\.\d+\.\d+)")
    test.equal(found("CITATION.cff", r"^version: (.*)$"), version, "CITATION.cff has CMake's version")
    test.equal(found("packaging/spack/package.py", r'version\("(\d[^"]*)"\)'), version, "so has Spack's recipe")
    test.equal(found("CHANGELOG.md", r"^## \[(\d[^]]*)\]"), version, "so has the newest head of the changelog")
    test.equal(found("CITATION.cff", r"^date-released: (\d{4}-\d\d-\d\d)$"), found("CHANGELOG.md", r"^## \[\d[^]]*\] - (\d{4}-\d\d-\d\d)$"),
               "which are of the same day")
    test.equal(re.findall(r"^## \[(.*?)\]", (test.source / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[0], "Unreleased",
               "and above it is room for what comes")
    return version


def archive_knows_its_commit(test):
    """An unpacked tarball takes the commit that git archive wrote into it, and never that of a repository around it."""
    def commit_of(name, text):
        tree = test.path(name)
        (tree / "src/bench").mkdir(parents=True)
        shutil.copy(test.source / "src/bench/version.cpp.in", tree / "src/bench")
        (tree / "Version.cmake").write_text(text)
        done = run("cmake", "-D", f"SOURCE={tree}", "-D", f"OUTPUT={tree}/out.cpp", "-D", "GRADMETER_VERSION=1.2.3", "-P",
                   tree / "Version.cmake")
        test.check(done.returncode == 0, "the version is written", said(done))
        return re.findall(r'return "(.*)";', (tree / "out.cpp").read_text())
    text = (test.source / "cmake/Version.cmake").read_text(encoding="utf-8")
    if (test.source / ".git").exists():
        test.equal(run("git", "-C", test.source, "check-attr", "export-subst", "cmake/Version.cmake").stdout.split()[-1], "set",
                   "git archive fills cmake/Version.cmake in")
        filled = text.replace("$Format:%H %cs$", "0123456789abcdef0123456789abcdef01234567 2026-11-28")
        test.check(filled != text, "where it asks for commit and date")
        test.equal(commit_of("archive", filled), ["1.2.3", "0123456789", "2026-11-28"], "an archive knows its commit")
        run("git", "init", test.folder)
        run("git", "-C", test.folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "Another")
        test.equal(commit_of("copy", text), ["1.2.3", "unknown", ""], "a copy in another repository does not take that one's")


def licences(test):
    done = run(sys.executable, test.source / "scripts/spdx.py", *(test.source / path for path in LICENSED))
    test.check(done.returncode == 0, "source files name their licence", said(done))
    tree = test.path("tree")
    (tree / "scripts").mkdir(parents=True)
    shutil.copy(test.source / "scripts/spdx.py", tree / "scripts")
    (tree / "lacks.sh").write_text("#!/bin/sh\necho\n")
    (tree / "lacks.hpp").write_text("#pragma once\n")
    (tree / "data.csv").write_text("1,2\n")
    done = run(sys.executable, tree / "scripts/spdx.py")
    test.check(done.returncode == 1 and done.stdout.count("lacks.") == 2 and "data" not in done.stdout, "those that do not are named",
               said(done))
    run(sys.executable, tree / "scripts/spdx.py", "--write")
    test.check(run(sys.executable, tree / "scripts/spdx.py").returncode == 0, "and get it by --write")
    test.equal((tree / "lacks.sh").read_text().splitlines()[::2], ["#!/bin/sh", "echo"], "below the line that names the interpreter")


def clean_root(test):
    """scripts/package-check.sh takes too long for here: only that it says when it cannot check anything."""
    script = test.source / "scripts/package-check.sh"
    done = run("bash", script, env={"PATH": "/usr/bin:/bin"})  # debootstrap is in /usr/sbin
    test.check(done.returncode == 77 and "nothing was checked" in done.stderr, "without debootstrap package-check ends with 77", said(done))
    test.equal([run("bash", script, flag).returncode for flag in ("--help", "--bogus")], [0, 2], "it has a help, and refuses other words")


def example(test):
    """docs/read-results.py as a reader runs it; its figures are those of the file."""
    file = test.source / "results/scaling/two-cores.jsonl"
    done = run(sys.executable, test.source / "docs/read-results.py", file)
    points = [p for p in support.points(file) if p["status"] == "ok"]
    first = points[0]
    test.check(f"scale on {first['factors']['ranks']} ranks: {first['metrics']['time_s']['median']} s" in done.stdout,
               "the example reads times with Python alone", said(done))
    if "pandas" in done.stderr:
        print("note   pandas is not here: the example's second part is not run")
        return
    at_16 = [p["metrics"]["efficiency"] for p in points if p["factors"]["batch_per_rank"] == 16 and p["factors"]["ranks"] == 2
             and p["factors"]["strategy"] == "sync" and p["factors"]["algorithm"] == "mpi"]
    test.check(done.returncode == 0 and f"{statistics.median(at_16):.6f}" in done.stdout, "and efficiencies with pandas", said(done))


def body(test):
    version = versions(test)
    prefix = installed(test)
    program(test, prefix, version)
    manual(test, prefix, version)
    completion(test, prefix)
    documents(test, prefix)
    archive_knows_its_commit(test)
    licences(test)
    clean_root(test)
    example(test)


if __name__ == "__main__":
    support.main(__doc__, body)
