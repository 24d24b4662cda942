"""`--bucket auto`: the row says so and says which size was taken, and the search leaves nothing in the training: its losses
are those of a size that was given. The controls: another step size has other losses, and where nothing is exchanged nothing is
chosen."""
import support

MODEL = ["--model", "mlp:784-256-256-10", "--threads", "1", "--timeout", "60s"]
TRAIN = ["train", *MODEL, "--strategy", "sync", "--optimizer", "momentum:mu=0.9", "--batch", "32", "--steps", "6",
         "--train-samples", "1024", "--validation-samples", "128", "--log-every", "1"]
CANDIDATES = {0, 256 << 10, 1 << 20, 4 << 20, 25 << 20}


def losses(path):
    return [(p["metrics"]["step"], p["metrics"]["loss"]) for p in support.points(path)]


def train(test, name, *more):
    out = test.path(f"{name}.jsonl")
    done = test.run(*TRAIN, "--out", out, *more, ranks=2, timeout=120)
    test.check(done.code == 0, f"{name} ends well", done)
    test.valid(out)
    return out


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

    out = test.path("scale.jsonl")
    scale = ["scale", *MODEL, "--batch", "16", "--ranks", "2", "--strategy", "sync,sharded", "--algorithm", "ring",
             "--bucket", "auto,1M", "--min-samples", "3", "--precision-goal", "0.9", "--out", out]
    done = test.run(*scale, ranks=2, timeout=120)
    test.check(done.code == 0, "scale takes it as a factor", done)
    test.valid(out)
    found = {(p["factors"]["strategy"].split(":")[0], p["factors"]["bucket_bytes"]):
             p["metrics"].get("bucket_chosen_bytes") for p in support.points(out) if p["factors"]["bucket_bytes"]}
    test.equal({k for k, v in found.items() if v in CANDIDATES}, {("sync", "auto"), ("sharded", "auto")},
               f"both choose where they are asked to: {found}")
    done = test.run(*scale, "--resume", ranks=2, timeout=120)
    test.check(done.code == 0 and " 0 points measured" in done.out.replace("\n", " "), "--resume finds its rows", done)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
