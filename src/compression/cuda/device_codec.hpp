// SPDX-License-Identifier: Apache-2.0
// The interface of a codec on a GPU, and the table of those that exist. For the same floats and draws, such a codec
// writes the same bytes on the device as its Codec does on the host. Below are functions that launch the kernels of
// single codecs and of error feedback.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "compression/codec.hpp"
#include "compression/codecs/low_rank.hpp"
#include "compression/codecs/sparse.hpp"
#include "compression/registry.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::compression::cuda {

using runtime::DeviceSpan;

/// The most wires that one call can sum: a kernel's parameters hold no more addresses.
inline constexpr std::size_t most_wires = 256;

/// A codec on a GPU. All work is queued on the stream, and memory must stay allocated until the stream has done the
/// work. Wires begin at multiples of 16 bytes and are as long as the Codec's. NaN stays NaN, but a decoded NaN may have
/// other bits than on the host. `workspace` has at least workspace_bytes(n) bytes, for `reduce` at least
/// reduce_workspace_bytes(n), and begins at a multiple of 256 bytes. Its content does not matter. It may be reused once
/// the stream has passed the call, and serves one call at a time.
/// Errors: std::invalid_argument when a length or an address is wrong; BackendError when a launch fails.
class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  virtual std::size_t workspace_bytes(std::size_t n) const = 0;
  virtual std::size_t reduce_workspace_bytes(std::size_t n) const { return workspace_bytes(n); }

  virtual void encode(DeviceSpan<const float> x, DeviceSpan<std::byte> wire, const RandomDraw&,
                      DeviceSpan<std::byte> workspace, cudaStream_t) const = 0;
  /// out[i] = addend[i] + decoded[i], or decoded[i] where `addend` is empty. `addend` may be `out`.
  virtual void decode(DeviceSpan<const std::byte> wire, DeviceSpan<const float> addend, DeviceSpan<float> out,
                      DeviceSpan<std::byte> workspace, cudaStream_t) const = 0;
  /// Adds up encoded spans of n elements in fp32, in their order, and encodes the sum, as Reducer does. There are 1 to
  /// `most_wires` wires. `out` must not be one of them, since kernels may read a wire twice.
  virtual void reduce(std::span<const DeviceSpan<const std::byte>> wires, std::size_t n, DeviceSpan<std::byte> out,
                      const RandomDraw&, DeviceSpan<std::byte> workspace, cudaStream_t) const = 0;
};

using DeviceCodecPtr = std::unique_ptr<const DeviceCodec>;

/// What GPUs offer for one of the registry's codecs. `make` is null where the codec has no kernels, and where it
/// consists of collectives, whose arithmetic has kernels of its own (below). `description` says what the kernels do, or
/// why there are none.
struct DeviceCodecInfo {
  std::string_view name;
  std::string_view description;
  DeviceCodecPtr (*make)(const CodecChoice&) = nullptr;
};
DeviceCodecInfo device_form(std::string_view codec);

/// Makes a codec on a GPU. Errors: UsageError with the reason where its DeviceCodecInfo has no `make`.
DeviceCodecPtr make_device_codec(const CodecChoice&);

// Error feedback, and the work that `dgc` does before and after `topk`: both keep what is not sent (feedback.cu).

/// Does what compression::encode_with_feedback does, with the same bits: p = x + residual is encoded; residual = p −
/// decoded, or 0 where that is not finite. residual and scratch [x.size()] must not overlap anything. Queued on the
/// stream.
/// Cost: reads and writes 24 bytes of device memory an element, besides the codec's encoding and decoding. Errors: as
/// the codec's.
void encode_with_feedback(const DeviceCodec&, DeviceSpan<const float> x, DeviceSpan<float> residual,
                          DeviceSpan<float> scratch, DeviceSpan<std::byte> wire, const RandomDraw&,
                          DeviceSpan<std::byte> workspace, cudaStream_t);

/// MomentumCorrection's accumulate: u = momentum·u + factor·g; v = v + u, with the host's bits. Lengths are equal.
/// Queued on the stream. Cost: 12 bytes read and 8 written an element. Errors: std::invalid_argument, BackendError.
void accumulate(DeviceSpan<const float> g, float factor, float momentum, DeviceSpan<float> u, DeviceSpan<float> v,
                cudaStream_t);

/// The bytes of workspace of `sum_of_squares`, which holds a sum for each 512 elements, and their total.
std::size_t squares_workspace(std::size_t n);
/// Computes the sum of squares of g in the host's order (detail::sum_of_squares); its root is l2_of_gradient. Once the
/// stream has passed the call, the sum is the first double of the workspace [squares_workspace(g.size()), at a multiple
/// of 8 bytes].
/// Cost: one read of g. Errors: std::invalid_argument, BackendError.
void sum_of_squares(DeviceSpan<const float> g, DeviceSpan<std::byte> workspace, cudaStream_t);

// The kernels of `topk`, which `dgc` uses as well, and of `randomk` (sparse.cu).

/// The bytes of workspace of `topk`: histograms (8 MiB for any n), and 24 bytes for each 4096 elements.
std::size_t topk_workspace(std::size_t n);

/// Queued on the stream; n is at least 1. Two passes count magnitudes in histograms: the first by the upper 11 bits,
/// the second by the lower 20 bits within the bin that holds the k-th. Two more passes count the elements that are sent
/// and write them in order. Cost: four reads of x. Errors: BackendError.
void topk_encode(const float* x, const TopKLayout&, std::byte* wire, std::byte* workspace, cudaStream_t);

/// The effect of `topk_decode` on an element that was sent: it assigns the value, adds the value, or (`clear`) sets the
/// element to 0 and leaves all others as they are.
enum class Scatter : unsigned char { assign, add, clear };
/// With `assign` all other elements become 0; with `add` they become those of `addend`, which may be `out`. If the
/// input was not finite, all elements become NaN, or 0 with `clear`. A damaged wire cannot make the kernel write
/// outside the memory; all elements then become NaN, since a kernel cannot throw. Cost: reads the wire and writes k
/// elements; unless `clear` is asked for, or `addend` is `out`, also writes all n elements.
void topk_decode(const std::byte* wire, const TopKLayout&, Scatter, const float* addend, float* out,
                 std::byte* workspace, cudaStream_t);

// The kernels of `randomk`: RandomK's functions on a GPU, with the host's bits. They queue their work on the stream.
// Errors: UsageError beyond 2^32 elements; std::invalid_argument when lengths differ; BackendError when a launch fails.

/// Draws k ascending places of [0, n) and writes them to `places` [k].
void draw_places(const RandomDraw&, std::size_t n, DeviceSpan<std::uint32_t> places, cudaStream_t);
/// values[j] = factor·x[places[j]].
void gather(DeviceSpan<const float> x, DeviceSpan<const std::uint32_t> places, float factor, DeviceSpan<float> values,
            cudaStream_t);
/// out[places[j]] = values[j]; all other elements become 0. Places beyond the end of `out` are ignored.
void scatter(DeviceSpan<const float> values, DeviceSpan<const std::uint32_t> places, DeviceSpan<float> out,
             cudaStream_t);
/// x[places[j]] = 0.
void clear_sent(DeviceSpan<const std::uint32_t> places, DeviceSpan<float> x, cudaStream_t);

// The kernels of `powersgd`: the functions of codecs/low_rank.hpp on a GPU (low_rank.cu). They queue their work on the
// stream, and have the shapes and bits of the host's functions. Errors: std::invalid_argument when a length differs;
// BackendError when a launch fails.

/// P = M·Q. One warp computes a row. Cost: one read of M.
void multiply(const MatrixShape&, std::size_t rank, DeviceSpan<const float> x, DeviceSpan<const float> q,
              DeviceSpan<float> p, cudaStream_t);
/// Q = Mᵀ·P. One thread multiplies a column of M with four columns of P, since sums run over the rows in order. Cost: M
/// is read once for every four columns of P.
void multiply_transposed(const MatrixShape&, std::size_t rank, DeviceSpan<const float> x, DeviceSpan<const float> p,
                         DeviceSpan<float> q, cudaStream_t);
/// out = P·Qᵀ.
void reconstruct(const MatrixShape&, std::size_t rank, DeviceSpan<const float> p, DeviceSpan<const float> q,
                 DeviceSpan<float> out, cudaStream_t);
/// Makes the columns of P orthonormal. One block works on one column after the other. More than 3,145,728 rows are
/// refused, because their partial sums do not fit the block's shared memory.
void orthonormalise(const MatrixShape&, std::size_t rank, DeviceSpan<float> p, cudaStream_t);

}  // namespace gradmeter::compression::cuda
