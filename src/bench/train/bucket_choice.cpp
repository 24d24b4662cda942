// SPDX-License-Identifier: Apache-2.0
#include "bench/train/training.hpp"

#include <algorithm>

#include "core/statistics.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::bench {
namespace {

// Each candidate has two turns, so that a temporary state of the machine does not change only one.
constexpr int visits = 2;
constexpr std::size_t steps_of_visit = 3;

std::vector<std::size_t> ends_of(std::span<const model::Tensor> tensors, std::size_t elements, std::size_t bytes) {
  std::vector<std::size_t> out;
  for (const auto& b : dataparallel::make_buckets(tensors, elements, bytes)) out.push_back(b.offset + b.count);
  return out;
}

/// Collective. Adds the time of some steps, each that of the slowest rank.
void time_steps(Session& s, const runtime::Communicator& c, const model::DataSplit& data, const TrainingConfig& config,
                std::vector<double>& times) {
  Training training(s, c, data, config);
  training.step(0);  // what is done once
  training.take_records();
  for (std::size_t step = 1; step <= steps_of_visit; ++step) {
    training.prepare(step % training.steps_per_epoch());
    c.barrier();
    training.step(step % training.steps_per_epoch());
    times.push_back(c.max(training.take_records().front().step.length()));
  }
  training.finish();
  s.stop_if_interrupted(c);
}

}  // namespace

std::vector<std::size_t> bucket_candidates(std::span<const model::Tensor> tensors, std::size_t elements) {
  std::vector<std::size_t> out;
  std::vector<std::vector<std::size_t>> seen;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{25} << 20}) {
    auto ends = ends_of(tensors, elements, bytes);
    if (std::find(seen.begin(), seen.end(), ends) != seen.end()) continue;
    seen.push_back(std::move(ends));
    out.push_back(bytes);
  }
  return out;
}

std::size_t fastest_candidate(const std::vector<std::vector<double>>& times) {
  const auto median = [](const std::vector<double>& t) { return core::summarise(t).median; };
  const auto best =
      std::min_element(times.begin(), times.end(), [&](const auto& a, const auto& b) { return median(a) < median(b); });
  return static_cast<std::size_t>(best - times.begin());
}

TrainingConfig with_chosen_bucket(Session& s, const runtime::Communicator& c, const model::DataSplit& data,
                                  TrainingConfig config) {
  if (config.bucket_bytes != automatic_bucket) return config;
  config.bucket_bytes = TrainingConfig{}.bucket_bytes;
  const DataFacts facts = facts_of(data);
  const NodeMap map{.node_of = runtime::Network::nodes_of(c, {}), .fake = false, .ranks_as = c.ranks_as()};
  if (!refusal(config, facts, map).empty()) return config;  // the training reports it
  // By the first rank's part, whichever part is mine: all ranks must try the same sizes.
  const Layout layout = layout_of(config, c.size(), 0);
  if (!factors_of(config, layout).bucket) return config;
  const auto model = sized_model(config, layout, facts);
  const auto candidates = bucket_candidates(model->tensors(), model->element_count());
  if (candidates.size() < 2) return config;
  std::vector<std::vector<double>> times(candidates.size());
  for (int visit = 0; visit < visits; ++visit) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      config.bucket_bytes = candidates[i];
      time_steps(s, c, data, config, times[i]);
    }
  }
  config.bucket_bytes = candidates[c.broadcast_value(fastest_candidate(times))];
  return config;
}

}  // namespace gradmeter::bench
