// SPDX-License-Identifier: Apache-2.0
// The rules that make new weights from a change: an optimizer from a gradient, an outer optimizer from the mean change
// of a block of steps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compression/registry.hpp"
#include "core/name.hpp"
#include "kernels/pointwise/updates.hpp"
#include "model/model.hpp"
#include "runtime/buffer.hpp"
#include "runtime/device.hpp"

namespace gradmeter::dataparallel {

/// One step of training as an optimizer sees it. number: counted from 1. loss_scale_counts: the counts of a loss scale
/// that adapts. If they say to skip an update, it is neither made nor counted. `which` gives both to kernels::loops().
struct UpdateStep {
  float size = 0;
  std::uint64_t number = 1;
  runtime::ConstBuffer loss_scale_counts = runtime::no_floats;
  kernels::UpdateNumber which() const { return {.value = number, .counts = loss_scale_counts}; }
};

/// Sums values over the ranks that hold parts of the same tensors.
class PartSums {
 public:
  virtual ~PartSums() = default;
  /// Sums in place, in float64, in the order of the ranks, so that all ranks get equal bits. All ranks call it
  /// together, with the same number of values.
  virtual void sum(std::span<double>) = 0;
};

/// An optimizer keeps its state for the whole flat buffer; ranges are applied one by one, each once a step.
class Optimizer {
 public:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}
  virtual ~Optimizer() = default;
  const std::string& name() const { return name_; }  ///< canonical: "momentum:mu=0.9"
  /// True where it uses norms of whole tensors. It must then not be given parts, unless it was made with `PartSums`.
  virtual bool needs_whole_tensors() const { return false; }
  /// weights and change [count], at `offset` of the flat buffer that the optimizer was made for. change is a gradient,
  /// or for an outer optimizer a difference of weights.
  virtual void apply(runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep) = 0;
  /// The state that it keeps from step to step, with a value for each element of the flat buffer. If all values are set
  /// to zero and steps are counted from 1 again, it is as new.
  virtual std::vector<runtime::Buffer> state() { return {}; }
  /// The number of fp32 values that it keeps for each element.
  virtual std::size_t kept_per_element() { return state().size(); }
  /// The cost of the whole update, norms included.
  virtual runtime::Cost cost(std::size_t count) const = 0;

  /// True where it was made for parts of tensors. Call `measure` and `share` before each `apply`, on the same range.
  virtual bool shares() const { return false; }
  /// Computes the range's contribution to the norms of its tensors.
  virtual void measure(runtime::Buffer, runtime::ConstBuffer, std::size_t, UpdateStep) {}
  virtual runtime::Cost measure_cost(std::size_t) const { return {}; }
  /// Sums these contributions over the ranks that hold the tensors' other parts, in one exchange for all tensors of the
  /// range.
  virtual void share() {}
  /// Makes the whole update of a range. The exchange is made between computations, because a kernel cannot contain it.
  void update(runtime::Queue&, runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep);

 private:
  std::string name_;
};

/// The scope that an optimizer is made for: the flat buffer's length, and the tensors in it (offsets within it).
struct OptimizerScope {
  std::size_t elements = 0;
  std::span<const model::Tensor> tensors = {};  ///< must last until the optimizer is made
  /// Sums over the ranks that hold the other parts of the tensors; null: all tensors are whole. It must outlive the
  /// optimizer.
  PartSums* parts = nullptr;
  runtime::Device& device = runtime::host_device();  ///< holds the weights, and so the state
  std::size_t first = 0;  ///< index of the first element among all weights of the model, a key of random draws

  /// Allocates zeros, one for each element.
  runtime::OwnedBuffer state() const { return device.allocate(core::Element::f32, elements); }
};

/// One row of the registry in optimizer.cpp. `parameters`: their names with their defaults, "mu=0.9"; empty: none.
struct OptimizerInfo {
  std::string_view name, parameters, rule, source;
  std::unique_ptr<Optimizer> (*make)(const core::ParsedName&, const OptimizerScope&);
};
std::span<const OptimizerInfo> optimizers();
/// Makes an optimizer of a name: "sgd", "momentum", "momentum:mu=0.8", "adamw:decay=0.05". Each name also takes
/// `update`, the format of the weights (number_format.hpp): "sgd:update=bf16-kahan".
/// Errors: UsageError for an unknown name or parameter.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimizerScope&);
/// The bytes that an optimizer of this name keeps for so many elements. Errors: as `make_optimizer`.
std::size_t optimizer_bytes(std::string_view name, std::size_t elements);

/// The reason why gradients that are sent by this codec cannot be given to this optimizer; empty: they can. A codec
/// that corrects momentum sends the steps of momentum SGD, and another optimizer would apply momentum a second time.
std::string codec_refusal(const compression::CodecChoicePtr&, std::string_view optimizer);

/// The value of a parameter, in [least, below). Errors: UsageError that names the range.
float optimizer_parameter(const core::ParsedName&, std::string_view key, float least, float below);

/// The outer optimizer applies the mean change of a block of steps when workers that trained apart synchronise. step:
/// the factor of the change (bmuf's zeta, diloco's outer step size, slowmo's alpha).
struct OuterMomentum {
  float step = 1, mu = 0;
  bool nesterov = false;
  bool follows_step_size = false;  ///< v grows and shrinks with the step size, see `make_outer_momentum`
};

/// v = mu·v + Δ; w += step·(nesterov ? Δ + mu·v : v). Δ is the mean of the workers' weights minus their weights at the
/// beginning of the block. w holds the weights at which they begin the next block.
/// BMUF's paper scales first, v = mu·v + zeta·Δ, which is the same with its v in units of step. Its Nesterov variant
/// keeps W(t) = W(t-1) + v(t) and begins blocks at W(t) + mu·v(t). In terms of the weights at which blocks begin, that
/// is w += zeta·Δ + mu·v(t). So it is the same as DiLoCo's outer SGD with Nesterov momentum.
/// follows_step_size: v = mu·(size/last size)·v + Δ, where size is UpdateStep's; otherwise that is not used. With v =
/// -size·u this is SlowMo's u = mu·u - Δ/size and w -= step·size·u. After a size of 0, v begins at 0 again.
/// Cost: 20 bytes an element. State: 4 bytes an element.
/// Source: Chen & Huo, ICASSP 2016; Douillard et al., "DiLoCo", 2023, algorithm 1; Wang et al., "SlowMo", ICLR 2020.
std::unique_ptr<Optimizer> make_outer_momentum(const OptimizerScope&, OuterMomentum);

}  // namespace gradmeter::dataparallel
