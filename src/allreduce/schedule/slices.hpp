// SPDX-License-Identifier: Apache-2.0
// Cuts a buffer into blocks, and into slices that run the schedule separately, so that transfers overlap reductions.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// The places at which n elements are cut into `blocks` blocks. With a `grain` above 1, as a codec needs, cuts are at
/// multiples of `grain` elements. With a grain of 1, blocks are equal when `blocks` divides n; else long buffers are
/// cut at multiples of 16 elements, so that blocks start on cache lines.
class BlockCuts {
 public:
  BlockCuts() = default;
  BlockCuts(std::size_t n, std::uint32_t blocks, std::size_t grain = 1);
  /// The index of the element at which block b begins; begin(blocks) = n.
  /// Cost: no division where all blocks have equally many grains; the executor calls this several times a message.
  std::size_t begin(std::uint32_t b) const {
    return std::min(n_, (equal_ ? equal_ * b : grains_ * b / blocks_) * grain_);
  }

 private:
  std::size_t n_ = 0, grain_ = 1, grains_ = 0;
  std::size_t equal_ = 0;  ///< grains of each block; 0: not the same for all blocks
  std::uint32_t blocks_ = 1;
};

/// The index of the element at which block b of `BlockCuts` begins.
inline std::size_t block_begin(std::size_t n, std::uint32_t blocks, std::uint32_t b, std::size_t grain = 1) {
  return BlockCuts(n, blocks, grain).begin(b);
}

/// Elements of a buffer, from `begin` on.
struct ElementRange {
  std::size_t begin = 0, count = 0;
};
/// Block b of n elements, as `block_begin` cuts them.
inline ElementRange block_range(std::size_t n, std::uint32_t blocks, std::uint32_t b) {
  const std::size_t begin = block_begin(n, blocks, b);
  return {begin, block_begin(n, blocks, b + 1) - begin};
}

/// How a slice is cut from the buffer. run: a slice is a run of consecutive elements, which is cut into blocks of its
/// own. share_of_each_block: a slice is a share of every block of the whole buffer, for collectives in which ranks own
/// blocks.
enum class SliceCut : std::uint8_t { run, share_of_each_block };
/// The cut for a collective kind: share_of_each_block where the kind says which rank owns which block, else run.
SliceCut slice_cut_for(CollectiveKind);

/// A stretch of elements: `offset` is where it begins in a call's buffers, `scratch_offset` where it begins in scratch
/// that holds one slice.
struct Extent {
  std::size_t offset, scratch_offset, elements;
};

/// One slice of a buffer of `total` elements.
struct Slice {
  SliceCut cut = SliceCut::run;
  std::uint32_t blocks = 1;
  /// begin, length: the first element of the slice and the number of its elements; used only for SliceCut::run.
  std::size_t total = 0, begin = 0, length = 0;
  /// Index of this slice among `count` slices. For share_of_each_block every block is cut into `count` shares, and the
  /// slice has the share with this index of each block.
  std::size_t number = 0, count = 1;
  std::size_t grain = 1;  ///< for run: blocks begin at multiples of this [elements]
  BlockCuts cuts;         ///< cuts of the run; for share_of_each_block, cuts of the whole buffer
  /// The slice's elements of these blocks. For share_of_each_block, several blocks are allowed only with one slice.
  Extent extent(Blocks) const;
};

/// The slices of a buffer of n elements.
class Slices {
 public:
  Slices() = default;
  /// Cuts the buffer into slices whose blocks have about `message_bytes` bytes each. whole: there is only one slice, of
  /// any size. grain: for SliceCut::run only; slices and blocks begin at multiples of the grain, as a codec needs.
  Slices(SliceCut, std::size_t elements, std::size_t element_bytes, std::uint32_t blocks, std::size_t message_bytes,
         bool whole, std::size_t grain = 1);
  std::size_t count() const { return count_; }  ///< at least 1, also for an empty buffer
  Slice operator[](std::size_t number) const;
  /// The most elements that a slice's scratch must hold.
  std::size_t scratch_elements() const;

 private:
  SliceCut cut_ = SliceCut::run;
  std::uint32_t blocks_ = 1;
  std::size_t total_ = 0, count_ = 1, grain_ = 1;
  std::size_t length_ = 0;  ///< for run: the elements of each slice except the last
  BlockCuts cuts_;          ///< the cuts of each slice; for run, of each slice except the last
};

/// The number of slices that are under way at once: lane i takes slices i, i + lanes, i + 2·lanes … one after the
/// other, and each slice is in one round at a time. With one schedule the busiest ranks work in every round, so four
/// lanes fill the links. With several schedules (the two trees of a double tree) a rank has work in only a few of the
/// rounds, so there is a lane for each round of each schedule, up to most_lanes(). With only four lanes a double tree
/// takes 1.5 to 1.9 times as long on 8 to 14 ranks.
std::size_t lanes_for(std::span<const SchedulePtr>);
/// An upper bound of `lanes_for` for any algorithm on `ranks` ranks: four times the depth of a binary tree of so many
/// ranks, but at least 4 and at most 16.
int most_lanes(int ranks);

/// The length of the messages into which a block is cut [bytes]. With one schedule it is `message_bytes`. With several
/// (trees) it is shorter, so that each lane gets at least eight slices: a tree works at its full rate only once the
/// first slice has gone up and down. It is not below 128 KiB unless `message_bytes` is, since shorter messages are not
/// worth sending.
std::size_t message_bytes_for(std::span<const SchedulePtr>, std::size_t bytes, std::size_t message_bytes);

/// The number of elements that `rank` sends when the schedule runs over one slice. Cost: O(steps).
std::uint64_t elements_sent(const Schedule&, std::uint32_t rank, const Slice&);
/// The number of bytes that `rank` sends if each block is encoded by itself. wire_bytes(n): the length of an encoded
/// block of n elements. Cost: O(blocks sent).
std::uint64_t coded_bytes_sent(const Schedule&, std::uint32_t rank, const Slice&,
                               const std::function<std::size_t(std::size_t)>& wire_bytes);

// The static order of all rounds of all slices of a collective, the same on every rank. It serves users that cannot
// poll: streams, groups of messages without tags, recorded graphs, the cost model.

/// One round of one slice: its sends and receives go together, as one group.
struct Turn {
  std::uint32_t slice, round;
  bool operator==(const Turn&) const = default;
};

/// The turns in order. Slice s runs schedule s mod (number of schedules), and begins after slice s - depth has ended,
/// so that no more than `depth` slices are under way. Slices of one schedule follow each other one round apart; those
/// of different schedules go side by side. Ranks that take the turns in this order, leaving out turns in which they
/// have no step, do not deadlock, and messages between two ranks match without tags. Cost: O(slices · rounds).
std::vector<Turn> linearise(std::span<const SchedulePtr>, std::size_t slices, std::size_t depth);

}  // namespace gradmeter::allreduce
