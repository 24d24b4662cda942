#!/usr/bin/env python3
"""Compiles every source and every header of src/ and tests/ by itself, without writing objects: a missing include, and a name that
hides another, go unseen where several sources are compiled as one unit. Names each file that does not compile, and fails when
there is one. Needs the preset alone, configured and not built.

    scripts/compile-alone.py [FILE ...]     only these sources

Most of a file's time goes into the headers of libraries. Those that it includes itself, or by headers of this project, are read
from a precompiled header. A header that it does not reach that way is not in there, so that its absence shows. What is precompiled
comes first, though, and would hide that a header of this project lacks an include which the source has behind it. So each
header is compiled once with nothing precompiled that it does not reach itself: in the source that includes it first, or alone.
"""
import argparse
import collections
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Headers of libraries with the milliseconds that each costs alone (GCC 12), and lists of the standard library's.
LARGE = {"gmock/gmock.h": 2500, "gtest/gtest.h": 2000, "boost/program_options.hpp": 2500, "nlohmann/json.hpp": 2700,
         "fmt/ranges.h": 500, "fmt/format.h": 500}
STANDARD = (("string", "string_view", "vector", "span", "optional", "memory", "functional", "algorithm", "map"),
            ("string", "string_view", "vector", "span", "optional", "memory", "functional"),
            ("string", "string_view", "vector", "span"))
MANY = 12  # files that reach the same of these: worth a precompiled header
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(<[^>]+>|"[^"]+")', re.MULTILINE)
# What neither syntax nor the text of headers depends on: without these more files can share a precompiled header.
NEEDLESS = re.compile(r"-O.|-g\d?|-ffp-contract=.*|-fno-.*")


@functools.cache
def names_included(file):
    return INCLUDE.findall(pathlib.Path(file).read_text(errors="replace"))


@functools.cache
def find_header(name, including_folder, folders):
    """The path of a header of this project; None: a library's, or a generated one."""
    places = (os.path.normpath(os.path.join(folder, name)) for folder in (including_folder, *folders))
    return next((p for p in places if os.path.isfile(p) and pathlib.Path(p).is_relative_to(ROOT)), None)


def reached_from(file, folders):
    """What `file` includes, itself or by headers of this project: names of libraries' headers, and paths of this project's."""
    libraries, own, waiting = set(), [], [file]
    while waiting:
        at = waiting.pop()
        for name in names_included(at):
            header = find_header(name[1:-1], os.path.dirname(at), folders) if name[0] == '"' else None
            if name[0] == "<":
                libraries.add(name[1:-1])
            elif header and header not in own:
                own.append(header)
                waiting.append(header)
    return libraries, own


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
        self.what, self.text = [self.file], ""
        self.folders = tuple(os.path.join(self.folder, word[2:]) for word in command if word.startswith("-I"))
        self.libraries, self.headers = reached_from(self.file, self.folders)

    def first_header(self):
        names = names_included(self.file)
        return find_header(names[0][1:-1], os.path.dirname(self.file), self.folders) if names and names[0][0] == '"' else None

    def guard(self, header):
        """From now on nothing is precompiled that `header`, which this source includes first, does not reach."""
        self.libraries = reached_from(header, self.folders)[0]

    def of_header(self, header):
        """The header alone, compiled as this source is."""
        unit = Unit.__new__(Unit)
        unit.folder, unit.file, unit.command = self.folder, header, [*self.command, "-x", "c++"]
        unit.libraries, unit.headers = reached_from(header, self.folders)
        # The header of a library that is not here is left out, as by the sources that would use it.
        there = " && ".join(f"__has_include(<{name}>)" for name in sorted(unit.libraries)) or "1"
        unit.what, unit.text = ["-"], f'#if {there}\n#include "{header}"\n#endif\n'
        return unit

    def shared_options(self):
        """The compiler, and those of its options that a precompiled header must have in common with what includes it."""
        return self.command[0], tuple(word for word in self.command[1:] if word not in ("-fsyntax-only", "-Werror")
                                      and word.startswith(("-std=", "-f", "-m", "-W", "-D", "--param", "-pthread"))
                                      and not word.startswith("-DGRADMETER"))

    def worth_precompiling(self):
        return tuple(h for h in LARGE if h in self.libraries) + \
            next((names for names in STANDARD if self.libraries.issuperset(names)), ())

    def best_of(self, precompiled):
        """The path of the one that saves most and has nothing that this unit does not reach; empty: none."""
        fitting = [(sum(LARGE.get(name, 100) for name in names), path) for (options, names), path in precompiled.items()
                   if options == self.shared_options() and self.libraries.issuperset(names)]
        return max(fitting, default=(0, ""))[1]

    def compiles(self, precompiled):
        best = self.best_of(precompiled)
        done = subprocess.run([*self.command, *(["-include", best] if best else []), *self.what], cwd=self.folder, check=False,
                              input=self.text, capture_output=True, text=True)
        print(done.stderr, end="", flush=True)
        return done.returncode == 0


def precompile(shared_options, names, place):
    """The path to include; empty where the compiler cannot: its sources then read the headers themselves."""
    compiler, options = shared_options
    place.write_text("".join(f"#include <{name}>\n" for name in names))
    done = subprocess.run([compiler, *options, "-x", "c++-header", str(place), "-o", f"{place}.gch"], check=False,
                          capture_output=True)
    return str(place) if done.returncode == 0 else ""


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
            # Highway includes a header -inl once for each instruction set, within what the source defines before.
            if header.endswith(".hpp") and not header.endswith("-inl.hpp") and header not in guards:
                alone.setdefault(header, source)
    return [source.of_header(header) for header, source in alone.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    arguments = parser.parse_args()
    commands = ROOT / "build" / "alone" / "compile_commands.json"
    if not commands.exists():
        sys.exit("compile-alone: build/alone is not configured; run: cmake --preset alone")
    entries = [e for e in json.loads(commands.read_text()) if pathlib.Path(e["file"]).is_relative_to(ROOT)
               and not pathlib.Path(e["file"]).is_relative_to(ROOT / "build")]
    sources = [Unit(e) for e in entries]
    headers = guard_headers([s for s in sources if not s.file.endswith(".c")])
    units = sources + headers
    if arguments.files:
        wanted = {os.path.realpath(file) for file in arguments.files}
        units = [u for u in units if os.path.realpath(u.file) in wanted]
    alike = collections.Counter((u.shared_options(), u.worth_precompiling()) for u in units)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, \
            tempfile.TemporaryDirectory(dir=commands.parent) as folder:
        jobs = {group: pool.submit(precompile, *group, pathlib.Path(folder) / f"headers{i}.hpp")
                for i, (group, count) in enumerate(sorted(alike.items())) if count >= MANY and group[1]}
        precompiled = {group: job.result() for group, job in jobs.items() if job.result()}
        good = []
        for is_good in pool.map(lambda u: u.compiles(precompiled), units):
            good.append(is_good)
            if len(good) % 100 == 0:
                print(f"[{len(good)}/{len(units)}] files compiled alone", flush=True)
    failed = [os.path.relpath(u.file, ROOT) for u, is_good in zip(units, good) if not is_good]
    print(f"{sum(u.what == [u.file] for u in units)} sources and {sum(u.what != [u.file] for u in units)} headers compiled alone, "
          f"{len(failed)} failed")
    for name in failed:
        print(f"failed: {name}")
    sys.exit(1 if failed or not units else 0)


if __name__ == "__main__":
    main()
