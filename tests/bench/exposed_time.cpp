// SPDX-License-Identifier: Apache-2.0
// Does a step's exchange cost as much exposed time as the exchange alone? Compares the exposed time of `sync` (step
// less the step of `independent`, as gradmeter scale takes it, no overlap) with the same calls alone. All ranks begin
// those together, on gradients that a backward pass has just written, so that operands are as cold as training's.
//   mpirun -np 2 build/release/tests/bench/bench_exposed [BATCH ...]
// The three take turns; prints medians of rounds and the ratio's 95 % interval. At most 1.2 is wanted.
#include <cstdlib>

#include "bench/train/training.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "model/data/dataset.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"
#include "runtime/mpi/session.hpp"

namespace {

using namespace gradmeter;

constexpr std::size_t warmup = 4, rounds = 60;  // calls discarded in each turn, turns
constexpr double turn_s = 0.05;

bench::TrainingConfig configuration(std::string_view strategy, std::size_t batch) {
  bench::TrainingConfig c;
  c.batch_per_rank = batch;
  c.overlap = bench::Overlap::none;
  c.strategy = dataparallel::find_strategy(strategy);
  if (strategy == "sync") c.algorithm = allreduce::find_algorithm("auto");
  return c;
}

/// Seconds of a call, of the slowest rank each time: median of one turn. `prepare` runs before all ranks synchronise.
template <class Prepare, class Timed>
double turn(const runtime::Communicator& world, Prepare prepare, Timed timed) {
  std::vector<double> seconds;
  const double end = runtime::host_clock() + turn_s;
  for (std::size_t i = 0; i < 2 * warmup || world.any(runtime::host_clock() < end); ++i) {
    prepare(i);
    world.barrier();
    const double begin = runtime::host_clock();
    timed(i);
    const double took = world.max(runtime::host_clock() - begin);
    if (i >= warmup) seconds.push_back(took);
  }
  return core::median(seconds);
}

double steps(bench::Training& t, const runtime::Communicator& world) {
  const auto place = [&](std::size_t i) { return i % t.steps_per_epoch(); };
  return turn(
      world, [&](std::size_t i) { t.prepare(place(i)); }, [&](std::size_t i) { t.step(place(i)); });
}

void measure(bench::Session& session, std::size_t batch) {
  const auto& world = session.world();
  const auto data = model::make_data({.train_samples = 16 * 1024, .validation_samples = 1});
  bench::Training alone(session, world, data, configuration("independent", batch));
  bench::Training together(session, world, data, configuration("sync", batch));
  std::vector<double> exposed, calls, ratios;
  for (std::size_t i = 0; i < rounds; ++i) {
    const double baseline = steps(alone, world);
    const double step = steps(together, world);
    calls.push_back(turn(
        world, [&](std::size_t k) { together.local_gradient(k % together.steps_per_epoch()); },
        [&](std::size_t) { together.exchange_gradients(); }));
    exposed.push_back(step - baseline);
    ratios.push_back(exposed.back() / calls.back());
  }
  together.finish();
  alone.finish();
  if (world.rank() != 0) return;
  const auto r = core::summarise(ratios);
  fmt::print("{:>6} {:>12.3f} {:>12.3f} {:>8.2f} {:>8.2f}-{:.2f}\n", batch, core::median(exposed) * 1e3,
             core::median(calls) * 1e3, r.median, r.ci95_low, r.ci95_high);
}

}  // namespace

int main(int argc, char** argv) {
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  const runtime::MpiSession mpi(argc, argv);
  bench::Session session(runtime::MpiSession::world(), {signals, watchdog}, core::Seconds{60}, "bench_exposed");
  if (session.world().rank() == 0) {
    fmt::print("mlp:784-1024-1024-10, {} ranks, 1 thread each, sync with auto against independent, {} turns\n",
               session.world().size(), rounds);
    fmt::print("{:>6} {:>12} {:>12} {:>8} {:>14}\n", "batch", "exposed ms", "call ms", "ratio", "95 % interval");
  }
  if (argc == 1) {
    for (std::size_t batch : {16u, 64u, 256u}) measure(session, batch);
  }
  for (int i = 1; i < argc; ++i) measure(session, std::strtoul(argv[i], nullptr, 10));
  return 0;
}
