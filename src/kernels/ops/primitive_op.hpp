// A oneDNN primitive as an operation: its operands in the library's layouts, and the primitives that pack them.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/onednn.hpp"
#include "kernels/ops/host_op.hpp"
#include "kernels/quantization.hpp"

namespace gradmeter::kernels::onednn {

/// An operand as the library sees it.
struct Argument {
  std::string_view name;
  int number;  ///< DNNL_ARG_…
  dnnl::memory::desc stored;
  dnnl::memory::desc plain;  ///< empty: there is no plain form
  bool added_to = false;
  std::optional<dnnl::primitive_attr> floats = {};  ///< between fp32 and the stored form; empty: `packing`
};

/// What the files of operations hand over. `scratchpad` is the user's (scratchpad_mode::user).
struct PreparedPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  std::vector<Argument> inputs, outputs;
  dnnl::primitive_attr packing = {};  ///< how numbers are quantized when they are packed
};

/// How operands of an int8 product or convolution come from fp32, and its sums become fp32: outputs are the second
/// dimension of its result, and of its weights the dimension of this number. Sums keep what the zero point adds.
void quantize(const Quantization&, int weight_outputs, PreparedPrimitive&);

std::unique_ptr<Op> make_primitive_op(PreparedPrimitive, runtime::Cost, const dnnl::engine&, runtime::Device&);

}  // namespace gradmeter::kernels::onednn
