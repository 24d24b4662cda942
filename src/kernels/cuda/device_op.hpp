// SPDX-License-Identifier: Apache-2.0
// Code that all operations on a GPU share: the lists of their operands, none of which is packed (kernels/op.hpp), and
// the base class of the operations of every backend.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/element.hpp"
#include "kernels/op.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// Describes an operand that is not packed.
Operand plain_operand(std::string_view name, core::Element, std::size_t elements, bool is_added_to = false);

struct OperandLists {
  std::vector<Operand> inputs, outputs;
};
/// Lists the operands in the order of Op's description.
OperandLists conv_operands(const ConvShape&, Pass, core::Element);

/// The element types of a layer's operands. Gradients of weights, recurrent and bias are fp32.
struct RnnElements {
  core::Element layer;     ///< type of input, output, state, weights and recurrent
  core::Element memory;    ///< type of an lstm's memory and of biases
  core::Element gradient;  ///< type of the gradients of output, input, state and memory
};
/// Lists the operands in the order of Op's description. `kept_bytes`: length of the data that forward keeps for
/// backward.
OperandLists rnn_operands(const RnnShape&, Pass, bool training, const RnnElements&, std::size_t kept_bytes);

// Operations that a GPU runs. Their work goes into the stream of the queue that executes them.

using runtime::DeviceSpan;

/// Views a device buffer's memory as the type that it holds. Errors: std::logic_error for memory of the host.
template <class T>
DeviceSpan<const T> device_values(const runtime::ConstBuffer& b) {
  return DeviceSpan<const T>(reinterpret_cast<const T*>(b.device().device_address()), b.bytes() / sizeof(T));
}
template <class T>
DeviceSpan<T> device_values(const runtime::Buffer& b) {
  return DeviceSpan<T>(reinterpret_cast<T*>(b.device().device_address()), b.bytes() / sizeof(T));
}
/// Gives the address at which a buffer begins, for a library's calls.
template <class T = std::byte>
const T* address_of(const runtime::ConstBuffer& b) {
  return device_values<T>(b).device_address();
}
template <class T = std::byte>
T* address_of(const runtime::Buffer& b) {
  return device_values<T>(b).device_address();
}

/// Memory that all calls of an operation use.
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

/// The base class: each backend's operations derive from it and implement `launch`. Operands are never packed, so
/// `packing` and `unpacking` throw. `packing_from_fp32` and `unpacking_to_fp32` convert bf16 and fp16 operands from and
/// to fp32.
class DeviceOp : public Op {
 public:
  DeviceOp(OperandLists, runtime::Cost);

  std::span<const Operand> inputs() const override { return operands_.inputs; }
  std::span<const Operand> outputs() const override { return operands_.outputs; }
  runtime::Cost cost() const override { return cost_; }
  std::size_t scratch_bytes() const override { return 0; }
  std::unique_ptr<Op> packing(std::size_t input) const override;
  std::unique_ptr<Op> unpacking(std::size_t output) const override;
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override;
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override;
  /// Further errors: std::logic_error for memory of the host.
  void execute(Inputs, Outputs) final;
  void bind(Inputs, Outputs) final;

 protected:
  /// Queues the work on the stream, and does not wait.
  virtual void launch(Inputs, Outputs, cudaStream_t) = 0;
  virtual void bind_buffers(Inputs, Outputs) {}

 private:
  OperandLists operands_;
  runtime::Cost cost_;
};

/// Queues a kernel that brings one operand into the format of another.
using Conversion = std::function<void(const runtime::ConstBuffer& from, const runtime::Buffer& to, cudaStream_t)>;
std::unique_ptr<Op> make_conversion(const Operand& from, const Operand& to, Conversion);

/// Describes the same operand, but plain and in fp32.
Operand as_plain_floats(const Operand&);

}  // namespace gradmeter::kernels::cuda
