// The rule that turns a gradient into a change of the weights.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model/compute.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::dataparallel {

/// Keeps its state for the whole flat buffer; buckets are applied one by one, each once a step.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual const std::string& name() const = 0;  ///< canonical: "momentum:mu=0.9"
  /// weights and gradient [count], at `offset` of the flat buffer.
  virtual void apply(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset, float step) = 0;
  virtual model::Cost cost(std::size_t count) const = 0;
};

struct OptimizerInfo {
  std::string_view name, source;
};
std::span<const OptimizerInfo> optimizers();
/// "sgd", "momentum", "momentum:mu=0.8", "nesterov:mu=0.9". `elements`: length of the flat buffer.
/// Errors: UsageError for an unknown name or parameter.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::size_t elements);

}  // namespace gradmeter::dataparallel
