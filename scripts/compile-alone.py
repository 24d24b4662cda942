#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every source of src/, and every header that these reach, by itself, without writing objects: a missing include, and a
name that hides another, go unseen where several sources are compiled as one unit. Names each file that does not compile, and fails
when there is one. Needs the preset alone, configured and not built.

    scripts/compile-alone.py --tests        tests too: nearly half of all, and nobody else includes what they lack
    scripts/compile-alone.py [FILE ...]     only these sources, of tests as well

Most of a file's time goes into headers. Files that reach many of the same ones, by their own includes or by those of this project's
headers, share a precompiled header of these. What a file does not reach is not in there, so that its absence shows. What is
precompiled comes first, though, and would hide that a header of this project lacks an include which the source has behind it. So each
header is compiled once with nothing precompiled that it does not reach itself: in the source that includes it first, or alone.
"""
import argparse
import collections
import concurrent.futures
import functools
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
# Headers of libraries with the milliseconds that each adds to the standard library's smaller ones (GCC 12), which add 20.
LIBRARIES = {"gmock/gmock.h": 700, "gtest/gtest.h": 1300, "boost/program_options.hpp": 2300, "nlohmann/json.hpp": 2500,
             "fmt/ranges.h": 100, "fmt/format.h": 500, "memory": 260, "functional": 370, "ranges": 320, "atomic": 140, "thread": 330,
             "chrono": 280, "filesystem": 480, "condition_variable": 200, "mutex": 80, "fstream": 160, "algorithm": 50, "string": 400,
             "cmath": 90}
MILLISECONDS_A_LINE = 0.2  # of this project's headers
# A precompiled header takes this much of what its text takes: to write, and to read in each file that has it.
WRITING, READING = 1.6, 0.12
DIRECTIVE = re.compile(r'^[ \t]*#[ \t]*(if|endif|define|include)\w*[ \t]*(<[^>]+>|"[^"]+")?', re.MULTILINE)
# What neither syntax nor the text of headers depends on: without these more files can share a precompiled header.
NEEDLESS = re.compile(r"-O.|-g\d?|-ffp-contract=.*|-fno-.*")


@functools.cache
def includes_of(file):
    """What the file includes, each with whether it does so whatever is defined; and whether it defines a macro before."""
    depth, defines, includes = 0, False, []
    for kind, name in DIRECTIVE.findall(pathlib.Path(file).read_text(errors="replace")):
        depth += (kind == "if") - (kind == "endif")
        if kind == "define":
            defines = True
        elif kind == "include" and name:
            includes.append((name, depth == 0, defines))
    return includes


@functools.cache
def find_header(name, including_folder, folders):
    """The path of a header of this project; None: a library's, or a generated one."""
    places = (os.path.normpath(os.path.join(folder, name)) for folder in (including_folder, *folders))
    return next((p for p in places if os.path.isfile(p) and pathlib.Path(p).is_relative_to(ROOT)), None)


def is_alone_header(path):
    # Highway includes a header -inl once for each instruction set, within what the source defines before.
    return path.endswith(".hpp") and not path.endswith("-inl.hpp")


def reached_from(file, folders):
    """What `file` includes, itself or by headers of this project: those headers, the libraries' names, and what of both can be
    precompiled since no macro decides on it."""
    own, libraries, certain, waiting = set(), set(), set(), [(file, True)]
    while waiting:
        at, is_certain = waiting.pop()
        for name, unconditional, after_macro in includes_of(at):
            header = find_header(name[1:-1], os.path.dirname(at), folders) if name[0] == '"' else None
            reaches = is_certain and unconditional
            if name[0] == "<":
                libraries.add(name[1:-1])
                if reaches and (name[1:-1] in LIBRARIES or "." not in name and "/" not in name):
                    certain.add(name[1:-1])
            elif header:
                with_macros = after_macro or not is_alone_header(header)
                if header not in own or (reaches and not with_macros and header not in certain):
                    waiting.append((header, reaches and not with_macros))
                own.add(header)
                if reaches and not with_macros:
                    certain.add(header)
    return sorted(own), libraries, frozenset(certain)


@functools.cache
def milliseconds(header):
    """What reading it adds, roughly."""
    if header in LIBRARIES or not os.path.isabs(header):
        return LIBRARIES.get(header, 20)
    return MILLISECONDS_A_LINE * pathlib.Path(header).read_text(errors="replace").count("\n")


class Unit:
    """A source, or a header, and the command that checks its syntax."""

    def __init__(self, entry):
        self.folder, self.file = entry["directory"], entry["file"]
        command = [word for word in shlex.split(entry["command"]) if not NEEDLESS.fullmatch(word)]
        if os.path.basename(command[0]) == "ccache":
            del command[0]
        for option in "-o", "-c":
            at = command.index(option)
            del command[at : at + 2]
        self.command = [*command, "-fsyntax-only", "-Werror"]
        self.what, self.text, self.precompiled = [self.file], "", ""
        self.folders = tuple(os.path.normpath(os.path.join(self.folder, word[2:])) for word in command if word.startswith("-I"))
        self.headers, self.libraries, self.certain = reached_from(self.file, self.folders)

    def first_header(self):
        names = includes_of(self.file)
        return find_header(names[0][0][1:-1], os.path.dirname(self.file), self.folders) if names and names[0][0][0] == '"' else None

    def guard(self, header):
        """From now on nothing is precompiled that `header`, which this source includes first, does not reach."""
        self.certain = reached_from(header, self.folders)[2]

    def of_header(self, header):
        """The header alone, compiled as this source is."""
        unit = Unit.__new__(Unit)
        unit.folder, unit.file, unit.command, unit.folders = self.folder, header, [*self.command, "-x", "c++"], self.folders
        unit.headers, unit.libraries, unit.certain = reached_from(header, self.folders)
        # The header of a library that is not here is left out, as by the sources that would use it.
        there = " && ".join(f"__has_include(<{name}>)" for name in sorted(unit.libraries)) or "1"
        unit.what, unit.text, unit.precompiled = ["-"], f'#if {there}\n#include "{header}"\n#endif\n', ""
        return unit

    def shared_options(self):
        """The compiler, and those of its options that a precompiled header must have in common with what includes it. Paths that
        tests get as macros are in no header."""
        return self.command[0], tuple(word for word in self.command[1:] if word not in ("-fsyntax-only", "-Werror")
                                      and word.startswith(("-std=", "-f", "-m", "-W", "-D", "--param", "-pthread"))
                                      and not re.match('-DGRADMETER_[A-Z_]+="', word))

    def compiles(self):
        done = subprocess.run([*self.command, *(["-include", self.precompiled] if self.precompiled else []), *self.what],
                              cwd=self.folder, check=False, input=self.text, capture_output=True, text=True)
        print(done.stderr, end="", flush=True)
        return done.returncode == 0


class Sharing:
    """Units, and what all of them reach: worth a precompiled header?"""

    def __init__(self, units, headers):
        self.units, self.headers = units, headers
        cost = sum(milliseconds(h) for h in headers)
        self.saved = cost * (len(units) * (1 - READING) - WRITING) if len(units) > 1 else 0

    def with_other(self, other):
        return Sharing(self.units + other.units, self.headers & other.headers)

    def precompile(self, place):
        """All units include the file from now on, if it can be compiled; else they read the headers themselves."""
        compiler, options = self.units[0].shared_options()
        own = sorted(h for h in self.headers if os.path.isabs(h))
        place.write_text("".join(f"#include <{name}>\n" for name in sorted(self.headers.difference(own))) +
                         "".join(f'#include "{name}"\n' for name in own))
        folders = [f"-I{f}" for f in dict.fromkeys(itertools.chain.from_iterable(u.folders for u in self.units))]
        done = subprocess.run([compiler, *options, *folders, "-x", "c++-header", str(place), "-o", f"{place}.gch"], check=False,
                              capture_output=True)
        if done.returncode == 0:
            for unit in self.units:
                unit.precompiled = str(place)

    def failed(self, folder):
        """Compiles the units and returns the files that fail. What it precompiles, up to 200 MB, is gone afterwards."""
        with tempfile.TemporaryDirectory(dir=folder) as place:
            if self.saved > 0:
                self.precompile(pathlib.Path(place) / "headers.hpp")
            return [unit.file for unit in self.units if not unit.compiles()]


def share_headers(units):
    """Joins units, two groups at a time, as long as that saves compiling."""
    alike = collections.defaultdict(lambda: collections.defaultdict(list))
    for unit in units:
        alike[unit.shared_options()][unit.certain].append(unit)
    for group in alike.values():
        waiting = {i: Sharing(same, headers) for i, (headers, same) in enumerate(group.items())}
        gains = {(i, j): waiting[i].with_other(waiting[j]).saved - waiting[i].saved - waiting[j].saved
                 for i, j in itertools.combinations(waiting, 2)}
        while gains and max(gains.values()) > 0:
            i, j = max(gains, key=gains.get)
            waiting[i] = waiting[i].with_other(waiting.pop(j))
            gains = {pair: gain for pair, gain in gains.items() if j not in pair}
            for pair in gains:
                if i in pair:
                    a, b = (waiting[k] for k in pair)
                    gains[pair] = a.with_other(b).saved - a.saved - b.saved
        yield from waiting.values()


def guard_headers(sources):
    """Has one source guard each header that it includes first, its namesake where there is one; returns units of the other headers."""
    guards = {}
    for source in sources:
        header = source.first_header()
        if header and (header not in guards or pathlib.Path(header).stem == pathlib.Path(source.file).stem):
            guards[header] = source
    for header, source in guards.items():
        source.guard(header)
    alone = {}
    for source in sources:
        for header in source.headers:
            if is_alone_header(header) and header not in guards:
                alone.setdefault(header, source)
    return [source.of_header(header) for header, source in alone.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--tests", action="store_true")
    arguments = parser.parse_args()
    commands = ROOT / "build" / "alone" / "compile_commands.json"
    if not commands.exists():
        sys.exit("compile-alone: build/alone is not configured; run: cmake --preset alone")
    entries = [e for e in json.loads(commands.read_text()) if pathlib.Path(e["file"]).is_relative_to(ROOT)
               and not pathlib.Path(e["file"]).is_relative_to(ROOT / "build")
               and (arguments.tests or arguments.files or not pathlib.Path(e["file"]).is_relative_to(ROOT / "tests"))]
    sources = [Unit(e) for e in entries]
    headers = guard_headers([s for s in sources if not s.file.endswith(".c")])
    units = sources + headers
    if arguments.files:
        wanted = {os.path.realpath(file) for file in arguments.files}
        units = [u for u in units if os.path.realpath(u.file) in wanted]
    failed, done = [], 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # The longest first, so that all cores end together.
        jobs = {pool.submit(sharing.failed, commands.parent): len(sharing.units)
                for sharing in sorted(share_headers(units), key=lambda sharing: -len(sharing.units))}
        for job in concurrent.futures.as_completed(jobs):
            failed += job.result()
            done += jobs[job]
            if done // 100 > (done - jobs[job]) // 100:
                print(f"[{done}/{len(units)}] files compiled alone", flush=True)
    failed = sorted(os.path.relpath(file, ROOT) for file in failed)
    print(f"{sum(u.what == [u.file] for u in units)} sources and {sum(u.what != [u.file] for u in units)} headers compiled alone, "
          f"{len(failed)} failed")
    for name in failed:
        print(f"failed: {name}")
    sys.exit(1 if failed or not units else 0)


if __name__ == "__main__":
    main()
