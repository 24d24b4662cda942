// SPDX-License-Identifier: Apache-2.0
// The number format in which weights are kept, and in which changes are added to them, for any optimizer.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dataparallel/optimizers/optimizer.hpp"

namespace gradmeter::dataparallel {

/// Keeps weights in less than fp32. The inner optimizer computes a step from them in fp32, with its state and the
/// gradient in fp32 too. The new weights are then rounded; the flat buffer holds them as fp32 numbers that the format
/// can represent. A format with its own arithmetic makes the steps of `sgd` itself. All functions are called within
/// work, and use kernels::loops().
class UpdateFormat {
 public:
  using Buffer = runtime::Buffer;
  using ConstBuffer = runtime::ConstBuffer;
  virtual ~UpdateFormat() = default;
  /// Rounds the weights to the nearest numbers of the format.
  virtual void round(Buffer weights) const = 0;
  /// Writes w + (target − w) to w, where w is in the format. `carry` [as w, or empty where has_carry() is false] is
  /// zero at first, and holds what rounding has lost so far. place: the index of the first element among all weights,
  /// which is a key of random draws; these are the same in every run and on every rank.
  virtual void add(Buffer w, ConstBuffer target, Buffer carry, std::size_t place, const UpdateStep&) const = 0;
  virtual bool has_carry() const { return false; }
  /// Writes w − size·gradient to w, with product and sum in the format's arithmetic.
  virtual void descend(Buffer w, ConstBuffer gradient, Buffer carry, const UpdateStep&) const;
  virtual bool has_products() const { return false; }
};

/// One row of `update_formats`.
struct UpdateFormatInfo {
  std::string_view name, rule, source;
  std::unique_ptr<UpdateFormat> (*make)();  ///< null: no format around the optimizer
};
/// All formats of weights; fp32 is the first.
std::span<const UpdateFormatInfo> update_formats();

/// Makes the format of a name; null for fp32. Errors: UsageError that lists the formats.
std::unique_ptr<UpdateFormat> make_update_format(std::string_view name);

/// The optimizer's name with the format: "momentum:mu=0.9,update=bf16" for ("momentum:mu=0.9", "bf16"). fp32 adds
/// nothing.
/// Errors: UsageError where the name has another format already.
std::string with_update_format(std::string_view optimizer, std::string_view format);
/// The format in an optimizer's name, such as "bf16"; "fp32" where there is none.
std::string update_format_of(std::string_view optimizer);

/// Makes an optimizer that applies `inside` to weights in the format; its name has the parameter `update` too.
/// Cost: a copy of the weights and a pass over both: 20 bytes an element, 28 with a carry. Memory: 4 bytes an element
/// of the scope, 8 with a carry.
std::unique_ptr<Optimizer> make_rounded(std::unique_ptr<Optimizer> inside, std::string_view format,
                                        const OptimizerScope&);

}  // namespace gradmeter::dataparallel
