#include "dataparallel/sync.hpp"

#include "dataparallel/buckets.hpp"

namespace gradmeter::dataparallel {
namespace {

class Sync final : public Strategy {
 public:
  explicit Sync(const StrategyOptions& o) : options_(o) {}

  model::Outcome step(Worker& w, const model::Batch& batch, float step) override {
    if (buckets_.empty()) {
      buckets_ = make_buckets(w.model().tensors(), w.model().element_count(), options_.bucket_bytes);
    }
    const auto& buckets = buckets_;
    std::vector<Ticket> tickets;
    const auto outcome = w.model().forward(w, w.buffers(), batch);
    w.model().backward(w, w.buffers(), batch, [&](std::size_t tensor) {
      if (tickets.size() == buckets.size()) return;
      const Bucket& b = buckets[tickets.size()];
      if (tensor + 1 < b.first_tensor + b.tensors) return;
      tickets.push_back(exchange(w, b));
    });
    // A bucket is applied as soon as it is here, under the exchange of those behind it.
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      if (tickets[i]) w.fabric().wait(tickets[i]);
      w.update(buckets[i].offset, buckets[i].count, step);
    }
    return outcome;
  }

 private:
  static Ticket exchange(Worker& w, const Bucket& b) {
    if (w.fabric().size() == 1) return nullptr;
    return w.fabric().all_reduce(everybody, w.gradients(b.offset, b.count), allreduce::Op::average, w.fabric().record(),
                                 b.contents());
  }
  StrategyOptions options_;
  std::vector<Bucket> buckets_;  ///< of the model, which stays the same
};

}  // namespace

std::unique_ptr<Strategy> make_sync(const StrategyOptions& o) { return std::make_unique<Sync>(o); }

}  // namespace gradmeter::dataparallel
