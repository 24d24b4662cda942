#include "dataparallel/simulation/collectives.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "allreduce/schedule/algorithms/binomial_tree.hpp"
#include "allreduce/schedule/hockney.hpp"
#include "allreduce/schedule/interpret.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::CollectiveKind;

std::span<float> floats(Buffer b) {
  if (b.element() != core::Element::f32) throw std::logic_error("the virtual fabric moves fp32 only");
  return b.values<float>();
}

/// Slices as the executor cuts them. Where a rank owns a block, one slice gives the same bits: each element takes the
/// same way through the only schedule, whichever slice it is in.
allreduce::Slices cut(CollectiveKind collective_kind, std::size_t elements,
                      std::span<const allreduce::SchedulePtr> schedules, std::size_t message_bytes) {
  const auto how = allreduce::cut_for(collective_kind);
  const std::size_t bytes = allreduce::message_bytes_for(schedules, elements * sizeof(float), message_bytes);
  return {how, elements, sizeof(float), schedules.front()->blocks(), bytes, how == allreduce::Cut::of_each_block};
}

/// Other ranks' blocks are undefined after a reduce-scatter: NaN makes any use of them visible.
void corrupt_other_blocks(std::span<const std::span<float>> buffers) {
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

const SimCollectives::Method& SimCollectives::method(std::uint32_t ranks, const CallSignature& a) {
  const auto [it, is_new] = methods_.try_emplace({ranks, a.kind, a.root});
  if (!is_new) return it->second;
  if (a.kind == CallKind::broadcast) {
    return it->second = {label(a.kind), {allreduce::binomial_broadcast(ranks, static_cast<std::uint32_t>(a.root))}};
  }
  const allreduce::Shape shape{ranks, 1};
  auto algorithm = g_.simulated.algorithm;
  const CollectiveKind kind = collective_kind(a.kind);
  if (kind != CollectiveKind::all_reduce && !algorithm->refusal(shape, kind).empty()) {
    algorithm = allreduce::find_algorithm("ring");
  }
  return it->second = {fmt::format("{} {}", label(a.kind), algorithm->name), algorithm->make(shape, kind)};
}

Ticket SimCollectives::join(int worker, const FabricCall& c) {
  const Group group = c.group;
  const auto& m = g_.groups.members(group);
  const auto at = static_cast<std::size_t>(g_.groups.position(group, worker));
  const std::uint64_t call = calls_[{group.id, worker}]++;
  const CallSignature signature{c.kind, c.peer, c.op};
  Rendezvous& rendezvous = open_[{group.id, call}];
  if (rendezvous.arrived == 0) {
    rendezvous = {.signature = signature, .members = m, .tickets = {}, .buffers = {}};
    rendezvous.tickets.resize(m.size());
    rendezvous.buffers.resize(m.size());
  } else if (rendezvous.signature != signature) {
    throw std::logic_error(fmt::format("rank {} makes another collective call than its peers", worker));
  }
  const auto& name = method(static_cast<std::uint32_t>(m.size()), signature).name;
  const auto ticket = rendezvous.tickets[at] = std::make_shared<SimOperation>(g_.scheduler, name);
  rendezvous.buffers[at] = floats(c.out);
  if (++rendezvous.arrived == m.size()) {
    complete(rendezvous);
    open_.erase({group.id, call});
  }
  return ticket;
}

void SimCollectives::complete(Rendezvous& rendezvous) {
  const auto& schedules = method(static_cast<std::uint32_t>(rendezvous.members.size()), rendezvous.signature).schedules;
  const std::size_t n = rendezvous.buffers.front().size();
  std::vector<double> begin;
  for (std::size_t i = 0; i < rendezvous.members.size(); ++i) {
    if (rendezvous.buffers[i].size() != n) {
      throw std::logic_error("ranks gave buffers of different lengths to one collective");
    }
    begin.push_back(std::max(rendezvous.tickets[i]->posted(), free_[static_cast<std::size_t>(rendezvous.members[i])]));
  }
  const auto slices = cut(collective_kind(rendezvous.signature.kind), n, schedules, g_.simulated.message_bytes);
  const auto end = allreduce::hockney_finish_times(schedules, slices, sizeof(float), begin, g_.machine(), rendezvous.members);
  if (is_cut_short(rendezvous, end)) return;
  const auto bytes = allreduce::interpret(schedules, slices, rendezvous.buffers, rendezvous.signature.op);
  if (rendezvous.signature.kind == CallKind::reduce_scatter) corrupt_other_blocks(rendezvous.buffers);
  for (std::size_t i = 0; i < rendezvous.members.size(); ++i) {
    free_[static_cast<std::size_t>(rendezvous.members[i])] = end[i];
    rendezvous.tickets[i]->finish(begin[i], end[i], bytes[i], bytes[i]);
  }
}

bool SimCollectives::is_cut_short(const Rendezvous& rendezvous, const std::vector<double>& end) const {
  for (std::size_t i = 0; i < end.size(); ++i) {
    if (g_.fails_at(rendezvous.members[i]) < end[i]) return true;
  }
  return false;
}

}  // namespace gradmeter::dataparallel
