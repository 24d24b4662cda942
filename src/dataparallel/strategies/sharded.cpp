#include "dataparallel/strategies/sharded.hpp"

#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "allreduce/schedule/slices.hpp"
#include "dataparallel/buckets.hpp"
#include "dataparallel/optimizers/registry.hpp"
#include "dataparallel/part_sums.hpp"

namespace gradmeter::dataparallel {
namespace {

/// What this rank owns of a bucket.
struct Share {
  std::size_t offset, count;
};

/// Norms of a bucket's tensors: first over the axis, whose ranks hold blocks of the bucket, then over the ranks that
/// hold the rest of those tensors that are parts already.
class BlockSums final : public PartSums {
 public:
  BlockSums(PartSums& axis, PartSums* parts, std::span<const model::Tensor> tensors) : axis_(axis), parts_(parts) {
    for (const auto& t : tensors) is_part_.push_back(t.is_part);
  }
  void sum(std::span<double> values) override {
    axis_.sum(values);
    if (!parts_) return;
    std::vector<double> some;
    const auto each = [&](auto&& take) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (is_part_[i / sums_a_tensor]) take(values[i]);
      }
    };
    each([&](double v) { some.push_back(v); });
    if (some.empty()) return;
    parts_->sum(some);
    each([next = some.begin()](double& v) mutable { v = *next++; });
  }

 private:
  PartSums& axis_;
  PartSums* parts_;
  std::vector<bool> is_part_;
};

class Sharded final : public Strategy {
 public:
  explicit Sharded(const StrategyOptions& o)
      : bucket_bytes_(o.bucket_bytes),
        optimizer_(o.optimizer),
        agrees_(o.loss_scale.adapts()),
        takes_norms_(make_optimizer(o.optimizer, {})->needs_whole_tensors()) {}

  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    const std::size_t most = values_summed(m);
    return ranks > 1 && most > 0 ? GroupSums::memory_bytes(ranks, most) : 0;
  }
  /// The first rank's blocks, which are the largest.
  std::size_t own_bytes(const model::Model& m, int ranks) const override {
    std::size_t owned = 0;
    for (const Bucket& b : make_buckets(m.tensors(), m.element_count(), bucket_bytes_))
      owned += allreduce::block_begin(b.count, static_cast<std::uint32_t>(ranks), 1);
    return optimizer_bytes(optimizer_, owned);
  }

  void begin(Worker& w) override {
    Strategy::begin(w);
    buckets_ = make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_);
    const auto ranks = static_cast<std::uint32_t>(w.ranks()), rank = static_cast<std::uint32_t>(w.rank());
    if (const std::size_t most = values_summed(w.model()); ranks > 1 && most > 0)
      axis_sums_.emplace(w.fabric(), w.axis(), most);
    for (const Bucket& b : buckets_) {
      const std::size_t from = allreduce::block_begin(b.count, ranks, rank);
      const std::size_t to = allreduce::block_begin(b.count, ranks, rank + 1);
      shares_.push_back({b.offset + from, to - from});
      optimizers_.push_back(make_rule(w, b, shares_.back()));
    }
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    const bool alone = w.ranks() == 1;
    std::vector<Ticket> reduced, gathered;
    auto outcome = w.pass(batch, [&](std::size_t tensor) {
      if (alone || reduced.size() == buckets_.size()) return;
      const Bucket& b = buckets_[reduced.size()];
      if (tensor + 1 < b.first_tensor + b.tensors) return;
      reduced.push_back(w.fabric().reduce_scatter(w.axis(), w.gradients(b.offset, b.count), allreduce::Op::average,
                                                  w.fabric().record()));
    });
    if (agrees_) agree(w, reduced);
    if (agrees_) step.loss_scale_counts = w.scaler()->counts();
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (!alone && reduced[i]) w.fabric().wait(reduced[i]);
      update(w, i, step);
      if (alone) continue;
      const Bucket& b = buckets_[i];
      gathered.push_back(w.fabric().all_gather(w.axis(), w.parameters().part(b.offset, b.count), w.fabric().record()));
    }
    for (const Ticket& t : gathered) w.fabric().wait(t);
    if (agrees_) w.scaler()->submit_end_of_step(w.queue());
    return outcome;
  }

  Forecast predict(const ForecastInput& s) const override {
    Forecast step;
    for (const Bucket& b : make_buckets(s.tensors, s.elements, bucket_bytes_)) {
      step += forecast_collective(s, allreduce::CollectiveKind::reduce_scatter, b.count);
      step += forecast_collective(s, allreduce::CollectiveKind::all_gather, b.count);
      if (takes_norms_) step += GroupSums::predict(s, sums_a_tensor * b.tensors);
    }
    if (agrees_) step += GroupSums::predict(s, 1);
    return step.times(s.steps);
  }
  ReplicaWork replica_work(const ForecastInput& s) const override {
    return {.updates = make_buckets(s.tensors, s.elements, bucket_bytes_)};
  }

 private:
  std::size_t values_summed(const model::Model& m) const {
    return takes_norms_ ? sums_a_tensor * m.tensors().size() : agrees_ ? 1 : 0;
  }

  /// No rank sees the whole gradient: what one finds in its blocks the others must be told.
  void agree(Worker& w, std::vector<Ticket>& reduced) {
    for (Ticket& t : reduced) w.fabric().wait(std::exchange(t, nullptr));
    for (const Share& own : shares_) w.scaler()->submit_check(w.queue(), w.gradients(own.offset, own.count));
    if (!axis_sums_) return;
    double found = w.scaler()->skips(w.queue()) ? 1 : 0;
    axis_sums_->sum({&found, 1});
    if (found > 0) w.scaler()->note_not_finite(w.queue());
  }

  /// Of a bucket's tensors, the parts in this rank's share. All ranks list all of them, some as empty parts, so that
  /// their norms can be summed.
  std::unique_ptr<Optimizer> make_rule(Worker& w, const Bucket& b, const Share& own) {
    const auto whole = w.model().tensors().subspan(b.first_tensor, b.tensors);
    std::vector<model::Tensor> mine(whole.begin(), whole.end());
    for (model::Tensor& t : mine) {
      const auto inside = [&](std::size_t at) {
        return std::clamp(at, own.offset, own.offset + own.count) - own.offset;
      };
      const std::size_t from = inside(t.offset), to = inside(t.offset + t.count);
      t.offset = from;
      t.count = to - from;
      t.is_part = t.is_part || (takes_norms_ && axis_sums_);
    }
    PartSums* sums = w.parts();
    if (takes_norms_ && axis_sums_) sums = &block_sums_.emplace_back(*axis_sums_, w.parts(), whole);
    return make_optimizer(
        optimizer_,
        {.elements = own.count, .tensors = mine, .parts = sums, .device = w.queue().device(), .first = own.offset});
  }

  void update(Worker& w, std::size_t bucket, UpdateStep step) {
    const Share& own = shares_[bucket];
    Optimizer& optimizer = *optimizers_[bucket];
    if (own.count == 0 && !optimizer.shares()) return;
    optimizer.update(w.queue(), w.parameters().part(own.offset, own.count), w.gradients(own.offset, own.count), 0,
                     step);
  }

  std::size_t bucket_bytes_;
  std::string optimizer_;
  bool agrees_;  ///< on steps that are skipped
  bool takes_norms_;
  std::vector<Bucket> buckets_;
  std::vector<Share> shares_;           ///< by bucket
  std::optional<GroupSums> axis_sums_;  ///< where blocks cut tensors whose norms are asked for, or ranks agree
  std::list<BlockSums> block_sums_;     ///< by bucket
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
};

}  // namespace

std::unique_ptr<Strategy> make_sharded(const core::ParsedName&, const StrategyOptions& o) {
  return std::make_unique<Sharded>(o);
}

}  // namespace gradmeter::dataparallel
