// The registry of optimizers. A new one is a file of its own and one row in registry.cpp.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "compression/registry.hpp"
#include "core/name.hpp"
#include "dataparallel/optimizer.hpp"
#include "model/model.hpp"

namespace gradmeter::dataparallel {

/// What an optimizer is made for: the flat buffer's length, and the tensors in it (offsets within it).
struct OptimizerScope {
  std::size_t elements = 0;
  std::span<const model::Tensor> tensors = {};  ///< must last until the optimizer is made
  /// Over the ranks that hold the rest of tensors that are parts; null: all tensors are whole. Must outlive the
  /// optimizer.
  PartSums* parts = nullptr;
  runtime::Device& device = runtime::host_device();  ///< where weights are, and so its state
  std::size_t first = 0;  ///< place of the first element among all weights of the model: random draws differ by it

  /// Zeros, one for each element.
  runtime::OwnedBuffer state() const { return device.allocate(core::Element::f32, elements); }
};

/// One row. `parameters`: with their defaults, "mu=0.9"; empty: none.
struct OptimizerInfo {
  std::string_view name, parameters, rule, source;
  std::unique_ptr<Optimizer> (*make)(const core::ParsedName&, const OptimizerScope&);
};
std::span<const OptimizerInfo> optimizers();
/// "sgd", "momentum", "momentum:mu=0.8", "adamw:decay=0.05". Each takes `update` too, the format of the weights
/// (number_format.hpp): "sgd:update=bf16-kahan".
/// Errors: UsageError for an unknown name or parameter.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const OptimizerScope&);
/// Bytes that an optimizer of this name keeps for so many elements. Errors: as `make_optimizer`.
std::size_t optimizer_bytes(std::string_view name, std::size_t elements);

/// Why gradients that travel by this codec cannot be given to that optimizer; empty: they can. A codec that corrects
/// momentum sends the steps of momentum SGD, and another optimizer's momentum would apply it twice.
std::string codec_refusal(const compression::CodecChoicePtr&, std::string_view optimizer);

/// A parameter's value in [least, below). Errors: UsageError that says so.
float optimizer_parameter(const core::ParsedName&, std::string_view key, float least, float below);

}  // namespace gradmeter::dataparallel
