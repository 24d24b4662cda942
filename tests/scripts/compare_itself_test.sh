#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
itself=$root/scripts/compare-itself.py
python=$(command -v "${1:-python3}")

# A stand-in for gradmeter: a launch adds a run with two points (and lacks a third); compare judges by the ratio of the median times alone, and calls a
# slowed point the same where $BLIND is set.
cat >"$work/gradmeter" <<EOF
#!$python
import json, os, statistics, sys
work, words = "$work", sys.argv[1:]
if words[0] == "compare":
    def medians(path):
        rows = [r for r in map(json.loads, open(path)) if r["kind"] == "point"]
        return [statistics.median(r["metrics"]["time_s"]["median"] for r in rows if r["factors"]["place"] == p) for p in (0, 1)]
    print("place,verdict", "2,missing", sep="\n")
    for place, (a, b) in enumerate(zip(medians(words[1]), medians(words[2]))):
        print(f"{place},{'same' if abs(b / a - 1) < 0.05 or os.environ.get('BLIND') else 'slower' if b > a else 'faster'}")
elif words[0] == "broken":
    sys.exit("first line\ngradmeter: no such thing")
else:
    out = words[words.index("--out") + 1]
    number = sum(1 for _ in open(work + "/launches")) if os.path.exists(work + "/launches") else 0
    print(" ".join(words[:-3]), os.path.basename(out), file=open(work + "/launches", "a"))
    with open(out, "a") as f:
        print(json.dumps({"kind": "run", "run_id": f"r{number}"}), file=f)
        for place in (0, 1):
            time = {"median": 2e-3, "q1": None, "q3": 3e-3, "max": 1, "n": 10, "stop": "interval"}
            print(json.dumps({"kind": "point", "run_id": f"r{number}", "factors": {"place": place}, "metrics": {"time_s": time}}), file=f)
EOF
chmod +x "$work/gradmeter"

try "$python" "$itself" "$work/gradmeter" --launches 3 --comparisons 1 --label quiet --keep "$work/kept" -- kernels --op gemm
expect_equal "nothing is different, the slowed is slower: exit 0" 0 "$code"
expect_contains "a row: the same, then slower" "| quiet | 2 | 0 (0.0 %) | 2 | 0 | 2 | 0 | 0 | 0 |" "$output"
expect_equal "launches go to a b b a a b" "a b b a a b" "$(sed 's/.* 1-\(.\)\.jsonl/\1/' "$work/launches" | paste -sd' ')"
expect_contains "with the command as given" "kernels --op gemm 1-a.jsonl" "$(head -1 "$work/launches")"
slow=$work/kept/1-b.slowed.jsonl
expect_contains "times are longer, in the copy" '"median": 0.0022, "q1": null, "q3": 0.0033000000000000004, "max": 1.1, "n": 10' "$(cat "$slow")"
expect_equal "and its runs are other ones" 3 "$(grep -c '"kind": "run".*-slowed' "$slow")"
expect_lacks "what was measured is as it was" "0.0022" "$(cat "$work/kept/1-b.jsonl")"

mkdir "$work/scratch"
TMPDIR=$work/scratch try "$python" "$itself" "$work/gradmeter" --launches 2 --comparisons 2
expect_contains "points of all comparisons, of both usual commands" "| as it is | 4 | 0 (0.0 %) |" "$output"
expect_contains "each comparison has launches of its own" " 2-b.jsonl" "$(cat "$work/launches")"
expect_equal "which are not kept" "" "$(ls "$work/scratch")"

BLIND=1 try "$python" "$itself" "$work/gradmeter" --launches 1 --comparisons 1 -- kernels
expect_equal "a slowed point that is called the same: exit 1" 1 "$code"
expect_contains "and the row says so" "| 0 | 0 | 2 | 0 |" "$output"

refuse() { # EXPECTED ARGUMENT...
  try "$python" "$itself" "${@:2}"
  expect_equal "'${*:2}': exit 2" 2 "$code"
  expect_contains "'${*:2}' is answered" "$1" "$output"
}
refuse "is not a program" "$work/nothing"
refuse "counts from 1" "$work/gradmeter" --launches 0
refuse "above 1" "$work/gradmeter" --slower 1
refuse "exists; its launches" "$work/gradmeter" --keep "$work/kept"
refuse "broken --out $work/again/1-a.jsonl --append ended with 1: gradmeter: no such thing" \
  "$work/gradmeter" --keep "$work/again" -- broken
finish
