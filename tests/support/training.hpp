// SPDX-License-Identifier: Apache-2.0
// A short training run of one worker over any fabric, with all that the tests ask of it. The same code runs in virtual
// time and on real ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataparallel/assembly.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "kernels/host/threads.hpp"
#include "model/data/sources.hpp"
#include "support/mlp.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::test {

struct Training {
  std::string_view strategy = "sync";
  std::string_view optimizer = "momentum:mu=0.9";
  std::vector<std::size_t> widths = {784, 32, 10};
  std::size_t batch_global = 24;
  int steps = 24;
  float step_size = 0.02f;
  std::size_t bucket_bytes = std::size_t{16} << 10;
  bool own_start = true;  ///< every rank draws its own initial weights, so that the strategy must make them equal
};

struct StepTrace {
  dataparallel::Decomposition parts;
  std::vector<dataparallel::Completion> calls;
  double begin = 0, forward_end = 0, backward_end = 0;
  std::uint64_t weights = 0;  ///< a hash of all their bits
};

/// What one worker saw.
struct Trace {
  std::vector<StepTrace> steps;
  std::vector<model::Outcome> outcomes;  ///< by step
  std::vector<float> weights;            ///< at the end
};

inline std::shared_ptr<const model::Dataset> training_digits() {
  return model::make_digits({.samples = 480, .seed = 5});
}

/// This rank's part of each global batch: every rank sees other samples.
class Samples {
 public:
  Samples(runtime::Queue& queue, const model::Dataset& data, std::size_t batch_global, int rank, int ranks)
      : queue_(queue),
        data_(data),
        sampler_(data.size(), batch_global, 11),
        part_(static_cast<std::size_t>(rank)),
        indices_(batch_global / static_cast<std::size_t>(ranks)),
        inputs_(queue.device().allocate(core::Element::f32, indices_.size() * data.features())),
        labels_(queue.device().allocate(core::Element::i32, indices_.size() * data.labels())) {}
  model::Batch batch(int step) {
    sampler_.indices(static_cast<std::size_t>(step), part_, indices_);
    queue_.run_and_wait([this] {
      model::gather(data_, indices_, inputs_.buffer.values<float>(), labels_.buffer.values<std::int32_t>());
    });
    return {inputs_.buffer, labels_.buffer, data_.labels()};
  }

 private:
  runtime::Queue& queue_;
  const model::Dataset& data_;
  model::Sampler sampler_;
  std::size_t part_;
  std::vector<std::uint64_t> indices_;
  runtime::OwnedBuffer inputs_, labels_;
};

/// Of all bits that a buffer holds.
inline std::uint64_t hash_of(runtime::Queue& queue, const runtime::ConstBuffer& b) {
  std::uint64_t hash = 0;
  queue.run_and_wait([&] { hash = hash_of(std::span(b.host(), b.bytes())); });
  return hash;
}

/// What a buffer holds, after all work submitted so far.
inline std::vector<float> values_of(runtime::Queue& queue, const runtime::ConstBuffer& b) {
  std::vector<float> out;
  queue.run_and_wait([&] {
    const auto values = b.values<float>();
    out.assign(values.begin(), values.end());
  });
  return out;
}

inline StepTrace trace_of(const dataparallel::StepRecord& r) {
  StepTrace t;
  t.parts = decompose(r, {});
  t.begin = r.step.begin;
  for (const auto& c : r.calls) t.calls.push_back(c.completion);
  for (const auto& c : r.computations) {
    if (c.label.starts_with("forward")) t.forward_end = c.when.end;
    if (c.label.starts_with("backward")) t.backward_end = c.when.end;
  }
  return t;
}

inline Trace train(dataparallel::Fabric& fabric, const Training& t, const model::Dataset& data) {
  kernels::set_compute_threads(1);
  dataparallel::Assembly assembly(fabric,
                                  {.model = [&](auto&, auto&) { return std::make_unique<model::Mlp>(t.widths); },
                                   .seed = t.own_start ? 100 + static_cast<std::uint64_t>(fabric.rank()) : 100,
                                   .optimizer = std::string(t.optimizer),
                                   .strategy = dataparallel::find_strategy(t.strategy),
                                   .strategy_options = {.bucket_bytes = t.bucket_bytes}});
  dataparallel::Probe& probe = assembly.probe();
  dataparallel::Worker& worker = assembly.worker();
  dataparallel::Strategy& strategy = assembly.strategy();
  const runtime::Buffer weights = assembly.buffers().parameters;
  Samples samples(fabric, data, t.batch_global, fabric.rank(), fabric.size());
  Trace trace;
  strategy.begin(worker);
  for (int i = 0; i < t.steps; ++i) {
    const auto batch = samples.batch(i);
    probe.begin_step();
    const auto outcome =
        strategy.step(worker, batch, {.step_size = t.step_size, .number = static_cast<std::uint64_t>(i) + 1});
    trace.steps.push_back(trace_of(probe.end_step()));
    trace.outcomes.push_back(outcome.get());
    trace.steps.back().weights = hash_of(fabric, weights);
  }
  strategy.end(worker);
  trace.weights = values_of(fabric, weights);
  return trace;
}

}  // namespace gradmeter::test
