// SPDX-License-Identifier: Apache-2.0
// Synchronous data parallelism: `sync` keeps the optimizer's whole state on every rank, `sharded` splits it over ranks.
// And their control `independent`, which does not communicate.
#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "allreduce/schedule/slices.hpp"
#include "compression/codecs/dgc.hpp"
#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

class Sync final : public Strategy {
 public:
  explicit Sync(const StrategyOptions& o)
      : Strategy(o.bucket_bytes, o.bucket_ends), clip_(compression::clip_of(o.codec)) {}

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    if (buckets_.empty()) buckets_ = buckets(worker.model());
    std::vector<Ticket> tickets;
    const bool clips = clip_ > 0 && worker.ranks() > 1;
    auto outcome = worker.pass(batch, [&](std::size_t tensor) {
      if (clips) return;  // the norm needs all tensors, so nothing can be sent before the last is ready
      if (tickets.size() == buckets_.size()) return;
      const Bucket& b = buckets_[tickets.size()];
      if (tensor + 1 < b.first_tensor + b.tensor_count) return;
      tickets.push_back(exchange(worker, b));
    });
    if (clips) {
      worker.clip(clip_, worker.ranks());
      for (const Bucket& b : buckets_) tickets.push_back(exchange(worker, b));
    }
    // A bucket is applied as soon as it has arrived, while later buckets are still exchanged.
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (tickets[i]) worker.fabric().wait(tickets[i]);
      worker.update(buckets_[i].offset, buckets_[i].count, step);
    }
    return outcome;
  }

  Forecast predict(const ForecastInput& input) const override {
    const auto buckets = this->buckets(input);
    Forecast forecast;
    for (const auto& phase : compression::warm_up_phases(input.codec, input.first_step - 1, input.steps)) {
      ForecastInput phase_input = input;
      phase_input.codec = phase.codec;
      Forecast step;
      for (const Bucket& b : buckets) step += forecast_all_reduce(phase_input, b.count, b.tensor_layout());
      forecast += step.times(phase.steps);
    }
    return forecast;
  }

 private:
  static Ticket exchange(Worker& worker, const Bucket& b) {
    if (worker.ranks() == 1) return nullptr;
    return worker.fabric().all_reduce(worker.axis(), worker.gradients(b.offset, b.count), allreduce::Op::average,
                                      worker.fabric().record(), b.tensor_layout());
  }
  double clip_;                  ///< 0: gradients are not clipped
  std::vector<Bucket> buckets_;  ///< the buckets of the model, which stays the same
};

}  // namespace

/// Gradients are averaged over all ranks, bucket by bucket, while backward goes on.
/// Bytes: those of the all-reduce over all gradients: 2(P-1)/P · M for the ring.
/// Source: Goyal et al. 2017; buckets: Li et al., "PyTorch Distributed", VLDB 2020.
extern constinit const StrategyInfo sync_strategy{
    .name = "sync",
    .rule = "w -= step * mean(gradient), exchanged bucket by bucket while backward goes on",
    .bytes_text = "2(P-1)/P M",
    .source = "Goyal et al. 2017; Li et al., VLDB 2020",
    .communication = CommunicationPattern::all_reduce,
    .only_optimizer_changes_weights = true,
    .may_skip_steps = true,
    .keeps_workers_equal = true,
    .make = [](const core::ParsedName&, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return std::make_unique<Sync>(o);
    }};

namespace {

/// Sums the norms of a bucket's tensors: first over the axis, whose ranks hold blocks of the bucket; then, for tensors
/// that tensor parallelism has split, over the ranks that hold their other parts.
class BlockSums final : public SumsOverRanks {
 public:
  BlockSums(SumsOverRanks& axis_sums, SumsOverRanks* part_sums, std::span<const model::Tensor> tensors)
      : axis_sums_(axis_sums), part_sums_(part_sums) {
    for (const auto& t : tensors) is_part_.push_back(t.is_part);
  }
  void sum(std::span<double> values) override {
    axis_sums_.sum(values);
    if (!part_sums_) return;
    std::vector<double> values_of_parts;
    const auto for_each_of_parts = [&](auto&& take) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (is_part_[i / sums_per_tensor]) take(values[i]);
      }
    };
    for_each_of_parts([&](double v) { values_of_parts.push_back(v); });
    if (values_of_parts.empty()) return;
    part_sums_->sum(values_of_parts);
    for_each_of_parts([next = values_of_parts.begin()](double& v) mutable { v = *next++; });
  }

 private:
  SumsOverRanks& axis_sums_;
  SumsOverRanks* part_sums_;
  std::vector<bool> is_part_;
};

class Sharded final : public Strategy {
 public:
  explicit Sharded(const StrategyOptions& o)
      : Strategy(o.bucket_bytes),
        optimizer_(o.optimizer),
        agrees_on_skipping_(o.loss_scale.adapts()),
        takes_norms_(make_optimizer(o.optimizer, {})->needs_whole_tensors()) {}

  std::size_t fabric_bytes(const model::Model& m, int ranks) const override {
    const std::size_t most = most_values_in_a_sum(m);
    return ranks > 1 && most > 0 ? GroupSums::memory_bytes(ranks, most) : 0;
  }
  /// The bytes for the blocks of the rank that has the most elements: a bucket's blocks differ in length where their
  /// number does not divide it, and any of them may be the longest.
  std::size_t bytes_besides_fabric(const model::Model& m, int ranks) const override {
    const auto blocks = static_cast<std::uint32_t>(ranks);
    std::vector<std::size_t> owned(blocks, 0);
    for (const Bucket& b : buckets(m)) {
      for (std::uint32_t r = 0; r < blocks; ++r) owned[r] += allreduce::block_range(b.count, blocks, r).count;
    }
    return optimizer_bytes(optimizer_, std::ranges::max(owned));
  }

  void begin(Worker& worker) override {
    Strategy::begin(worker);
    buckets_ = buckets(worker.model());
    const auto ranks = static_cast<std::uint32_t>(worker.ranks()), rank = static_cast<std::uint32_t>(worker.rank());
    if (const std::size_t most = most_values_in_a_sum(worker.model()); ranks > 1 && most > 0)
      axis_sums_.emplace(worker.fabric(), worker.axis(), most);
    for (const Bucket& b : buckets_) {
      const auto [begin, count] = allreduce::block_range(b.count, ranks, rank);
      shares_.push_back({b.offset + begin, count});
      optimizers_.push_back(make_bucket_optimizer(worker, b, shares_.back()));
    }
  }

  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    const bool alone = worker.ranks() == 1;
    std::vector<Ticket> reduced, gathered;
    auto outcome = worker.pass(batch, [&](std::size_t tensor) {
      if (alone || reduced.size() == buckets_.size()) return;
      const Bucket& b = buckets_[reduced.size()];
      if (tensor + 1 < b.first_tensor + b.tensor_count) return;
      reduced.push_back(worker.fabric().reduce_scatter(worker.axis(), worker.gradients(b.offset, b.count),
                                                       allreduce::Op::average, worker.fabric().record()));
    });
    if (agrees_on_skipping_) agree_on_skipping(worker, reduced);
    if (agrees_on_skipping_) step.loss_scale_counts = worker.scaler()->counts();
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (!alone && reduced[i]) worker.fabric().wait(reduced[i]);
      update(worker, i, step);
      if (alone) continue;
      const Bucket& b = buckets_[i];
      gathered.push_back(worker.fabric().all_gather(worker.axis(), worker.parameters().part(b.offset, b.count),
                                                    worker.fabric().record()));
    }
    for (const Ticket& t : gathered) worker.fabric().wait(t);
    if (agrees_on_skipping_) worker.scaler()->submit_end_of_step(worker.queue());
    return outcome;
  }

  Forecast predict(const ForecastInput& input) const override {
    Forecast step;
    for (const Bucket& b : buckets(input)) {
      step += forecast_collective(input, allreduce::CollectiveKind::reduce_scatter, b.count);
      step += forecast_collective(input, allreduce::CollectiveKind::all_gather, b.count);
      if (takes_norms_) step += GroupSums::predict(input, sums_per_tensor * b.tensor_count);
    }
    if (agrees_on_skipping_) step += GroupSums::predict(input, 1);
    return step.times(input.steps);
  }

 private:
  /// An upper bound of the values that one sum has: those of all tensors, though sums are made bucket by bucket.
  std::size_t most_values_in_a_sum(const model::Model& m) const {
    return takes_norms_ ? sums_per_tensor * m.tensors().size() : agrees_on_skipping_ ? 1 : 0;
  }

  /// Makes all ranks skip the step if any of them finds a number that is not finite in its blocks of the gradient.
  void agree_on_skipping(Worker& worker, std::vector<Ticket>& reduced) {
    for (Ticket& t : reduced) worker.fabric().wait(std::exchange(t, nullptr));
    for (const Range& own : shares_)
      worker.scaler()->submit_check(worker.queue(), worker.gradients(own.first, own.count));
    if (!axis_sums_) return;
    double found = worker.scaler()->skips_step(worker.queue()) ? 1 : 0;
    axis_sums_->sum({&found, 1});
    if (found > 0) worker.scaler()->note_not_finite(worker.queue());
  }

  /// Makes the optimizer for the parts of a bucket's tensors in this rank's share. All ranks list all tensors of the
  /// bucket, some as empty parts, so that norms can be summed over ranks.
  std::unique_ptr<Optimizer> make_bucket_optimizer(Worker& worker, const Bucket& b, const Range& own) {
    const auto whole = worker.model().tensors().subspan(b.first_tensor, b.tensor_count);
    std::vector<model::Tensor> mine(whole.begin(), whole.end());
    for (model::Tensor& t : mine) {
      const auto inside = [&](std::size_t at) { return std::clamp(at, own.first, own.end()) - own.first; };
      const std::size_t from = inside(t.offset), to = inside(t.offset + t.count);
      t.offset = from;
      t.count = to - from;
      t.is_part = t.is_part || (takes_norms_ && axis_sums_);
    }
    SumsOverRanks* sums = worker.part_sums();
    if (takes_norms_ && axis_sums_) sums = &block_sums_.emplace_back(*axis_sums_, worker.part_sums(), whole);
    return make_optimizer(optimizer_, {.elements = own.count,
                                       .tensors = mine,
                                       .part_sums = sums,
                                       .device = worker.queue().device(),
                                       .first = own.first});
  }

  void update(Worker& worker, std::size_t bucket, UpdateStep step) {
    const Range& own = shares_[bucket];
    Optimizer& optimizer = *optimizers_[bucket];
    if (own.count == 0 && !optimizer.has_tensor_parts()) return;
    optimizer.update(worker.queue(), worker.parameters().part(own.first, own.count),
                     worker.gradients(own.first, own.count), 0, step);
  }

  std::string optimizer_;
  bool agrees_on_skipping_;  ///< the loss scale adapts, so that ranks must agree on the steps that they skip
  bool takes_norms_;
  std::vector<Bucket> buckets_;
  std::vector<Range> shares_;           ///< by bucket: the part of it that this rank owns
  std::optional<GroupSums> axis_sums_;  ///< empty unless norms or the decision to skip are summed over ranks
  std::list<BlockSums> block_sums_;     ///< by bucket
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
};

}  // namespace

/// Data parallelism without redundant optimizer state. Gradients are reduce-scattered bucket by bucket while the
/// backward pass goes on. Each rank applies the optimizer of the options to its own block of each bucket, and the
/// weights are gathered while the next bucket is updated. This is stage 1 of the paper: gradients are exchanged as in
/// stage 2, but every rank keeps whole buffers of gradients and weights. Blocks cut tensors, so an optimizer with norms
/// sums these over all blocks, bucket by bucket. Bytes: 2(P-1)/P · M for the ring, and with such an optimizer 16 for
/// each tensor and ordered pair of ranks. State: 1/P of the optimizer's. Source: Rajbhandari et al.,
/// "ZeRO: memory optimizations toward training trillion parameter models", SC20, section 5.
extern constinit const StrategyInfo sharded_strategy{
    .name = "sharded",
    .rule =
        "gradients reduce-scattered, own block updated, weights gathered, bucket by bucket; the paper's "
        "stage 1: only the optimizer's state is partitioned, gradients and weights are whole",
    .bytes_text = "2(P-1)/P M",
    .source = "Rajbhandari et al., SC20",
    .communication = CommunicationPattern::sharded_buckets,
    .keeps_optimizer_state = true,
    .only_optimizer_changes_weights = true,
    .may_skip_steps = true,
    .keeps_workers_equal = true,
    .make = [](const core::ParsedName&, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return std::make_unique<Sharded>(o);
    }};

namespace {

class Independent final : public Strategy {
 public:
  explicit Independent(const StrategyOptions& o) : Strategy(o.bucket_bytes) {}
  void begin(Worker&) override {}
  model::PendingOutcome step(Worker& worker, const model::Batch& batch, UpdateStep step) override {
    auto outcome = worker.pass(batch);
    update_by_buckets(worker, step);
    return outcome;
  }
  Forecast predict(const ForecastInput&) const override { return {}; }
};

}  // namespace

/// The control: every rank trains alone. A comparison with it shows the cost of communication; its own times show
/// contention between ranks that do not communicate. Bytes: none. Source: tf_cnn_benchmarks' `independent`.
extern constinit const StrategyInfo independent_strategy{
    .name = "independent",
    .rule = "no communication: the control",
    .bytes_text = "0",
    .source = "tf_cnn_benchmarks",
    .communication = CommunicationPattern::nothing,
    .only_optimizer_changes_weights = true,
    .may_skip_steps = true,
    .make = [](const core::ParsedName&, const StrategyOptions& o) -> std::unique_ptr<Strategy> {
      return std::make_unique<Independent>(o);
    }};

}  // namespace gradmeter::dataparallel
