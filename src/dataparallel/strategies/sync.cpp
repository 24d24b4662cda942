#include "dataparallel/strategies/sync.hpp"

#include "compression/momentum_correction.hpp"
#include "compression/warm_up.hpp"
#include "dataparallel/buckets.hpp"

namespace gradmeter::dataparallel {
namespace {

class Sync final : public Strategy {
 public:
  explicit Sync(const StrategyOptions& o) : bucket_bytes_(o.bucket_bytes), clip_(compression::clip_of(o.codec)) {}

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    if (buckets_.empty()) buckets_ = make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_);
    std::vector<Ticket> tickets;
    const bool clips = clip_ > 0 && w.ranks() > 1;
    auto outcome = w.pass(batch, [&](std::size_t tensor) {
      if (clips) return;  // the norm is of all tensors: nothing can be sent before the last
      if (tickets.size() == buckets_.size()) return;
      const Bucket& b = buckets_[tickets.size()];
      if (tensor + 1 < b.first_tensor + b.tensors) return;
      tickets.push_back(exchange(w, b));
    });
    if (clips) {
      const auto n = static_cast<double>(w.gradients().count());
      w.queue().submit("clip", {3 * n, 12 * n},
                       [clip = clip_, gradients = w.gradients(), ranks = static_cast<std::size_t>(w.ranks())] {
                         compression::clip_gradient(gradients.values<float>(), clip, ranks);
                       });
      for (const Bucket& b : buckets_) tickets.push_back(exchange(w, b));
    }
    // A bucket is applied as soon as it is here, during the exchange of those after it.
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (tickets[i]) w.fabric().wait(tickets[i]);
      w.update(buckets_[i].offset, buckets_[i].count, step);
    }
    return outcome;
  }

  Forecast predict(const ForecastInput& s) const override {
    const auto buckets = make_buckets(s.tensors, s.elements, bucket_bytes_);
    Forecast all;
    for (const auto& phase : compression::warm_up_phases(s.codec, s.first_step - 1, s.steps)) {
      ForecastInput like = s;
      like.codec = phase.codec;
      Forecast step;
      for (const Bucket& b : buckets) step += forecast_all_reduce(like, b.count, b.tensor_layout());
      all += step.times(phase.steps);
    }
    return all;
  }
  ReplicaWork replica_work(const ForecastInput& s) const override {
    return {.updates = make_buckets(s.tensors, s.elements, bucket_bytes_)};
  }

 private:
  static Ticket exchange(Worker& w, const Bucket& b) {
    if (w.ranks() == 1) return nullptr;
    return w.fabric().all_reduce(w.axis(), w.gradients(b.offset, b.count), allreduce::Op::average, w.fabric().record(),
                                 b.tensor_layout());
  }
  std::size_t bucket_bytes_;
  double clip_;                  ///< 0: none
  std::vector<Bucket> buckets_;  ///< of the model, which stays the same
};

}  // namespace

std::unique_ptr<Strategy> make_sync(const core::ParsedName&, const StrategyOptions& o) {
  return std::make_unique<Sync>(o);
}

}  // namespace gradmeter::dataparallel
