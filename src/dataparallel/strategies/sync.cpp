#include "dataparallel/strategies/sync.hpp"

#include "dataparallel/buckets.hpp"

namespace gradmeter::dataparallel {
namespace {

class Sync final : public Strategy {
 public:
  explicit Sync(const StrategyOptions& o) : bucket_bytes_(o.bucket_bytes) {}

  model::Outcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    if (buckets_.empty()) buckets_ = make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_);
    std::vector<Ticket> tickets;
    const auto outcome = w.pass(batch, [&](std::size_t tensor) {
      if (tickets.size() == buckets_.size()) return;
      const Bucket& b = buckets_[tickets.size()];
      if (tensor + 1 < b.first_tensor + b.tensors) return;
      tickets.push_back(exchange(w, b));
    });
    // A bucket is applied as soon as it is here, under the exchange of those behind it.
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      if (tickets[i]) w.fabric().wait(tickets[i]);
      w.update(buckets_[i].offset, buckets_[i].count, step);
    }
    return outcome;
  }

  Forecast predict(const Scene& s) const override {
    Forecast step;
    for (const Bucket& b : make_buckets(s.tensors, s.elements, bucket_bytes_)) {
      step += forecast_all_reduce(s, b.count, b.contents());
    }
    return step.times(s.steps);
  }
  CopyWork copy_work(const Scene& s) const override {
    return {.updates = make_buckets(s.tensors, s.elements, bucket_bytes_)};
  }

 private:
  static Ticket exchange(Worker& w, const Bucket& b) {
    if (w.ranks() == 1) return nullptr;
    return w.fabric().all_reduce(w.axis(), w.gradients(b.offset, b.count), allreduce::Op::average, w.fabric().record(),
                                 b.contents());
  }
  std::size_t bucket_bytes_;
  std::vector<Bucket> buckets_;  ///< of the model, which stays the same
};

}  // namespace

std::unique_ptr<Strategy> make_sync(const core::ParsedName&, const StrategyOptions& o) {
  return std::make_unique<Sync>(o);
}

}  // namespace gradmeter::dataparallel
