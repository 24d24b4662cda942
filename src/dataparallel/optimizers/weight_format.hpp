// SPDX-License-Identifier: Apache-2.0
// Number formats narrower than fp32 in which weights are kept and updated, for any optimizer.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataparallel/optimizers/optimizer.hpp"

namespace gradmeter::dataparallel {

/// A format for weights. The flat buffer holds the weights as fp32 numbers that the format can represent. An optimizer
/// computes new weights from them in fp32, with gradient and state in fp32 too; then the format rounds the new weights
/// (`add`). A format with arithmetic of its own makes the steps of `sgd` itself (`descend`). All functions are called
/// within work of a queue, and use kernels::loops().
class UpdateFormat {
 public:
  using Buffer = runtime::Buffer;
  using ConstBuffer = runtime::ConstBuffer;
  virtual ~UpdateFormat() = default;
  /// Rounds the weights to the nearest numbers of the format.
  virtual void round(Buffer weights) const = 0;
  /// Moves the weights w to the target: computes w + (target − w), rounds it to the format, and writes it to w. carry
  /// (only if has_carry(); of the same length as w, zero at first) holds what rounding has lost so far. place: the
  /// index of the first element among all weights. Random rounding uses it as a key, so its draws are the same in every
  /// run and on every rank.
  virtual void add(Buffer w, ConstBuffer target, Buffer carry, std::size_t place, const UpdateStep&) const = 0;
  virtual bool has_carry() const { return false; }
  /// Only if has_products(): writes w − step.size·gradient to w, with product and sum in the format's arithmetic.
  virtual void descend(Buffer w, ConstBuffer gradient, Buffer carry, const UpdateStep&) const;
  virtual bool has_products() const { return false; }
};

/// One row of `update_formats`.
struct UpdateFormatInfo {
  std::string_view name, rule, source;
  std::unique_ptr<UpdateFormat> (*make)();  ///< null for fp32, which rounds nothing
};
/// All formats of weights; fp32 is the first.
std::span<const UpdateFormatInfo> update_formats();

/// Makes the format of this name; null for fp32. Errors: UsageError that lists the formats.
std::unique_ptr<UpdateFormat> make_update_format(std::string_view name);

/// The optimizer's name with the format added: "momentum:mu=0.9,update=bf16" for ("momentum:mu=0.9", "bf16"). For fp32
/// nothing is added. Errors: UsageError if the name has another format already.
std::string with_update_format(std::string_view optimizer, std::string_view format);
/// The format in an optimizer's name, such as "bf16"; "fp32" if there is none.
std::string update_format_of(std::string_view optimizer);

/// Makes an optimizer that applies `inner` to weights in the format. It is named like `inner`, with the parameter
/// `update` added.
/// Cost besides that of `inner`: a copy of the weights, and a pass over weights and copy; together 20 bytes an
/// element, 28 with a carry. Memory: 4 bytes an element for the copy, 4 for the carry.
std::unique_ptr<Optimizer> make_rounded(std::unique_ptr<Optimizer> inner, std::string_view format,
                                        const OptimizerScope&);

}  // namespace gradmeter::dataparallel
