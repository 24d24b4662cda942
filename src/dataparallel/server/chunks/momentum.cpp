#include "dataparallel/server/chunks/momentum.hpp"

#include <vector>

#include "compression/momentum_correction.hpp"

namespace gradmeter::dataparallel {
namespace {

using compression::MomentumCorrection;

class MomentumEncoder final : public ChunkEncoder {
 public:
  MomentumEncoder(const MomentumCorrection& correction, std::size_t senders, std::size_t n)
      : correction_(correction), senders_(senders), u_(n, 0.0f), v_(n, 0.0f) {}
  std::size_t encode(std::span<const float> x, std::byte* wire, const compression::Draw&) override {
    return correction_.encode(x, senders_, u_, v_, wire);
  }

 private:
  const MomentumCorrection& correction_;
  std::size_t senders_;
  std::vector<float> u_, v_;
};

class MomentumChunkCodec final : public ChunkCodec {
 public:
  MomentumChunkCodec(const compression::CodecChoice& c, std::size_t senders)
      : correction_(c.parsed), senders_(senders) {}
  std::size_t wire_bytes(std::size_t n) const override { return correction_.encoding().wire_bytes(n); }
  std::unique_ptr<ChunkEncoder> encoder(std::size_t n) const override {
    return std::make_unique<MomentumEncoder>(correction_, senders_, n);
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const compression::Draw&) const override {
    correction_.encoding().decode(wire, out);
  }

 private:
  MomentumCorrection correction_;
  std::size_t senders_;
};

}  // namespace

ChunkCodecPtr make_momentum_chunks(const compression::CodecChoice& c, std::size_t senders) {
  return std::make_shared<MomentumChunkCodec>(c, senders);
}

}  // namespace gradmeter::dataparallel
