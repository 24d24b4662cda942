#include "dataparallel/simulation/collectives.hpp"

#include <algorithm>
#include <cmath>
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

/// By rank; of a codec's wire, this share of the numbers' bytes.
std::vector<std::uint64_t> sent_bytes(std::span<const allreduce::SchedulePtr> schedules,
                                      const allreduce::Slices& slices, std::size_t ranks, double share) {
  std::vector<std::uint64_t> bytes(ranks, 0);
  for (std::size_t i = 0; i < slices.count(); ++i) {
    for (std::uint32_t r = 0; r < ranks; ++r)
      bytes[r] += allreduce::elements_sent(*schedules[i % schedules.size()], r, slices[i]) * sizeof(float);
  }
  for (std::uint64_t& b : bytes) b = static_cast<std::uint64_t>(std::llround(static_cast<double>(b) * share));
  return bytes;
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
  rendezvous.is_coded = g_.simulated.codec && !c.tensor_layout.tensors.empty();
  if (rendezvous.is_coded && !g_.simulated.time_only)
    throw std::logic_error("the virtual fabric encodes no numbers: a codec is simulated with time_only alone");
  if (++rendezvous.arrived == m.size()) {
    complete(rendezvous);
    open_.erase({group.id, call});
  }
  return ticket;
}

SimCollectives::Coding SimCollectives::coding_of(std::size_t elements) const {
  const auto& codec = *g_.simulated.codec;
  if (!codec.codec) throw std::logic_error(fmt::format("codec {} has exchanges of its own", codec.info->name));
  const auto rates = g_.machine().codecs.find(codec.info->name);
  if (rates == g_.machine().codecs.end())
    throw std::logic_error(fmt::format("the machine has no rates of codec {}", codec.info->name));
  const double plain = static_cast<double>(elements) * sizeof(float);
  const auto wire = codec.codec->wire_bytes(elements);
  return {.rates = rates->second, .share = plain > 0 ? static_cast<double>(wire) / plain : 1};
}

/// Fewer bytes on a link are as many bytes on a faster one.
std::vector<double> SimCollectives::finish_times(const Rendezvous& rendezvous,
                                                 std::span<const allreduce::SchedulePtr> schedules,
                                                 const allreduce::Slices& slices, std::vector<double> begin) const {
  const auto times = [&](const core::Machine& m) {
    return allreduce::hockney_finish_times(schedules, slices, sizeof(float), begin, m, rendezvous.members);
  };
  if (!rendezvous.is_coded) return times(g_.machine());
  const std::size_t n = rendezvous.buffers.front().size();
  const auto [rates, share] = coding_of(n);
  const double bytes = static_cast<double>(n) * sizeof(float), ranks = static_cast<double>(begin.size());
  for (double& b : begin) b += bytes * (1 + 1 / ranks) / rates.encode;
  core::Machine m = g_.machine().with_links_faster(1 / share);
  m.reduce_bytes_per_s = rates.add;
  std::vector<double> end = times(m);
  for (double& e : end) e += bytes / rates.decode;
  return end;
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
  const auto end = finish_times(rendezvous, schedules, slices, begin);
  if (is_cut_short(rendezvous, end)) return;
  std::vector<std::uint64_t> bytes;
  if (g_.simulated.time_only) {
    const double share = rendezvous.is_coded ? coding_of(n).share : 1;
    bytes = sent_bytes(schedules, slices, rendezvous.members.size(), share);
  } else {
    bytes = allreduce::interpret(schedules, slices, rendezvous.buffers, rendezvous.signature.op);
  }
  if (rendezvous.signature.kind == CallKind::reduce_scatter && !g_.simulated.time_only)
    corrupt_other_blocks(rendezvous.buffers);
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
