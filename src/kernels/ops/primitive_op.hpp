// A oneDNN primitive as an operation: its operands in the library's layouts, and the primitives that pack them.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/onednn.hpp"
#include "kernels/ops/host_op.hpp"

namespace gradmeter::kernels::onednn {

/// An operand as the library sees it.
struct Argument {
  std::string_view name;
  int number;  ///< DNNL_ARG_…
  dnnl::memory::desc stored;
  dnnl::memory::desc plain;  ///< empty: there is no plain form
  bool added_to = false;
};

/// What the files of operations hand over. `scratchpad` is the user's (scratchpad_mode::user).
struct PreparedPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  std::vector<Argument> inputs, outputs;
  dnnl::primitive_attr packing = {};  ///< how numbers are quantized when they are packed
};

std::unique_ptr<Op> make_primitive_op(PreparedPrimitive, runtime::Cost, const dnnl::engine&, runtime::Device&);

}  // namespace gradmeter::kernels::onednn
