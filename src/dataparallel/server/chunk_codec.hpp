// SPDX-License-Identifier: Apache-2.0
// The encoding of a chunk (at most 1 MiB of the flat buffer) in a message between a worker and a server. A codec treats
// each chunk as if it were a tensor, whatever tensors lie in it, as BytePS does with its partitions.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "compression/codecs/low_rank.hpp"
#include "compression/registry.hpp"

namespace gradmeter::dataparallel {

/// A sender's encoder of one chunk, with the state that it keeps from one message with this chunk to the next. x must
/// be as long as the chunk. Returns the number of bytes that were written to `wire`.
using ChunkEncoder =
    std::function<std::size_t(std::span<const float> x, std::byte* wire, const compression::RandomDraw&)>;

/// A codec for chunks. Immutable, and any number of threads may use it. It must outlive its encoders.
class ChunkCodec {
 public:
  virtual ~ChunkCodec() = default;
  /// The lengths of all chunks but the last are multiples of this [elements].
  virtual std::size_t grain() const { return 1; }
  /// The length of an encoded chunk of n numbers [bytes]; if `variable`, an upper bound. If this is not less than 4n,
  /// the chunk is sent as fp32.
  virtual std::size_t wire_bytes(std::size_t n) const = 0;
  virtual bool variable() const { return false; }
  virtual ChunkEncoder encoder(std::size_t n) const = 0;
  /// Decodes a chunk. The draw must be the one that the encoder was given: a codec that draws which elements it sends
  /// does not send their indices.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out, const compression::RandomDraw&) const = 0;
};
using ChunkCodecPtr = std::shared_ptr<const ChunkCodec>;

/// The reason why chunks cannot be sent by this codec; empty: they can be.
std::string chunk_codec_refusal(const compression::CodecChoice&);
/// Makes the codec for chunks. `chunk_codec_refusal` must be empty. senders: the number of workers that send changes of
/// the same chunk. shape: for a chunk that is a whole tensor, the tensor as a matrix; without a shape a chunk counts as
/// a nearly square matrix.
ChunkCodecPtr make_chunk_codec(const compression::CodecChoice&, std::size_t senders,
                               const std::optional<compression::MatrixShape>& shape = {});

}  // namespace gradmeter::dataparallel
