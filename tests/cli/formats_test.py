# SPDX-License-Identifier: Apache-2.0
"""Number formats of training on real ranks: loss scaling, gradients exchanged in their own format, and logarithms
everywhere."""
import support

TRAIN = ["train", "--model", "mlp:784-32-10", "--batch", "16", "--threads", "1", "--overlap", "none",
         "--train-samples", "640", "--validation-samples", "250", "--warmup", "0", "--log-every", "1"]


def train(test, name, ranks, *more):
    """All rows, the last one has the run's ends. The program itself compares bytes with the forecast and weights."""
    out = test.path(f"{name}.jsonl")
    algorithm = ("--algorithm", "direct") if ranks > 1 else ()
    done = test.run(*TRAIN, *algorithm, *more, "--out", out, ranks=ranks, timeout=120)
    if not test.check(done.code == 0 and not done.own_lines, f"{name} ends with 0", done):
        return None, done
    test.valid(out)
    return support.points(out), done


def losses(rows):
    return [p["metrics"]["loss"] for p in rows or [] if "accuracy" not in p["metrics"]]


def loss_scaling(test):
    for strategy in ("sync", "sharded"):
        plain, _ = train(test, f"{strategy} without scale", 2, "--epochs", 1, "--strategy", strategy)
        for scale in ("1024", "dynamic:start=1024,grow=5"):
            rows, done = train(test, f"{strategy} {scale}", 2, "--epochs", 1, "--strategy", strategy, "--loss-scale",
                               scale)
            if not rows:
                continue
            test.equal(losses(rows), losses(plain), "a power of two changes no bit of the losses")
            last = rows[-1]
            test.equal(last["factors"]["loss_scale"].partition(":")[0], scale.partition(":")[0], "the row names it")
            # 20 steps: it doubles four times.
            wanted = 1024 if scale == "1024" else 1024 * 2**4
            test.equal((last["metrics"]["loss_scale_last"], last["metrics"]["steps_skipped"]), (wanted, 0),
                       "and has the last scale and the skipped steps")
            test.check("0 steps skipped" in done.out, "as the end of the run says", done)
    # In half precision gradients overflow above 65504: the first steps are skipped until the scale fits.
    for strategy in ("sync", "sharded"):
        rows, _ = train(test, f"{strategy} that overflows", 2, "--epochs", 2, "--strategy", strategy, "--precision", "fp16",
                        "--loss-scale", "dynamic:start=1073741824")
        if not rows:
            continue
        m, found = rows[-1]["metrics"], losses(rows)
        test.check(m["steps_skipped"] >= 5 and m["loss_scale_last"] == 2.0**30 / 2 ** m["steps_skipped"],
                   f"{strategy}: the scale is halved by each skipped step", m)
        test.check(found[-1] < 0.7 * found[0], f"{strategy}: and it trains after them", found)
    rows, done = train(test, "a scale beside a fixed one", 1, "--epochs", 1)
    test.check(rows and rows[-1]["metrics"].get("loss_scale_last") is None and "skipped" not in done.out,
               "control: without the flag nothing is said of it", done)


def own_gradients(test):
    padded = lambda b: (b + 15) // 16 * 16
    tensors = (784 * 32, 32, 32 * 10, 10)
    # Two ranks send each other half of each tensor, and then the finished halves.
    wanted = 4 * sum(padded(2 * (t // 2)) for t in tensors)
    # The codec that they travel by.
    coded, _ = train(test, "bf16 on the way", 2, "--epochs", 1, "--codec", "bf16:ef=off,min=0")
    fp32, _ = train(test, "gradients in fp32", 2, "--epochs", 1)
    if not coded or not fp32:
        return
    sent = coded[-1]["metrics"]["bytes_sent_total"]
    test.equal(sent, wanted, "two bytes an element, padded to 16 bytes a block")
    test.check(0.49 < sent / fp32[-1]["metrics"]["bytes_sent_total"] < 0.51, "half of those in fp32")
    test.check(coded[-1]["factors"]["gradients"] is None, "a codec is no format of gradients")
    own, _ = train(test, "own gradients", 2, "--epochs", 1, "--precision", "bf16", "--gradients", "own")
    products, done = train(test, "products in bf16", 2, "--epochs", 1, "--precision", "bf16")
    if not own or not products:
        return
    test.check(all(map(support.says_how_bf16_is_multiplied, products + fp32)) and products[0]["reason"] in done.out,
               "rows in bf16 say how it is multiplied, as the run's head does", products[0])
    test.equal(own[-1]["metrics"]["bytes_sent_total"], wanted, "own gradients send as many")
    test.equal((own[-1]["factors"]["gradients"], own[-1]["factors"]["codec"]), ("bf16", "bf16:ef=off,min=0"), "rows say so")
    a, b = losses(own), losses(products)
    test.check(a != b and max(abs(x - y) for x, y in zip(a, b)) < 0.02, "and train as well, not the same", (a, b))


def weights_in_bf16(test):
    for update in ("bf16", "bf16-kahan", "bf16-sr"):
        rows, _ = train(test, f"products and weights in {update}", 2, "--epochs", 4, "--precision", "bf16", "--update", update)
        found = losses(rows)
        test.check(rows and found[-1] < 0.5 * found[0], f"{update}: it trains", found)


def logarithms(test):
    ends = {}
    for update in ("fp32", "lns16-f7", "lns16-f7-kahan"):
        rows, _ = train(test, f"logarithms, weights {update}", 1, "--epochs", 4, "--precision", "lns16-f7", "--update",
                        update, "--optimizer", "sgd", "--lr", "0.1")
        ends[update] = losses(rows)
    test.check(all(f and f[-1] < 0.5 * f[0] for f in ends.values()), "logarithms train", ends)
    # The first loss is of equal weights: a mean of whole codes where the loss is in logarithms.
    codes = lambda loss: loss * 16 * 128 / 0.6931471805599453
    of_code = lambda loss: abs(codes(loss) - round(codes(loss))) < 1e-3
    test.check(all(map(of_code, ends["lns16-f7"])), "with products and weights in them, losses are too", ends["lns16-f7"][:3])
    test.check(not all(map(of_code, ends["fp32"])), "control: with weights in fp32 they are not", ends["fp32"][:3])


def body(test):
    for part in (loss_scaling, own_gradients, weights_in_bf16, logarithms):
        part(test)


if __name__ == "__main__":
    support.main(__doc__, body)
