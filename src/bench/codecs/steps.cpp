#include "bench/codecs/steps.hpp"

#include <vector>

#include "core/format.hpp"

namespace gradmeter::bench {

CodecSteps::CodecSteps(const compression::CodecChoice& c, std::size_t n, std::size_t senders)
    : Codec(c.name), steps_(dataparallel::make_chunk_codec(c, senders)), n_(n), encoder_(steps_->encoder(n)) {}

std::size_t CodecSteps::encode(std::span<const float> x, std::byte* wire, const compression::Draw& draw) const {
  draw_ = draw;
  return encoder_->encode(x, wire, draw);
}

void CodecSteps::decode(std::span<const std::byte> wire, std::span<float> out) const {
  steps_->decode(wire, out, draw_);
}

void CodecSteps::decode_add(std::span<const std::byte> wire, std::span<const float> addend,
                            std::span<float> out) const {
  std::vector<float> decoded(out.size());
  decode(wire, decoded);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = addend[i] + decoded[i];
}

std::string codec_steps_refusal(const compression::CodecChoice& c, std::size_t n, std::size_t senders) {
  if (auto why = dataparallel::chunk_codec_refusal(c); !why.empty()) return why;
  if (dataparallel::make_chunk_codec(c, senders)->wire_bytes(n) < n * sizeof(float)) return {};
  return fmt::format("{} does not shrink a tensor of {} elements: it goes dense; take a larger --size", c.label, n);
}

}  // namespace gradmeter::bench
