// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/sweep.hpp"

#include <algorithm>
#include <bit>
#include <random>

#include "core/format.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

SweepPoint SweepRows::point(std::string experiment, core::Factors factors, std::size_t group) const {
  SweepPoint p;
  p.row.experiment = std::move(experiment);
  p.row.factors = std::move(factors);
  p.group = group;
  p.kept = finished(p.row.factors) != nullptr;
  return p;
}

const core::Point* SweepRows::finished(const core::Factors& f) const {
  const auto it = finished_.find(f.key());
  return it == finished_.end() ? nullptr : &it->second;
}

void SweepRows::show(const core::Point& row) const {
  if (peers_.is_first && listener_.kept) listener_.kept(row);
}

void SweepRows::emit(core::Point row) {
  wrong_ += row.status == core::Status::wrong;
  points_left_ -= points_left_ > 0;
  if (peers_.is_first) listener_.measured(row);
  auto key = row.factors.key();
  row.raw_times_s = {};  // already written; those of a long sweep would fill every rank's memory
  finished_.insert_or_assign(std::move(key), std::move(row));
}

void SweepRows::progress(const std::string& now) const {
  if (peers_.is_first && listener_.progress) listener_.progress(now);
}

core::Seconds SweepRows::left() const {
  const TimeBudget& budget = budget_.value();
  return core::Seconds{std::max(0.0, budget.begin + budget.all.value - runtime::host_clock())};
}

core::Seconds SweepRows::time_for_point(core::Seconds usual) const {
  if (!budget_) return usual;
  const auto mine = std::bit_cast<std::size_t>(equal_share(TimeBudget{left()}, points_left_, usual).value);
  return core::Seconds{std::bit_cast<double>(peers_.agree(mine))};
}

core::Seconds SweepRows::predicted_launch_time(core::Seconds needed_time) const {
  return {runtime::host_clock() - budget_->begin + needed_time.value};
}

void SweepRows::foresee(core::Seconds needed_time, const std::string& why) {
  if (!budget_) return;
  const auto needed = predicted_launch_time(needed_time);
  if (peers_.agree(needs_warning(needed) ? 1 : 0) != 0) refuse_budget(needed, why);
}

void SweepRows::foresee_on_first_peer(core::Seconds needed_time, const std::string& why) {
  if (!budget_) return;
  if (const auto needed = predicted_launch_time(needed_time); needs_warning(needed)) refuse_budget(needed, why);
}

void SweepRows::group_measured(std::size_t points, std::size_t rest) {
  measured_ += points;
  if (!peers_.is_first) return;
  if (listener_.group_measured) listener_.group_measured(points, rest);
  if (!budget_ || rest == 0 || left().value > 0) return;
  const double seconds_per_point = (runtime::host_clock() - begin_) / static_cast<double>(measured_);
  const core::Seconds expected = predicted_launch_time({seconds_per_point * static_cast<double>(rest)});
  if (!needs_warning(expected)) return;
  warn(expected, fmt::format("the time budget of {} is used up, and {} of {} points are still to be measured; if they "
                             "take as long as those before, the run takes {}",
                             core::to_text(budget_->all), rest, measured_ + rest, core::to_text(expected)));
}

void SweepRows::warn(core::Seconds launch_time, const std::string& line) {
  announced_ = launch_time;
  if (peers_.is_first && listener_.warning) listener_.warning(line);
}

void SweepRows::refuse_budget(core::Seconds launch_time, const std::string& why) {
  const auto line = fmt::format("a time budget of {} cannot be kept: it needs at least {} ({})",
                                core::to_text(budget_->all), core::to_text(launch_time), why);
  if (budget_->must_be_kept) throw core::UsageError(line);
  warn(launch_time, line);
}

void take_turns(std::uint64_t seed, std::span<const Turn> turns, const std::function<bool(bool enough)>& is_over) {
  std::mt19937_64 draw(seed);
  std::vector<const Turn*> order;
  for (const Turn& turn : turns) order.push_back(&turn);
  for (bool over = false; !over;) {
    std::ranges::shuffle(order, draw);
    bool enough = true;
    for (const Turn* turn : order) enough &= (*turn)();
    over = is_over ? is_over(enough) : enough;
  }
}

namespace {

void stop_between_points(const RoundPeers& peers) {
  peers.stop_between_points ? peers.stop_between_points() : peers.stop_if_interrupted();
}

/// Names the group's points that are due, for an error.
std::string text_of(std::span<SweepPoint* const> group) {
  std::string text;
  std::size_t more = 0;
  for (const SweepPoint* p : group) {
    if (!p->is_due()) continue;
    if (text.empty()) {
      text = p->row.factors.key();
    } else {
      ++more;
    }
  }
  return more == 0 ? text : fmt::format("{} and {} more in turn", text, more);
}

void emit(const Experiment& experiment, SweepPoint& p, SweepRows& rows) {
  if (p.cut) return;
  if (p.kept) p.row = *rows.finished(p.row.factors);
  experiment.complete(p);
  p.kept ? rows.show(p.row) : rows.emit(std::move(p.row));
}

}  // namespace

std::size_t run_sweep(Experiment& experiment, const RoundPeers& peers, const FinishedRows& finished,
                      const RowListener& listener, std::optional<TimeBudget> budget) {
  SweepRows rows(finished, listener, peers, budget);
  const auto points = experiment.plan(rows);
  const auto due = static_cast<std::size_t>(std::ranges::count(points, false, &SweepPoint::kept));
  if (peers.is_first && listener.planned) listener.planned(due, points.size() - due);
  rows.start(due);
  const auto is_due = [](const SweepPoint* p) { return p->is_due(); };
  auto rest = std::ranges::count_if(points, is_due);
  for (auto first = points.begin(); first != points.end();) {
    stop_between_points(peers);
    const auto last = std::find_if(first, points.end(), [&](auto* p) { return p->group != (*first)->group; });
    if (const auto to_measure = std::count_if(first, last, is_due); to_measure > 0) {
      for_points([&] { return text_of({first, last}); }, [&] { experiment.measure((*first)->group, rows); });
      rest -= to_measure;
      rows.group_measured(static_cast<std::size_t>(to_measure), static_cast<std::size_t>(rest));
    }
    for (; first != last; ++first) emit(experiment, **first, rows);
  }
  peers.stop_if_interrupted();
  return rows.wrong();
}

core::Seconds equal_share(const std::optional<TimeBudget>& budget, std::size_t points, core::Seconds usual) {
  return budget ? core::Seconds{budget->all.value / static_cast<double>(std::max<std::size_t>(1, points))} : usual;
}

void refuse(core::Point& row, core::Status status, std::string why) {
  row.status = status;
  row.reason = std::move(why);
}

void refuse_alone(const std::string& unsupported, std::size_t needs, std::size_t free, core::Point& row) {
  if (!unsupported.empty()) return refuse(row, core::Status::unsupported, unsupported);
  if (free > 0 && needs > free) refuse(row, core::Status::skipped, short_of_memory(needs, free, "where"));
}

std::string short_of_memory(std::size_t needs, std::size_t free, std::string_view where) {
  return fmt::format("needs {} of memory {} {} are free", core::to_text(core::Bytes{needs}), where,
                     core::to_text(core::Bytes{free}));
}

}  // namespace gradmeter::bench
