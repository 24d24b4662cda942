#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/result-file.md and the schema's factors and metrics from the program's own table.

usage: scripts/write-result-keys.py path/to/gradmeter
Run it after a change of src/core/result_keys.inc; tests/core/schema_test.cpp compares what it wrote.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "data/schema/result.schema.json"
DOCUMENT = ROOT / "docs/result-file.md"
VALUES = {
    "label": "text",
    "truth": "true, false",
    "choice": "text, true, false",
    "count": "whole number ≥ 1",
    "size": "bytes",
    "size_or_auto": "bytes, auto",
    "whole": "whole number",
    "amount": "number",
    "measure": "number",
    "spans": "list of spans",
}


def reference(kind):
    if kind == "size_or_auto":
        return {"anyOf": [{"$ref": "#/$defs/size"}, {"const": "auto"}]}
    return {"$ref": f"#/$defs/{kind}"}


def schema_lines(rows):
    lines = []
    for row in rows:
        unit = f"[{row['unit']}] " if row.get("unit") else ""
        entry = {**reference(row["kind"]), "description": unit + row["about"]}
        lines.append(f"        {json.dumps(row['name'])}: {json.dumps(entry, ensure_ascii=False)}")
    return ",\n".join(lines)


def write_schema(keys):
    text = SCHEMA.read_text(encoding="utf-8")
    for part in ("factors", "metrics"):
        start = text.index(f'"{part}": {{\n      "description"')
        begin = text.index('"properties": {', start) + len('"properties": {')
        end = text.index("\n      }", begin)
        text = text[:begin] + "\n" + schema_lines(keys[part]) + text[end:]
    # A factor that is new here stays optional: lines of this schema's number that were written before it lack it
    # (docs/result-file.md, "History of the schema").
    start = text.index("[", text.index('"required": [', text.index('"factors": {\n      "description"')))
    end = text.index("]", start) + 1
    known = {row["name"] for row in keys["factors"]}
    required = [name for name in json.loads(text[start:end]) if name in known]
    text = text[:start] + json.dumps(required) + text[end:]
    json.loads(text)
    SCHEMA.write_text(text, encoding="utf-8")


def unit_of(row):
    unit = row.get("unit", "")
    if unit not in ("", "1"):
        return unit
    return "count" if row["kind"] in ("count", "whole") else VALUES[row["kind"]]


def write_document(keys):
    text = DOCUMENT.read_text(encoding="utf-8")
    for part, column in (("factors", lambda row: VALUES[row["kind"]]), ("metrics", unit_of)):
        rows = "".join(f"| `{row['name']}` | {column(row)} | {row['about']} |\n" for row in keys[part])
        head = re.compile(rf"(## {part.capitalize()}\n\| key \| .*\n\| --- .*\n)((?:\|.*\n)+)")
        text, count = head.subn(lambda m: m.group(1) + rows, text)
        if count != 1:
            sys.exit(f"{DOCUMENT}: no table under '## {part.capitalize()}'")
    DOCUMENT.write_text(text, encoding="utf-8")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    listed = subprocess.run([sys.argv[1], "list", "factors", "metrics", "--json"], check=True, capture_output=True)
    keys = json.loads(listed.stdout)
    write_schema(keys)
    write_document(keys)


if __name__ == "__main__":
    main()
