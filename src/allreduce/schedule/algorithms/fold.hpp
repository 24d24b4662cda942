// How an algorithm for a power of two serves any number of ranks: the ranks beyond it hand their buffers to a
// neighbour before, and get the answer back after.
#pragma once
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// ranks = power + extra: ranks 0 … 2·extra-1 pair up, the even one hands its buffer to the odd one.
struct Fold {
  std::uint32_t power, extra, levels;  ///< power = 2^levels, the largest that fits
  explicit Fold(std::uint32_t ranks);
  bool paired(std::uint32_t rank) const { return rank < 2 * extra; }
  bool active(std::uint32_t rank) const { return !paired(rank) || rank % 2 == 1; }
  std::uint32_t position(std::uint32_t rank) const { return paired(rank) ? rank / 2 : rank - extra; }
  std::uint32_t rank_at(std::uint32_t position) const { return position < extra ? 2 * position + 1 : position + extra; }
};

/// An all-reduce over `ranks` from one over the power of two below it.
/// Cost:   2 rounds, 2·extra messages of the whole buffer more; nothing when `ranks` is a power of two.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr folded(SchedulePtr all_reduce_of_power, std::uint32_t ranks);
/// The cost of `folded` from that of the inner schedule.
StatedCost folded(StatedCost of_power, std::uint32_t ranks);

}  // namespace gradmeter::allreduce
