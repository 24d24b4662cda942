// SPDX-License-Identifier: Apache-2.0
// Any strategy over any model for a few steps in virtual time, with what its tests ask for afterwards.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dataparallel/fabric/simulation/world.hpp"
#include "support/departures.hpp"
#include "support/training.hpp"

namespace gradmeter::test {

struct StrategyRun {
  std::string strategy = "sync", optimizer = "momentum:mu=0.9", codec = "none";  ///< codec: of messages
  std::string loss_scale = "none";
  int steps = 6;
  float step_size = 0.02f;
  std::function<float(int step)> step_sizes = {};  ///< null: always step_size
  std::size_t batch_per_rank = 4;
  std::size_t bucket_bytes = std::size_t{16} << 10;
  bool judge_often = false;  ///< evaluates after each step, not only at the end
  dataparallel::SimMachine machine = {};
  std::function<std::unique_ptr<model::Model>()> model = [] {
    return std::make_unique<model::Mlp>(std::vector<std::size_t>{784, 16, 10});
  };
  /// What a rank has in the model's place. Null: the model.
  std::function<std::unique_ptr<model::Model>(std::unique_ptr<model::Model>, int rank)> around = {};
  /// Stands between the strategy and the fabric. Null: nothing does.
  std::function<std::unique_ptr<dataparallel::Fabric>(dataparallel::Fabric&)> between = {};
  /// After the last evaluation, before the strategy ends. Null: nothing.
  std::function<void(dataparallel::Fabric&, const dataparallel::Worker&, const dataparallel::Strategy&)> before_end =
      {};
};

/// What one worker ended with.
struct StrategyEnd {
  std::vector<float> weights, evaluation_weights;
  std::vector<std::uint64_t> hashes;  ///< of the weights after each step
  std::vector<model::Outcome> outcomes;
  dataparallel::Totals totals;
  dataparallel::Observations observed = {};
  dataparallel::LossScaler::State loss_scale = {};
  std::size_t sends = 0;  ///< calls whose label begins with "send"
};

inline StrategyEnd run_worker(dataparallel::Fabric& fabric, const StrategyRun& run) {
  kernels::set_compute_threads(1);
  static const auto data = training_digits();
  dataparallel::Assembly assembly(
      fabric, {.model = [&](auto&, auto&) { return run.around ? run.around(run.model(), fabric.rank()) : run.model(); },
               .seed = 100 + static_cast<std::uint64_t>(fabric.rank()),  // the strategy must make them equal
               .optimizer = run.optimizer,
               .strategy = dataparallel::find_strategy(run.strategy),
               .strategy_options = {.bucket_bytes = run.bucket_bytes,
                                    .optimizer = run.optimizer,
                                    .codec = compression::find_codec(run.codec),
                                    .seed = 7,
                                    .loss_scale = dataparallel::parse_loss_scaling(run.loss_scale)}});
  dataparallel::Probe& probe = assembly.probe();
  dataparallel::Worker& worker = assembly.worker();
  dataparallel::Strategy& strategy = assembly.strategy();
  const runtime::Buffer weights = assembly.buffers().parameters;
  Samples samples(fabric, *data, run.batch_per_rank * static_cast<std::size_t>(fabric.size()), fabric.rank(),
                  fabric.size());
  StrategyEnd end;
  const auto evaluation_weights = fabric.memory(weights.count());
  strategy.begin(worker);
  for (int i = 0; i < run.steps; ++i) {
    const auto batch = samples.batch(i);
    const float size = run.step_sizes ? run.step_sizes(i) : run.step_size;
    probe.begin_step();
    const auto outcome = strategy.step(worker, batch, {.step_size = size, .number = static_cast<std::uint64_t>(i) + 1});
    if (i + 1 == run.steps) strategy.settle(worker);
    for (const auto& c : probe.end_step().calls) end.sends += c.label.starts_with("send") ? 1 : 0;
    end.outcomes.push_back(outcome.get());
    end.hashes.push_back(hash_of(fabric, weights));
    if (run.judge_often || i + 1 == run.steps) {
      strategy.settle(worker);
      strategy.evaluation_weights(worker, evaluation_weights);
    }
  }
  if (run.before_end) run.before_end(fabric, worker, strategy);
  strategy.end(worker);
  await_departures(probe);
  end.totals = probe.totals();
  end.observed = strategy.observed();
  if (assembly.scaler()) end.loss_scale = assembly.scaler()->state(assembly.worker().queue());
  end.weights = values_of(fabric, weights);
  end.evaluation_weights = values_of(fabric, evaluation_weights);
  return end;
}

/// Every worker's end.
inline std::vector<StrategyEnd> run_workers(int workers, const StrategyRun& run) {
  std::vector<StrategyEnd> ends(static_cast<std::size_t>(workers));
  dataparallel::SimWorld(workers, run.machine).run([&](dataparallel::Fabric& f) {
    const auto between = run.between ? run.between(f) : nullptr;
    ends[static_cast<std::size_t>(f.rank())] = run_worker(between ? *between : f, run);
  });
  return ends;
}

inline double farthest(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(double(a[i]) - double(b[i])));
  return most;
}

/// A strategy's text as GoogleTest takes names.
template <class Text>
std::string name_of_run(const ::testing::TestParamInfo<Text>& info) {
  std::string n = info.param;
  std::replace_if(
      n.begin(), n.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return n;
}

}  // namespace gradmeter::test
