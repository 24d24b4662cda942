// How steady the machine was while points took turns: the canary stands in the turns, and what it says of one is said
// of all points alike.
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
  /// Of the first `n` turns: who needs an exact number of samples leaves before the others.
  std::size_t disturbed_of(std::size_t n) const;
};

/// The blocks that a point's figures come from.
struct UsedBlocks {
  std::size_t used = 0;
  std::size_t disturbed = 0;  ///< of these, those of disturbed turns
  std::size_t left_out = 0;   ///< of disturbed turns
  double steadiness = 1;
  /// `taken`: all blocks, in `turns` turns.
  static UsedBlocks of(const MachineState&, std::size_t turns, std::size_t taken, std::size_t used);
};
void fill_blocks(const UsedBlocks&, core::Metrics&);

/// Of the turns that began with the canary's round `first`: each is as its last round of the canary (`round_of`, by
/// turn) says.
MachineState state_of(const CanaryTimes&, std::size_t first, std::span<const std::size_t> round_of);

/// In which turns the blocks of one contestant were taken: a turn may leave none.
class Turns {
 public:
  /// After each turn: how many blocks there are now.
  void note(std::size_t blocks);
  std::size_t count() const { return turns_; }
  /// Without those of disturbed turns where others are enough for an interval, else all.
  core::Blocks undisturbed(const core::Blocks&, const MachineState&) const;

 private:
  std::vector<std::size_t> turn_of_;  ///< by block
  std::size_t turns_ = 0;
};

/// Work beside the points: in the first turn, then as often as its share of the time allows.
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

/// The canary in the turns of some points. It takes a twentieth of the time, and at most one round more: where turns
/// are shorter than that allows, several are as the round before them says.
class MachineMonitor {
 public:
  /// Collective over the world, as are all calls but `state`. canary: null on ranks that sit out. budget: for all
  /// points, after which disturbed turns are no reason to go on.
  MachineMonitor(Canary* canary, const runtime::Communicator& world, core::Seconds budget);

  /// Once a turn.
  void round();
  MachineState state() const;
  /// The time of all points is over, what stands between their blocks included, and each has the blocks that an
  /// interval needs.
  bool is_over() const;
  /// Are there undisturbed turns enough, or is it hopeless?
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
