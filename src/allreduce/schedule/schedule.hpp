// SPDX-License-Identifier: Apache-2.0
// A Schedule says which rank sends which blocks to which rank in which round. It is global (all ranks share one
// description), lazy (steps are computed when asked for), made of plain values, and needs no communicator.
// The same schedule is verified (verify.hpp), executed (plan.hpp, executor.hpp) and interpreted (interpret.hpp).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace gradmeter::allreduce {

enum class StepKind : std::uint8_t {
  send,         ///< the peer gets the value that this rank had before the round
  recv,         ///< the peer's value replaces this rank's
  recv_reduce,  ///< the peer's value is combined with this rank's; where several peers send the same block in a round,
                ///< their values and this rank's are combined at once, in rank order
  finish        ///< after the round's receives, the sum is complete: an average is divided, and a codec encodes the sum
};

/// A run of `count` consecutive blocks. A schedule cuts a buffer into `Schedule::blocks()` nearly equal blocks,
/// numbered from 0.
struct Blocks {
  std::uint32_t first = 0, count = 1;
  bool operator==(const Blocks&) const = default;
  bool overlaps(Blocks o) const { return first < o.first + o.count && o.first < first + count; }
};

struct Step {
  StepKind kind;
  std::uint32_t peer;  ///< the rank itself for `finish`
  Blocks blocks;
};
using Steps = std::vector<Step>;  // callers keep one and clear it for each round, so that its memory is reused

/// The kinds of collectives, each with the condition that holds at its end.
enum class CollectiveKind : std::uint8_t {
  all_reduce,      ///< every rank holds the finished sum of every block
  reduce_scatter,  ///< rank r holds the finished sum of block r
  all_gather,      ///< rank r gives block r; every rank holds all
  broadcast,       ///< the root gives all blocks; every rank holds all
  all_to_all,      ///< rank r's block b becomes rank b's block r; blocks are equally long
  send_receive     ///< rank r ends with the blocks of rank r-1, rank 0 with those of the last
};
/// "all_reduce", "reduce_scatter" …
std::string_view name(CollectiveKind);
/// True where this kind of collective reduces.
constexpr bool reduces(CollectiveKind k) {
  return k == CollectiveKind::all_reduce || k == CollectiveKind::reduce_scatter;
}

/// Immutable: a collective kind, some numbers, and a function that gives each rank's steps. A message sent in round k
/// is received in round k; the i-th send from a to b in a round matches b's i-th receive from a in that round. Both
/// sides name the same blocks, except in an all-to-all: there each side names a block by its place in its own buffer,
/// and only the number of blocks must agree. A schedule's memory does not grow with the ranks.
class Schedule {
 public:
  /// A function that appends this rank's steps of this round to `out`. Cost: O(steps).
  using AppendSteps = std::function<void(std::uint32_t round, std::uint32_t rank, Steps& out)>;
  Schedule(CollectiveKind kind, std::uint32_t ranks, std::uint32_t blocks, std::uint32_t rounds, AppendSteps append,
           bool finishes_everywhere = false, std::uint32_t root = 0)
      : collective_kind_(kind),
        ranks_(ranks),
        blocks_(blocks),
        rounds_(rounds),
        append_(std::move(append)),
        finishes_everywhere_(finishes_everywhere),
        root_(root) {}

  CollectiveKind collective_kind() const { return collective_kind_; }
  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t blocks() const { return blocks_; }
  std::uint32_t rounds() const { return rounds_; }
  /// The rank whose buffer a broadcast sends.
  std::uint32_t root() const { return root_; }
  /// True where all ranks compute the same sum and each finishes its own copy (recursive doubling, one-shot). False:
  /// one rank finishes each sum, and ranks that need it receive the finished value.
  bool finishes_everywhere() const { return finishes_everywhere_; }
  void steps(std::uint32_t round, std::uint32_t rank, Steps& out) const { append_(round, rank, out); }

 private:
  CollectiveKind collective_kind_;
  std::uint32_t ranks_, blocks_, rounds_;
  AppendSteps append_;
  bool finishes_everywhere_;
  std::uint32_t root_;
};
using SchedulePtr = std::shared_ptr<const Schedule>;

/// Calls visit(step) for each of this rank's sends, round by round.
template <class Visit>
void for_each_send(const Schedule& s, std::uint32_t rank, const Visit& visit) {
  Steps steps;
  for (std::uint32_t k = 0; k < s.rounds(); ++k) {
    steps.clear();
    s.steps(k, rank, steps);
    for (const Step& x : steps) {
      if (x.kind == StepKind::send) visit(x);
    }
  }
}
/// True where a message of this rank holds more than one block.
inline bool sends_several_blocks(const Schedule& s, std::uint32_t rank) {
  bool any = false;
  for_each_send(s, rank, [&any](const Step& x) { any |= x.blocks.count > 1; });
  return any;
}

/// True where in each round all ranks send, receive, add up and finish equally many blocks, and equally many of these
/// go to or come from other nodes. node_of: the node of each rank. Cost: O(steps of all ranks).
bool ranks_have_equal_work(const Schedule&, std::span<const int> node_of);

/// One schedule after another, over the same ranks and blocks. The sequence has a collective kind of its own.
SchedulePtr sequence(CollectiveKind, std::vector<SchedulePtr>);

/// The ranks and nodes on which an algorithm is to run. By convention ranks_per_node is 0 if nodes do not hold equally
/// many consecutive ranks (`shape_of`).
struct RankShape {
  std::uint32_t ranks = 1, ranks_per_node = 1;
  bool operator==(const RankShape&) const = default;
};

/// The cost that an algorithm states; a test compares it with the cost that is counted for each shape.
struct StatedCost {
  std::uint32_t rounds = 0;      ///< communication rounds on the longest chain of messages
  std::uint64_t messages = 0;    ///< by all ranks together, for one slice
  double sent_per_rank_max = 0;  ///< [buffers]: 2(p-1)/p for the ring
  std::uint64_t sent = 0;        ///< [buffers], by all ranks together: how often each block is sent
  bool operator==(const StatedCost&) const = default;
};

// Schedules inside schedules: one schedule runs in every group of ranks at once, and each of its blocks stands for a
// run of blocks of the outer schedule.

/// A rank's group, and its number inside it.
struct GroupRank {
  std::uint32_t group, rank;
};

/// Disjoint groups of equal size. `in_group` gives a rank's group, empty for a rank that takes no part; `in_whole` is
/// the inverse of `in_group`.
struct Groups {
  std::function<std::optional<GroupRank>(std::uint32_t rank)> in_group;
  std::function<std::uint32_t(GroupRank)> in_whole;
};
/// The groups of ranks in a grid that is filled row by row, with rows of `width` ranks: its rows, its columns, or its
/// first column as the only group.
Groups grid_rows(std::uint32_t width);
Groups grid_columns(std::uint32_t width);
Groups first_grid_column(std::uint32_t width);

/// How a schedule is embedded as a part of a sequence. `ranks` and `blocks` are those of the whole sequence. Block b of
/// group g stands for `width` blocks of the sequence, from block g·stride + b·width on.
struct Embedding {
  std::uint32_t ranks, blocks;
  Groups groups;
  std::uint32_t width = 1, stride = 0;
  /// False: the inner sums are only part of the answer, so the inner `finish` steps are left out.
  bool finishes = true;
};

/// The schedule that runs `inner` in every group at once. Cost: that of `inner` in each group.
SchedulePtr embed(const SchedulePtr& inner, const Embedding&);

}  // namespace gradmeter::allreduce
