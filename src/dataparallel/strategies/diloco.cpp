#include "dataparallel/strategies/diloco.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/optimizers/outer.hpp"

namespace gradmeter::dataparallel {
namespace {

struct DilocoRule {
  std::uint64_t every = 1, fragments = 1, overlap = 0;
  float mix = 0;
  OuterMomentum outer = {};
};

/// A part of the weights that is exchanged at once.
struct Fragment {
  std::size_t offset = 0, count = 0;              ///< elements
  std::uint64_t first = 0, every = 1;             ///< its blocks end with step `first`, and then every so many
  std::vector<allreduce::TensorPart> parts = {};  ///< its tensors, or what it has of them, where they lie in it
  allreduce::TensorLayout tensor_layout() const { return {.first = offset, .tensors = parts}; }
  /// How many blocks have ended after step n.
  std::uint64_t ended(std::uint64_t n) const { return n < first ? 0 : 1 + (n - first) / every; }
  bool ends_with(std::uint64_t n) const { return n >= first && (n - first) % every == 0; }
};

/// Tensors that are cut are matrices no longer.
std::vector<Fragment> fragments_of(std::span<const model::Tensor> tensors, std::size_t elements,
                                   const DilocoRule& rule) {
  std::vector<Fragment> out;
  for (std::uint64_t f = 0; f < rule.fragments; ++f) {
    const std::size_t begin = elements * f / rule.fragments, end = elements * (f + 1) / rule.fragments;
    out.push_back({.offset = begin,
                   .count = end - begin,
                   .first = rule.every - rule.every * f / rule.fragments,
                   .every = rule.every});
    for (const Bucket& all : make_buckets(tensors, elements, 0)) {
      for (const allreduce::TensorPart& t : all.parts) {
        const std::size_t at = std::max(t.offset, begin), last = std::min(t.offset + t.count, end);
        if (at >= last) continue;
        const bool whole = last - at == t.count;
        out.back().parts.push_back(
            {.offset = at - begin, .count = last - at, .rows = whole ? t.rows : 0, .columns = whole ? t.columns : 0});
      }
    }
  }
  return out;
}

class Diloco final : public Strategy {
 public:
  Diloco(const StrategyOptions& o, const DilocoRule& rule)
      : bucket_bytes_(o.bucket_bytes), codec_(o.codec), rule_(rule) {}

  std::string refusal(const Optimizer&, int) const override {
    if (codec_ && codec_->info->name == "dgc")
      return "codec dgc gathers gradients with their momentum, and changes of weights are none; use topk";
    if (codec_ && codec_->info->name == "powersgd" && rule_.fragments > 1)
      return "codec powersgd takes whole matrices, and fragments cut them; use fragments=1 or another codec";
    return {};
  }

  std::size_t period() const override { return rule_.every; }
  std::size_t memory_bytes(const model::Model& m, int) const override {
    return rule_.overlap > 0 ? m.element_count() * sizeof(float) + memory_page_bytes : 0;
  }
  /// The anchor and the outer optimizer's velocity.
  std::size_t own_bytes(const model::Model& m, int) const override { return 2 * m.element_count() * sizeof(float); }

  void begin(Worker& w) override {
    Strategy::begin(w);
    const std::size_t n = w.parameters().count();
    runtime::Device& device = w.queue().device();
    anchor_ = device.allocate(core::Element::f32, n);
    w.queue().copy("outer.anchor", w.parameters(), anchor_.buffer);
    optimizer_ = make_outer_momentum({.elements = n, .device = device}, rule_.outer);
    fragments_ = fragments_of(w.model().tensors(), n, rule_);
    tickets_.resize(fragments_.size());
    // Gradients are not needed any more when a block ends, but they are in the next step.
    changes_ = rule_.overlap > 0 ? w.fabric().memory(n) : w.gradients();
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    auto outcome = w.pass(batch);
    // By the buckets of the control, so that only the exchange differs.
    for (const Bucket& b : make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_)) {
      w.update(b.offset, b.count, step);
    }
    for (std::size_t f = 0; f < fragments_.size(); ++f) {
      if (fragments_[f].ends_with(step.number)) exchange(w, f);
    }
    for (std::size_t f = 0; f < fragments_.size(); ++f) {
      if (step.number > rule_.overlap && fragments_[f].ends_with(step.number - rule_.overlap)) apply(w, f, step);
    }
    apart_ = rule_.fragments > 1 || rule_.overlap > 0 || !fragments_.front().ends_with(step.number);
    return outcome;
  }

  /// What has come is applied when it is due, whether or not `settle` was called.
  void settle(Worker& w) override {
    for (const Ticket& t : tickets_) {
      if (t) w.fabric().wait(t);
    }
  }
  void end(Worker& w) override { settle(w); }

  void evaluation_weights(Worker& w, Buffer to) override {
    Strategy::evaluation_weights(w, to);
    // Not where weights are equal: their sum, divided again, would round.
    if (apart_ && w.ranks() > 1) w.fabric().wait(w.fabric().all_reduce(w.axis(), to, allreduce::Op::average));
  }

  Forecast predict(const ForecastInput& s) const override {
    const std::uint64_t before = s.first_step - 1;
    Forecast all;
    for (const Fragment& f : fragments_of(s.tensors, s.elements, rule_)) {
      all += forecast_all_reduce(s, f.count, f.tensor_layout()).times(f.ended(before + s.steps) - f.ended(before));
    }
    return all;
  }
  ReplicaWork replica_work(const ForecastInput& s) const override {
    return {.updates = make_buckets(s.tensors, s.elements, bucket_bytes_)};
  }

 private:
  void exchange(Worker& w, std::size_t f) {
    const Fragment& part = fragments_[f];
    const auto n = static_cast<double>(part.count);
    const Buffer change = changes_.part(part.offset, part.count);
    w.queue().submit("outer.change", {.flops = n, .bytes = 12 * n},
                     [change, weights = w.parameters().part(part.offset, part.count),
                      anchor = anchor_.buffer.part(part.offset, part.count)] {
                       const auto d = change.values<float>(), x = weights.values<float>(), a = anchor.values<float>();
                       for (std::size_t i = 0; i < d.size(); ++i) d[i] = x[i] - a[i];
                     });
    if (w.ranks() == 1) return;
    tickets_[f] =
        w.fabric().all_reduce(w.axis(), change, allreduce::Op::average, w.fabric().record(), part.tensor_layout());
  }

  void apply(Worker& w, std::size_t f, UpdateStep step) {
    if (tickets_[f]) w.fabric().wait(tickets_[f]);
    tickets_[f] = nullptr;
    const Fragment& part = fragments_[f];
    runtime::Cost cost = optimizer_->cost(part.count);
    cost.flops += 3 * static_cast<double>(part.count);
    cost.bytes += 12 * static_cast<double>(part.count);
    const float mix = rule_.overlap > 0 ? rule_.mix : 0;
    w.queue().submit("outer", cost,
                     [this, step, mix, offset = part.offset, change = changes_.part(part.offset, part.count),
                      weights = w.parameters().part(part.offset, part.count),
                      anchor = anchor_.buffer.part(part.offset, part.count)] {
                       optimizer_->apply(anchor, change, offset, step);
                       const auto x = weights.values<float>(), a = anchor.values<float>();
                       // Without its own share a worker has the anchor's bits, as all the others.
                       for (std::size_t i = 0; i < x.size(); ++i) x[i] = mix > 0 ? mix * x[i] + (1 - mix) * a[i] : a[i];
                     });
  }

  std::size_t bucket_bytes_;
  compression::CodecChoicePtr codec_;
  DilocoRule rule_;
  std::unique_ptr<Optimizer> optimizer_;
  runtime::OwnedBuffer anchor_;  ///< what blocks began with
  std::vector<Fragment> fragments_;
  std::vector<Ticket> tickets_;          ///< by fragment; null: nothing under way
  Buffer changes_ = runtime::no_floats;  ///< since the anchor, then their mean
  bool apart_ = false;                   ///< workers may have different weights
};

}  // namespace

std::unique_ptr<Strategy> make_diloco(const core::ParsedName& n, const StrategyOptions& o) {
  const auto number = [&](std::string_view key, core::NumberRange range) {
    return static_cast<float>(core::number_parameter(n, key, range));
  };
  const DilocoRule rule{.every = core::count_parameter(n, "every", {1, 1u << 30}),
                        .fragments = core::count_parameter(n, "fragments", {1, 1024}),
                        .overlap = core::count_parameter(n, "overlap", {0, 1u << 30}),
                        .mix = number("mix", {0, 1}),
                        .outer = {.step = number("step", {1e-6, 10}), .mu = number("mu", {0, 1}), .nesterov = true}};
  if (rule.overlap >= rule.every) {
    throw core::UsageError(
        fmt::format("{}: overlap is {}; a change must have come before the next block ends: take "
                    "less than every={}",
                    n.base, rule.overlap, rule.every));
  }
  return std::make_unique<Diloco>(o, rule);
}

}  // namespace gradmeter::dataparallel
