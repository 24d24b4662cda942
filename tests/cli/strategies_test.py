# SPDX-License-Identifier: Apache-2.0
"""Every strategy and every kind of mesh trains the built-in digits on four ranks as threads, one of each way to talk also on
real ranks over TCP, and sends the bytes that were forecast (tests/mpi/strategy_check.cpp and cli.thread_ranks hold threads and
processes over shared memory to the same bits). What servers promise holds: ps-ssp never lets a worker further ahead than its
bound, ps-async has a mean staleness of workers - 1. The controls: without a bound a slow worker is left behind, and with
prefetch the mean is another."""
import support

RANKS, SAMPLES, BATCH = 4, 4000, 16
TCP = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
WIRES = {"shm": ([], []), "tcp": (TCP, ["--transport", "mpi"]), "threads": ([], ["--thread-ranks", RANKS])}
GRADIENTS, ES, POPULATION = 0.90, 0.80, 0.60  # accuracies that must be reached
# Small enough to be quick, large enough to be cut: into tensor ranks, stages and the shards of four servers.
MODEL, STAGED, FLAT, SMALL = "mlp:784-64-10", "mlp:784-64-32-10", "mlp:784-10", "mlp:784-32-10"
SEARCH = 0.25  # of searches on meshes: that they go on together, not how far they come

# name: (model, accuracy, flags). Steps are what the strategy's README row says; the target ends a run early.
RUNS = {
    "sync": (MODEL, GRADIENTS, []),
    "sharded": (MODEL, GRADIENTS, []),
    "ps-sync": (MODEL, GRADIENTS, []),
    "ps-async": (MODEL, GRADIENTS, []),
    "ps-ssp": (MODEL, GRADIENTS, []),
    "model-averaging": (MODEL, GRADIENTS, []),
    "bmuf": (MODEL, GRADIENTS, []),
    "diloco": (MODEL, GRADIENTS, []),
    "diloco, in 4 bits": (MODEL, GRADIENTS, ["--codec", "qsgd4"]),
    "adacomm": (MODEL, GRADIENTS, []),
    "slowmo": (MODEL, GRADIENTS, []),
    "easgd": (MODEL, GRADIENTS, []),
    "gossip": (MODEL, GRADIENTS, []),
    "d-psgd": (MODEL, GRADIENTS, []),
    "ad-psgd": (MODEL, GRADIENTS, []),
    "ps-sync, one server": (MODEL, GRADIENTS, ["--servers", 1]),
    "ps-async, one server": (MODEL, GRADIENTS, ["--servers", 1]),
    "sync, tensor=2": (MODEL, GRADIENTS, ["--mesh", "tensor=2"]),
    "sync, pipeline=2": (STAGED, GRADIENTS, ["--mesh", "pipeline=2"]),
    "sync, data=2,tensor=2": (STAGED, GRADIENTS, ["--mesh", "data=2,tensor=2"]),
    "sync, gpipe": (STAGED, GRADIENTS, ["--mesh", "pipeline=2,schedule=gpipe", "--accumulate", 2]),
    "sync, tensor=2,pipeline=2": (STAGED, GRADIENTS, ["--mesh", "tensor=2,pipeline=2"]),
    "ps-async, tensor=2": (MODEL, GRADIENTS, ["--mesh", "tensor=2"]),
    "model-averaging, pipeline=2": (STAGED, GRADIENTS, ["--mesh", "pipeline=2"]),
    "adacomm, data=2,tensor=2": (STAGED, GRADIENTS, ["--mesh", "data=2,tensor=2"]),
    "sync, lars, tensor=2": (MODEL, GRADIENTS, ["--mesh", "tensor=2", "--optimizer", "lars", "--lr", 1]),
    "sharded, lamb": (MODEL, GRADIENTS, ["--optimizer", "lamb", "--lr", 0.01]),
    "sharded, lars, tensor=2": (MODEL, GRADIENTS, ["--mesh", "tensor=2", "--optimizer", "lars", "--lr", 1]),
    "es, tensor=2": (SMALL, SEARCH, ["--batch", 32, "--steps", 1500, "--mesh", "tensor=2"]),
    "es, pipeline=2": (SMALL, SEARCH, ["--batch", 32, "--steps", 1500, "--mesh", "pipeline=2"]),
    "population, data=2,tensor=2": (SMALL, SEARCH, ["--batch", 32, "--steps", 1500, "--mesh", "data=2,tensor=2"]),
    "es": (FLAT, ES, ["--batch", 32, "--steps", 3000, "--train-samples", 2 * SAMPLES]),
    "population": (FLAT, POPULATION, ["--batch", 32, "--steps", 2000]),
}

# Over TCP one of each way to talk: a sum, a scatter and gather, servers with and without a rank of their own, pairs, and
# a model in parts. tests/mpi holds all of them to the bits of virtual time, over TCP too.
OVER_TCP = ("sync", "sharded", "ps-ssp", "ps-async, one server", "gossip", "easgd", "sync, tensor=2,pipeline=2")

# One worker that stops for a tenth of a second, again and again: `exec` keeps the number that is stopped.
HALTING = ["sh", "-c", """
if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then
  (exec >/dev/null 2>&1; while sleep 0.1 && kill -STOP $$; do sleep 0.1; kill -CONT $$ || exit; done) &
fi
exec "$0" "$@" """]


def train(test, name, strategy, wire, *more, model=MODEL, wrapper=(), code=0):
    """One run; its outcome and its points."""
    mca, flags = WIRES[wire]
    out = test.path(f"{name}, {wire}.jsonl")
    more = [*more, *(word for flag, value in (("--batch", BATCH), ("--train-samples", SAMPLES)) if flag not in more for word in (flag, value))]
    launcher = [] if wire == "threads" else [test.mpiexec, *mca, "-np", str(RANKS), *wrapper]
    command = [*launcher, test.gradmeter, "train", "--strategy", strategy,
               "--model", model, "--validation-samples", "1000", "--threads", "1", *flags, *more, "--out", out]
    with support.Job(test, list(map(str, command)), test.environment()) as job:
        done = job.wait(60)
    points = support.points(out)
    good = done.code == code and not done.own_lines and points
    test.check(good, f"{name} over {wire} ends with {code} after {done.seconds:.1f} s", done)
    return done, points


def sent_as_forecast(points):
    """All rows are ok, and the last one says what was sent: as much as was forecast."""
    last = points[-1]["metrics"]
    return all(p["status"] == "ok" for p in points) and last["bytes_sent_total"] == last["bytes_predicted"] > 0


def accuracy(points):
    return max((p["metrics"]["accuracy"] for p in points if "accuracy" in p["metrics"]), default=0)


def learns(test, wire):
    for name, (model, target, flags) in RUNS.items():
        if wire == "tcp" and name not in OVER_TCP:
            continue
        done, points = train(test, name, name.split(",")[0], wire, "--target", target, *flags, model=model)
        if not points:
            continue
        test.check(accuracy(points) >= target, f"  it reaches {target:.0%}: {accuracy(points):.2%}", done)
        test.check(sent_as_forecast(points), "  and sends what was forecast, each row ok",
                   f"{[p['reason'] for p in points if p['status'] != 'ok']} {support.brief(points[-1])}")


def bounds(test, wire):
    """Workers ahead of the slowest one, which halts: rank 3 alone serves, so nobody waits for it but by the bound."""
    run = ["--servers", 1, "--steps", 200 if wire == "tcp" else 400]  # over TCP a step takes many times as long
    for bound in (1,) if wire == "tcp" else (0, 1, 3):
        done, points = train(test, f"ps-ssp with a bound of {bound}", f"ps-ssp:staleness={bound}", wire, *run,
                             wrapper=HALTING)
        gap = points[-1]["metrics"].get("clock_gap", -1)
        test.check(0 <= gap <= bound + 1 and sent_as_forecast(points), f"  nobody is further ahead: {gap}", done)
    done, points = train(test, "ps-async with a halting worker", "ps-async", wire, *run, wrapper=HALTING)
    gap = points[-1]["metrics"]["clock_gap"]
    test.check(gap > 4 and sent_as_forecast(points), f"  control: without a bound it is left behind, by {gap}", done)


def staleness(test, wire):
    for servers, workers in ((1, 3),) if wire == "tcp" else ((0, 4), (1, 3)):
        mean = {}
        for prefetch in (0, 1):
            _, points = train(test, f"ps-async of {workers} workers, prefetch={prefetch}",
                              f"ps-async:prefetch={prefetch},servers={servers}", wire, "--steps", 300)
            mean[prefetch] = points[-1]["metrics"]["staleness"]
        exact = workers - 1
        test.check(abs(mean[0] - exact) < 1e-9, f"  the mean staleness is {exact}: {mean[0]:.4f}")
        test.check(abs(mean[1] - exact) > 0.01 * exact, f"  control: with prefetch it is another: {mean[1]:.4f}")


def body(test):
    for wire, parts in {"threads": (learns, staleness), "shm": (bounds,), "tcp": (learns, bounds, staleness)}.items():
        print(f"--- over {wire}", flush=True)
        for part in parts:
            part(test, wire)
    test.valid(*sorted(test.folder.glob("*.jsonl")), what="each line of each file is valid against the schema")


if __name__ == "__main__":
    support.main(__doc__, body)
