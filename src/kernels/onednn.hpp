// Shared by all uses of oneDNN: its errors as BackendError, what it has on this processor, its types.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "core/error.hpp"
#include "core/format.hpp"
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

/// Errors: BackendError for an extent that the library would take for something else.
inline dnnl::memory::dim dim(std::size_t n) {
  if (n > std::size_t{1} << 62) throw core::BackendError("oneDNN", "extent", fmt::format("{} is too large", n));
  return static_cast<dnnl::memory::dim>(n);
}

/// Why the library has no bf16 on this processor; empty: it has.
std::string bf16_refusal();

/// The types of a product or convolution: of its operands, and of its sums.
struct OperandTypes {
  Type left, right, result;
};
OperandTypes operand_types(Precision);

}  // namespace gradmeter::kernels::onednn
