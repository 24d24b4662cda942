// The check that every operation makes of the buffers it is given.
#pragma once
#include <span>
#include <stdexcept>

#include "core/format.hpp"
#include "kernels/op.hpp"

namespace gradmeter::kernels {

/// Errors: std::invalid_argument when number or lengths are not those of the stored forms.
template <class AnyBuffer>
void require_lengths(std::span<const Operand> operands, std::span<const AnyBuffer> buffers) {
  if (buffers.size() != operands.size())
    throw std::invalid_argument(fmt::format("{} buffers for {} operands", buffers.size(), operands.size()));
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (buffers[i].bytes() != operands[i].stored_bytes)
      throw std::invalid_argument(
          fmt::format("{} has {} bytes, not {}", operands[i].name, buffers[i].bytes(), operands[i].stored_bytes));
}

}  // namespace gradmeter::kernels
