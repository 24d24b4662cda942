#include "dataparallel/server/chunks/chunk_codec.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "core/format.hpp"
#include "dataparallel/server/chunks/drawn_places.hpp"
#include "dataparallel/server/chunks/momentum.hpp"
#include "dataparallel/server/chunks/thin_factors.hpp"

namespace gradmeter::dataparallel {
namespace {

/// A codec that consists of collectives, in its form for one sender and one receiver.
struct ChunkCodecInfo {
  std::string_view codec;
  /// senders: how many send changes of the same chunk.
  ChunkCodecPtr (*make)(const compression::CodecChoice&, std::size_t senders);
};
constexpr std::array chunk_codec_table{
    ChunkCodecInfo{"dgc", make_momentum_chunks},
    ChunkCodecInfo{"powersgd", make_thin_factor_chunks},
    ChunkCodecInfo{"randomk", make_drawn_place_chunks},
};

class PlainEncoder final : public ChunkEncoder {
 public:
  explicit PlainEncoder(const compression::Codec& codec) : codec_(codec) {}
  std::size_t encode(std::span<const float> x, std::byte* wire, const compression::Draw& draw) override {
    return codec_.encode(x, wire, draw);
  }

 private:
  const compression::Codec& codec_;
};

/// What encoding a chunk loses is added to the next (error feedback).
class FeedbackEncoder final : public ChunkEncoder {
 public:
  FeedbackEncoder(const compression::Codec& codec, std::size_t n) : codec_(codec), residual_(n, 0.0f) {}
  std::size_t encode(std::span<const float> x, std::byte* wire, const compression::Draw& draw) override {
    std::vector<float> scratch(x.size());
    return compression::encode_with_feedback(codec_, x, residual_, scratch, wire, draw);
  }

 private:
  const compression::Codec& codec_;
  std::vector<float> residual_;
};

/// A codec unchanged, applied chunk by chunk.
class Plain final : public ChunkCodec {
 public:
  Plain(compression::CodecPtr codec, bool feedback) : codec_(std::move(codec)), feedback_(feedback) {}
  std::size_t grain() const override { return codec_->grain(); }
  std::size_t wire_bytes(std::size_t n) const override { return codec_->wire_bytes(n); }
  bool variable() const override { return codec_->variable(); }
  std::unique_ptr<ChunkEncoder> encoder(std::size_t n) const override {
    if (feedback_) return std::make_unique<FeedbackEncoder>(*codec_, n);
    return std::make_unique<PlainEncoder>(*codec_);
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const compression::Draw&) const override {
    codec_->decode(wire, out);
  }

 private:
  compression::CodecPtr codec_;
  bool feedback_;
};

const ChunkCodecInfo* row_of(const compression::CodecChoice& c) {
  const auto* found = std::ranges::find(chunk_codec_table, c.info->name, &ChunkCodecInfo::codec);
  return found == chunk_codec_table.end() ? nullptr : &*found;
}

}  // namespace

std::string chunk_codec_refusal(const compression::CodecChoice& c) {
  if (c.codec || row_of(c)) return {};
  return fmt::format("codec {} is made of collectives and nobody has said how one rank sends it to another; take qsgd8",
                     c.label);
}

ChunkCodecPtr make_chunk_codec(const compression::CodecChoice& c, std::size_t senders) {
  if (c.codec) return std::make_shared<Plain>(c.codec, c.feedback);
  return row_of(c)->make(c, senders);
}

}  // namespace gradmeter::dataparallel
