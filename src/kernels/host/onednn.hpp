// SPDX-License-Identifier: Apache-2.0
// What all code that calls oneDNN shares: oneDNN's errors as BackendError, what the library supports on this processor,
// and its types.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/number_format.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels::onednn {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

/// Turns oneDNN's exception into a BackendError that names the failed call.
template <class Work>
auto checked(const char* call, Work&& work) {
  try {
    return work();
  } catch (const dnnl::error& e) {
    throw core::BackendError("oneDNN", call, e.message);
  }
}

/// Narrows an extent. Errors: BackendError for one that does not fit the library's type.
inline dnnl::memory::dim dim(std::size_t n) {
  if (n > std::size_t{1} << 62) throw core::BackendError("oneDNN", "extent", fmt::format("{} is too large", n));
  return static_cast<dnnl::memory::dim>(n);
}

/// Why the library has no bf16 on this processor; empty: it has.
std::string bf16_refusal();

/// The types of the operands of a product or convolution, and of its sums.
struct OperandTypes {
  Type left, right, result;
};
OperandTypes operand_types(Precision);

// A oneDNN primitive as an operation: its operands in the library's layouts, and the primitives that pack them.

/// An operand as the library sees it.
struct Argument {
  std::string_view name;
  int number;  ///< DNNL_ARG_…
  dnnl::memory::desc stored;
  dnnl::memory::desc plain;  ///< empty: there is no plain form
  bool added_to = false;
  /// Attributes of the conversion between fp32 and the stored form; empty: those of `packing`.
  std::optional<dnnl::primitive_attr> floats = {};
};

/// What make_primitive_op needs to know of a primitive. The primitive has scratchpad_mode::user: whoever executes it
/// provides memory of the form `scratchpad`.
struct PreparedPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  std::vector<Argument> inputs, outputs;
  dnnl::primitive_attr packing = {};  ///< how numbers are quantized when they are packed
};

/// Sets how an int8 product or convolution quantizes fp32 operands and turns its sums into fp32. Outputs (columns,
/// filters) are the second dimension of the result, and dimension `weight_outputs` of the weights. The sums still
/// contain what the zero point adds to them.
void quantize(const Quantization&, int weight_outputs, PreparedPrimitive&);

std::unique_ptr<Op> make_primitive_op(PreparedPrimitive, runtime::Cost, const dnnl::engine&, runtime::Device&);

}  // namespace gradmeter::kernels::onednn
