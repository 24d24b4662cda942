#include "allreduce/mover/block_codec.hpp"

#include <algorithm>
#include <span>

#include "runtime/time/clock.hpp"

namespace gradmeter::allreduce {
namespace {

class HostBlockCodec final : public BlockCodec {
 public:
  explicit HostBlockCodec(const compression::Codec& codec) : codec_(codec) {}

  void divide(const float* in, float* out, std::size_t n, int ranks) override {
    const runtime::Timed timed(time_.encode_s);
    const float share = 1.0f / static_cast<float>(ranks);
    for (std::size_t i = 0; i < n; ++i) out[i] = in[i] * share;
  }
  void encode(const float* x, std::size_t n, float* residual, std::byte* wire, const compression::Draw& draw) override {
    const runtime::Timed timed(time_.encode_s);
    if (!residual) {
      codec_.encode({x, n}, wire, draw);
      return;
    }
    if (scratch_.size() < n) scratch_.resize(n);
    compression::encode_with_feedback(codec_, {x, n}, {residual, n}, scratch_, wire, draw);
  }
  void decode(const std::byte* wire, const float* addend, float* out, std::size_t n) override {
    const runtime::Timed timed(time_.decode_s);
    const std::span coded{wire, codec_.wire_bytes(n)};
    if (addend) return codec_.decode_add(coded, {addend, n}, {out, n});
    codec_.decode(coded, {out, n});
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { std::copy_n(from, bytes, to); }
  CodingTime time() override { return time_; }

 private:
  const compression::Codec& codec_;
  std::vector<float> scratch_;  ///< of error feedback: a block
  CodingTime time_;
};

}  // namespace

MakeBlockCodec host_block_codecs(const compression::Codec& codec) {
  return [&codec](std::size_t) { return std::make_unique<HostBlockCodec>(codec); };
}

}  // namespace gradmeter::allreduce
