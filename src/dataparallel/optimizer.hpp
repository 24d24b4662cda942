// How a change becomes new weights: a gradient by an optimizer, a block's mean change by an outer optimizer, a delta by
// addition.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/update_number.hpp"
#include "runtime/buffer.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::dataparallel {

/// One step of training as an optimizer sees it. number: counted from 1. With the words of a loss' scale that adapts
/// the update is not made where they say so, and such steps are not counted: `which` is for kernels::loops().
struct UpdateStep {
  float size = 0;
  std::uint64_t number = 1;
  runtime::ConstBuffer loss_scale_counts = runtime::no_floats;
  kernels::UpdateNumber which() const { return {.value = number, .counts = loss_scale_counts}; }
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
  /// Does it use whole tensors (their norms)? Then it must not be given parts, unless it was made with `PartSums`.
  virtual bool needs_whole_tensors() const { return false; }
  /// weights and change [count], at `offset` of the flat buffer that the optimizer was made for. change is a gradient,
  /// or for an outer optimizer a difference of weights.
  virtual void apply(runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep) = 0;
  /// What it keeps from step to step, a value for each element of the flat buffer; all zeros, it is as new, once steps
  /// are counted from 1 again.
  virtual std::vector<runtime::Buffer> state() { return {}; }
  /// How many numbers of fp32 it keeps for each element.
  virtual std::size_t kept_per_element() { return state().size(); }
  /// Of the whole update, norms included.
  virtual runtime::Cost cost(std::size_t count) const = 0;

  /// Was it made for parts of tensors? Then `measure` and `share` must come before each `apply`, on the same range.
  virtual bool shares() const { return false; }
  /// Computes what the range adds to its tensors' norms.
  virtual void measure(runtime::Buffer, runtime::ConstBuffer, std::size_t, UpdateStep) {}
  virtual runtime::Cost measure_cost(std::size_t) const { return {}; }
  /// Sums that over the ranks that hold the tensors' other parts: one exchange for all tensors of the range.
  virtual void share() {}
  /// The whole update of a range. Exchanges come between computations, because they are not a kernel's work.
  void update(runtime::Queue&, runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep);

 private:
  std::string name_;
};

}  // namespace gradmeter::dataparallel
