// SPDX-License-Identifier: Apache-2.0
// A codec's work on the blocks of a coded slice: on the caller's thread, or as kernels in the stream of the queue that
// runs the work.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/slices.hpp"
#include "compression/codec.hpp"
#include "compression/registry.hpp"
#include "runtime/device.hpp"

namespace gradmeter::allreduce {

/// Encodes and decodes the blocks of one lane. Either all addresses are of host memory, or all are of device memory. A
/// block has n elements of fp32. Its `wire` (the encoded bytes) begins at a multiple of 16 bytes and is
/// Codec::wire_bytes long. Sources and destinations do not overlap, except that `out` may be `addend`, or the `in` of
/// `divide`.
class BlockCodec {
 public:
  BlockCodec() = default;
  BlockCodec(const BlockCodec&) = delete;
  BlockCodec& operator=(const BlockCodec&) = delete;
  virtual ~BlockCodec() = default;
  /// out = in · (1 / ranks), with 1 / ranks rounded to fp32
  virtual void divide(const float* in, float* out, std::size_t n, int ranks) = 0;
  /// Encodes x [n] into `wire`. residual [n]: the residual of error feedback, read and updated; null: there is none.
  /// The draw selects the random numbers of the rounding.
  virtual void encode(const float* x, std::size_t n, float* residual, std::byte* wire,
                      const compression::RandomDraw&) = 0;
  /// out = addend + decoded, or decoded alone where `addend` is null.
  virtual void decode(const std::byte* wire, const float* addend, float* out, std::size_t n) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// The time of all work so far. Call it only once that work is done.
  virtual CodingTime time() = 0;
};

/// Encodes on the host. The codec must outlive the returned object.
std::unique_ptr<BlockCodec> host_block_codec(const compression::Codec&);

/// The reason why no GPU can itself encode with this codec; empty: a GPU can.
std::string gpu_block_codec_refusal(const compression::CodecChoice&);
/// Encodes blocks of up to `longest` elements on a GPU; the same draws give the same bytes as on the host. The object
/// takes its memory from the device, which must outlive it. Errors: UsageError with the refusal; BackendError when
/// memory is short.
std::unique_ptr<BlockCodec> gpu_block_codec(const compression::CodecChoice&, runtime::Device&, std::size_t longest);

// A codec's work on one slice of a coded plan. Each block is kept as it was encoded, so that ranks forward a finished
// block byte for byte.

/// The addresses at which the work reads and writes a call's numbers.
struct CallMemory {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// Encodes, decodes and sums the blocks of one slice at a time. Values are fp32. For an average, contributions are
/// divided before anything is encoded, so that even a codec with a small range (fp16, fp8) can encode their sums.
/// `launch`, `message` and `message_bytes` do not touch the buffers. The other functions do work on buffers, in the
/// order in which they are called.
class CodedSlice {
 public:
  /// `wire` holds one slice in encoded form, at least `most_wire_bytes` bytes; peers may read it. `block_codec` encodes
  /// and decodes by the same `codec`. `wire` and the calls' buffers are in the kind of memory (host or device) that
  /// `block_codec` works on.
  CodedSlice(const compression::Codec& codec, std::unique_ptr<BlockCodec> block_codec, int rank, int ranks,
             std::span<std::byte> wire)
      : codec_(codec), block_codec_(std::move(block_codec)), rank_(rank), ranks_(ranks), wire_(wire) {}

  /// Begins one slice of the call: all functions below refer to it until the next `launch`.
  void launch(const Call&, CallMemory, const Slice&);
  /// For an average, before all other work: divides this rank's contribution and writes it to `out`, where the other
  /// steps read it.
  void divide();
  /// The memory that holds these blocks in encoded form, one after another.
  std::span<std::byte> message(Blocks) const;
  std::size_t message_bytes(Blocks) const;
  /// Encodes a partial sum or this rank's own contribution, to be sent in this round.
  void encode(const LocalStep&, std::uint32_t round);
  /// Decodes finished blocks, which another rank has encoded, from the address `from`. If they are to be forwarded,
  /// their bytes are kept as well.
  void accept(const ReceiveStep&, const std::byte* from);
  /// Sums this rank's own value and the peers' values. encoded_operands: for each operand the peer's encoded blocks, or
  /// null for this rank's own value. If the own value is taken from its encoding (`ReduceStep::own` is Place::wire),
  /// values are added in the order of the entries; else the own value comes first, and the others follow in that order.
  void reduce(const ReduceStep&, std::span<const std::byte* const> encoded_operands);
  /// Turns complete sums into results. Where the step says so (`LocalStep::encodes`), each sum is encoded, and its
  /// decoded value is the result.
  void finish(const LocalStep&);
  CodingTime time() const { return block_codec_->time(); }

  /// Bounds for slices of up to `elements` elements in `blocks` blocks: the most elements of a block, and the most
  /// bytes of an encoded slice.
  static std::size_t longest_block(const compression::Codec&, std::size_t elements, std::uint32_t blocks);
  static std::size_t most_wire_bytes(const compression::Codec&, std::size_t elements, std::uint32_t blocks);

 private:
  Extent extent(std::uint32_t block) const { return slice_.extent({block, 1}); }
  float* result(const Extent& e) const { return reinterpret_cast<float*>(memory_.out) + e.offset; }
  /// The address of a block's values: in the result, or in the caller's input.
  const float* values(const Extent&, Place) const;
  /// Encodes one block. phase: RandomDraw::phase, which is the round's number, or one fixed number for finished sums.
  void encode_block(std::uint32_t block, Place from, std::uint32_t phase, float* residual);
  void decode_block(std::uint32_t block, const std::byte* from);

  const compression::Codec& codec_;
  std::unique_ptr<BlockCodec> block_codec_;
  int rank_, ranks_;
  std::span<std::byte> wire_;
  EncodingInputs encoding_;
  CallMemory memory_;
  bool divides_ = false;  ///< the call is an average
  Slice slice_;
  std::vector<std::size_t> begins_;  ///< the offset in `wire_` at which each block begins; the last entry is the end
};

}  // namespace gradmeter::allreduce
