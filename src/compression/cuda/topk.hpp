// The kernels of `topk`, which `dgc` uses as well.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "compression/cuda/device_codec.hpp"

namespace gradmeter::compression::cuda {

/// Where places and values lie in a wire of k of n elements (codecs/topk.hpp) [bytes].
struct TopKWire {
  std::size_t n = 0, k = 0;
  bool bitmap = false;
  std::size_t places_bytes() const { return bitmap ? code_bytes(n, 1) : padded(4 * k); }
  std::size_t bytes() const { return places_bytes() + padded(4 * k); }
};

/// Histograms, which take 8 MiB whatever n is, and 24 bytes for each 4096 elements [bytes].
std::size_t topk_workspace(std::size_t n);

/// Queued on the stream; n is at least 1. Two passes count magnitudes in histograms: the upper 11 bits, and the lower
/// 20 of those in the bin where the k-th lies. Two more count and write what is taken, in order. Cost: four reads of x,
/// as the host's. Errors: BackendError.
void topk_encode(const float* x, const TopKWire&, std::byte* wire, std::byte* workspace, cudaStream_t);

/// What happens to an element that was sent; `clear` sets it to 0 and leaves all others.
enum class Sent : unsigned char { put, add, clear };
/// `put` begins with zeros, `add` with `addend`, which may be `out`. Where the input was not finite all becomes NaN,
/// with `clear` 0. A wire that was damaged on its way cannot lead outside the memory; it makes all NaN, since a kernel
/// cannot throw. Cost: k elements, and n where out does not hold the addend already. Errors: BackendError.
void topk_decode(const std::byte* wire, const TopKWire&, Sent, const float* addend, float* out, std::byte* workspace,
                 cudaStream_t);

}  // namespace gradmeter::compression::cuda
