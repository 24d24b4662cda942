// An operation that a GPU computes: what a backend of the device derives from.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// What lies in memory as it is defined.
Operand plain_operand(std::string_view name, core::Element, std::size_t elements, bool added_to = false);

/// A device buffer's memory as what it holds. Errors: std::logic_error for memory of the host.
template <class T>
DeviceSpan<const T> device_values(const runtime::ConstBuffer& b) {
  return DeviceSpan<const T>(reinterpret_cast<const T*>(b.device().device_address()), b.bytes() / sizeof(T));
}
template <class T>
DeviceSpan<T> device_values(const runtime::Buffer& b) {
  return DeviceSpan<T>(reinterpret_cast<T*>(b.device().device_address()), b.bytes() / sizeof(T));
}

/// Memory that every call of an operation uses.
class Scratch {
 public:
  Scratch(runtime::Device& device, std::size_t floats) {
    if (floats > 0) memory_ = device.allocate(core::Element::f32, floats);
  }
  std::size_t bytes() const { return memory_.buffer.bytes(); }
  DeviceSpan<float> span() const { return bytes() > 0 ? device_values<float>(memory_.buffer) : DeviceSpan<float>(); }

 private:
  runtime::OwnedBuffer memory_;
};

/// A backend derives from it and writes `launch`. Operands of 16 bits are converted from fp32 and to it.
class DeviceOp : public Op {
 public:
  DeviceOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost);

  std::span<const Operand> inputs() const override { return inputs_; }
  std::span<const Operand> outputs() const override { return outputs_; }
  runtime::Cost cost() const override { return cost_; }
  std::size_t scratch_bytes() const override { return 0; }
  std::unique_ptr<Op> packing(std::size_t input) const override;
  std::unique_ptr<Op> unpacking(std::size_t output) const override;
  std::unique_ptr<Op> packing_floats(std::size_t input) const override;
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override;
  void execute(Inputs, Outputs) final;
  void bind(Inputs, Outputs) override {}

 protected:
  virtual void launch(Inputs, Outputs, cudaStream_t) = 0;

 private:
  std::vector<Operand> inputs_, outputs_;
  runtime::Cost cost_;
};

}  // namespace gradmeter::kernels::cuda
