#include "allreduce/mover/coded_slice.hpp"

namespace gradmeter::allreduce {

namespace {

/// The phase of a finished block's one encoding; no round has this number.
constexpr std::uint32_t finished_phase = 0xffffffff;

}  // namespace

// Cut at the grain, a block may be one grain longer than an equal share; and a slice is rounded up to whole grains.
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
  (void)blocks_->time();  // earlier slices are done, so what they took need not be kept apart
}

void CodedSlice::divide() {
  const auto* in = reinterpret_cast<const float*>(memory_.in) + slice_.begin;
  auto* out = reinterpret_cast<float*>(memory_.out) + slice_.begin;
  blocks_->divide(in, out, slice_.length, ranks_);
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
  const compression::Draw draw{.seed = encoding_.seed,
                               .step = encoding_.step,
                               .tensor = encoding_.tensor,
                               .rank = static_cast<std::uint32_t>(rank_),
                               .phase = phase,
                               .first = v.first};
  blocks_->encode(v.at, v.count, residual ? residual + v.first : nullptr, message({block, 1}).data(), draw);
}

void CodedSlice::decode_block(std::uint32_t block, const std::byte* from) {
  const Values v = values(block, Place::out);
  blocks_->decode(from, nullptr, v.out, v.count);
}

void CodedSlice::encode(const EncodeStep& x, std::uint32_t round) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    encode_block(b, x.from, round, encoding_.worker_residual);
  }
}

void CodedSlice::accept(const ReceiveStep& x, const std::byte* from) {
  const std::span<std::byte> kept = message(x.blocks);
  if (x.forwards && from != kept.data()) blocks_->copy(kept.data(), from, kept.size());
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    decode_block(b, from + (begins_[b] - begins_[x.blocks.first]));
  }
}

void CodedSlice::reduce(const ReduceStep& x, std::span<const std::byte* const> views) {
  for (std::uint32_t b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
    const std::size_t from = begins_[b] - begins_[x.blocks.first];
    const Values v = values(b, x.own);
    const float* so_far = x.own == Place::wire ? nullptr : v.at;
    for (const std::byte* view : views) {
      if (!view && x.own != Place::wire) continue;
      blocks_->decode(view ? view + from : message({b, 1}).data(), so_far, v.out, v.count);
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
      blocks_->copy(reinterpret_cast<std::byte*>(v.out), reinterpret_cast<const std::byte*>(v.at),
                    v.count * sizeof(float));
    }
  }
}

}  // namespace gradmeter::allreduce
