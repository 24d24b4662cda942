// How a buffer is cut into blocks, and into slices that each run the schedule on their own, so that transfer overlaps
// reduction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// Where block b begins when n elements are cut into `blocks` parts [elements]; block_begin(n, blocks, blocks) = n.
/// Equal blocks when n divides; else long buffers are cut at multiples of 16 elements, so that blocks start on cache
/// lines. With a grain above 1, always at its multiples.
std::size_t block_begin(std::size_t n, std::uint32_t blocks, std::uint32_t b, std::size_t grain = 1);

/// What a slice takes. run: consecutive elements of the buffer, cut into blocks of their own. of_each_block: a share of
/// every block of the whole buffer, for collectives in which a block's place matters.
enum class Cut : std::uint8_t { run, of_each_block };
/// of_each_block where the collective kind says which rank owns which block.
Cut cut_for(CollectiveKind);

/// A stretch of elements: where it lies in the buffers, and where in scratch that holds one slice.
struct Extent {
  std::size_t offset, scratch_offset, elements;
};

/// One slice of a buffer of `total` elements.
struct Slice {
  Cut cut = Cut::run;
  std::uint32_t blocks = 1;
  std::size_t total = 0, begin = 0, length = 0;  ///< run: its elements
  std::size_t number = 0, count = 1;             ///< of_each_block: which share of how many
  std::size_t grain = 1;                         ///< run: its blocks begin at multiples of this [elements]
  /// of_each_block: more than one block only where there is one slice.
  Extent extent(Blocks) const;
};

/// A buffer of n elements as slices.
class Slices {
 public:
  Slices() = default;
  /// Messages of about `message_bytes` a block. `whole`: in one slice, whatever the size. A codec's grain: only for
  /// runs; slices and blocks begin at its multiples.
  Slices(Cut, std::size_t elements, std::size_t element_bytes, std::uint32_t blocks, std::size_t message_bytes,
         bool whole, std::size_t grain = 1);
  std::size_t count() const { return count_; }  ///< at least 1, also for an empty buffer
  Slice operator[](std::size_t number) const;
  /// The most elements that a slice's scratch must hold.
  std::size_t scratch_elements() const;

 private:
  Cut cut_ = Cut::run;
  std::uint32_t blocks_ = 1;
  std::size_t total_ = 0, count_ = 1, grain_ = 1;
  std::size_t length_ = 0;  ///< run: of all slices but the last
};

/// Slices that are under way at once: lane i takes slices i, i + lanes, i + 2·lanes … one after the other. A slice is
/// in one round at a time. With one schedule every rank that matters is busy in each round, so four lanes fill the
/// links. With several trees a rank works in a few rounds only, so it is busy when about as many slices are under way
/// as all trees have rounds. At P = 8 to 14, with four lanes, a double tree takes 1.5 to 1.9 times as long.
std::size_t lanes_for(std::span<const SchedulePtr>);
/// The most lanes that an algorithm takes on so many ranks: 4 to 16, by the depth of a binary tree.
int most_lanes(int ranks);

/// How long a block's messages should be, `message_bytes` at most. Several trees want short slices, since the first one
/// goes up and down before the pipeline is full; none is shorter than what is worth a message.
std::size_t message_bytes_for(std::span<const SchedulePtr>, std::size_t bytes, std::size_t message_bytes);

/// Elements that `rank` sends when the schedule runs over one slice: the sum over its messages; and what it sends when
/// each block is encoded by itself, given the bytes of a block of so many elements.
/// Cost: O(steps), O(blocks sent).
std::uint64_t elements_sent(const Schedule&, std::uint32_t rank, const Slice&);
std::uint64_t coded_bytes_sent(const Schedule&, std::uint32_t rank, const Slice&,
                               const std::function<std::size_t(std::size_t)>& wire_bytes);

}  // namespace gradmeter::allreduce
