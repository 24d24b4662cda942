// A codec that consists of collectives (dgc, powersgd, randomk), as the steps of one rank. They are timed where other
// codecs are encoded and decoded.
#pragma once
#include <memory>

#include "compression/codec.hpp"
#include "dataparallel/server/chunks/chunk_codec.hpp"

namespace gradmeter::bench {

/// The steps of messages to servers, for one tensor of n elements, with all that its sender keeps of it (a residual,
/// momentum, a basis). That state changes from call to call as in training: unlike other codecs it is not immutable.
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
  /// Returns to the state before the first call.
  void forget() { encoder_ = steps_->encoder(n_); }

 private:
  dataparallel::ChunkCodecPtr steps_;
  std::size_t n_;
  std::unique_ptr<dataparallel::ChunkEncoder> encoder_;
  mutable compression::Draw draw_;
};

/// Why a tensor of n elements cannot be measured by steps; empty: it can.
std::string codec_steps_refusal(const compression::CodecChoice&, std::size_t n, std::size_t senders);

}  // namespace gradmeter::bench
