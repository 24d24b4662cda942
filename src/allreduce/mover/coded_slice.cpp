#include "allreduce/mover/coded_slice.hpp"

#include <algorithm>

#include "runtime/time/clock.hpp"

namespace gradmeter::allreduce {

using runtime::Timed;

namespace {

/// The phase of a finished block's one encoding; no round has this number.
constexpr std::uint32_t finished_phase = 0xffffffff;

}  // namespace

std::size_t CodedSlice::most_wire_bytes(const compression::Codec& codec, std::size_t elements, std::uint32_t blocks) {
  if (blocks == 1) return codec.wire_bytes(elements);
  // Cut at the grain, a block may be one grain longer than an equal share; and a slice is rounded up to whole grains.
  const std::size_t longest = elements / blocks + 2 * codec.grain() + 64;
  return blocks * codec.wire_bytes(longest);
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
}

void CodedSlice::divide() {
  const auto* in = reinterpret_cast<const float*>(memory_.in) + slice_.begin;
  auto* out = reinterpret_cast<float*>(memory_.out) + slice_.begin;
  const Timed timed(time_.encode_s);
  const float share = 1.0f / static_cast<float>(ranks_);
  for (std::size_t i = 0; i < slice_.length; ++i) out[i] = in[i] * share;
}

std::span<std::byte> CodedSlice::message(Blocks b) const { return wire_.subspan(begins_[b.first], message_bytes(b)); }

std::size_t CodedSlice::message_bytes(Blocks b) const { return begins_[b.first + b.count] - begins_[b.first]; }

CodedSlice::Values CodedSlice::values(std::uint32_t block, Place place) const {
  const Extent e = slice_.extent({block, 1});
  auto* out = reinterpret_cast<float*>(memory_.out) + e.offset;
  const auto* in = reinterpret_cast<const float*>(memory_.in) + e.offset;
  return {.out = out, .at = place == Place::in && !divides_ ? in : out, .count = e.elements, .first = e.offset};
}

void CodedSlice::encode_block(std::uint32_t block, Place from, std::uint32_t phase, float* residual) {
  const Values v = values(block, from);
  const Timed timed(time_.encode_s);
  const compression::Draw draw{.seed = encoding_.seed,
                               .step = encoding_.step,
                               .tensor = encoding_.tensor,
                               .rank = static_cast<std::uint32_t>(rank_),
                               .phase = phase,
                               .first = v.first};
  std::byte* to = message({block, 1}).data();
  if (!residual) {
    codec_.encode({v.at, v.count}, to, draw);
    return;
  }
  if (scratch_.size() < v.count) scratch_.resize(v.count);
  compression::encode_with_feedback(codec_, {v.at, v.count}, {residual + v.first, v.count}, scratch_, to, draw);
}

void CodedSlice::decode_block(std::uint32_t block, const std::byte* from) {
  const Values v = values(block, Place::out);
  const Timed timed(time_.decode_s);
  codec_.decode({from, message_bytes({block, 1})}, {v.out, v.count});
}

void CodedSlice::encode(const EncodeStep& x, std::uint32_t round) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    encode_block(b, x.from, round, encoding_.worker_residual);
  }
}

void CodedSlice::accept(const ReceiveStep& x, const std::byte* from) {
  const std::span<std::byte> kept = message(x.blocks);
  if (x.forwards && from != kept.data()) std::copy_n(from, kept.size(), kept.data());
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    decode_block(b, from + (begins_[b] - begins_[x.blocks.first]));
  }
}

void CodedSlice::reduce(const ReduceStep& x, std::span<const std::byte* const> views) {
  const Timed timed(time_.decode_s);
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    const std::size_t from = begins_[b] - begins_[x.blocks.first], bytes = message_bytes({b, 1});
    const Values v = values(b, x.own);
    const float* so_far = x.own == Place::wire ? nullptr : v.at;
    for (const std::byte* view : views) {
      if (!view && x.own != Place::wire) continue;
      const std::span<const std::byte> coded{view ? view + from : message({b, 1}).data(), bytes};
      if (so_far) {
        codec_.decode_add(coded, {so_far, v.count}, {v.out, v.count});
      } else {
        codec_.decode(coded, {v.out, v.count});
      }
      so_far = v.out;
    }
  }
}

void CodedSlice::finish(const FinishStep& x) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    if (x.encodes) {
      encode_block(b, x.from, finished_phase, encoding_.owner_residual);
      decode_block(b, message({b, 1}).data());
    } else if (const Values v = values(b, x.from); v.at != v.out) {
      std::copy_n(v.at, v.count, v.out);
    }
  }
}

}  // namespace gradmeter::allreduce
