// The kernels of the bucketed codecs, one set for each rule.
#pragma once
#include <cuda_runtime_api.h>

#include "compression/cuda/device_codec.hpp"
#include "compression/cuda/wire_shape.hpp"
#include "compression/detail/bucketed.hpp"

namespace gradmeter::compression::cuda {

/// A kernel's parameters hold all addresses: no copy to the device before a launch.
struct Wires {
  const std::byte* of[most_wires];
  unsigned count;
};

/// Queued on the stream; n is at least 1. `addend` is null where nothing is added. Wires begin at multiples of 16
/// bytes. Cost: encode 4 + b/8 bytes an element of device memory, buckets of more than 8192 elements 8 + b/8; decode 4
/// + b/8, and 4 more where it adds; reduce (P + 1)·b/8 for P wires. Errors: BackendError.
struct BucketedKernels {
  void (*encode)(const float* x, const WireShape&, detail::Norm, const detail::Draws&, std::byte* wire, cudaStream_t);
  void (*decode)(const std::byte* wire, const WireShape&, const float* addend, float* out, cudaStream_t);
  void (*reduce)(const Wires&, const WireShape&, detail::Norm, const detail::Draws&, std::byte* out, cudaStream_t);
};

/// Rules by the codec that they are of. `bits` is 2, 4 or 8.
const BucketedKernels& qsgd_kernels(std::size_t bits, detail::Rounding);
const BucketedKernels& qsgd1_kernels();
const BucketedKernels& fp8_kernels(bool e4m3);
const BucketedKernels& lns4_kernels();
const BucketedKernels& natural_kernels();

}  // namespace gradmeter::compression::cuda
