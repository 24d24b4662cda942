# SPDX-License-Identifier: Apache-2.0
"""`gradmeter train --trace FILE` writes one file of JSON that trace viewers open: every rank's steps, computations and
calls on one clock, lanes that never overlap. `--noise-scale` and `--lr-rule` do what they say. The control: steps of
ranks that do not wait for each other need not meet, and a clock that is off by a second is seen."""
import collections
import json

import support

FIRST, COUNT = 3, 6
COMMON = ("train", "--model", "mlp:784-64-10", "--batch", "16", "--threads", "1", "--train-samples", "1000",
          "--validation-samples", "200", "--epochs", "1")


def events(path, category=None):
    found = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    return [e for e in found if category is None or e["cat"] == category]


def overlapping(path):
    """Pairs of neighbours on one lane that overlap, the steps apart: they hold the computations of their lane."""
    lanes = collections.defaultdict(list)
    for e in events(path):
        if e["cat"] != "step":
            lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    return sum(a[1] > b[0] + 0.01 for lane in lanes.values() for a, b in zip(sorted(lane), sorted(lane)[1:]))


def meet(steps, shift=0.0):
    """How many steps of rank 0 overlap the same step of rank 1, whose clock is put off by `shift` microseconds."""
    spans = {(e["pid"], e["args"]["step"]): (e["ts"] + shift * e["pid"], e["ts"] + shift * e["pid"] + e["dur"])
             for e in steps}
    return sum(spans[0, s][0] < spans[1, s][1] and spans[1, s][0] < spans[0, s][1]
               for pid, s in spans if pid == 0 and (1, s) in spans)


def trace(test):
    path = test.path("trace.json")
    done = test.run(*COMMON, "--trace", path, "--trace-steps", f"{FIRST}:{COUNT}", ranks=2)
    test.check(done.code == 0 and not done.own_lines, "two ranks train and write a trace", done)
    steps = events(path, "step")
    wanted = sorted((rank, step) for rank in (0, 1) for step in range(FIRST, FIRST + COUNT))
    test.equal(sorted((e["pid"], e["args"]["step"]) for e in steps), wanted, "it has the steps asked for, of all ranks")
    for category in ("compute", "communication"):
        found = {(e["pid"], e["args"]["step"]) for e in events(path, category)}
        test.equal(sorted(found), wanted, f"each step of each rank has {category}")
    test.check(all(e["args"]["bytes"] > 0 for e in events(path, "communication")), "calls say their bytes")
    test.check(min(e["ts"] for e in events(path)) == 0 and all(e["dur"] >= 0 for e in events(path)),
               "times begin at 0 and no event ends before it begins")
    test.equal(overlapping(path), 0, "no lane has two things at a time")
    names = {e["args"]["name"] for e in json.loads(path.read_text())["traceEvents"] if e["name"] == "process_name"}
    test.check(len(names) == 2 and all(n.startswith(f"rank {r} on ") for r, n in enumerate(sorted(names))),
               "ranks are named with their hosts", names)
    test.equal(meet(steps), COUNT, "synchronous steps of both ranks meet in time")
    test.equal(meet(steps, 1e6), 0, "control: with a clock off by a second they would not")
    before = path.read_bytes()
    done = test.run(*COMMON, "--trace", path, ranks=2)
    test.check(done.code == 2 and path.read_bytes() == before, "an earlier trace is not overwritten", done)
    done = test.run(*COMMON, "--trace", path, "--force", "--out", test.path("again.jsonl"), ranks=1)
    test.check(done.code == 0 and {e["pid"] for e in events(path)} == {0}, "but with --force it is", done)
    test.equal(sorted(e["args"]["step"] for e in events(path, "step")), list(range(5, 25)), "by default steps 5 to 24")


def refusals(test):
    for arguments, word in ((("--trace-steps", "1:2"), "--trace FILE"),
                            (("--trace", test.path("x.json"), "--trace-steps", "5"), "FIRST:COUNT"),
                            (("--trace", test.path("x.json"), "--trace-steps", "900:1"), "900"),
                            (("--trace", test.path("no") / "x.json"), "no directory"),
                            (("--noise-scale", "5"), "two ranks"),
                            (("--lr-rule", "linear+sqrt"), "exclude"),
                            (("--lr-rule", "step"), "cosine")):
        done = test.run(*COMMON, *arguments)
        test.check(done.code == 2 and len(done.own_lines) == 1 and word in done.own_lines[0],
                   f"{' '.join(map(str, arguments))} is refused in one line", done)
    done = test.run(*COMMON, "--noise-scale", "5", "--strategy", "independent", ranks=2)
    test.check(done.code == 2 and "same weights" in done.err, "so is the noise scale where weights differ", done)
    test.check(not test.path("x.json").exists(), "and no trace is left behind")


def noise_scale(test):
    out, plain = test.path("noise.jsonl"), test.path("plain.jsonl")
    done = test.run(*COMMON, "--noise-scale", "2", "--out", out, ranks=2)
    test.check(done.code == 0 and "gradient noise scale" in done.out, "the noise scale is told", done)
    test.valid(out)
    m = support.points(out)[-1]["metrics"]
    test.check(m["noise_scale_samples"] > 0
               and abs(m["gradient_variance"] / m["gradient_norm"] ** 2 / m["noise_scale_samples"] - 1) < 1e-6,
               f"it is the variance over the gradient's square: {m.get('noise_scale_samples')} samples", m)
    test.run(*COMMON, "--out", plain, ranks=2)
    other = support.points(plain)[-1]["metrics"]
    test.check(other["loss"] == m["loss"] and "noise_scale_samples" not in other,
               "looking changes no bit of the training", f"{other['loss']} and {m['loss']}")


def step_sizes(test):
    losses = {}
    for rule, size in (("constant", "0.04"), ("linear:batch=8", "0.01"), ("sqrt:batch=2", "0.01"), ("constant", "0.01")):
        out = test.path(f"{rule}-{size}.jsonl".replace(":", "-"))
        test.run(*COMMON, "--warmup", "0", "--lr-rule", rule, "--lr", size, "--out", out, ranks=2)
        losses[rule, size] = support.points(out)[-1]["metrics"]["loss"]
    four_times = losses["constant", "0.04"]
    test.check(losses["linear:batch=8", "0.01"] == losses["sqrt:batch=2", "0.01"] == four_times,
               "at a global batch of 32 linear:batch=8 and sqrt:batch=2 make the step four times as large", losses)
    test.check(losses["constant", "0.01"] != four_times, "control: which changes the loss", losses)


def body(test):
    for part in (trace, refusals, noise_scale, step_sizes):
        part(test)


if __name__ == "__main__":
    support.main(__doc__, body, threads=True)
