// SPDX-License-Identifier: Apache-2.0
// What the harness costs: the time of a training step outside kernels, on one rank.
//   build/release/tests/bench/bench_harness [BATCH ...]
// Prints medians over steps: of the whole step, of the time inside kernels, of their ratio and of their difference, the
// last two with their intervals.
#include <cstdlib>

#include "bench/train/training.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "model/data/dataset.hpp"
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
  std::vector<double> steps, kernels, shares, outside;
  constexpr std::size_t warmup = 10, repeats = 100;
  for (std::size_t i = 0; i < warmup + repeats; ++i) {
    training.step(i % training.steps_per_epoch());
    const auto records = training.take_records();
    if (i < warmup) continue;
    const auto parts = dataparallel::decompose(records.back(), {});
    steps.push_back(parts.step);
    kernels.push_back(parts.compute);
    shares.push_back(100 * parts.compute / parts.step);
    outside.push_back(1e6 * (parts.step - parts.compute));
  }
  const auto share = core::summarise(shares), rest = core::summarise(outside);
  fmt::print("{:>6} {:>10.4f} {:>10.4f} {:>8.2f} {:>8.2f}-{:.2f} {:>11.3f} {:>9.3f}-{:.3f}\n", batch,
             core::median(steps) * 1e3, core::median(kernels) * 1e3, share.median, share.ci95_low, share.ci95_high,
             rest.median, rest.ci95_low, rest.ci95_high);
}

}  // namespace

int main(int argc, char** argv) {
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  const runtime::MpiSession mpi(argc, argv);
  bench::Session session(runtime::MpiSession::world(), {signals, watchdog}, core::Seconds{60}, "bench_harness");
  fmt::print("mlp:784-1024-1024-10, 1 rank, 1 thread, medians of 100 steps\n");
  fmt::print("{:>6} {:>10} {:>10} {:>8} {:>14} {:>11} {:>15}\n", "batch", "step ms", "kernels ms", "share %",
             "95 % interval", "outside us", "95 % interval");
  if (argc == 1) {
    for (std::size_t batch : {16u, 64u, 256u}) measure(session, batch);
  }
  for (int i = 1; i < argc; ++i) measure(session, std::strtoul(argv[i], nullptr, 10));
  return 0;
}
