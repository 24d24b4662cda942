#include "bench/engine/machine_monitor.hpp"

#include <algorithm>

#include "runtime/time/clock.hpp"

namespace gradmeter::bench {

std::size_t MachineState::disturbed_of(std::size_t n) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(disturbed, n) - disturbed.begin());
}

UsedBlocks UsedBlocks::of(const MachineState& s, std::size_t turns, std::size_t taken, std::size_t used) {
  return {.used = used,
          .disturbed = used < taken ? 0 : s.disturbed_of(turns),
          .left_out = taken - used,
          .steadiness = s.steadiness};
}

void fill_blocks(const UsedBlocks& b, core::Metrics& m) {
  using core::Metric;
  m[Metric::blocks] = static_cast<std::int64_t>(b.used);
  m[Metric::disturbed_blocks] = static_cast<std::int64_t>(b.disturbed);
  m[Metric::left_out_blocks] = static_cast<std::int64_t>(b.left_out);
  m[Metric::steadiness] = b.steadiness;
}

MachineState state_of(const CanaryTimes& times, std::size_t first, std::span<const std::size_t> round_of) {
  MachineState out{.turns = round_of.size(), .steadiness = times.steadiness(first)};
  const double best = round_of.empty() ? 0 : times.best();
  for (std::size_t turn = 0; turn < round_of.size(); ++turn) {
    if (times.disturbed_at(round_of[turn], best)) out.disturbed.push_back(turn);
  }
  return out;
}

void Turns::note(std::size_t blocks) {
  if (blocks > turn_of_.size()) turn_of_.push_back(turns_);
  ++turns_;
}

core::Blocks Turns::undisturbed(const core::Blocks& all, const MachineState& s) const {
  core::Blocks out;
  for (std::size_t i = 0; i < all.count(); ++i) {
    if (!std::ranges::binary_search(s.disturbed, turn_of_.at(i))) out.add(all.block(i));
  }
  return out.count() < core::fewest_blocks ? all : out;
}

PeriodicWork::PeriodicWork(const runtime::Communicator& world, double share)
    : world_(world), share_(share), begin_(runtime::host_clock()) {}

bool PeriodicWork::turn(const std::function<void()>& work) {
  const double begin = runtime::host_clock();
  // Rank 0 decides: clocks differ.
  if (!world_.broadcast_value(!begun_ || spent_s_ <= share_ * (begin - begin_))) return false;
  begun_ = true;
  work();
  spent_s_ += runtime::host_clock() - begin;
  return true;
}

MachineMonitor::MachineMonitor(Canary* canary, const runtime::Communicator& world, core::Seconds budget)
    : canary_(canary),
      world_(world),
      side_(world, 0.05),
      end_(runtime::host_clock() + budget.value),
      first_(canary == nullptr ? 0 : canary->times().rounds()) {}

void MachineMonitor::round() {
  side_.turn([this] {
    if (canary_ != nullptr) canary_->round();
  });
  if (canary_ != nullptr) round_of_.push_back(canary_->times().rounds() - 1);
}

MachineState MachineMonitor::state() const {
  return canary_ == nullptr ? MachineState{} : state_of(canary_->times(), first_, round_of_);
}

bool MachineMonitor::is_over(std::size_t least_turns) const {
  const bool over = runtime::host_clock() > end_ && state().turns >= least_turns;
  return world_.broadcast_value(over);
}

bool MachineMonitor::has_enough(std::size_t blocks) const {
  const auto s = state();
  constexpr std::size_t spin_policy = 3;
  const bool over = s.turns >= spin_policy * blocks || runtime::host_clock() > end_;
  const bool enough = s.turns - s.disturbed.size() >= blocks || over;
  return world_.broadcast_value(enough);
}

}  // namespace gradmeter::bench
