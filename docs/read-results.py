#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A result file in a notebook: each part below is a cell. The first needs nothing but Python, the second pandas.

Run as a program:  python3 docs/read-results.py results/scaling/two-cores.jsonl
"""
import json
import sys

# A dictionary for each point that was measured. Keys are explained in docs/result-file.md.
with open(sys.argv[1], encoding="utf-8") as file:
    points = [line for line in map(json.loads, file) if line["kind"] == "point" and line["status"] == "ok"]
for p in points[:3]:
    print(p["experiment"], "on", p["factors"]["ranks"], "ranks:", p["metrics"]["time_s"]["median"], "s")

try:
    import pandas as pd
except ModuleNotFoundError:
    sys.exit("the second part needs pandas (Debian: python3-pandas)")

# A row a point; nested keys become columns such as metrics.time_s.median. Equal points are launches: take their median.
table = pd.json_normalize(points)
trained = table[(table["experiment"] == "scale") & (table["factors.strategy"] == "sync")]
print(trained.pivot_table(index=["factors.batch_per_rank", "factors.algorithm"], columns="factors.ranks",
                          values="metrics.efficiency", aggfunc="median"))
