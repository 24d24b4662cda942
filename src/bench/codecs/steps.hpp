// A codec that is made of collectives (dgc, powersgd, randomk) as the steps that one rank takes: what is timed of it
// where a codec of spans is encoded and decoded.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::bench {

/// The steps of the messages to servers, for one tensor of n elements, with all that its sender keeps of it (a
/// residual, momentum, a basis), which grows from call to call as in training: not immutable as other codecs are.
/// decode takes what was encoded with the draw of the last encode.
class CodecSteps final : public compression::Codec {
 public:
  /// senders: how many ranks there would be.
  CodecSteps(const compression::CodecChoice&, std::size_t n, std::size_t senders);
  std::size_t grain() const override { return compression::whole_tensor; }
  std::size_t wire_bytes(std::size_t n) const override { return steps_->wire_bytes(n); }
  bool variable() const override { return steps_->variable(); }
  std::size_t encode(std::span<const float> x, std::byte* wire, const compression::Draw&) const override;
  void decode(std::span<const std::byte> wire, std::span<float> out) const override;
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override;
  /// As before the first call.
  void forget() { encoder_ = steps_->encoder(n_); }

 private:
  dataparallel::ChunkCodecPtr steps_;
  std::size_t n_;
  std::unique_ptr<dataparallel::ChunkEncoder> encoder_;
  mutable compression::Draw draw_;
};

/// Why a tensor of n elements cannot be measured so; empty: it can.
std::string codec_steps_refusal(const compression::CodecChoice&, std::size_t n, std::size_t senders);

}  // namespace gradmeter::bench
