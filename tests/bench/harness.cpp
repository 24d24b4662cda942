// What the harness costs: the share of a training step that is spent inside kernels, on one rank.
//   build/release/tests/bench/bench_harness [BATCH ...]
// Prints the median over steps of the time inside kernels and of the whole step, and their ratio with its interval.
#include <cstdlib>

#include "bench/train/training.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "model/data.hpp"
#include "runtime/communicator.hpp"
#include "runtime/mpi/session.hpp"

namespace {

using namespace gradmeter;

void measure(bench::Session& session, std::size_t batch) {
  const auto data = model::make_data({.train_samples = 4096, .validation_samples = 1});
  bench::TrainingConfig config;
  config.batch_per_rank = batch;
  config.strategy = dataparallel::find_strategy("sync");
  bench::Training training(session, session.world(), data, config);
  std::vector<double> steps, kernels, shares;
  constexpr std::size_t warmup = 10, repeats = 100;
  for (std::size_t i = 0; i < warmup + repeats; ++i) {
    training.step(i % training.steps_per_epoch());
    if (i < warmup) continue;
    const auto parts = decompose(training.record(), {});
    steps.push_back(parts.step);
    kernels.push_back(parts.compute);
    shares.push_back(parts.compute / parts.step);
  }
  const auto share = core::summarise(shares);
  fmt::print("{:>6} {:>12.4f} {:>12.4f} {:>10.2f} {:>8.2f}-{:.2f}\n", batch, core::median(steps) * 1e3,
             core::median(kernels) * 1e3, 100 * share.median, 100 * share.ci95_low, 100 * share.ci95_high);
}

}  // namespace

int main(int argc, char** argv) {
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  const runtime::MpiSession mpi(argc, argv);
  bench::Session session(runtime::MpiSession::world(), {signals, watchdog}, core::Seconds{60}, "bench_harness");
  fmt::print("mlp:784-1024-1024-10, 1 rank, 1 thread, medians of 100 steps\n");
  fmt::print("{:>6} {:>12} {:>12} {:>10} {:>14}\n", "batch", "step ms", "kernels ms", "share %", "95 % interval");
  if (argc == 1) {
    for (std::size_t batch : {16u, 64u, 256u}) measure(session, batch);
  }
  for (int i = 1; i < argc; ++i) measure(session, std::strtoul(argv[i], nullptr, 10));
  return 0;
}
