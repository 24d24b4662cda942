#include "kernels/cuda/libraries/rnn_weights.hpp"

#include <cstdint>
#include <stdexcept>

#include "core/small_float.hpp"
#include "kernels/cuda/each.cuh"

namespace gradmeter::kernels::cuda {
namespace {

__device__ std::size_t place_of_ours(std::size_t theirs, const GateMatrix& m) {
  const std::size_t unit = theirs / m.inputs, input = theirs % m.inputs;
  return (input * m.gates + m.gate) * m.hidden + unit;
}

template <class T>
__global__ void copy_gate(const T* ours, T* theirs, GateMatrix m) {
  const std::size_t i = element_of_thread();
  if (i < m.hidden * m.inputs) theirs[i] = ours[place_of_ours(i, m)];
}

struct FloatOf {
  __device__ float operator()(float v) const { return v; }
};
template <core::SmallFormat format>
struct FloatOfHalf {
  __device__ float operator()(std::uint16_t v) const { return core::to_float(format, v); }
};
template <class T, class ToFloat>
__global__ void add_gate_elements(const T* theirs, float* ours, ToFloat to_float, GateMatrix m) {
  const std::size_t i = element_of_thread();
  if (i < m.hidden * m.inputs) ours[place_of_ours(i, m)] += to_float(theirs[i]);
}

template <class T>
void launch_copy(const std::byte* ours, std::byte* theirs, const GateMatrix& m, cudaStream_t stream) {
  launch_each(copy_gate<T>, "copy_gate", m.hidden * m.inputs, stream, reinterpret_cast<const T*>(ours),
              reinterpret_cast<T*>(theirs), m);
}
template <class T, class ToFloat>
void launch_add(const std::byte* theirs, float* ours, const GateMatrix& m, cudaStream_t stream) {
  launch_each(add_gate_elements<T, ToFloat>, "add_gate_elements", m.hidden * m.inputs, stream,
              reinterpret_cast<const T*>(theirs), ours, ToFloat{}, m);
}
[[noreturn]] void refuse_weights() { throw std::logic_error("weights of recurrent layers have not this type"); }

}  // namespace

void take_gate(const std::byte* ours, std::byte* theirs, core::Element e, const GateMatrix& m, cudaStream_t stream) {
  if (e == core::Element::f32) return launch_copy<float>(ours, theirs, m, stream);
  if (e != core::Element::f16 && e != core::Element::bf16) refuse_weights();
  launch_copy<std::uint16_t>(ours, theirs, m, stream);
}

void add_gate(const std::byte* theirs, float* ours, core::Element e, const GateMatrix& m, cudaStream_t stream) {
  if (e == core::Element::f32) return launch_add<float, FloatOf>(theirs, ours, m, stream);
  if (e == core::Element::f16)
    return launch_add<std::uint16_t, FloatOfHalf<core::fp16_format>>(theirs, ours, m, stream);
  if (e != core::Element::bf16) refuse_weights();
  launch_add<std::uint16_t, FloatOfHalf<core::bf16_format>>(theirs, ours, m, stream);
}

}  // namespace gradmeter::kernels::cuda
