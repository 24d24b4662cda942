// Schedules inside schedules: one that runs in every group of the ranks at once, on a window of the blocks.
#pragma once
#include <functional>
#include <optional>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// A rank's number inside its group.
struct Seat {
  std::uint32_t group, place;
};

/// Disjoint groups of equal size. `seat` is empty for a rank that takes no part; `rank` is its inverse.
struct Groups {
  std::function<std::optional<Seat>(std::uint32_t rank)> seat;
  std::function<std::uint32_t(Seat)> rank;
};
/// Ranks as a grid, row after row, each `width` long: its rows, its columns, or its first column as the only group.
Groups grid_rows(std::uint32_t width);
Groups grid_columns(std::uint32_t width);
Groups first_grid_column(std::uint32_t width);

/// Block b of group g stands for `width` blocks of the whole, from g·stride + b·width on.
struct Window {
  std::uint32_t width = 1, stride = 0;
};

/// Part of a sequence: `ranks` and `blocks` are those of the whole.
struct Embedding {
  std::uint32_t ranks, blocks;
  Groups groups;
  Window window = {};
  bool finishes = true;  ///< false: the inner sums are only part of the answer, so inner `finish` steps are left out
};

/// Cost: that of `inner` in each group, all groups at once.
SchedulePtr embed(SchedulePtr inner, Embedding);

}  // namespace gradmeter::allreduce
