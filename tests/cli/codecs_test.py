# SPDX-License-Identifier: Apache-2.0
"""The codec sweep end to end: no ranks, a valid file, a table that agrees with it, a recorded gradient from training,
the error of exchanges, and bad input in one line."""
import csv
import io
import json
import struct

import support

QUICK = ["--time-budget", "2s", "--precision-goal", "0.5"]
TIMES = ("memcpy_s", "add_s", "encode_s", "decode_s", "decode_add_s", "reduce_encode_s")
COLUMNS = ("codec", "wire", "error", "expected", "memcpy", "encode", "decode", "decode-add", "reduce", "pays below")


def crossover(point, ranks, baseline):
    """The formula, from the row's own medians."""
    m, size = point["metrics"], point["factors"]["size_bytes"]
    per_byte = [m[k]["median"] / size for k in ("encode_s", "decode_add_s", "decode_s")]
    speed = 1 / ((1 + 1 / ranks) * per_byte[0] + (ranks - 1) / ranks * per_byte[1] + per_byte[2])
    saved = baseline - m["wire_bits"]
    return 2 * (ranks - 1) / ranks * saved / 32 * speed if saved > 0 else 0


def bad_row(point, ranks, baseline):
    """What is wrong with a measured row; nothing for a good one."""
    m, problems = point["metrics"], []
    if point["status"] != "ok":
        return [point["status"], point["reason"]]
    made_of_collectives = point["factors"]["codec"].split(":")[0] in ("dgc", "powersgd", "randomk")
    absent = {"decode_add_s", "reduce_encode_s"} if made_of_collectives else set()
    problems += [k for k in TIMES if k not in absent and not m[k]["median"] > 0] + [k for k in absent if m.get(k)]
    if not 0 < m["wire_bits"] < 32:
        problems.append("wire bits")
    if "error_expected" in m and abs(m["error"] / m["error_expected"] - 1) > 0.5:
        problems.append("error is not what is expected")
    if "error_bound" in m and m["error"] > m["error_bound"]:
        problems.append("error is above its bound")
    if m.get("crossover_bytes_per_s") is not None:
        wanted = crossover(point, ranks, baseline)
        if abs(m["crossover_bytes_per_s"] - wanted) > 1e-6 * wanted + 1e-9:
            problems.append("the crossover is not the formula's")
    return problems


def rates_of(table):
    """Codec to (memcpy, encode) as the table shows them."""
    out = {}
    for line in table.splitlines():
        cells = line.split()
        if len(cells) > 8 and cells[0] in ("bf16", "fp16", "qsgd8", "qsgd4"):
            out[cells[0]] = float(cells[4].rstrip("~")), float(cells[5])
    return out


def table_and_file(test):
    out = test.path("c.jsonl")
    sweep = ["codecs", "--codec", "bf16,fp16,qsgd8,qsgd4", "--size", "64K", "--ranks", "4", "--out", out]
    done = test.run(*sweep, *QUICK)
    if not test.check(done.code == 0 and not done.own_lines, "a sweep without ranks ends with 0", done):
        return
    test.check(all(c in done.out for c in COLUMNS), "the table has its columns", done)
    test.valid(out)
    points = support.points(out)
    test.equal({p["factors"]["codec"].split(":")[0] for p in points}, {"bf16", "fp16", "qsgd8", "qsgd4"}, "each codec once")
    bad = {support.key(p): r for p in points if (r := bad_row(p, 4, 32))}
    test.equal(bad, {}, "each row has times, wire bits, its error beside the expected one, and the formula's crossover")
    shown = rates_of(done.out)
    differs = []
    for p in points:
        rates = shown.get(p["factors"]["codec"].split(":")[0], (0, 0))
        for rate, key in zip(rates, ("memcpy_s", "encode_s")):
            if abs(rate * p["metrics"][key]["median"] * 1e9 / 65536 - 1) > 0.02:
                differs.append((support.brief(p), key, rate))
    test.equal(differs, [], "the table's rates are the file's medians")
    lines = support.whole_lines(out)
    out.write_text("\n".join(lines[:-2]) + "\n")  # without the end, and a point
    again = test.run(*sweep, *QUICK, "--resume")
    test.check(again.code == 0 and "1 point measured, 3 kept" in again.out, "--resume measures what is missing", again)
    test.valid(out)


def every_codec(test):
    out = test.path("all.jsonl")
    done = test.run("codecs", "--size", "40K", "--distribution", "all", "--baseline", "bf16", "--time-budget", "4s",
                    "--precision-goal", "0.5", "--out", out)
    test.check(done.code == 0, "every codec on every distribution", done)
    test.valid(out)
    points = support.points(out)
    bad = {support.key(p): r for p in points if (r := bad_row(p, 8, 16))}
    test.equal(bad, {}, "each row is right")
    test.equal({p["factors"]["distribution"] for p in points}, {"gaussian", "laplace", "sparse:density=0.05"},
               "all distributions, with their parameters")
    listed = json.loads(test.run("list", "codecs", "--json").out)["codecs"]
    test.equal({p["factors"]["codec"].split(":")[0] for p in points}, {c["name"] for c in listed} - {"none"},
               "all codecs that list names")
    test.check(all(c["wire_bits"] and "min=" in c["parameters"] for c in listed if c["name"] != "none"),
               "list says its wire bits and what its name takes", listed)
    test.check(all(c["about"] for c in listed) and all(c["source"] for c in listed if c["name"] != "none"),
               "list says what each is, and its source", listed)


def formats(test):
    small = ["codecs", "--codec", "bf16,qsgd4:bucket=128", "--size", "4K,64K", *QUICK]
    done = test.run(*small, "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    test.check(done.code == 0 and len(rows) == 4, "--csv has one line a point", done)
    test.check(all(None not in r and float(r["encode_median_s"]) > 0 for r in rows), "each line has all columns", rows)
    done = test.run(*small, "--json")
    path = test.path("stdout.jsonl")
    path.write_text(done.out)
    test.valid(path, what="--json prints a valid result file")
    test.check(any("bucket=128" in p["factors"]["codec"] for p in support.points(path)), "parameters are recorded")


def recorded(test):
    path, train = test.path("g.bin"), ["train", "--model", "mlp:784-64-10", "--batch", "16", "--train-samples", "640",
                                       "--validation-samples", "100", "--steps", "9", "--dump-gradients"]
    done = test.run(*train, path, ranks=2)
    if not test.check(done.code == 0 and path.exists(), "train writes a gradient", done):
        return
    magic, head, values = path.read_bytes().split(b"\n", 2)
    head = json.loads(head)
    test.check(magic == b"GMGRAD1" and head["step"] == 8 and head["model"] == "mlp:784-64-10",
               "of its last step, as the head says", head)
    test.equal(len(values), 4 * head["elements"], "with all its values")
    test.check(any(v != 0 for v in struct.unpack("<64f", values[:256])), "that are numbers")
    # Equal weights and data give equal gradients: dumping does not disturb training, nor depend on it.
    other = test.path("h.bin")
    test.run(*train, other, "--overlap", "none", ranks=2)
    test.equal(other.read_bytes(), path.read_bytes(), "the same again, whatever the overlap: it is before the exchange")
    for mesh in ("tensor=2", "pipeline=2"):
        done = test.run(*train, other, "--mesh", mesh, "--timeout", "20s", "--force", ranks=2)
        test.check(done.code == 0 and dump(other)[0]["step"] == 8, f"and where ranks compute it together, {mesh}", done)
    done = test.run(*train, path)
    test.check(done.code == 2 and len(done.own_lines) == 1 and "exists" in done.own_lines[0], "is not replaced", done)
    done = test.run(*train, path, "--force", "--dump-step", "9")
    test.check(done.code == 2 and "9 steps" in done.own_lines[0], "a step beyond the run is refused", done)
    done = test.run("codecs", "--codec", "qsgd8", "--distribution", f"file:{path}", "--size", "64K", *QUICK)
    test.check(done.code == 0 and "g.bin" in done.out, "codecs takes it", done)
    path.write_bytes(path.read_bytes()[:-3])
    done = test.run("codecs", "--codec", "qsgd8", "--distribution", f"file:{path}")
    test.check(done.code == 2 and len(done.own_lines) == 1 and "its head says" in done.own_lines[0],
               "a damaged one is refused", done)


def dump(path):
    """Head and values of a dumped file."""
    _, head, values = path.read_bytes().split(b"\n", 2)
    return json.loads(head), struct.unpack(f"<{len(values) // 4}f", values)


def weights(test):
    w, g, step = test.path("w.bin"), test.path("wg.bin"), 0.25
    train = ["train", "--model", "mlp:784-16-10", "--batch", "16", "--train-samples", "640", "--validation-samples", "100",
             "--steps", "9", "--optimizer", "sgd", "--lr", step, "--warmup", "0", "--dump-weights"]
    done = test.run(*train, w)
    if not test.check(done.code == 0 and w.exists(), "train writes its weights", done):
        return
    head, first = dump(w)
    test.check(head["step"] == 0 and head["model"] == "mlp:784-16-10" and len(first) == head["elements"],
               "of its start, with all values", head)
    of = {t["name"]: first[t["offset"]:t["offset"] + t["count"]] for t in head["tensors"]}
    test.check(not any(of["layer1.bias"]) and len(set(of["layer1.weight"])) > 784 * 15, "drawn weights, zero biases")
    # SGD moves the weights before step 3 by the gradient of step 3, to those before step 4.
    done = test.run(*train, w, "--dump-gradients", g, "--dump-step", "3", "--force")
    _, before = dump(w)
    _, gradient = dump(g)
    test.run(*train, w, "--dump-step", "4", "--force")
    head, after = dump(w)
    off = max(abs(a - (b - step * d)) for a, b, d in zip(after, before, gradient))
    moved = max(abs(a - b) for a, b in zip(after, before))
    test.check(head["step"] == 4 and off < 1e-6 < 1e-3 < moved, f"of a later step: off by {off:.1e}, moved {moved:.1e}",
               done)
    done = test.run(*train, w)
    test.check(done.code == 2 and len(done.own_lines) == 1 and "exists" in done.own_lines[0], "are not replaced", done)


def exchanges(test):
    out = test.path("e.jsonl")
    done = test.run("codecs", "--exchange", "all-gather,sra,ring", "--ranks", "2,8", "--codec", "qsgd8,qsgd4", "--size",
                    "256K", "--out", out, timeout=120)
    test.check(done.code == 0 and "P=2" in done.out and "P=8" in done.out, "the error against ranks", done)
    test.valid(out)
    error = {(p["factors"]["codec"].split(":")[0], p["factors"]["algorithm"].split(":")[0], p["factors"]["ranks"]):
             p["metrics"]["error"] for p in support.points(out)}
    published = {"one-shot": 0.015, "direct": 0.051, "ring": 0.140}
    far = {a: error.get(("qsgd4", a, 8)) for a, e in published.items() if abs(error.get(("qsgd4", a, 8), 0) / e - 1) > 0.15}
    test.equal(far, {}, "4 bits on 8 ranks lose what was published")
    test.check(len(error) == 12 and error["qsgd8", "ring", 8] < error["qsgd4", "ring", 8], "8 bits lose less", error)


BAD = [
    (["--codec", "qsgd3"], ["qsgd3", "qsgd2"]),
    (["--codec", "qsgd4:bucket=0"], ["bucket", "0"]),
    (["--codec", "topk:density=0"], ["density", "0"]),
    (["--codec", "topk:density=2"], ["density", "2"]),
    (["--codec", "none"], ["none", "nothing is encoded"]),
    (["--size", "0"], ["--size", "0"]),
    (["--size", "6"], ["--size", "multiple of 4"]),
    (["--size", "9223372036854775804"], ["--size", "1024T"]),
    (["--size", "8Q"], ["--size", "8Q"]),
    (["--distribution", "normal"], ["normal", "gaussian"]),
    (["--distribution", "sparse:density=0"], ["density", "0"]),
    (["--distribution", "sparse:density=2"], ["density", "2"]),
    (["--distribution", "file:/no/such/file"], ["/no/such/file"]),
    (["--baseline", "fp8"], ["fp8", "bf16"]),
    (["--parts", "0"], ["--parts", "from 1"]),
    (["--link", "1G"], ["--link", "1Gbit"]),
    (["--link", "-1Gbit"], ["--link", "-1"]),
    (["--exchange", "ring", "--link", "1Gbit"], ["--link", "--exchange"]),
    (["--ranks", "1"], ["--ranks", "from 2"]),
    (["--exchange", "rings"], ["rings", "ring"]),
    (["--exchange", "ring", "--ranks", "9999"], ["--ranks", "9999"]),
    (["--exchange", "ring", "--distribution", "laplace"], ["--distribution", "--exchange"]),
    (["--csv", "--json"], ["--csv", "--json"]),
    (["--resume"], ["--out"]),
]


def bad_input(test):
    for arguments, words in BAD:
        done = test.run("codecs", *arguments, timeout=30)
        line = done.own_lines[0] if len(done.own_lines) == 1 else ""
        test.check(done.code == 2 and line and all(w in line for w in words), f"{' '.join(arguments)}: one line, exit 2", done)


def body(test):
    table_and_file(test)
    every_codec(test)
    formats(test)
    recorded(test)
    weights(test)
    exchanges(test)
    bad_input(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
