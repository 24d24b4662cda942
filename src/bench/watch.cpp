#include "bench/watch.hpp"

#include <algorithm>

#include "runtime/clock.hpp"

namespace gradmeter::bench {

std::size_t MachineState::disturbed_of(std::size_t n) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(disturbed, n) - disturbed.begin());
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

Watch::Watch(Canary* canary, const runtime::Communicator& world, core::Seconds budget)
    : canary_(canary),
      world_(world),
      begin_(runtime::host_clock()),
      end_(begin_ + budget.value),
      first_(canary == nullptr ? 0 : canary->times().rounds()) {}

bool Watch::is_due() const {
  constexpr double share = 0.05;
  const bool due = round_of_.empty() || spent_s_ <= share * (runtime::host_clock() - begin_);
  return world_.broadcast_value(due);
}

void Watch::round() {
  const bool due = is_due();
  if (canary_ == nullptr) return;
  if (due) {
    const double begin = runtime::host_clock();
    canary_->round();
    spent_s_ += runtime::host_clock() - begin;
  }
  round_of_.push_back(canary_->times().rounds() - 1);
}

MachineState Watch::state() const {
  return canary_ == nullptr ? MachineState{} : state_of(canary_->times(), first_, round_of_);
}

bool Watch::is_over() const {
  const bool over = runtime::host_clock() > end_ && state().turns >= core::fewest_blocks;
  return world_.broadcast_value(over);
}

bool Watch::has_enough(std::size_t blocks) const {
  const auto s = state();
  constexpr std::size_t patience = 3;
  const bool over = s.turns >= patience * blocks || runtime::host_clock() > end_;
  const bool enough = s.turns - s.disturbed.size() >= blocks || over;
  return world_.broadcast_value(enough);
}

}  // namespace gradmeter::bench
