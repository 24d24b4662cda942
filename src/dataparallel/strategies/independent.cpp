#include "dataparallel/strategies/independent.hpp"

#include "dataparallel/buckets.hpp"

namespace gradmeter::dataparallel {
namespace {

class Independent final : public Strategy {
 public:
  explicit Independent(const StrategyOptions& o) : bucket_bytes_(o.bucket_bytes) {}
  void begin(Worker&) override {}
  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    auto outcome = w.pass(batch);
    // Bucket by bucket, as `sync` does, so that only the exchange differs.
    for (const Bucket& b : make_buckets(w.model().tensors(), w.model().element_count(), bucket_bytes_)) {
      w.update(b.offset, b.count, step);
    }
    return outcome;
  }
  Forecast predict(const ForecastInput&) const override { return {}; }
  ReplicaWork replica_work(const ForecastInput& s) const override {
    return {.updates = make_buckets(s.tensors, s.elements, bucket_bytes_)};
  }

 private:
  std::size_t bucket_bytes_;
};

}  // namespace

std::unique_ptr<Strategy> make_independent(const core::ParsedName&, const StrategyOptions& o) {
  return std::make_unique<Independent>(o);
}

}  // namespace gradmeter::dataparallel
