// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/step_timeline.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "core/format.hpp"
#include "core/result_file.hpp"
#include "core/statistics.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/fabric/intervals.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::CallTimes;

using dataparallel::Bucket;

std::vector<BucketTimes> name_buckets(std::span<const model::Tensor> tensors, std::span<const Bucket> buckets) {
  std::vector<BucketTimes> times;
  for (const Bucket& b : buckets) {
    const auto bucket_tensors = tensors.subspan(b.first_tensor, b.tensor_count);
    const model::Tensor& largest = *std::ranges::max_element(bucket_tensors, {}, &model::Tensor::count);
    BucketTimes& named = times.emplace_back();
    named.first = bucket_tensors.front().name;
    named.last = bucket_tensors.back().name;
    named.tensors = bucket_tensors.size();
    named.largest = largest.name;
    named.largest_share = static_cast<double>(largest.count) / static_cast<double>(b.count);
    named.bytes = b.count * sizeof(float);
  }
  return times;
}

}  // namespace

std::vector<BucketTimes> bucket_times(std::span<const model::Tensor> tensors, std::span<const Bucket> buckets,
                                      const Measurement& m) {
  std::vector<BucketTimes> times = name_buckets(tensors, buckets);
  std::vector<const StepBlock*> blocks;
  for (const StepBlock& b : m.blocks)
    if (b.calls.size() == times.size()) blocks.push_back(&b);
  if (blocks.empty()) return {};
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto over_blocks = [&](double CallTimes::*time) {
      std::vector<double> values;
      for (const StepBlock* b : blocks) values.push_back(b->calls[i].*time);
      return estimate(values);
    };
    times[i].ready = over_blocks(&CallTimes::posted);
    times[i].begin = over_blocks(&CallTimes::started);
    times[i].end = over_blocks(&CallTimes::finished);
    if (m.wait_known) times[i].wire = over_blocks(&CallTimes::transfer);
    times[i].exposed = over_blocks(&CallTimes::exposed);
  }
  return times;
}

std::optional<double> least_exposed(std::span<const model::Tensor> tensors, double exchange_s, const Measurement& m) {
  std::vector<double> of_blocks;
  const std::size_t elements = tensors.empty() ? 0 : tensors.back().offset + tensors.back().count;
  for (const StepBlock& b : m.blocks) {
    if (b.ready.empty() || b.ready.size() != tensors.size()) continue;
    std::vector<dataparallel::ReadyTensor> ready;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t end = i + 1 < tensors.size() ? tensors[i + 1].offset : elements;
      ready.push_back({.bytes = static_cast<double>(end - tensors[i].offset), .ready = b.ready[i]});
    }
    const double end = dataparallel::least_exchange_end(ready, exchange_s / static_cast<double>(elements));
    of_blocks.push_back(std::max(0.0, end - *std::ranges::max_element(b.ready) - b.parts.update));
  }
  if (of_blocks.empty() || !(exchange_s > 0)) return std::nullopt;
  return core::median(of_blocks);
}

namespace {

using core::Metric;
using core::Span;
using core::Spans;
using dataparallel::Interval;
using dataparallel::StepRecord;

constexpr std::size_t most_spans = 1000;

/// "forward" of "forward.gemm".
std::string_view pass_of(std::string_view label) { return label.substr(0, label.find('.')); }

/// Goes through the computations of a step in the order of their submission, and finds the layer of each.
class LayerCursor {
 public:
  LayerCursor(const StepRecord& r, std::span<const std::string> names) : marks_(r.layers), names_(names) {}

  /// Names the next computation by pass and layer, or by its label where it has no layer.
  std::string name(std::string_view label) {
    while (next_ < marks_.size() && marks_[next_].first <= computation_) layer_ = marks_[next_++].layer;
    ++computation_;
    if (!in_layer()) return std::string(label);
    const auto at = static_cast<std::size_t>(layer_);
    return fmt::format("{} {} {}", pass_of(label), at, names_[at]);
  }
  /// True where the computation that was named last is in a layer.
  bool in_layer() const { return layer_ >= 0 && static_cast<std::size_t>(layer_) < names_.size(); }

 private:
  std::span<const dataparallel::LayerMark> marks_;
  std::span<const std::string> names_;
  std::size_t next_ = 0, computation_ = 0;
  int layer_ = runtime::Queue::no_layer;
};

/// True where an exchange ended between the two times, so the next computation, such as an update, waited for it.
bool exchange_ended_between(const StepRecord& r, double from, double until) {
  return std::ranges::any_of(
      r.calls, [&](const auto& call) { return call.completion.finished >= from && call.completion.finished <= until; });
}

Spans computations_of(const StepRecord& r, std::span<const std::string> layers) {
  const auto computed = static_cast<std::size_t>(
      std::ranges::count(r.computations, false, &dataparallel::ComputeRecord::is_message_handling));
  // If the log has another number of computations than were submitted, their layers are unknown.
  LayerCursor cursor(r, computed == r.submitted ? layers : std::span<const std::string>());
  Spans out;
  double before = r.step.begin;
  for (const auto& c : r.computations) {
    if (c.is_message_handling) continue;
    std::string name = cursor.name(c.label);
    const double begin = c.when.begin - r.step.begin, end = c.when.end - r.step.begin;
    const bool same = !out.empty() && out.back().name == name;
    if (same && (cursor.in_layer() || !exchange_ended_between(r, before, c.when.begin))) {
      out.back().end_s = end;
    } else {
      out.push_back({.name = std::move(name), .begin_s = begin, .end_s = end});
    }
    before = c.when.end;
  }
  return out;
}

Spans exchanges_of(const StepRecord& r, std::span<const Span> buckets) {
  Spans out;
  for (std::size_t i = 0; i < r.calls.size(); ++i) {
    const auto& [label, done] = r.calls[i];
    Span s = buckets.size() == r.calls.size() ? buckets[i] : Span{.name = fmt::format("{} {}", label, i)};
    s.ready_s = done.posted - r.step.begin;
    s.begin_s = done.started - r.step.begin;
    s.end_s = done.finished - r.step.begin;
    out.push_back(std::move(s));
  }
  return out;
}

Spans exposed_of(const StepRecord& r, const Spans& exchanges) {
  std::vector<Interval> covered;
  for (const auto& c : r.computations)
    if (!c.is_message_handling) covered.push_back({c.when.begin - r.step.begin, c.when.end - r.step.begin});
  covered = dataparallel::unite(covered);
  Spans out;
  for (const Span& call : exchanges) {
    const Interval when{call.begin_s, call.end_s};
    for (const Interval& part : dataparallel::subtract(dataparallel::unite({&when, 1}), covered))
      out.push_back({.name = call.name, .begin_s = part.begin, .end_s = part.end});
    covered.push_back(when);
    covered = dataparallel::unite(covered);
  }
  return out;
}

/// The block with the median step; null where no block has kept a step.
const StepBlock* middle_block(const Measurement& m) {
  std::vector<const StepBlock*> blocks;
  for (const StepBlock& b : m.blocks)
    if (b.has_typical) blocks.push_back(&b);
  if (blocks.empty()) return nullptr;
  const auto middle = blocks.begin() + static_cast<std::ptrdiff_t>((blocks.size() - 1) / 2);
  std::ranges::nth_element(blocks, middle, {}, [](const StepBlock* b) { return std::pair(b->step, b->round); });
  return *middle;
}

/// The timeline as a line of a result file, to be sent to rank 0. The line has no spans if there are too many of them.
std::string as_text(const StepTimeline& t) {
  core::Point p;
  if (t.compute.size() + t.exchange.size() + t.exposed.size() > most_spans) return core::to_json_line(p, "timeline");
  p.metrics[Metric::timeline_step_s] = t.step_s;
  p.metrics[Metric::timeline_compute] = t.compute;
  if (!t.exchange.empty()) p.metrics[Metric::timeline_exchange] = t.exchange;
  if (!t.exposed.empty()) p.metrics[Metric::timeline_exposed] = t.exposed;
  return core::to_json_line(p, "timeline");
}

core::Metrics from_text(const std::string& text) {
  core::RunInfo run;
  run.run_id = "timeline";
  return core::parse_results(core::to_json_line(run) + "\n" + text, "timeline").runs.at(0).points.at(0).metrics;
}

}  // namespace

StepTimeline make_timeline(const StepRecord& r, std::span<const std::string> layers, std::span<const Span> buckets) {
  StepTimeline t{.step_s = r.step.length(),
                 .compute = computations_of(r, layers),
                 .exchange = exchanges_of(r, buckets),
                 .exposed = {}};
  t.exposed = exposed_of(r, t.exchange);
  return t;
}

Spans bucket_spans(std::span<const model::Tensor> tensors, std::span<const Bucket> buckets) {
  Spans out;
  for (const Bucket& b : buckets) {
    const auto bucket_tensors = tensors.subspan(b.first_tensor, b.tensor_count);
    std::string name = fmt::format("{} {}", out.size(), bucket_tensors.front().name);
    if (bucket_tensors.size() > 1) name += fmt::format(" … {}", bucket_tensors.back().name);
    out.push_back({.name = std::move(name), .bytes = static_cast<std::int64_t>(b.count * sizeof(float))});
  }
  return out;
}

void fill_timeline(const runtime::Communicator& c, const Measurement& m, std::span<const std::string> layers,
                   std::span<const Span> buckets, core::Metrics& to) {
  const StepBlock* const block = middle_block(m);
  if (!block) return;
  const bool mine = c.rank() == block->longest_rank;
  const std::string text =
      c.broadcast_text(mine ? as_text(make_timeline(block->typical, layers, buckets)) : "", block->longest_rank);
  if (c.rank() != 0) return;
  const core::Metrics received = from_text(text);
  for (const auto key :
       {Metric::timeline_step_s, Metric::timeline_compute, Metric::timeline_exchange, Metric::timeline_exposed})
    to[key] = received[key];
  if (!core::is_null(to[Metric::timeline_step_s]))
    to[Metric::timeline_rank] = static_cast<std::int64_t>(block->longest_rank);
}

}  // namespace gradmeter::bench
