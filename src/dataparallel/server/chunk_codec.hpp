// SPDX-License-Identifier: Apache-2.0
// The encoding of a chunk of numbers in a message. The codec treats a chunk as a tensor, whatever tensors it overlaps,
// as BytePS compresses its partitions. So codecs of whole tensors work on whole chunks.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "compression/registry.hpp"

namespace gradmeter::dataparallel {

/// A sender's encoder of one chunk, with the state that it keeps of this chunk from one message to the next. x is as
/// long as the chunk for which the encoder was made. It returns the number of bytes that it has written to `wire`.
using ChunkEncoder = std::function<std::size_t(std::span<const float> x, std::byte* wire, const compression::Draw&)>;

/// Immutable, and any number of threads may use it. It outlives its encoders.
class ChunkCodec {
 public:
  virtual ~ChunkCodec() = default;
  /// Chunks are multiples of this [elements], except the last of a shard.
  virtual std::size_t grain() const { return 1; }
  /// The length of an encoded chunk of n numbers [bytes]; where `variable`, an upper bound. If it is not less than 4n,
  /// the chunk is sent as fp32.
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  virtual bool variable() const { return false; }
  virtual ChunkEncoder encoder(std::size_t n) const = 0;
  /// Decodes a chunk. The draw must be that of the encoder, since a codec that draws places does not send them.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out, const compression::Draw&) const = 0;
};
using ChunkCodecPtr = std::shared_ptr<const ChunkCodec>;

/// The reason why chunks cannot be sent by this codec; empty: they can be.
std::string chunk_codec_refusal(const compression::CodecChoice&);
/// Makes the codec of chunks. Requires that `chunk_codec_refusal` is empty.
ChunkCodecPtr make_chunk_codec(const compression::CodecChoice&, std::size_t senders);

}  // namespace gradmeter::dataparallel
