#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks gradmeter result files, line by line, against data/schema/result.schema.json, and their rows against what the
figures in them are defined to be (docs/measurement.md).

Usage: scripts/validate-results.py FILE...

Prints FILE:LINE: reason for each bad line. Exit codes: 0 all valid, 1 a bad line, 2 nothing could be checked.
"""
import json
import math
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("the Python module jsonschema is missing: install python3-jsonschema", file=sys.stderr)
    raise SystemExit(2)

SCHEMA = pathlib.Path(__file__).resolve().parent.parent / "data" / "schema" / "result.schema.json"


def refuse_constant(text):
    raise ValueError(f"{text} is not JSON; a number that is not finite should be null")


def finite_number(text):
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} does not fit a 64-bit float")
    return number


def unique_keys(pairs):
    """A key given twice would hide a value."""
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"the key '{key}' occurs twice")
    return dict(pairs)


def lost_keys(value, place):
    """Dotted places of all nulls inside a summary or a list of samples."""
    if value is None:
        yield place
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from lost_keys(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from lost_keys(inner, f"{place}.{i}")


def check_nonfinite(line):
    """Each null among the metrics and samples is named in nonfinite, and each name there is a null."""
    named = set(line.get("nonfinite", []))
    nulls = set(lost_keys(line["metrics"], "metrics")) | set(lost_keys(line["raw_times_s"], "raw_times_s"))
    factors = set(lost_keys(line["factors"], "factors"))
    for place in sorted(nulls - named):
        raise ValueError(f"{place} is null but not named in nonfinite")
    for place in sorted(named - nulls - factors):
        raise ValueError(f"nonfinite names {place}, which is not null")


PARTS = ("contention_s", "straggle_s", "interference_s", "wait_s", "wire_s", "other_s")
OTHER_WORK = ("es", "population")  # their step is not the baseline's


def replica_ranks(mesh):
    """How many ranks hold one replica of the model together and share its batch: 4 for data=2,tensor=2,pipeline=2."""
    sizes = dict(axis.split("=") for axis in (mesh or "").split(",") if "=" in axis)
    return int(sizes.get("tensor", 1)) * int(sizes.get("pipeline", 1))


def check_definitions(point):
    """Parts add up to what was lost, verdicts are likely, no time is below its limit, no rank is faster than one alone."""
    f, m = point["factors"], point["metrics"]
    if point["status"] not in ("ok", "mistrusted") or "time_s" not in m:
        return
    step, base = m["time_s"], m.get("baseline_time_s")
    if f.get("scaling") is not None and f["ranks"] > 1 and base and m.get("other_s") is not None:
        lost = step["median"] - base / (f["ranks"] if f["scaling"] == "strong" else replica_ranks(f.get("mesh")))
        parts = sum(m.get(name) or 0 for name in PARTS)
        if not math.isclose(parts, lost, rel_tol=1e-6, abs_tol=1e-9):
            raise ValueError(f"the parts add up to {parts} s where {lost} s were lost")
    probability = m.get("bound_by_probability")
    if probability is not None and not (probability >= 2 / 3 or m["bound_by"] == "undecided"):
        raise ValueError(f"the verdict {m['bound_by']} has a probability of {probability}: below two thirds it is undecided")
    if point["status"] == "mistrusted":
        return  # the row says so itself
    if step.get("ci95_high") is not None and (m.get("limit_s") or 0) > step["ci95_high"]:
        raise ValueError(f"a time of {step['median']} s is below its limit of {m['limit_s']} s, and is not mistrusted")
    weak = f.get("scaling") == "weak" and f["strategy"].split(":")[0] not in OTHER_WORK
    if weak and replica_ranks(f.get("mesh")) == 1 and (m.get("efficiency_ci95_low") or 0) > 1:
        raise ValueError(f"an efficiency of {m['efficiency']} is beyond 1 and its interval, and is not mistrusted")


def check_line(text, validator, runs):
    if not text.endswith("\n"):
        raise ValueError("the last line has no newline: it is torn, or was not written by gradmeter")
    line = json.loads(
        text, parse_constant=refuse_constant, parse_float=finite_number, object_pairs_hook=unique_keys
    )
    error = jsonschema.exceptions.best_match(validator.iter_errors(line))
    if error is not None:
        place = ".".join(str(part) for part in error.absolute_path) or "the line"
        raise ValueError(f"{place}: {error.message}")
    if line["kind"] == "run":
        if line["run_id"] in runs:
            raise ValueError(f"run {line['run_id']} is in the file twice")
        runs.add(line["run_id"])
    elif line["kind"] != "note" and line["run_id"] not in runs:
        raise ValueError(f"a {line['kind']} of run {line['run_id']} stands before its run")
    if line["kind"] == "point":
        check_nonfinite(line)
        check_definitions(line)


def check_file(path, validator, say):
    bad, runs, number = 0, set(), 0
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                check_line(line.decode("utf-8"), validator, runs)
            except ValueError as error:  # broken UTF-8 and broken JSON are ValueErrors too
                say(f"{path}:{number}: {error}")
                bad += 1
    if number == 0:
        say(f"{path}:1: the file is empty")
        bad += 1
    return bad


def check_files(paths, say, complain):
    """The exit code; the tests call this without a process of its own."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    validator, bad = kind(schema), 0
    for path in paths:
        try:
            bad += check_file(path, validator, say)
        except OSError as error:
            complain(f"{path}: {error.strerror}")
            return 2
    return 1 if bad else 0


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    return check_files(paths, print, lambda text: print(text, file=sys.stderr))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
