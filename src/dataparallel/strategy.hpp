// A training strategy: what a step does with a model and a fabric. It owns no MPI call and no timer.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "dataparallel/fabric.hpp"
#include "dataparallel/optimizer.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// What a worker has. Also the model's way to ask for computation.
class Worker final : public model::Computer {
 public:
  Worker(Fabric& fabric, model::Model& model, model::Buffers buffers, Optimizer& optimizer)
      : fabric_(fabric), model_(model), buffers_(buffers), optimizer_(optimizer) {}
  Fabric& fabric() { return fabric_; }
  model::Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  model::Buffers buffers() const { return buffers_; }
  Buffer gradients(std::size_t offset, std::size_t count) const { return buffers_.gradients.part(offset, count); }
  void compute(std::string_view label, model::Cost cost, const std::function<void()>& work) override {
    fabric_.compute(label, cost, work);
  }
  /// Applies the optimizer to one range of the flat buffers.
  void update(std::size_t offset, std::size_t count, float step);

 private:
  Fabric& fabric_;
  model::Model& model_;
  model::Buffers buffers_;
  Optimizer& optimizer_;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// Once, before the first step: all ranks begin with rank 0's weights.
  virtual void begin(Worker&);
  /// One training step on this rank's part of the batch; `step` is the step size. All calls it makes are done on
  /// return.
  virtual model::Outcome step(Worker&, const model::Batch&, float step) = 0;
};

struct StrategyOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// `communicates`: algorithm, bucket and overlap mean something to it.
struct StrategyInfo {
  std::string_view name, rule, source;
  bool communicates;
  std::unique_ptr<Strategy> (*make)(const StrategyOptions&);
};
std::span<const StrategyInfo> strategies();
/// Errors: UsageError that lists what there is.
const StrategyInfo& find_strategy(std::string_view name);

}  // namespace gradmeter::dataparallel
