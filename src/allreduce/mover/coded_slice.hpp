// A codec's work on one slice of a coded plan. Each block is kept as it was encoded, so a finished block travels on
// byte for byte.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/mover/block_codec.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/slices.hpp"
#include "compression/codec.hpp"

namespace gradmeter::allreduce {

/// Where a call's numbers lie, as the work on the way reaches them.
struct CallMemory {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// Values are fp32. An average divides before anything is encoded, so that sums of small formats stay in range.
/// `launch`, `message` and `message_bytes` do not touch memory; all else is work, in the order of its submission.
class CodedSlice {
 public:
  /// `wire` holds a slice as encoded: at least `most_wire_bytes` of it. Peers may read it. `blocks`: the same codec, on
  /// memory like the calls' and `wire`'s.
  CodedSlice(const compression::Codec& codec, std::unique_ptr<BlockCodec> blocks, int rank, int ranks,
             std::span<std::byte> wire)
      : codec_(codec), blocks_(std::move(blocks)), rank_(rank), ranks_(ranks), wire_(wire) {}

  void launch(const Call&, CallMemory, const Slice&);
  /// Of an average: before all else. The share of this rank is in `out`, where the other steps then read it.
  void divide();
  /// Where these blocks lie as encoded, one after another.
  std::span<std::byte> message(Blocks) const;
  std::size_t message_bytes(Blocks) const;
  /// Encodes a partial sum or this rank's own contribution, to be sent in this round.
  void encode(const EncodeStep&, std::uint32_t round);
  /// Takes finished blocks as another rank encoded them, at `from`.
  void accept(const ReceiveStep&, const std::byte* from);
  /// Sums the own value and the peers' encoded ones: views by operand, null for the own. Added in the operands' order,
  /// except that an own value that was not encoded comes first.
  void reduce(const ReduceStep&, std::span<const std::byte* const> views);
  void finish(const FinishStep&);
  CodingTime time() const { return blocks_->time(); }

  /// A block's elements, and a slice's bytes, for any slice of up to so many elements in so many blocks.
  static std::size_t longest_block(const compression::Codec&, std::size_t elements, std::uint32_t blocks);
  static std::size_t most_wire_bytes(const compression::Codec&, std::size_t elements, std::uint32_t blocks);

 private:
  struct Values {
    float* out;
    const float* at;  ///< where they are: `out` or the caller's input
    std::size_t count, first;
  };
  Values values(std::uint32_t block, Place) const;
  void encode_block(std::uint32_t block, Place from, std::uint32_t phase, float* residual);
  void decode_block(std::uint32_t block, const std::byte* from);

  const compression::Codec& codec_;
  std::unique_ptr<BlockCodec> blocks_;
  int rank_, ranks_;
  std::span<std::byte> wire_;
  Encoding encoding_;
  CallMemory memory_;
  bool divides_ = false;
  Slice slice_;
  std::vector<std::size_t> begins_;  ///< by block: where it begins in `wire_`; one more for the end
};

}  // namespace gradmeter::allreduce
