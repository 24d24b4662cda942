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
    test.check(done.code == 0 and "51 unpredicted" in done.out and "because: no calibration row of this network" in done.out,
               "rows that cannot be predicted are counted with their reason", done)
    test.check(done.out.splitlines()[-1].startswith("12 steps predicted with a mean error of "), "the last line is the answer", done)
    done = test.run("predict", "--score", known, "--fail-above", "0.1")
    test.check(done.code == 1, "an error above the bar ends with 1", done)
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

    done = test.run("predict", "--model", "gpt3-175b", "--gpu", "A100", "--gpus", "1024", "--batch-global", 1536, "--mesh",
                    "tensor=8,pipeline=8", "--seq", 2048, "--json")
    step = json.loads(done.out)
    # Narayanan et al., SC 2021, measured 140 TFLOP/s a GPU: 24 s a step by their count of operations.
    test.check(done.code == 0 and step["ci90_low"] < 24 < step["ci90_high"] and step["predicted"], "a published step lies in its interval", step)
    parts = sum(v for k, v in step.items() if k.endswith("_s") and k not in ("time_s", "tokens_per_s"))
    test.check(abs(parts / step["time_s"] - 1) < 1e-9, "the parts add up", step)
    done = test.run("predict", "--model", "llama3-70b", "--gpus", "64,4096", "--mesh", "tensor=8")
    test.check(done.code == 0 and "predicted from its data sheet alone" in done.out and "4096 GPUs take a step in " in done.out.splitlines()[-1],
               "a network by name: a table and a sentence", done)
    done = test.run("predict", "--model", "internlm-7b", "--gpu", "A100", "--gpus", "8", "--batch", 8, "--micro-batch", 2, "--seq", 2048,
                    "--calibrate", known, "--json")
    fitted = json.loads(done.out)
    test.check(done.code == 0 and abs(fitted["time_s"] / (64 * 2048 / (4062 * 8)) - 1) < 0.05 and
               fitted["ci90_high"] / fitted["ci90_low"] < 1.25, "a fit to the same system narrows the interval", fitted)

    for text, said in ((HEAD + "a,b\n", ":2: 2 cells where 19 columns are named"), ("", ":1: an empty table"),
                       ("system,gpu\n", ":1: column gpus is missing")):
        planned.write_text(text)
        done = test.run("predict", "--score", planned)
        test.check(done.code == 2 and len(done.own_lines) == 1 and f"{planned.name}{said}" in done.err and not done.out,
                   f"a table that is none: {said}", done)
    for arguments in (("--model", "gpt"), ("--model", "llama3-8b", "--gpu", "abacus"), ("--model", "llama3-8b", "--mesh", "tensor=3"),
                      ("--model", "llama3-8b", "--mesh", "colour=3"), ("--model", "llama3-8b", "--system", "x"),
                      ("--model", "llama3-8b", "--calibrate", data / "llm_foundry.csv"), (), ("--leave-out", "model"), ("--calibrate", known, "--leave-out", "colour"), ("--score", test.path("none.csv"))):
        done = test.run("predict", *arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1, f"predict {' '.join(map(str, arguments))}: one line", done)


if __name__ == "__main__":
    support.main(__doc__, body)
