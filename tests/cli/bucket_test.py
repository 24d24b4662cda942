# SPDX-License-Identifier: Apache-2.0
"""`--bucket auto`: the row says so and says which cut was taken, and the search leaves nothing in the training: its losses
are those of a size that was given. The controls: another step size has other losses, and where nothing is exchanged nothing is
chosen."""
import support

MODEL = ["--model", "mlp:784-256-256-10", "--threads", "1", "--timeout", "60s"]
TRAIN = ["train", *MODEL, "--strategy", "sync", "--optimizer", "momentum:mu=0.9", "--batch", "32", "--steps", "6",
         "--train-samples", "1024", "--validation-samples", "128", "--log-every", "1"]
ELEMENTS = 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
TENSORS = 6
CANDIDATES = {0, 256 << 10, 1 << 20, 4 << 20, 25 << 20}


def losses(path):
    return [(p["metrics"]["step"], p["metrics"]["loss"]) for p in support.points(path)]


def train(test, name, *more):
    out = test.path(f"{name}.jsonl")
    done = test.run(*TRAIN, "--out", out, *more, ranks=2, timeout=120)
    test.check(done.code == 0, f"{name} ends well", done)
    test.valid(out)
    return out


def is_cut(m):
    """The row has a size, or ends that ascend to the last tensor; not both."""
    size, ends = m.get("bucket_chosen_bytes"), m.get("bucket_chosen_ends")
    if ends is None:
        return size in CANDIDATES
    ends = [int(end) for end in ends.split(",")]
    return size is None and ends == sorted(set(ends)) and ends[0] > 0 and ends[-1] == TENSORS


def timelines(test, out):
    """Of one step of each row: layers and buckets where the model and the strategy say they are."""
    rows = {p["factors"]["strategy"].split(":")[0]: p for p in support.points(out) if p["factors"]["bucket_bytes"] in (None, 1 << 20)}
    m = rows["sync"]["metrics"]
    passes = [s["name"] for s in m["timeline_compute"] if s["name"].split()[0] in ("forward", "backward")]
    layers = [f"{way} {i}" for way, order in (("forward", (0, 1, 2)), ("backward", (2, 1, 0))) for i in order]
    test.equal([" ".join(name.split()[:2]) for name in passes], layers, "each layer is computed forward and backward, once each")
    held = sum(s["bytes"] for s in m["timeline_exchange"])
    test.check(4 * ELEMENTS <= held < 4 * ELEMENTS + 6 * 64, f"the buckets hold all gradients, each tensor at a cache line: {held} B")
    test.equal([s["name"].split()[0] for s in m["timeline_exchange"]], [str(i) for i in range(len(m["timeline_exchange"]))], "they are numbered")
    test.check(0 < m["timeline_step_s"] <= m["time_s"]["max"], "the step is one of those measured", m["timeline_step_s"])
    spans = m["timeline_compute"] + m["timeline_exchange"] + m["timeline_exposed"]
    test.check(all(0 <= s["begin_s"] <= s["end_s"] <= m["timeline_step_s"] for s in spans), "all lie in it", spans)
    first_backward = next(s for s in m["timeline_compute"] if s["name"].startswith("backward"))
    test.check(all(first_backward["begin_s"] < s["ready_s"] <= s["begin_s"] for s in m["timeline_exchange"]),
               "a bucket is ready after a gradient, and then exchanged", m["timeline_exchange"])
    alone = rows["independent"]["metrics"]
    test.check("timeline_exchange" not in alone and alone["timeline_compute"], "without exchange there are layers alone", alone.keys())


def body(test):
    given, chosen, other = train(test, "given", "--bucket", "1M"), train(test, "chosen", "--bucket", "auto"), train(
        test, "other", "--bucket", "auto", "--lr", "0.001")
    test.check(len(losses(given)) > 6, "every step has its loss")
    test.equal(losses(chosen), losses(given), "the same losses to the bit, whichever size is found")
    test.check(losses(other) != losses(given), "control: another step size has other losses")
    last = support.points(chosen)[-1]
    test.equal(last["factors"]["bucket_bytes"], "auto", "the factor is what was asked for")
    test.check(last["metrics"].get("bucket_chosen_bytes") in CANDIDATES, "the metric is what was found")
    test.check("bucket_chosen_bytes" not in support.points(given)[-1]["metrics"], "nothing was found where it was given")

    beside = train(test, "beside", "--bucket", "auto", "--overlap", "bucketed")
    test.equal(losses(beside), losses(given), "the same losses beside backward, wherever buckets end")
    test.check(is_cut(support.points(beside)[-1]["metrics"]), "the row says where", support.points(beside)[-1]["metrics"])
    test.check("bucket_chosen_ends" not in last["metrics"], "control: without overlap only sizes are tried")

    out = test.path("scale.jsonl")
    scale = ["scale", *MODEL, "--batch", "16", "--ranks", "2", "--strategy", "sync,sharded", "--algorithm", "ring",
             "--bucket", "auto,1M", "--min-samples", "3", "--precision-goal", "0.9", "--time-budget", "6s", "--out", out]
    done = test.run(*scale, ranks=2, timeout=120)
    test.check(done.code == 0, "scale takes it as a factor", done)
    test.valid(out)
    found = {(p["factors"]["strategy"].split(":")[0], p["factors"]["bucket_bytes"]):
             p["metrics"].get("bucket_chosen_bytes") for p in support.points(out) if p["factors"]["bucket_bytes"]}
    test.equal({k for k, v in found.items() if v in CANDIDATES}, {("sync", "auto"), ("sharded", "auto")},
               f"both choose where they are asked to: {found}")
    timelines(test, out)
    done = test.run(*scale, "--resume", ranks=2, timeout=120)
    test.check(done.code == 0 and " 0 points measured" in done.out.replace("\n", " "), "--resume finds its rows", done)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
