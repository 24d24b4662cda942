// An operation on plain memory in fp32, bf16 or fp16: its operands are not packed, and those in a half are converted
// from and to fp32.
#pragma once
#include <memory>
#include <string_view>

#include "core/element.hpp"
#include "kernels/cuda/device_op.hpp"

namespace gradmeter::kernels::cuda {

class HalfOp : public DeviceOp {
 public:
  using DeviceOp::DeviceOp;
  std::unique_ptr<Op> packing_floats(std::size_t input) const override;
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override;
};

/// Not packed.
Operand plain_operand(std::string_view name, core::Element, std::size_t elements, bool added_to = false);

}  // namespace gradmeter::kernels::cuda
