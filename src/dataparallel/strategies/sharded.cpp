#include "dataparallel/strategies/sharded.hpp"

#include "allreduce/slices.hpp"
#include "core/format.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/rules/registry.hpp"

namespace gradmeter::dataparallel {
namespace {

/// What this rank owns of a bucket. `state`: where its optimizer state begins, since the shard's blocks lie one behind
/// the other there.
struct Share {
  std::size_t offset, count, state;
};

class Sharded final : public Strategy {
 public:
  explicit Sharded(const StrategyOptions& o) : bucket_bytes_(o.bucket_bytes), optimizer_(o.optimizer) {}

  std::string refusal(const Rule& rule, int ranks) const override {
    if (ranks == 1 || !rule.needs_whole_tensors()) return {};
    return fmt::format(
        "sharded: the optimizer {} needs whole tensors, but each rank updates only a part of each; take sync",
        rule.name());
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    buckets_ = make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_);
    const auto ranks = static_cast<std::uint32_t>(w.ranks()), rank = static_cast<std::uint32_t>(w.rank());
    std::size_t state = 0;
    for (const Bucket& b : buckets_) {
      const std::size_t from = allreduce::block_begin(b.count, ranks, rank);
      const std::size_t to = allreduce::block_begin(b.count, ranks, rank + 1);
      shares_.push_back({b.offset + from, to - from, state});
      state += to - from;
    }
    // One rank owns all tensors whole, where they lie: there the rule may look at them.
    const RuleScope scope{.elements = state, .tensors = ranks == 1 ? w.model().tensors() : RuleScope{}.tensors};
    rule_ = make_optimizer(optimizer_, scope);
  }

  model::Outcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    const bool alone = w.ranks() == 1;
    std::vector<Ticket> reduced, gathered;
    const auto outcome = w.pass(batch, [&](std::size_t tensor) {
      if (alone || reduced.size() == buckets_.size()) return;
      const Bucket& b = buckets_[reduced.size()];
      if (tensor + 1 < b.first_tensor + b.tensors) return;
      reduced.push_back(w.fabric().reduce_scatter(w.axis(), w.gradients(b.offset, b.count), allreduce::Op::average,
                                                  w.fabric().record()));
    });
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (!alone) w.fabric().wait(reduced[i]);
      update(w, shares_[i], step);
      if (alone) continue;
      const Bucket& b = buckets_[i];
      gathered.push_back(w.fabric().all_gather(w.axis(), w.parameters().part(b.offset, b.count), w.fabric().record()));
    }
    for (const Ticket& t : gathered) w.fabric().wait(t);
    return outcome;
  }

  Forecast predict(const Scene& s) const override {
    Forecast step;
    for (const Bucket& b : make_buckets(s.tensors, s.elements, bucket_bytes_)) {
      step += forecast_collective(s, allreduce::Goal::reduce_scatter, b.count);
      step += forecast_collective(s, allreduce::Goal::all_gather, b.count);
    }
    return step.times(s.steps);
  }

 private:
  void update(Worker& w, const Share& own, UpdateStep step) {
    if (own.count == 0) return;
    w.compute("update", rule_->cost(own.count), [&] {
      rule_->apply(w.parameters().part(own.offset, own.count), w.gradients(own.offset, own.count), own.state, step);
    });
  }
  std::size_t bucket_bytes_;
  std::string optimizer_;
  std::vector<Bucket> buckets_;
  std::vector<Share> shares_;  ///< by bucket
  std::unique_ptr<Rule> rule_;
};

}  // namespace

std::unique_ptr<Strategy> make_sharded(const core::ParsedName&, const StrategyOptions& o) {
  return std::make_unique<Sharded>(o);
}

}  // namespace gradmeter::dataparallel
