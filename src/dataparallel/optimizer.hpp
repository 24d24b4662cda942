// How a change becomes new weights: a gradient by an optimizer, a block's mean change by an outer rule, a delta as it
// is.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "model/compute.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::dataparallel {

/// One step of training as a rule sees it. number: counted from 1.
struct UpdateStep {
  float size = 0;
  std::uint64_t number = 1;
};

/// Sums over the ranks that hold parts of the same tensors.
class PartSums {
 public:
  virtual ~PartSums() = default;
  /// In place, in float64, in the order of the ranks: equal bits on all of them. All call it together, with as many
  /// values.
  virtual void sum(std::span<double>) = 0;
};

/// Keeps its state for the whole flat buffer; ranges are applied one by one, each once a step.
class Optimizer {
 public:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}
  virtual ~Optimizer() = default;
  const std::string& name() const { return name_; }  ///< canonical: "momentum:mu=0.9"
  /// Of whole tensors (their norms): must not be given parts of them, unless it was made with `PartSums`.
  virtual bool needs_whole_tensors() const { return false; }
  /// weights and change [count], at `offset` of the flat buffer that the rule was made for. change is a gradient where
  /// the rule is an optimizer, a difference of weights where it is an outer rule.
  virtual void apply(runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep) = 0;
  /// Of all that an update takes, norms among it.
  virtual model::Cost cost(std::size_t count) const = 0;

  /// Was made for parts of tensors: `measure` and `share` must come before each `apply`, on the same range.
  virtual bool shares() const { return false; }
  /// What the range adds to its tensors' norms.
  virtual void measure(runtime::Buffer, runtime::ConstBuffer, std::size_t, UpdateStep) {}
  virtual model::Cost measure_cost(std::size_t) const { return {}; }
  /// Sums that over the ranks that hold the tensors' other parts: one exchange for all tensors of the range.
  virtual void share() {}
  /// The whole update of a range. Exchanges stand between computations: they are no work of a kernel.
  void update(model::Computer&, runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep);

 private:
  std::string name_;
};

}  // namespace gradmeter::dataparallel
