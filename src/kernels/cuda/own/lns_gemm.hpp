// Products of matrices of logarithmic numbers on a GPU, and what brings numbers into the system and back.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/gemm.hpp"
#include "kernels/lns/conversion.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// C = op(A)·op(B) with logarithmic sums: lns_gemm_reference, bit for bit, in the order k = 0, 1, 2, …
/// `doubled`: LnsTables::doubled() of the system in device memory; a block copies it into shared memory, some 10 KB.
/// Shape:  a [m × k], b [k × n] (or as the problem transposes them), c [m × n]; row-major.
/// Cost:   m·n·k look-ups in shared memory; each operand is read once for 16 rows or columns of the result.
/// Errors: std::invalid_argument when a length differs, and for bias, activation, accumulation, packing and batches;
///         BackendError when a launch fails.
void lns_gemm(const GemmShape&, DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> a,
              DeviceSpan<const Lns16> b, DeviceSpan<Lns16> c, cudaStream_t);

/// c[i][j] + bias[j], then ReLU where asked, each with the bits of `Lns`. Shape: bias [n], c [m × n].
/// Errors: std::invalid_argument when c has no whole rows; BackendError when a launch fails.
void lns_add_bias(DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> bias, DeviceSpan<Lns16> c,
                  cudaStream_t);
void lns_relu(DeviceSpan<Lns16> c, cudaStream_t);

/// The host's lns_encode and lns_decode, bit for bit; the tables are in device memory. Cost: 6 bytes an element.
/// Errors: std::invalid_argument when lengths differ; BackendError when a launch fails.
void lns_encode(const LnsConversion&, DeviceSpan<const float> values, DeviceSpan<Lns16> words, cudaStream_t);
void lns_decode(const LnsConversion&, DeviceSpan<const Lns16> words, DeviceSpan<float> values, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
