// How steady the machine was while points took turns: the canary is in the turns, and its state of a turn counts for
// all points alike.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "bench/engine/canary.hpp"
#include "core/result.hpp"
#include "core/statistics.hpp"

namespace gradmeter::bench {

struct MachineState {
  std::vector<std::size_t> disturbed = {};  ///< turns, in growing order
  std::size_t turns = 0;
  double steadiness = 1;
  /// Of the first `n` turns: a point with an exact number of samples ends before the others.
  std::size_t disturbed_of(std::size_t n) const;
};

/// Which blocks a point's figures come from.
struct UsedBlocks {
  std::size_t used = 0;
  std::size_t disturbed = 0;  ///< of these, those of disturbed turns
  std::size_t left_out = 0;   ///< of disturbed turns
  double steadiness = 1;
  /// `taken`: all blocks, in `turns` turns.
  static UsedBlocks of(const MachineState&, std::size_t turns, std::size_t taken, std::size_t used);
};
void fill_blocks(const UsedBlocks&, core::Metrics&);

/// Of the turns that began with the canary's round `first`: each turn's state is that of its last canary round
/// (`round_of`, by turn).
MachineState state_of(const CanaryTimes&, std::size_t first, std::span<const std::size_t> round_of);

/// In which turns the blocks of one point were taken: a turn may have none.
class Turns {
 public:
  /// After each turn: how many blocks there are now.
  void note(std::size_t blocks);
  std::size_t count() const { return turns_; }
  /// Without the blocks of disturbed turns, if the others are enough for an interval; else all.
  core::Blocks undisturbed(const core::Blocks&, const MachineState&) const;

 private:
  std::vector<std::size_t> turn_of_;  ///< by block
  std::size_t turns_ = 0;
};

/// Work besides the points: in the first turn, then as often as its share of the time allows.
class PeriodicWork {
 public:
  PeriodicWork(const runtime::Communicator& world, double share);
  /// Collective over the world, once a turn. Gives whether it was done.
  bool turn(const std::function<void()>& work);

 private:
  const runtime::Communicator& world_;
  double share_, begin_;
  double spent_s_ = 0;
  bool begun_ = false;
};

/// The canary in the turns of some points. It takes a twentieth of the time, and at most one round more. Where turns
/// are too short for that, several share the round before them.
class MachineMonitor {
 public:
  /// Collective over the world, as are all calls but `state`. canary: null on ranks that take no part. budget: for all
  /// points; after it, disturbed turns are no reason to continue.
  MachineMonitor(Canary* canary, const runtime::Communicator& world, core::Seconds budget);

  /// Once a turn.
  void round();
  MachineState state() const;
  /// Is the time of all points over, with what was between their blocks, after so many turns at least?
  bool is_over(std::size_t least_turns = core::fewest_blocks) const;
  /// Are there enough undisturbed turns, or is there no time for more?
  bool has_enough(std::size_t blocks) const;

 private:
  Canary* canary_;
  const runtime::Communicator& world_;
  PeriodicWork side_;
  double end_;
  std::size_t first_;
  std::vector<std::size_t> round_of_;
};

}  // namespace gradmeter::bench
