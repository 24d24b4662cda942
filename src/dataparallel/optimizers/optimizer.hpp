// SPDX-License-Identifier: Apache-2.0
// Rules that make new weights from old ones: an optimizer uses a gradient, an outer optimizer the mean change of the
// weights over a block of steps.
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

/// One step of training as an optimizer sees it. step_size: the step size. number: the step's number, from 1.
/// loss_scale_counts: the counts of a loss scale that adapts; if these say that the step is skipped, the update does
/// nothing and is not counted. `update_number`: the number and the counts, in the form that kernels::loops() takes.
struct UpdateStep {
  float step_size = 0;
  std::uint64_t number = 1;
  runtime::ConstBuffer loss_scale_counts = runtime::empty_buffer;
  kernels::UpdateNumber update_number() const { return {.value = number, .counts = loss_scale_counts}; }
};

/// Sums values over the ranks that hold parts of the same tensors.
class SumsOverRanks {
 public:
  virtual ~SumsOverRanks() = default;
  /// Sums in place, in float64 and in rank order, so that all ranks get equal bits. All ranks must call it, with the
  /// same number of values.
  virtual void sum(std::span<double>) = 0;
};

/// An optimizer keeps state for the whole flat buffer. It is applied to ranges of the buffer one by one, to each range
/// once a step.
class Optimizer {
 public:
  explicit Optimizer(std::string name) : name_(std::move(name)) {}
  virtual ~Optimizer() = default;
  const std::string& name() const { return name_; }  ///< canonical: "momentum:mu=0.9"
  /// True if the optimizer uses norms of whole tensors. Ranges must then not cut the tensors of its scope; these may be
  /// parts of the model's tensors if it was made with `SumsOverRanks`.
  virtual bool needs_whole_tensors() const { return false; }
  /// Updates the range that begins at `offset` of the flat buffer. weights: the range itself. change, of the same
  /// length: a gradient, or for an outer optimizer a difference of weights.
  virtual void apply(runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep) = 0;
  /// The state that is kept from step to step, in buffers as long as the flat buffer. When all of it is set to zero and
  /// steps are counted from 1 again, the optimizer behaves like a new one.
  virtual std::vector<runtime::Buffer> state() { return {}; }
  /// The number of fp32 values that are kept for each element.
  virtual std::size_t kept_per_element() { return state().size(); }
  /// The cost of the whole update, norms included.
  virtual runtime::Cost cost(std::size_t count) const = 0;

  /// True if the optimizer was made for parts of tensors (with `SumsOverRanks`). Then `measure` and `share_norms` must
  /// be called before each `apply`, for the same range.
  virtual bool has_tensor_parts() const { return false; }
  /// Computes the range's contribution to the norms of its tensors.
  virtual void measure(runtime::Buffer, runtime::ConstBuffer, std::size_t, UpdateStep) {}
  virtual runtime::Cost measure_cost(std::size_t) const { return {}; }
  /// Sums, over the ranks that hold the other parts of the tensors, what `measure` computed; one exchange serves all
  /// tensors of the range.
  virtual void share_norms() {}
  /// Makes the whole update of a range: `measure` and `share_norms`, if needed, and `apply`. The exchange in
  /// `share_norms` lies between two computations, because a kernel cannot contain it.
  void update(runtime::Queue&, runtime::Buffer weights, runtime::ConstBuffer change, std::size_t offset, UpdateStep);

 private:
  std::string name_;
};

/// The weights that an optimizer is made for: a flat buffer and the tensors in it, with their offsets in the buffer.
struct OptimizerScope {
  std::size_t elements = 0;
  std::span<const model::Tensor> tensors = {};  ///< must last until the optimizer is made
  /// Sums over the ranks that hold the other parts of the tensors; must outlive the optimizer. Null: all tensors are
  /// whole.
  SumsOverRanks* part_sums = nullptr;
  runtime::Device& device = runtime::host_device();  ///< holds the weights, and so the state
  /// index of the buffer's first element among all weights of the model; it is a key of random draws
  std::size_t first = 0;

  /// Allocates zeros, one for each element.
  runtime::OwnedBuffer state() const { return device.allocate(core::Element::f32, elements); }
};

/// One row of the table in optimizer.cpp. `parameters`: their names with their defaults, "mu=0.9"; empty: none.
struct OptimizerInfo {
  std::string_view name, parameters, rule, source;
  std::unique_ptr<Optimizer> (*make)(const core::ParsedName&, const OptimizerScope&);
};
std::span<const OptimizerInfo> optimizers();
/// Makes the optimizer of this name: "sgd", "momentum", "momentum:mu=0.8", "adamw:decay=0.05". Every optimizer also has
/// the parameter `update`, the format of the weights (weight_format.hpp): "sgd:update=bf16-kahan".
/// Errors: UsageError for an unknown name or parameter.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimizerScope&);
/// The bytes that an optimizer of this name keeps for so many elements. Errors: those of `make_optimizer`.
std::size_t optimizer_bytes(std::string_view name, std::size_t elements);

/// The reason why this optimizer cannot use gradients that this codec sends; empty: it can. (A codec that corrects
/// momentum sends the steps of momentum SGD; an optimizer with momentum would apply momentum a second time.)
std::string codec_refusal(const compression::CodecChoicePtr&, std::string_view optimizer);

/// The value of a parameter, in [least, below). Errors: UsageError that names the range.
float optimizer_parameter(const core::ParsedName&, std::string_view key, float least, float below);

/// The parameters of the outer optimizer. When workers that trained apart synchronise, it applies the mean change of a
/// block of steps to the weights. step: the factor of the change (bmuf's zeta, diloco's outer step size, slowmo's
/// alpha).
struct OuterMomentum {
  float step = 1, mu = 0;
  bool nesterov = false;
  bool follows_step_size = false;  ///< true: v is scaled as the step size changes, see `make_outer_momentum`
};

/// v = mu·v + Δ; w += step·(nesterov ? Δ + mu·v : v). Δ is the mean of the workers' weights at the end of the block,
/// minus their common weights at its beginning. w holds the weights with which the workers begin the next block.
/// BMUF's paper scales first: v = mu·v + zeta·Δ. That is the same rule; its v is zeta times this v. BMUF's Nesterov
/// variant keeps W(t) = W(t-1) + v(t) and begins blocks at W(t) + mu·v(t). From the beginning of one block to that of
/// the next, the weights then change by zeta·Δ + mu·v(t), as in DiLoCo's outer SGD with Nesterov momentum.
/// follows_step_size: v = mu·(size/last size)·v + Δ, with the size of UpdateStep, which is otherwise not used. With
/// v = -size·u this is SlowMo's rule: u = mu·u - Δ/size and w -= step·size·u. After a size of 0, v begins at 0 again.
/// Cost: 20 bytes an element. State: 4 bytes an element.
/// Source: Chen & Huo, ICASSP 2016; Douillard et al., "DiLoCo", 2023, algorithm 1; Wang et al., "SlowMo", ICLR 2020.
std::unique_ptr<Optimizer> make_outer_momentum(const OptimizerScope&, OuterMomentum);

}  // namespace gradmeter::dataparallel
