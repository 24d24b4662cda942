# SPDX-License-Identifier: Apache-2.0
"""`gradmeter predict`: scores of tables as text and as JSON, rows that nobody measured, bars, and tables that are none."""
import json

import support

KEYS = ("file", "rows", "unpredicted", "mape", "mape_all", "median", "p90", "bias", "coverage", "half_width", "constant_flops_mape",
        "linear_mape")
HEAD = "id,system,gpu,gpus,gpus_per_node,model,layers,hidden,heads,seq_len,vocab,global_batch,micro_batch,tp,pp,precision,metric,value,unit\n"


def body(test):
    data = test.source / "data" / "predict"
    known = data / "internevo.csv"
    done = test.run("predict", "--calibrate", known, "--leave-out", "model,tp,micro_batch", "--json")
    scores = [json.loads(line) for line in done.out.splitlines()]
    test.check(done.code == 0 and len(scores) == 1 and tuple(scores[0]) == KEYS, "a score has its keys, one object a table", done)
    test.check(scores[0]["rows"] == 12 and scores[0]["unpredicted"] == 0 and 0 < scores[0]["mape"] < 6.5,
               "groups left out are predicted within the bar", scores)
    done = test.run("predict", "--calibrate", known, "--score", f"{known},{data / 'tf_benchmarks.csv'}")
    test.check(done.code == 0 and "tf_benchmarks.csv: 51 rows, 0 unpredicted" in done.out, "networks with a layer table are predicted", done)
    test.check(done.out.splitlines()[-1].startswith("51 steps predicted with a mean error of "), "the last line is the answer", done)
    done = test.run("predict", "--score", data / "pytorch_ddp.csv")
    test.check(done.code == 0 and "20 because: no calibration row of this network" in done.out,
               "rows that cannot be predicted are counted with their reason", done)
    done = test.run("predict", "--score", known, "--fail-above", "0.1")
    test.check(done.code == 1 and "above the bar of 0.1 %: the mean error is" in done.out, "an error above the bar ends with 1", done)
    done = test.run("predict", "--score", known, "--fail-above", "50")
    test.check(done.code == 0, "and below it with 0", done)

    planned = test.path("planned.csv")
    rows = [f"n{n},A100 cluster,A100-80GB,{n},8,internlm-7b,32,4096,32,2048,103168,{8 * n},2,1,1,bf16,step time,,s\n" for n in (8, 64, 512)]
    planned.write_text(HEAD + "".join(rows))
    done = test.run("predict", "--calibrate", known, "--rows", planned, "--json")
    steps = [json.loads(line) for line in done.out.splitlines()]
    test.check(done.code == 0 and len(steps) == 3 and all(s["predicted"] and s["ci90_low"] < s["time_s"] < s["ci90_high"] for s in steps),
               "steps that nobody measured have a time and an interval", done)
    test.check(steps[0]["time_s"] < steps[2]["time_s"] and
               steps[2]["ci90_high"] / steps[2]["ci90_low"] > steps[0]["ci90_high"] / steps[0]["ci90_low"],
               "on more GPUs they take longer and are less sure", steps)
    planned.write_text(HEAD + rows[0].replace("A100-80GB", "abacus"))
    done = test.run("predict", "--rows", planned)
    test.check(done.code == 0 and "not predicted: no data sheet of 'abacus' is known" in done.out, "or the reason why not", done)
    done = test.run("predict", "--rows", planned, "--json")
    test.check(json.loads(done.out)["predicted"] is False, "and JSON says that it is not predicted", done)

    done = test.run("predict", "--model", "gpt3-175b", "--machine", "A100", "--ranks", "1024", "--batch-global", 1536, "--mesh",
                    "tensor=8,pipeline=8", "--seq", 2048, "--recompute", "full", "--json")
    step = json.loads(done.out)
    # Narayanan et al., SC 2021, measured 140 TFLOP/s a GPU: 24 s a step by their count of operations.
    test.check(done.code == 0 and step["ci90_low"] < 24 < step["ci90_high"] and step["predicted"], "a published step lies in its interval", step)
    parts = sum(step[k] for k in ("compute_s", "wire_s", "wait_s", "other_s"))
    test.check(abs(parts / step["time_s"] - 1) < 1e-9, "the parts add up", step)
    memory = step["memory_bytes"]
    test.check(abs(sum(v for k, v in memory.items() if k != "total") / memory["total"] - 1) < 1e-9 and memory["total"] < 80e9,
               "so do those of the memory, which the paper's GPUs had", step)
    networks(test)
    done = test.run("predict", "--model", "internlm-7b", "--machine", "A100", "--ranks", "8", "--batch", 8, "--micro-batch", 2, "--seq", 2048,
                    "--calibrate", known, "--json")
    fitted = json.loads(done.out)
    test.check(done.code == 0 and abs(fitted["time_s"] / (64 * 2048 / (4062 * 8)) - 1) < 0.05 and
               fitted["ci90_high"] / fitted["ci90_low"] < 1.25, "a fit to the same system narrows the interval", fitted)

    calibrated(test, known)
    from_own_files(test)
    own_files_apart(test)
    unlike_data(test)

    for text, said in ((HEAD + "a,b\n", ":2:4: 2 values, not 19: 'gpu' is missing"), ("", ":1: an empty table"),
                       ("system,gpu\n", ":1:1: column gpus is missing")):
        planned.write_text(text)
        done = test.run("predict", "--score", planned)
        test.check(done.code == 2 and len(done.own_lines) == 1 and f"{planned.name}{said}" in done.err and not done.out,
                   f"a table that is none: {said}", done)
    for arguments in (("--model", "gpt"), ("--model", "abacus"), ("--model", "gpt:layers=2"), ("--model", "gpt:hidden=64,layers=2,colour=3"),
                      ("--model", "gpt:hidden=64,layers=2,heads=3"), ("--model", "llama3-8b", "--machine", "abacus"),
                      ("--model", "llama3-8b", "--machine", "TPU v1"), ("--model", "llama3-8b", "--mesh", "tensor=3"),
                      ("--model", "llama3-8b", "--mesh", "tensor=64", "--ranks", 64), ("--model", "llama3-8b", "--mesh", "pipeline=64", "--ranks", 64),
                      ("--model", "llama3-8b", "--mesh", "virtual=2"), ("--model", "llama3-8b", "--mesh", "data=3", "--ranks", 8),
                      ("--model", "resnet50", "--mesh", "tensor=2"), ("--model", "llama3-8b", "--ranks", "5..7"), ("--model", "llama3-8b", "--ranks", 65537),
                      ("--model", "llama3-8b", "--ranks", 8, "--nodes", 1), ("--model", "llama3-8b", "--link", "5furlongs"),
                      ("--model", "llama3-8b", "--what-if", "colour=red"), ("--model", "llama3-8b", "--what-if", "link"),
                      ("--model", "llama3-8b", "--precision", "fp99"), ("--model", "llama3-8b", "--codec", "powersgd"), ("--what-if", "link=NDR"),
                      ("--calibrate", known, "--leave-out", "model", "--batch", 8), ("--rows", known, "--machine", "A100"), ("--rows", known, "--fail-above", 5),
                      ("--model", "gpt3-175b", "--ranks", 8), ("--model", "llama3-8b", "--mesh", "tensor=16777216,pipeline=16777216,context=65536"),
                      ("--model", "llama3-8b", "--mesh", "pipeline=2", "--zero", 3), ("--model", "llama3-8b", "--batch-global", 8, "--ranks", "64,512"),
                      ("--model", "internlm-7b", "--machine", "H100", "--calibrate", known), ("--output", "x.json"), ("--choose-rows", 3), ("--calibrate", known, "--calibrate-rows", 0),
                      ("--model", "llama3-8b", "--mesh", "colour=3"), ("--model", "llama3-8b", "--system", "x"),
                      ("--model", "llama3-8b", "--calibrate", data / "llm_foundry.csv"), (), ("--leave-out", "model"), ("--calibrate", known, "--leave-out", "colour"), ("--score", test.path("none.csv"))):
        done = test.run("predict", *arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1, f"predict {' '.join(map(str, arguments))}: one line", done)


def networks(test):
    """Networks by name, by their sizes and by a layer table; other machines; what fits; what would pay; a result file."""
    def rows(*arguments):
        done = test.run("predict", *arguments, "--json")
        test.check(done.code == 0, f"predict {' '.join(map(str, arguments))}", done)
        return [json.loads(line) for line in done.out.splitlines()]

    done = test.run("predict", "--model", "llama3-70b", "--ranks", "64,4096", "--mesh", "tensor=8", "--batch", 1, "--sequence-parallel")
    test.check(done.code == 0 and "data sheet" in done.out and "4096 ranks take a step in " in done.out.splitlines()[-1],
               "a network by name: a table and a sentence", done)
    many = rows("--model", "gpt:layers=24,hidden=2048,heads=16,seq=1024,vocab=50257", "--ranks", "1..65536", "--batch", 1, "--zero", 0)
    test.check([r["ranks"] for r in many] == [2**i for i in range(17)] and many[0]["efficiency"] == 1 and many[-1]["efficiency"] < 1,
               "powers of two, beside one rank that computes alone", many)
    slow, fast = (rows("--model", "llama3-8b", "--nodes", 8, "--link", link, "--batch", 1)[0] for link in ("10GbE", "8xNDR"))
    test.check(slow["wire_s"] > 5 * fast["wire_s"] and slow["bound_by"] == "wire" and slow["compute_s"] == fast["compute_s"],
               "a slower link between nodes takes longer, and computes alike", (slow, fast))

    both = rows("--model", "llama3-70b", "--ranks", "64,4096", "--mesh", "tensor=8", "--batch", 1)
    test.check(not both[0]["predicted"] and "--" in both[0]["reason"] and "GiB" in both[0]["reason"], "a step that does not fit says what would", both)
    advice = both[0]["reason"].split("; ")[1].split(" would need")[0].split()
    fitting = rows("--model", "llama3-70b", "--ranks", 64, "--batch", 1, *(advice if "--mesh" in advice else ["--mesh", "tensor=8"] + advice))
    test.check(fitting[0]["predicted"] and fitting[0]["memory_bytes"]["total"] < 80e9, "and that fits", (advice, fitting))

    table = rows("--model", "resnet50", "--machine", "P100", "--precision", "fp32", "--batch", 64, "--ranks", "1,64", "--link", "25GbE")
    test.check(table[0]["from"] == "layer costs" and table[0]["ci90_high"] / table[0]["ci90_low"] > 4 and table[1]["wire_s"] > 0,
               "a layer table from its costs, with a wide interval", table)
    known = test.source / "data" / "predict" / "tf_benchmarks.csv"
    measured = rows("--model", "resnet50", "--machine", "P100", "--precision", "fp32", "--batch", 64, "--ranks", "1,64", "--link", "25GbE",
                    "--calibrate", known, "--system", "DGX-1 P100", "--price", 0.5)
    test.check(measured[0]["from"] == "measured step" and abs(measured[0]["time_s"] - 64 / 219) < 1e-3 and
               measured[1]["ci90_high"] / measured[1]["ci90_low"] < 2 and measured[1]["price_per_million_samples"] > 0,
               "or from a measured step of one rank", measured)

    what = rows("--model", "llama3-8b", "--ranks", "64,1024", "--link", "100GbE", "--zero", 1, "--batch", 1, "--what-if", "link=100GbE,400GbE",
                "--what-if", "precision=fp8", "--what-if", "codec=none,qsgd4", "--what-if", "machine=A100")[2:]
    ratio = {f"{w['what_if']}={w['value']}": w["ratios"][1]["ratio"] for w in what}
    test.check(len(what) == 6 and ratio["link=100GbE"] == 1 and ratio["codec=none"] == 1 and ratio["link=400GbE"] > 1.05 and
               ratio["precision=fp8"] > 1 and ratio["codec=qsgd4"] > 1.05 and ratio["machine=A100"] < 1, "what-ifs are ratios", ratio)
    done = test.run("predict", "--model", "llama3-8b", "--ranks", "64,1024", "--link", "100GbE", "--batch", 1, "--what-if", "link=400GbE")
    test.check(done.code == 0 and "link=400GbE pays most: " in done.out, "and the one that pays most is said", done)

    out = test.path("predicted.jsonl")
    done = test.run("predict", "--model", "llama3-8b", "--ranks", "64", "--link", "NDR", "--out", out)
    points = [json.loads(line) for line in out.read_text().splitlines() if '"point"' in line]
    test.check(done.code == 0 and len(points) == 1 and points[0]["experiment"] == "predict" and points[0]["metrics"]["predicted"] is True and
               "time_s" not in points[0]["metrics"] and
               points[0]["metrics"]["ci90_low"] < points[0]["metrics"]["predicted_time_s"] < points[0]["metrics"]["ci90_high"],
               "a result file says that its rows are predicted", points)
    exchanges(test, rows)
    done = test.run("list", "machines", "links", "--json")
    listed = json.loads(done.out)
    test.check(done.code == 0 and all(m["source"] for m in listed["machines"] + listed["links"]) and
               any(m["name"] == "H100 SXM5" and m["peaks"]["bf16"] == 989e12 and m["power_w"] == 700 for m in listed["machines"]),
               "machines and links are listed with their sources", done)


def exchanges(test, rows):
    """Strategies, algorithms and buckets of a network's exchange; combinations that have no meaning."""
    network = ("--model", "gpt:layers=24,hidden=2048,heads=16,seq=1024,vocab=50257", "--link", "100GbE", "--ranks", "64,1024", "--batch", 1)
    def wire(*chosen):
        return rows(*network, *chosen)[0]["wire_s"]
    synchronous = wire("--strategy", "sync")
    test.check(synchronous == wire("--zero", 0) and wire("--strategy", "independent") == 0, "sync is stage 0, independent ranks exchange nothing", synchronous)
    rare = [wire("--strategy", f"model-averaging:every={n}") for n in (1, 16)]
    test.check(rare[0] > synchronous and abs(rare[0] / rare[1] - 16) < 1e-6, "averages hide nothing, and are rare", (synchronous, rare))
    ring, direct = (rows(*network, "--strategy", "sync", "--algorithm", a)[1]["wire_s"] for a in ("ring", "direct"))
    test.check(direct > 1.5 * ring, "algorithms differ", (ring, direct))
    fast = ("--link", "8xNDR", "--batch", 4, "--micro-batch", 4, "--strategy", "sync")
    one, some, none = (rows(*network[:2], "--ranks", 64, *fast, *bucket)[0]["wire_s"] for bucket in (("--bucket", 0), ("--bucket", "25M"), ()))
    test.check(one > some > none > 0, "one bucket hides nothing, several have their latency", (one, some, none))
    what = rows(*network, "--strategy", "sync", *(w for v in ("strategy=independent", "algorithm=ring,double-tree", "bucket=0") for w in ("--what-if", v)))[2:]
    test.check(len(what) == 4 and what[0]["ratios"][1]["ratio"] > 1 and what[3]["ratios"][1]["ratio"] < 1, "and are what-ifs", what)
    table = ("--model", "resnet50", "--machine", "P100", "--precision", "fp32", "--ranks", "4", "--batch", 32)
    by_table = [rows(*table, *chosen)[0]["time_s"] for chosen in ((), ("--bucket", 0), ("--strategy", "independent"))]
    test.check(by_table[1] > by_table[0] > by_table[2], "layer tables too", by_table)
    out = test.path("exchanged.jsonl")
    test.run("predict", *network, "--strategy", "sync", "--algorithm", "double-tree", "--bucket", "25M", "--out", out)
    factors = support.points(out)[0]["factors"]
    test.check(factors["strategy"] == "sync" and factors["algorithm"] == "double-tree" and factors["bucket_bytes"] == 25 << 20,
               "a row has them as factors", factors)
    for wrong in (("--strategy", "ps-async"), ("--strategy", "abacus"), ("--strategy", "independent", "--algorithm", "ring"),
                  ("--strategy", "model-averaging", "--codec", "qsgd8"), ("--strategy", "bmuf", "--bucket", "1M"), ("--strategy", "sync", "--zero", 3),
                  ("--algorithm", "ring"), ("--strategy", "sharded", "--algorithm", "ring"), ("--strategy", "sync", "--algorithm", "mpi"),
                  ("--strategy", "sync", "--algorithm", "torus2d:rows=3"), ("--zero", 3, "--bucket", "1M"), ("--strategy", "sync", "--bucket", "large"),
                  ("--strategy", "sync", "--what-if", "algorithm=mpi")):
        done = test.run("predict", *network, *wrong)
        test.check(done.code == 2 and len(done.own_lines) == 1, f"predict {' '.join(map(str, wrong))}: one line", done)
    done = test.run("predict", *table, "--strategy", "sharded")
    test.check(done.code == 2 and len(done.own_lines) == 1, "a layer table's update is not split", done)


def from_own_files(test):
    """Curves of recorded steps on more ranks: as a table, as rows of a result file that never count as measured, as a chart."""
    measured = test.source / "results" / "scaling" / "two-cores.jsonl"
    out = test.path("own.jsonl")
    done = test.run("predict", "--calibrate", measured, "--ranks", "1,2,1024,65536", "--out", out)
    test.check(done.code == 0 and "65536 ranks take a step of " in done.out.splitlines()[-1], "steps of our own files on more ranks", done)
    test.valid(out)
    points = support.points(out)
    curves = {}
    for p in points:
        curves.setdefault((p["factors"]["algorithm"], p["factors"]["batch_per_rank"]), []).append(p)
    test.check(len(curves) == 6 and all([p["factors"]["ranks"] for p in rows] == [1, 2, 1024, 65536] for rows in curves.values()),
               "a row for each curve and number of ranks", curves.keys())
    test.check(all(p["experiment"] == "predict" and p["metrics"]["predicted"] is True and "time_s" not in p["metrics"] and
                   p["metrics"]["ci90_low"] < p["metrics"]["predicted_time_s"] < p["metrics"]["ci90_high"] for p in points),
               "each says that it is predicted, and has no measured time of its own", points[0])
    test.check(all(("measured_time_s" in p["metrics"]) == (p["factors"]["ranks"] < 3) for p in points),
               "beside it the measured one, where there is one", [p["factors"]["ranks"] for p in points if "measured_time_s" in p["metrics"]])
    first = curves["auto", 16]
    test.check(first[0]["metrics"]["efficiency"] == 1 and first[0]["metrics"]["efficiency"] > first[1]["metrics"]["efficiency"] >
               first[3]["metrics"]["efficiency"], "efficiency begins at one rank and falls", first)

    done = test.run("predict", "--calibrate", measured, "--ranks", "1,2,1024,65536", "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    of_file = {(p["factors"]["ranks"], p["metrics"]["predicted_time_s"], p["metrics"]["ci90_high"]) for p in points}
    test.check(done.code == 0 and len(rows) == len(points) and {(r["ranks"], r["time_s"], r["ci90_high"]) for r in rows} == of_file,
               "--json has the rows of --out", done)
    done = test.run("predict", "--calibrate", test.source / "results" / "predict" / "three-links.jsonl", "--ranks", 8, "--json")
    first = json.loads(done.out.splitlines()[0])
    test.check("on 4 ranks, held out" in first["file"] and first["mape"] > 0, "before them the score of what was held out", done)
    for flag in (("--model", "resnet50"), ("--batch", 8), ("--what-if", "link=NDR"), ("--leave-out", "model"), ("--rows", measured), ("--fail-above", 5),
                 ("--score", measured, "--ranks", 8)):
        done = test.run("predict", "--calibrate", measured, *flag)
        test.check(done.code == 2 and len(done.own_lines) == 1 and flag[-2] in done.err, f"{flag[-2]} is not ignored beside our own files", done)

    again = test.path("again.jsonl")
    again.write_text(out.read_text().replace(json.loads(out.read_text().splitlines()[0])["run_id"], "0123456789abcdef"))
    for sides in ((measured, out), (out, again), (f"{measured},{again}", "--by", "algorithm"), (out, "--history", test.path("past"))):
        done = test.run("compare", *sides)
        test.check(done.code == 2 and len(done.own_lines) == 1 and "has predicted points" in done.err,
                   f"compare {' '.join(map(str, sides))}: predicted rows are no measurements", done)
    test.check(not list(test.path("past").glob("*")) if test.path("past").exists() else True, "nor are they kept as history")
    for flag in ("--calibrate", "--score"):
        done = test.run("predict", "--calibrate", out if flag == "--calibrate" else measured, *(() if flag == "--calibrate" else (flag, out)))
        test.check(done.code == 2 and len(done.own_lines) == 1 and "no measured point of allreduce or scale" in done.err,
                   f"{flag} takes none either", done)
    done = test.run("report", out, "-o", test.path("own.html"))
    test.check(done.code == 0, "a page has them", done)
    drawn = test.run("report", out, "--svg", test.path("pictures"))
    test.check(drawn.code == 2 and "vl-convert" in drawn.err or (test.path("pictures") / "predicted.svg").exists(), "and draws them", drawn)
    done = test.run("report", measured, out, "-o", test.path("both.html"))
    test.check(done.code == 0 and "not compared: own has predicted points" in done.err, "beside the measurements, and compares nothing", done)
    done = test.run("predict", "--calibrate", measured, "--score", measured, "--out", test.path("no.jsonl"))
    test.check(done.code == 2 and len(done.own_lines) == 1, "scores are no rows", done)


def own_files_apart(test):
    """Recorded steps whose exchange was not measured, those of a mesh, and curves that differ in a factor that names lack."""
    lines = [json.loads(line) for line in (test.source / "results" / "scaling" / "two-cores.jsonl").read_text().splitlines()]
    first = lines[0]["run_id"]
    run, *points = [line for line in lines if line["run_id"] == first]
    points = [p for p in points if p["kind"] == "point"]
    changed = test.path("changed.jsonl")

    def predict(points, *flags):
        changed.write_text("".join(json.dumps(line) + "\n" for line in (run, *points)))
        return test.run("predict", "--calibrate", changed, "--ranks", "2,1024", *flags)

    def with_factors(**factors):
        return [{**p, "factors": {**p["factors"], **factors}} for p in points if p["factors"]["ranks"] > 1 and p["factors"]["strategy"] == "sync"]

    alone = [p for p in points if p["factors"]["ranks"] == 1]
    done = predict(alone + with_factors(overlap="bucketed"))
    test.check(done.code == 0 and "no exchange was measured from which links follow" in done.out and "1024 ranks take" not in done.out,
               "without a measured exchange there is no prediction", done)
    done = predict(points + with_factors(mesh="data=1,tensor=2"), "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    meshes = [r for r in rows if "mesh data=1,tensor=2" in r.get("curve", "") and r["ranks"] > 1]
    test.check(done.code == 0 and meshes and all(not r["predicted"] and "a mesh" in r["reason"] for r in meshes) and
               any(r.get("predicted") for r in rows), "a mesh is not predicted, and the other curves are", done)
    done = predict(points + with_factors(cadence="free"), "--json")
    names = [(r["curve"], r["ranks"]) for r in map(json.loads, done.out.splitlines()) if "curve" in r]
    test.check(done.code == 0 and names and len(names) == len(set(names)), "curves that differ have names that differ", names)


def unlike_data(test):
    """What is known of one device, network, exchange or number of ranks is not taken for another's."""
    table = test.path("unlike.csv")
    def rows(*arguments):
        done = test.run("predict", "--calibrate", table, *arguments, "--json")
        test.check(done.code == 0, f"predict {' '.join(map(str, arguments))}", done)
        return [json.loads(line) for line in done.out.splitlines()]

    network = "gpt:layers=24,hidden=4096,heads=16,seq=2048"
    table.write_text("id,system,gpu,gpus_per_node,gpus,model,layers,hidden,heads,seq_len,global_batch,micro_batch,zero_stage,precision,"
                     "activation_recompute,metric,value,unit\n" +
                     "".join(f'{i},S,A100-80GB,8,8,{name},24,{hidden},16,2048,32,1,1,bf16,none,step time,{seconds},s\n'
                             for i, (name, hidden, seconds) in enumerate(((f"a", 1024, 0.09), ("b", 2048, 0.3), ("c", 3072, 0.65),
                                                                          (f'"{network}"', 4096, 2.5)))))
    asked = ("--model", network, "--machine", "A100", "--ranks", 8, "--batch", 4)
    same = rows(*asked, "--what-if", "precision=fp16")[-1]
    test.check(abs(same["ratios"][0]["ratio"] - 1) < 1e-9, "a what-if compares terms, without what is known of one side only", same)
    none = rows(*asked, "--mesh", "pipeline=2", "--zero", 0, "--what-if", "zero=3")[-1]
    test.check(not none["predicted"] and "ZeRO stage 3" in none["reason"], "a what-if without any ratio is not predicted", none)
    done = test.run("predict", "--calibrate", table, "--model", network, "--machine", "H100")
    test.check(done.code == 2 and len(done.own_lines) == 1 and "system S is of A100-80GB" in done.err, "a fit is of its own device", done)

    head = "id,system,gpu,gpus_per_node,gpus,model,params,global_batch,precision,metric,value,unit\n"
    table.write_text(head + "a,S,P100,8,64,resnet50,25600000,4096,fp32,throughput,11000,images/s\n")
    asked = ("--model", "resnet50", "--machine", "P100", "--precision", "fp32", "--batch", 64)
    both = rows(*asked, "--ranks", "64,128")
    test.check(all(r["from"] == "measured step" and r["efficiency"] is None for r in both),
               "no efficiency beside one rank on another basis", both)
    done = test.run("predict", "--calibrate", table, *asked, "--ranks", "64,8")
    test.check(done.code == 0 and "is a sum over layers" in done.out and "of its rate" not in done.out,
               "rows on different bases are not compared, and each basis is said", done)
    what = rows(*asked, "--ranks", 64, "--link", "1GbE", "--what-if", "codec=qsgd8", "--what-if", "link=100GbE", "--what-if", "bucket=0")[-3:]
    ratios = [w["ratios"][0]["ratio"] for w in what]
    test.check(ratios[0] > 1.05 and ratios[1] > 1.05 and ratios[2] < 1, "a measured step says nothing of another exchange on as many ranks", what)

    table.write_text("id,system,gpu,gpus_per_node,gpus,model,params,layers,hidden,heads,seq_len,vocab,global_batch,micro_batch,precision,"
                     "activation_recompute,metric,value,unit\n" +
                     "".join(f"{n},S,A100-80GB,8,{n},internlm-7b,,32,4096,32,2048,103168,{4 * n},1,bf16,none,throughput,2500,tokens/s/GPU\n"
                             for n in (16, 32)) +
                     "r,S,A100-80GB,8,1,resnet50,25600000,,,,,,64,,bf16,,throughput,2000,images/s\n"
                     "u,S,A100-80GB,8,1,unknown,25600000,,,,,,64,,bf16,,throughput,,images/s\n")
    done = test.run("predict", "--calibrate", table, "--score", table, "--fail-above", 1)
    test.check(done.code == 1 and "on the 2 rows that constant FLOP/s a GPU applies to" in done.out.splitlines()[-1],
               "errors are compared over the same rows", done)
    test.check("with 100 % for each row that was not predicted" in done.out, "and it is said what the bar counts", done)


def calibrated(test, known):
    """A calibrated machine as a file, and the rows that are worth measuring."""
    file = test.path("machine.json")
    done = test.run("predict", "--calibrate", known, "--output", file)
    test.check(done.code == 0 and len(json.loads(file.read_text())["fit"]["residuals"]) == 12, "a machine's file has its fit and residuals", done)
    done = test.run("predict", "--calibrate", known, "--output", file)
    test.check(done.code == 2 and "--force" in done.err, "and is not replaced by chance", done)
    network = ("--model", "internlm-7b", "--ranks", "64", "--batch", 8, "--micro-batch", 4, "--seq", 2048, "--json")
    by_file, by_rows = (json.loads(test.run("predict", *network, *machine).out) for machine in
                        (("--machine", file), ("--machine", "A100", "--calibrate", known)))
    test.check(by_file["time_s"] == by_rows["time_s"] and by_file["ci90_low"] == by_rows["ci90_low"] and by_file["from"] == "fit",
               "it predicts as the calibration does", (by_file, by_rows))
    bad = test.path("bad.json")
    bad.write_text(file.read_text().replace('"power_w"', '"powwer_w"'))
    line = next(i for i, text in enumerate(bad.read_text().splitlines(), 1) if "powwer_w" in text)
    done = test.run("predict", *network, "--machine", bad)
    test.check(done.code == 2 and len(done.own_lines) == 1 and f"bad.json:{line}: machine: machine.device has no key 'powwer_w'" in done.err,
               "a bad file is refused with its line", done)

    done = test.run("predict", "--calibrate", known, "--choose-rows", 3, "--json")
    chosen = [json.loads(text) for text in done.out.splitlines()]
    test.check(done.code == 0 and len({c["id"] for c in chosen}) == 3 and chosen[0]["uncertainty"] > chosen[2]["uncertainty"],
               "the rows to measure next lower the uncertainty", done)
    few = [json.loads(test.run("predict", "--calibrate", known, "--calibrate-rows", n, "--score", known, "--json").out)
           for n in ("1", "all")]
    test.check(few[1]["mape"] < few[0]["mape"] < 15, "one row is worth something, all are better", few)


if __name__ == "__main__":
    support.main(__doc__, body)
