// A Schedule says who sends which blocks to whom in which round: global, lazy, plain values, no communicator.
// The same schedule is verified (verify.hpp), executed (plan.hpp, executor.hpp) and interpreted (play.hpp).
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace gradmeter::allreduce {

enum class StepKind : std::uint8_t {
  send,         ///< the value from before the round goes to `peer`
  recv,         ///< the peer's value replaces ours
  recv_reduce,  ///< the peer's value is added to ours; all of one block in a round are one n-ary sum in rank order
  finish        ///< after the round's receives: the value is complete; average it (a codec encodes it here, once)
};

/// Blocks cut a buffer into `Schedule::blocks()` nearly equal parts.
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
using Steps = std::vector<Step>;  // the caller's, reused

/// What must hold at the end.
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
/// Does it sum?
constexpr bool reduces(CollectiveKind k) {
  return k == CollectiveKind::all_reduce || k == CollectiveKind::reduce_scatter;
}

/// Immutable. A message sent in round k is received in round k; the i-th send from a to b in a round is what b's i-th
/// receive from a in that round gets. Both sides name the same blocks, except in an all-to-all, where the sender names
/// the block as it has it, the receiver the block where it goes, and only their number must agree. No memory in
/// proportion to ranks.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual CollectiveKind collective_kind() const = 0;
  virtual std::uint32_t ranks() const = 0;
  virtual std::uint32_t blocks() const = 0;
  virtual std::uint32_t rounds() const = 0;
  /// Who gives, in a broadcast.
  virtual std::uint32_t root() const { return 0; }
  /// Does every rank finish every sum that it takes part in? Else each sum is finished once.
  virtual bool finishes_everywhere() const { return false; }
  /// Appends this rank's steps of this round. Cost: O(steps).
  virtual void steps(std::uint32_t round, std::uint32_t rank, Steps& out) const = 0;
};
using SchedulePtr = std::shared_ptr<const Schedule>;

/// The four numbers that most schedules store.
class FixedSchedule : public Schedule {
 public:
  CollectiveKind collective_kind() const final { return collective_kind_; }
  std::uint32_t ranks() const final { return ranks_; }
  std::uint32_t blocks() const final { return blocks_; }
  std::uint32_t rounds() const final { return rounds_; }

 protected:
  FixedSchedule(CollectiveKind g, std::uint32_t ranks, std::uint32_t blocks, std::uint32_t rounds)
      : collective_kind_(g), ranks_(ranks), blocks_(blocks), rounds_(rounds) {}

 private:
  CollectiveKind collective_kind_;
  std::uint32_t ranks_, blocks_, rounds_;
};

/// One schedule after another, over the same ranks and blocks; the whole has its own collective kind.
SchedulePtr sequence(CollectiveKind, std::vector<SchedulePtr>);

/// Where an algorithm is to run.
struct Shape {
  std::uint32_t ranks = 1, ranks_per_node = 1;
};

/// The cost that an algorithm states; a test counts it for every shape and compares.
struct StatedCost {
  std::uint32_t rounds = 0;      ///< communication rounds on the longest chain of messages
  std::uint64_t messages = 0;    ///< by all ranks together, for one slice
  double sent_per_rank_max = 0;  ///< in buffers: 2(p-1)/p for the ring
  std::uint64_t sent = 0;        ///< in buffers, by all ranks together: so often is every block sent
  bool operator==(const StatedCost&) const = default;
};

}  // namespace gradmeter::allreduce
