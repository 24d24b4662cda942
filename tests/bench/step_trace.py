#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the step of a row of `gradmeter scale --per-bucket` as a trace of Chakra, so that `gradmeter replay` repeats it: with
computations that keep their core, or with `--computation sleep` that leave it to the exchange. What comes after the last gradient waits
for all buckets. Prints how long the computations and the exchange at the link's rate take, and how much of the exchange no order can hide.

usage: step_trace.py RESULTS --bucket SIZE --out TRACE
"""
import argparse
import json
import pathlib


def node(number, name, seconds, after, size=None):
    out = {"id": str(number), "name": name, "type": "COMP_NODE" if size is None else "COMM_COLL_NODE", "dataDeps": [str(n) for n in after],
           "durationMicros": str(round(seconds * 1e6))}
    if size is not None:
        out["attr"] = [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": str(size)}]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--bucket", required=True, help="the row's bucket_bytes as result files have it: a number, or auto")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()]
    row = next(r for r in rows if r["kind"] == "point" and str(r["factors"].get("bucket_bytes")) == options.bucket
               and "timeline_exchange" in r["metrics"])
    metrics = row["metrics"]
    computed, buckets = metrics["timeline_compute"], sorted(metrics["timeline_exchange"], key=lambda b: b["ready_s"])
    nodes, waiting, last = [], list(buckets), None
    for span in computed:
        # Gradients become ready within a span of several computations: the span is cut there.
        begin = span["begin_s"]
        while waiting and waiting[0]["ready_s"] < span["end_s"]:
            bucket = waiting.pop(0)
            if bucket["ready_s"] > begin:
                nodes.append(node(len(nodes), span["name"], bucket["ready_s"] - begin, [] if last is None else [last]))
                last, begin = len(nodes) - 1, bucket["ready_s"]
            nodes.append(node(len(nodes), bucket["name"], 0, [] if last is None else [last], bucket["bytes"]))
        after = [] if last is None else [last]
        if not waiting and span["begin_s"] >= buckets[-1]["ready_s"]:
            after += [i for i, n in enumerate(nodes) if n["type"] == "COMM_COLL_NODE"]
        nodes.append(node(len(nodes), span["name"], span["end_s"] - begin, after))
        last = len(nodes) - 1
    nodes += [node(len(nodes) + i, b["name"], 0, [last], b["bytes"]) for i, b in enumerate(waiting)]
    options.out.write_text("".join(json.dumps(n) for n in [{"attr": [{"name": "schema", "stringVal": "1.0.2-chakra.1.0.0"}]}, *nodes]))

    link = metrics["limit_exchange_s"]
    per_byte = link / sum(b["bytes"] for b in buckets)
    after = [sum(b["bytes"] for b in buckets[i:]) * per_byte for i in range(len(buckets))]
    least = max(b["ready_s"] + rest for b, rest in zip(buckets, after)) - buckets[-1]["ready_s"]
    compute = sum(s["end_s"] - s["begin_s"] for s in computed)
    print(f"computation {1e3 * compute:.1f} ms, exchange at the link's rate {1e3 * link:.1f}, of which at least {1e3 * least:.1f} cannot be hidden")


if __name__ == "__main__":
    main()
