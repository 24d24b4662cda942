// SPDX-License-Identifier: Apache-2.0
#include "bench/train/training.hpp"

#include <algorithm>
#include <utility>

#include "core/statistics.hpp"
#include "dataparallel/buckets.hpp"

namespace gradmeter::bench {
namespace {

// Each candidate has two turns, so that a temporary state of the machine does not change only one.
constexpr int visits = 2;
constexpr std::size_t steps_of_visit = 3;

std::vector<std::size_t> ends_of(std::span<const dataparallel::Bucket> buckets) {
  std::vector<std::size_t> out;
  for (const auto& b : buckets) out.push_back(b.first_tensor + b.tensor_count);
  return out;
}

/// The findings of trial steps, the same on all ranks.
struct Trials {
  std::vector<std::vector<double>> ready;  ///< for each step: when each gradient was ready on all ranks
  /// The bytes of each call, and its median time on the rank that began it last, which has waited for no other.
  std::vector<double> bytes, seconds;
};

void note_ready(const runtime::Communicator& c, const dataparallel::StepRecord& r, Trials& to) {
  auto& ready = to.ready.emplace_back(r.ready);
  for (double& t : ready) t -= r.step.begin;
  c.max(ready);
}

/// calls: the times of each call, for each step of a visit.
void note_calls(std::span<const dataparallel::Bucket> buckets, const std::vector<std::vector<double>>& calls,
                Trials& to) {
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    std::vector<double> times;
    for (const auto& step : calls) times.push_back(step[i]);
    to.bytes.push_back(static_cast<double>(buckets[i].count * sizeof(float)));
    to.seconds.push_back(core::median(times));
  }
}

/// Makes a training and times some of its steps; adds to `times` each step's time on the slowest rank [s], and to
/// `trials` its other findings, unless that is null. Collective.
void time_steps(Session& s, const runtime::Communicator& c, const model::DataSplit& data, const TrainingConfig& config,
                std::vector<double>& times, Trials* trials = nullptr) {
  Training training(s, c, data, config);
  if (trials) training.keep_ready();
  training.step(0);  // so that work that is done only once is not timed
  training.take_records();
  const auto buckets = training.buckets();
  std::vector<std::vector<double>> calls;
  for (std::size_t step = 1; step <= steps_of_visit; ++step) {
    training.prepare(step % training.steps_per_epoch());
    c.barrier();
    training.step(step % training.steps_per_epoch());
    const auto record = std::move(training.take_records().front());
    times.push_back(c.max(record.step.length()));
    if (!trials) continue;
    note_ready(c, record, *trials);
    // Times are negated, so that the largest over ranks is the shortest time, that of the rank that began last.
    auto& negative = calls.emplace_back();
    for (const auto& call : record.calls) negative.push_back(call.completion.started - call.completion.finished);
    c.max(negative);
    for (double& t : negative) t = -t;
    if (negative.size() != buckets.size()) calls.pop_back();
  }
  if (trials && calls.size() == steps_of_visit) note_calls(buckets, calls, *trials);
  training.finish();
  s.stop_if_interrupted(c);
}

/// The ends of the buckets whose exchange, by the trials, ends earliest. All ranks take those of the first rank.
std::vector<std::size_t> fitted_ends(const runtime::Communicator& c, const model::Model& m, const Trials& t) {
  std::vector<dataparallel::ReadyTensor> tensors;
  for (const auto& b : dataparallel::make_buckets(m.tensors(), m.element_count(), 1)) {
    std::vector<double> ready;
    for (const auto& step : t.ready) ready.push_back(step.at(b.first_tensor));
    tensors.push_back({.bytes = static_cast<double>(b.count * sizeof(float)), .ready = core::median(ready)});
  }
  const auto cost = dataparallel::fit_cost(t.bytes, t.seconds);
  constexpr double slack = 0.005;  // a share of the time on the link
  const double whole_cost = cost.seconds_per_byte * static_cast<double>(m.element_count() * sizeof(float));
  std::vector<std::size_t> ends = dataparallel::best_cut(tensors, cost, slack * whole_cost);
  ends.resize(c.broadcast_value(ends.size()));
  c.broadcast<std::size_t>(ends);
  return ends;
}

double median(std::span<const double> times) { return core::summarise(times).median; }

}  // namespace

std::vector<std::size_t> bucket_candidates(std::span<const model::Tensor> tensors, std::size_t elements) {
  std::vector<std::size_t> out;
  std::vector<std::vector<std::size_t>> seen;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20, std::size_t{25} << 20}) {
    auto ends = ends_of(dataparallel::make_buckets(tensors, elements, bytes));
    if (std::find(seen.begin(), seen.end(), ends) != seen.end()) continue;
    seen.push_back(std::move(ends));
    out.push_back(bytes);
  }
  return out;
}

std::size_t fastest_candidate(const std::vector<std::vector<double>>& times) {
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
  // All ranks must try the same sizes, so each takes the first rank's part of the model in place of its own.
  const Layout layout = layout_of(config, c.size(), 0);
  if (!exchange_factors(config, layout).bucket) return config;
  const auto model = sized_model(config, layout, facts);
  const auto candidates = bucket_candidates(model->tensors(), model->element_count());
  if (candidates.size() < 2) return config;
  Trials trials;
  const bool fits_cut = exchanges_buckets(config, layout) && needs_progress_thread(config, layout);
  std::vector<std::vector<double>> times(candidates.size());
  for (int visit = 0; visit < visits; ++visit) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      config.bucket_bytes = candidates[i];
      time_steps(s, c, data, config, times[i], fits_cut ? &trials : nullptr);
    }
  }
  config.bucket_bytes = candidates[c.broadcast_value(fastest_candidate(times))];
  if (!fits_cut || trials.seconds.empty()) return config;
  TrainingConfig fitted = config;
  fitted.bucket_ends = fitted_ends(c, *model, trials);
  const auto sized = dataparallel::make_buckets(model->tensors(), model->element_count(), config.bucket_bytes);
  if (fitted.bucket_ends == ends_of(sized)) return config;
  // Both cuts are measured anew, since the machine may have been in another state before.
  std::vector<double> by_size, by_fit;
  for (int visit = 0; visit < visits; ++visit) {
    time_steps(s, c, data, fitted, by_fit);
    time_steps(s, c, data, config, by_size);
  }
  constexpr double noise = 1.02;
  return c.broadcast_value(median(by_fit) <= noise * median(by_size)) ? fitted : config;
}

}  // namespace gradmeter::bench
