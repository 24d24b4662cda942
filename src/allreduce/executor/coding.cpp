// SPDX-License-Identifier: Apache-2.0
// The host's encoding and decoding of blocks, and a codec's work on one slice of a coded plan.
#include "allreduce/executor/coding.hpp"

#include <algorithm>
#include <span>

#include "runtime/clock.hpp"

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
  void encode(const float* x, std::size_t n, float* residual, std::byte* wire,
              const compression::RandomDraw& draw) override {
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
  std::vector<float> scratch_;  ///< one block, for error feedback
  CodingTime time_;
};

}  // namespace

std::unique_ptr<BlockCodec> host_block_codec(const compression::Codec& codec) {
  return std::make_unique<HostBlockCodec>(codec);
}

namespace {

/// The phase of the random draws by which a finished block is encoded. Other encodings have their round's number.
constexpr std::uint32_t finished_phase = 0xffffffff;

}  // namespace

// A block may be two grains longer than an equal share: cuts are at multiples of the grain, and the slice's length is
// rounded up to whole grains first. With a grain of 1, cuts may be at multiples of 16 elements, which the 64 covers.
std::size_t CodedSlice::longest_block(const compression::Codec& codec, std::size_t elements, std::uint32_t blocks) {
  return blocks == 1 ? elements : elements / blocks + 2 * codec.grain() + 64;
}

std::size_t CodedSlice::most_wire_bytes(const compression::Codec& codec, std::size_t elements, std::uint32_t blocks) {
  return blocks * codec.wire_bytes(longest_block(codec, elements, blocks));
}

void CodedSlice::launch(const Call& call, CallMemory memory, const Slice& slice) {
  encoding_ = call.encoding;
  memory_ = memory;
  divides_ = call.op == Op::average;
  if (slice.length != slice_.length || slice.grain != slice_.grain || begins_.size() != slice.blocks + 1) {
    begins_.assign(1, 0);
    for (std::uint32_t b = 0; b < slice.blocks; ++b) {
      begins_.push_back(begins_.back() + codec_.wire_bytes(slice.extent({b, 1}).elements));
    }
  }
  slice_ = slice;
  (void)block_codec_->time();  // a GPU's codec adds up and frees the marks of earlier slices, whose work is done
}

void CodedSlice::divide() {
  const auto* in = reinterpret_cast<const float*>(memory_.in) + slice_.begin;
  auto* out = reinterpret_cast<float*>(memory_.out) + slice_.begin;
  block_codec_->divide(in, out, slice_.length, ranks_);
}

std::span<std::byte> CodedSlice::message(Blocks b) const { return wire_.subspan(begins_[b.first], message_bytes(b)); }

std::size_t CodedSlice::message_bytes(Blocks b) const { return begins_[b.first + b.count] - begins_[b.first]; }

const float* CodedSlice::values(const Extent& e, Place place) const {
  if (place != Place::in || divides_) return result(e);
  return reinterpret_cast<const float*>(memory_.in) + e.offset;
}

void CodedSlice::encode_block(std::uint32_t block, Place from, std::uint32_t phase, float* residual) {
  const Extent e = extent(block);
  compression::RandomDraw draw = encoding_.draw;
  draw.rank = static_cast<std::uint32_t>(rank_);
  draw.phase = phase;
  draw.first = e.offset;
  block_codec_->encode(values(e, from), e.elements, residual ? residual + e.offset : nullptr,
                       message({block, 1}).data(), draw);
}

void CodedSlice::decode_block(std::uint32_t block, const std::byte* from) {
  const Extent e = extent(block);
  block_codec_->decode(from, nullptr, result(e), e.elements);
}

void CodedSlice::encode(const LocalStep& x, std::uint32_t round) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    encode_block(b, x.from, round, encoding_.worker_residual);
  }
}

void CodedSlice::accept(const ReceiveStep& x, const std::byte* from) {
  const std::span<std::byte> stored = message(x.blocks);
  if (x.forwards && from != stored.data()) block_codec_->copy(stored.data(), from, stored.size());
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    decode_block(b, from + (begins_[b] - begins_[x.blocks.first]));
  }
}

void CodedSlice::reduce(const ReduceStep& x, std::span<const std::byte* const> encoded_operands) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    const std::size_t offset = begins_[b] - begins_[x.blocks.first];
    const Extent e = extent(b);
    const float* so_far = x.own_place == Place::wire ? nullptr : values(e, x.own_place);
    for (const std::byte* encoded : encoded_operands) {
      if (!encoded && x.own_place != Place::wire) continue;
      block_codec_->decode(encoded ? encoded + offset : message({b, 1}).data(), so_far, result(e), e.elements);
      so_far = result(e);
    }
  }
}

void CodedSlice::finish(const LocalStep& x) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    if (x.encodes) {
      encode_block(b, x.from, finished_phase, encoding_.owner_residual);
      decode_block(b, message({b, 1}).data());
    } else if (const Extent e = extent(b); values(e, x.from) != result(e)) {
      block_codec_->copy(reinterpret_cast<std::byte*>(result(e)), reinterpret_cast<const std::byte*>(values(e, x.from)),
                         e.elements * sizeof(float));
    }
  }
}

}  // namespace gradmeter::allreduce
