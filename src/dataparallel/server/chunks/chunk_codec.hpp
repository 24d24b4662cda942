// How a chunk of numbers is encoded in a message. The codec takes a chunk as its tensor, whatever tensors it overlaps,
// as BytePS compresses its partitions. So codecs of whole tensors work on whole chunks.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "compression/registry.hpp"

namespace gradmeter::dataparallel {

/// A sender's encoder of one chunk, with all that it keeps of this chunk from one message to the next.
class ChunkEncoder {
 public:
  virtual ~ChunkEncoder() = default;
  /// x: as long as the chunk that it was made for. Returns the bytes written.
  virtual std::size_t encode(std::span<const float> x, std::byte* wire, const compression::Draw&) = 0;
};

/// Immutable; any number of threads. It outlives its encoders.
class ChunkCodec {
 public:
  virtual ~ChunkCodec() = default;
  /// Chunks are multiples of it, but for the last of a shard [elements].
  virtual std::size_t grain() const { return 1; }
  /// Of a chunk of n numbers; where `variable`, the most. Not less than 4n: the chunk goes dense [bytes].
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  virtual bool variable() const { return false; }
  virtual std::unique_ptr<ChunkEncoder> encoder(std::size_t n) const = 0;
  /// The draw must be that of the encoder: a codec that draws places does not send them.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out, const compression::Draw&) const = 0;
};
using ChunkCodecPtr = std::shared_ptr<const ChunkCodec>;

/// Why chunks cannot be sent by this codec; empty: they can.
std::string chunk_codec_refusal(const compression::CodecChoice&);
/// It must not be refused.
ChunkCodecPtr make_chunk_codec(const compression::CodecChoice&, std::size_t senders);

}  // namespace gradmeter::dataparallel
