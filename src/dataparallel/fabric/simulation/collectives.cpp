// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/schedule/cost_model.hpp"
#include "allreduce/schedule/interpret.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::CollectiveKind;

std::span<float> floats(Buffer b) {
  if (b.element() != core::Element::f32) throw std::logic_error("the virtual fabric moves fp32 only");
  return b.values<float>();
}

/// Cuts slices as the executor does. For collectives in which ranks own blocks there is only one slice. That gives the
/// same bits, since an element takes the same way through the schedule in whichever slice it is.
allreduce::Slices cut(CollectiveKind collective_kind, std::size_t elements,
                      std::span<const allreduce::SchedulePtr> schedules, std::size_t message_bytes) {
  const auto slice_cut = allreduce::slice_cut_for(collective_kind);
  const std::size_t bytes = allreduce::message_bytes_for(schedules, elements * sizeof(float), message_bytes);
  return {slice_cut,     elements,
          sizeof(float), schedules.front()->blocks(),
          bytes,         slice_cut == allreduce::SliceCut::share_of_each_block};
}

/// Fills the other ranks' blocks, which are undefined after a reduce-scatter, with NaN, so that any use of them shows.
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

/// The bytes that each rank sends. share: the encoded bytes for each byte of fp32.
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

const allreduce::ScheduledAlgorithm& SimCollectives::algorithm(std::uint32_t ranks, CallKind call, int root) {
  const auto [it, is_new] = algorithms_.try_emplace({ranks, call, root});
  if (!is_new) return it->second;
  if (call == CallKind::broadcast) {
    return it->second = {label(call), {allreduce::binomial_broadcast(ranks, static_cast<std::uint32_t>(root))}};
  }
  const allreduce::RankShape shape{ranks, 1};
  auto chosen = context_.sim_machine.algorithm;
  const CollectiveKind kind = collective_kind(call);
  if (kind != CollectiveKind::all_reduce && !chosen->refusal(shape, kind).empty()) {
    chosen = allreduce::find_algorithm("ring");
  }
  return it->second = {fmt::format("{} {}", label(call), chosen->name), chosen->make(shape, kind)};
}

Ticket SimCollectives::join(int world_rank, const FabricCall& call) {
  const Group group = call.group;
  const auto& members = context_.groups.members(group);
  const auto index = static_cast<std::size_t>(context_.groups.position(group, world_rank));
  const std::uint64_t number = calls_[{group.id, world_rank}]++;
  PendingCollective& pending = pending_[{group.id, number}];
  if (pending.arrived == 0) {
    pending = {.kind = call.kind, .root = call.peer, .op = call.op, .members = members};
    pending.tickets.resize(members.size());
    pending.buffers.resize(members.size());
  } else if (!pending.is_same_call(call)) {
    throw std::logic_error(fmt::format("rank {} makes another collective call than its peers", world_rank));
  }
  const auto& name = algorithm(static_cast<std::uint32_t>(members.size()), call.kind, call.peer).name;
  const auto ticket = pending.tickets[index] = std::make_shared<SimPendingCall>(context_.scheduler, name);
  pending.buffers[index] = floats(call.out);
  pending.is_coded = context_.sim_machine.codec && !call.tensor_layout.tensors.empty();
  if (pending.is_coded && !context_.sim_machine.time_only)
    throw std::logic_error("the virtual fabric encodes no numbers: a codec is simulated with time_only alone");
  if (++pending.arrived == members.size()) {
    complete(pending);
    pending_.erase({group.id, number});
  }
  return ticket;
}

SimCollectives::CodecCost SimCollectives::codec_cost(std::size_t elements) const {
  const auto& codec = *context_.sim_machine.codec;
  if (!codec.codec) throw std::logic_error(fmt::format("codec {} has exchanges of its own", codec.info->name));
  const auto rates = context_.machine().codecs.find(codec.info->name);
  if (rates == context_.machine().codecs.end())
    throw std::logic_error(fmt::format("the machine has no rates of codec {}", codec.info->name));
  const double plain = static_cast<double>(elements) * sizeof(float);
  const auto wire = codec.codec->wire_bytes(elements);
  return {.rates = rates->second, .share = plain > 0 ? static_cast<double>(wire) / plain : 1};
}

/// The time at which each member's call ends [s]. A codec that sends a share of the bytes is simulated by links that
/// are 1/share times as fast.
std::vector<double> SimCollectives::finish_times(const PendingCollective& pending,
                                                 std::span<const allreduce::SchedulePtr> schedules,
                                                 const allreduce::Slices& slices, std::vector<double> begin) const {
  const auto times = [&](const core::Machine& m) {
    return allreduce::hockney_finish_times(schedules, slices, sizeof(float), begin, m, pending.members);
  };
  if (!pending.is_coded) return times(context_.machine());
  const std::size_t n = pending.buffers.front().size();
  const auto [rates, share] = codec_cost(n);
  const double bytes = static_cast<double>(n) * sizeof(float), ranks = static_cast<double>(begin.size());
  for (double& b : begin) b += bytes * (1 + 1 / ranks) / rates.encode;
  core::Machine m = context_.machine().with_links_faster(1 / share);
  m.reduce_bytes_per_s = rates.add;
  std::vector<double> end = times(m);
  for (double& e : end) e += bytes / rates.decode;
  return end;
}

void SimCollectives::complete(PendingCollective& pending) {
  const auto& schedules =
      algorithm(static_cast<std::uint32_t>(pending.members.size()), pending.kind, pending.root).schedules;
  const std::size_t n = pending.buffers.front().size();
  std::vector<double> begin;
  for (std::size_t i = 0; i < pending.members.size(); ++i) {
    if (pending.buffers[i].size() != n) {
      throw std::logic_error("ranks gave buffers of different lengths to one collective");
    }
    begin.push_back(std::max(pending.tickets[i]->posted(), last_end_[static_cast<std::size_t>(pending.members[i])]));
  }
  const auto slices = cut(collective_kind(pending.kind), n, schedules, context_.sim_machine.message_bytes);
  const auto end = finish_times(pending, schedules, slices, begin);
  if (is_cut_short(pending, end)) return;
  std::vector<std::uint64_t> bytes;
  if (context_.sim_machine.time_only) {
    const double share = pending.is_coded ? codec_cost(n).share : 1;
    bytes = sent_bytes(schedules, slices, pending.members.size(), share);
  } else {
    bytes = allreduce::interpret(schedules, slices, pending.buffers, pending.op);
  }
  if (pending.kind == CallKind::reduce_scatter && !context_.sim_machine.time_only)
    corrupt_other_blocks(pending.buffers);
  for (std::size_t i = 0; i < pending.members.size(); ++i) {
    last_end_[static_cast<std::size_t>(pending.members[i])] = end[i];
    pending.tickets[i]->finish(begin[i], end[i], bytes[i], bytes[i]);
  }
}

bool SimCollectives::is_cut_short(const PendingCollective& pending, const std::vector<double>& end) const {
  for (std::size_t i = 0; i < end.size(); ++i) {
    if (context_.fails_at(pending.members[i]) < end[i]) return true;
  }
  return false;
}

}  // namespace gradmeter::dataparallel
