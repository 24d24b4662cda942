// What a codec does to the blocks of a coded slice: on the caller's thread, or as kernels in the stream of the queue
// whose work runs.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "allreduce/collective.hpp"
#include "compression/registry.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::allreduce {

/// Of one lane. Addresses are of the host's or of the device's memory; n elements of fp32; wires begin at multiples of
/// 16 bytes and are as long as the codec's. Sources and destinations do not overlap, but for an addend that is `out`.
class BlockCodec {
 public:
  BlockCodec() = default;
  BlockCodec(const BlockCodec&) = delete;
  BlockCodec& operator=(const BlockCodec&) = delete;
  virtual ~BlockCodec() = default;
  /// out = in / ranks
  virtual void divide(const float* in, float* out, std::size_t n, int ranks) = 0;
  /// residual [n]: of error feedback, read and updated; null: none.
  virtual void encode(const float* x, std::size_t n, float* residual, std::byte* wire, const compression::Draw&) = 0;
  /// out = addend + decoded; a null addend: decoded.
  virtual void decode(const std::byte* wire, const float* addend, float* out, std::size_t n) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Of all work so far, once it is done.
  virtual CodingTime time() = 0;
};

/// For a lane whose blocks have up to so many elements.
using MakeBlockCodec = std::function<std::unique_ptr<BlockCodec>(std::size_t longest)>;

/// The codec outlives them.
MakeBlockCodec host_block_codecs(const compression::Codec&);

/// Why no GPU encodes by this codec itself; empty: one does.
std::string gpu_block_codec_refusal(const compression::CodecChoice&);
/// With the host's bytes for the same draws. Their memory is taken from the device, which outlives them.
/// Errors: UsageError with the refusal; BackendError when memory is short.
MakeBlockCodec gpu_block_codecs(const compression::CodecChoice&, runtime::Device&);

}  // namespace gradmeter::allreduce
