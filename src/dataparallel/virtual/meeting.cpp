#include "dataparallel/virtual/meeting.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "allreduce/hockney.hpp"
#include "allreduce/interpret.hpp"
#include "allreduce/schedules/binomial_tree.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Goal;

std::span<float> floats(Buffer b) {
  if (b.element() != core::Element::f32) throw std::logic_error("the virtual fabric moves fp32 only");
  return b.values<float>();
}

std::string_view noun(Goal g) {
  switch (g) {
    case Goal::reduce_scatter:
      return "reduce-scatter";
    case Goal::all_gather:
      return "all-gather";
    case Goal::broadcast:
      return "broadcast";
    default:
      return "all-reduce";
  }
}

/// Slices as the executor cuts them. Where a rank owns a block, one slice gives the same bits: each element has the
/// same way through the only schedule, whichever slice takes it along.
allreduce::Slices cut(Goal goal, std::size_t elements, std::span<const allreduce::SchedulePtr> schedules,
                      std::size_t message_bytes) {
  const auto how = allreduce::cut_for(goal);
  const std::size_t bytes = allreduce::message_bytes_for(schedules, elements * sizeof(float), message_bytes);
  return {how, elements, sizeof(float), schedules.front()->blocks(), bytes, how == allreduce::Cut::of_each_block};
}

/// What the others' blocks hold after a reduce-scatter is undefined: whoever reads it shall notice.
void spoil_others(std::span<const std::span<float>> buffers) {
  const auto p = static_cast<std::uint32_t>(buffers.size());
  for (std::uint32_t r = 0; r < p; ++r) {
    const std::span<float> b = buffers[r];
    const auto first = allreduce::block_begin(b.size(), p, r), last = allreduce::block_begin(b.size(), p, r + 1);
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (i < first || i >= last) b[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace

const Meetings::Method& Meetings::method(std::uint32_t ranks, const Agenda& a) {
  const auto [it, is_new] = methods_.try_emplace({ranks, a.goal, a.root});
  if (!is_new) return it->second;
  if (a.goal == Goal::broadcast) {
    return it->second = {"broadcast", {allreduce::binomial_broadcast(ranks, static_cast<std::uint32_t>(a.root))}};
  }
  const allreduce::Shape shape{ranks, 1};
  auto algorithm = g_.machine.algorithm;
  if (a.goal != Goal::all_reduce && !algorithm->refusal(shape, a.goal).empty()) {
    algorithm = allreduce::find_algorithm("ring");
  }
  return it->second = {fmt::format("{} {}", noun(a.goal), algorithm->name), algorithm->make(shape, a.goal)};
}

Ticket Meetings::join(Group group, int worker, Buffer b, Goal goal, int root, allreduce::Op op) {
  const auto& m = g_.groups.members(group);
  const auto at = static_cast<std::size_t>(g_.groups.position(group, worker));
  const std::uint64_t call = calls_[{group.id, worker}]++;
  const Agenda agenda{goal, root, op};
  Meeting& meeting = open_[{group.id, call}];
  if (meeting.arrived == 0) {
    meeting = {.agenda = agenda, .members = m, .tickets = {}, .buffers = {}};
    meeting.tickets.resize(m.size());
    meeting.buffers.resize(m.size());
  } else if (meeting.agenda != agenda) {
    throw std::logic_error(fmt::format("rank {} makes another collective call than its peers", worker));
  }
  const auto& name = method(static_cast<std::uint32_t>(m.size()), agenda).name;
  const auto ticket = meeting.tickets[at] = std::make_shared<VirtualOperation>(g_.baton, name);
  meeting.buffers[at] = floats(b);
  if (++meeting.arrived == m.size()) {
    hold(meeting);
    open_.erase({group.id, call});
  }
  return ticket;
}

void Meetings::hold(Meeting& meeting) {
  const auto& schedules = method(static_cast<std::uint32_t>(meeting.members.size()), meeting.agenda).schedules;
  const std::size_t n = meeting.buffers.front().size();
  std::vector<double> begin;
  for (std::size_t i = 0; i < meeting.members.size(); ++i) {
    if (meeting.buffers[i].size() != n) {
      throw std::logic_error("ranks gave buffers of different lengths to one collective");
    }
    begin.push_back(std::max(meeting.tickets[i]->posted(), free_[static_cast<std::size_t>(meeting.members[i])]));
  }
  const auto slices = cut(meeting.agenda.goal, n, schedules, g_.machine.message_bytes);
  const auto end = allreduce::hockney_finish_times(schedules, slices, sizeof(float), begin, g_.machine.link);
  if (breaks(meeting, end)) return;
  const auto bytes = allreduce::interpret(schedules, slices, meeting.buffers, meeting.agenda.op);
  if (meeting.agenda.goal == Goal::reduce_scatter) spoil_others(meeting.buffers);
  for (std::size_t i = 0; i < meeting.members.size(); ++i) {
    free_[static_cast<std::size_t>(meeting.members[i])] = end[i];
    meeting.tickets[i]->finish(begin[i], end[i], bytes[i], bytes[i]);
  }
}

bool Meetings::breaks(const Meeting& meeting, const std::vector<double>& end) const {
  for (std::size_t i = 0; i < end.size(); ++i) {
    if (g_.dies_at(meeting.members[i]) < end[i]) return true;
  }
  return false;
}

}  // namespace gradmeter::dataparallel
