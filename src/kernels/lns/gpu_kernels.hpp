// SPDX-License-Identifier: Apache-2.0
// Logarithmic numbers on a GPU: the tables of the system, products, and training.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/gemm/gemm.hpp"
#include "kernels/lns/arithmetic.hpp"
#include "kernels/pointwise/gpu_kernels.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// The tables for one number of fraction bits, some 340 KB in the device's memory.
struct DeviceLnsTables {
  runtime::DeviceSpan<const std::int16_t> doubled_sums;  ///< LnsTables::doubled()
  LnsConversion conversion;                              ///< points to device memory
  /// Table of exp x for x ≤ 0 [32768]: entry e holds the bits (Lns16::bits) of exp x for the x whose Lns16::code() is
  /// e. Results that are too small for the number system are zero.
  runtime::DeviceSpan<const std::uint16_t> exponential;
};

/// Returns the tables of the calling thread's current device. They are made at first use and kept as long as the
/// process lives. Any thread may call it.
/// Errors: BackendError without memory for them; UsageError when fraction_bits is not 6, 7 or 8.
const DeviceLnsTables& device_lns_tables(unsigned fraction_bits);

// Products of matrices of logarithmic numbers on a GPU, and conversions into the system and back.

using runtime::DeviceSpan;

/// C = op(A)·op(B) with logarithmic sums: those of `Lns`, bit for bit, in the order k = 0, 1, 2, …
/// `doubled`: LnsTables::doubled() of the system in device memory; each thread block copies it (some 10 KB) into shared
/// memory.
/// Shape:  a [m × k], b [k × n] (or transposed, as the GemmShape says), c [m × n]; row-major.
/// Cost:   m·n·k look-ups in shared memory; each operand is read once for each 16 rows or columns of the result.
/// Errors: std::invalid_argument when a length differs, and for bias, activation, accumulation, packing and batches;
///         BackendError when a launch fails.
void lns_gemm(const GemmShape&, DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> a,
              DeviceSpan<const Lns16> b, DeviceSpan<Lns16> c, cudaStream_t);

/// lns_add_bias: c[i][j] becomes c[i][j] + bias[j], with the bits of `Lns`. lns_relu: negative elements become zero.
/// Shape: bias [n], c [m × n]. Errors: std::invalid_argument when the length of c is not a multiple of n; BackendError
/// when a launch fails.
void lns_add_bias(DeviceSpan<const std::int16_t> doubled, DeviceSpan<const Lns16> bias, DeviceSpan<Lns16> c,
                  cudaStream_t);
void lns_relu(DeviceSpan<Lns16> c, cudaStream_t);

/// Convert fp32 to logarithmic numbers (lns_encode) and back (lns_decode), element by element. The results equal those
/// of the host's functions bit for bit. The tables to which LnsConversion points must be in device memory. Cost: 6
/// bytes an element. Errors: std::invalid_argument when lengths differ; BackendError when a launch fails.
void lns_encode(const LnsConversion&, DeviceSpan<const float> values, DeviceSpan<Lns16> words, cudaStream_t);
void lns_decode(const LnsConversion&, DeviceSpan<const Lns16> words, DeviceSpan<float> values, cudaStream_t);

// Training in logarithms on a GPU: updates of weights that are numbers of the system (kernels/lns/arithmetic.hpp), and
// softmax cross-entropy in logarithms (kernels/lns/lns.hpp).

using runtime::DeviceSpan;

/// The functions below queue their work on the stream; their results equal the host's bit for bit. carry: empty without
/// Kahan's sum. UpdateGate: decides on the GPU whether the update is made. Errors: std::invalid_argument when lengths
/// differ; BackendError when a launch fails.

void lns_round(const DeviceLnsTables&, DeviceSpan<float> w, cudaStream_t);
void lns_update(const DeviceLnsTables&, DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry,
                UpdateGate, cudaStream_t);
void lns_descend(const DeviceLnsTables&, DeviceSpan<float> w, DeviceSpan<const float> g, float step,
                 DeviceSpan<float> carry, UpdateGate, cudaStream_t);

/// The length of the workspace [bytes]: 16 for each row, and 2 for each logit.
std::size_t lns_cross_entropy_workspace(std::size_t rows, std::size_t classes);
/// Computes the host's lns_softmax_cross_entropy, with sums in the same order; a thread handles a row. loss_scale [1],
/// or empty for 1; gradient may be empty; `total` [1] gets the sums over all rows.
void lns_softmax_cross_entropy(const DeviceLnsTables&, DeviceSpan<const float> logits,
                               DeviceSpan<const std::int32_t> labels, std::size_t classes,
                               DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                               DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
