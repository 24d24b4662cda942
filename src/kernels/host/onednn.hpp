// SPDX-License-Identifier: Apache-2.0
// The code that all callers of oneDNN share: it turns oneDNN's errors into BackendErrors, says what the library
// supports on this processor, and names the library's types.
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

/// Converts the extent of a dimension to oneDNN's signed type. Errors: BackendError when it is too large.
inline dnnl::memory::dim dim(std::size_t n) {
  if (n > std::size_t{1} << 62) throw core::BackendError("oneDNN", "extent", fmt::format("{} is too large", n));
  return static_cast<dnnl::memory::dim>(n);
}

/// The reason why the library has no bf16 on this processor; empty: it has.
std::string bf16_refusal();

/// The types of the left and right operand of a product or convolution, and of its result, which holds the sums.
struct OperandTypes {
  Type left, right, result;
};
OperandTypes operand_types(Precision);

// Below, a oneDNN primitive becomes an Op: its operands have the library's layouts, and further primitives pack them.

/// An operand as oneDNN describes it. Stored and plain form are those of Operand (op.hpp).
struct Argument {
  std::string_view name;
  int number;  ///< the library's constant for the argument: DNNL_ARG_…
  dnnl::memory::desc stored;
  dnnl::memory::desc plain;  ///< empty: there is no plain form
  bool is_added_to = false;  ///< as in Operand
  /// The attributes of the conversion between fp32 and the stored form; empty: PreparedPrimitive::packing_attributes.
  std::optional<dnnl::primitive_attr> fp32_conversion = {};
};

/// A primitive and its description, from which make_primitive_op makes an Op. The primitive has scratchpad_mode::user:
/// the Op provides its scratch memory, which `scratchpad` describes.
struct PreparedPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  std::vector<Argument> inputs, outputs;
  dnnl::primitive_attr packing_attributes = {};  ///< attributes of packing and unpacking: how numbers are quantized
};

/// Sets how an int8 product or convolution quantizes fp32 operands and turns its sums into fp32. Each output (a column
/// or a filter) has a scale of its own. weights_output_dimension: the dimension of the weights that counts the outputs;
/// in the result, dimension 1 counts them. What the inputs' zero point adds to the sums is not subtracted.
void quantize(const Quantization&, int weights_output_dimension, PreparedPrimitive&);

/// Makes the operation that executes the primitive.
std::unique_ptr<Op> make_primitive_op(PreparedPrimitive, runtime::Cost, const dnnl::engine&, runtime::Device&);

}  // namespace gradmeter::kernels::onednn
