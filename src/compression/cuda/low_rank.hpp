// The kernels of `powersgd`: the functions of codecs/low_rank.hpp on a GPU.
#pragma once
#include <cuda_runtime_api.h>

#include "compression/codecs/low_rank.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::compression::cuda {

using runtime::DeviceSpan;

/// Shapes as the host's; the same bits. Queued on the stream. Errors: std::invalid_argument when a length differs;
/// BackendError when a launch fails.

/// P = M·Q. Cost: one read of M; a warp to a row.
void multiply(const Matrix&, std::size_t rank, DeviceSpan<const float> m, DeviceSpan<const float> q,
              DeviceSpan<float> p, cudaStream_t);
/// Q = Mᵀ·P. Cost: a read of M for each four columns of P; a thread to a column of M, since sums run over rows in
/// order.
void multiply_transposed(const Matrix&, std::size_t rank, DeviceSpan<const float> m, DeviceSpan<const float> p,
                         DeviceSpan<float> q, cudaStream_t);
/// out = P·Qᵀ.
void reconstruct(const Matrix&, std::size_t rank, DeviceSpan<const float> p, DeviceSpan<const float> q,
                 DeviceSpan<float> out, cudaStream_t);
/// By one block, columns one after the other. Refused beyond 3,145,728 rows, whose sums do not fit its shared memory.
void orthonormalise(const Matrix&, std::size_t rank, DeviceSpan<float> p, cudaStream_t);

}  // namespace gradmeter::compression::cuda
