#include "dataparallel/independent.hpp"

#include "dataparallel/buckets.hpp"

namespace gradmeter::dataparallel {
namespace {

class Independent final : public Strategy {
 public:
  explicit Independent(const StrategyOptions& o) : options_(o) {}
  void begin(Worker&) override {}
  model::Outcome step(Worker& w, const model::Batch& batch, float step) override {
    const auto outcome = w.model().forward(w, w.buffers(), batch);
    w.model().backward(w, w.buffers(), batch, [](std::size_t) {});
    // Bucket by bucket, as `sync` does it: the control differs in the exchange alone.
    for (const Bucket& b : make_buckets(w.model().tensors(), w.model().element_count(), options_.bucket_bytes)) {
      w.update(b.offset, b.count, step);
    }
    return outcome;
  }

 private:
  StrategyOptions options_;
};

}  // namespace

std::unique_ptr<Strategy> make_independent(const StrategyOptions& o) { return std::make_unique<Independent>(o); }

}  // namespace gradmeter::dataparallel
