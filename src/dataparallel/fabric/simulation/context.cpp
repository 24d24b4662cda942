// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/context.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Added to a packet's number, so that the packet is the last of those with its time and sender.
constexpr std::uint64_t last_of_all = std::uint64_t{1} << 63;

}  // namespace

SimNetwork::Passage SimNetwork::send(int from, int to, std::size_t bytes) {
  return links_.send(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), bytes,
                     scheduler_.now(scheduler_.running_thread()));
}

void SimNetwork::deliver(MessageQueue& queue, Packet p, const Passage& passage, double delay) {
  p.head = passage.begin + passage.latency_s + delay;
  p.tail = send_end(passage) + passage.latency_s + delay;
  p.port_time_s = send_end(passage) - passage.begin;
  p.number = posted_++;
  enqueue(queue, std::move(p));
}

void SimNetwork::deliver_at(MessageQueue& queue, Packet p, double time) {
  p.head = p.tail = time;
  p.number = last_of_all + posted_++;
  enqueue(queue, std::move(p));
}

void SimNetwork::enqueue(MessageQueue& queue, Packet p) {
  const auto key = std::tuple(p.head, p.from, p.number);
  p.queue = &queue;
  port(queue).coming.emplace(key, std::move(p));
  if (queue.reader >= 0) scheduler_.wake(queue.reader, expected(queue));
}

void SimNetwork::put(MessageQueue& queue, Packet p) {
  p.number = posted_++;
  const double now = scheduler_.now(scheduler_.running_thread());
  const auto key = std::tuple(now, p.from, p.number);
  queue.arrivals.emplace(key, std::move(p));
  if (queue.reader >= 0) scheduler_.wake(queue.reader, now);
}

double SimNetwork::arrival_time(const Packet& p, double port_free) {
  return std::max(p.tail, std::max(p.head, port_free) + p.port_time_s);
}

void SimNetwork::settle(MessageQueue& queue) {
  const double now = scheduler_.now(scheduler_.running_thread());
  ReceiverPort& in = port(queue);
  while (!in.coming.empty() && in.coming.begin()->second.head <= now) {
    auto node = in.coming.extract(in.coming.begin());
    Packet& packet = node.mapped();
    in.free = arrival_time(packet, in.free);
    const auto key = std::tuple(in.free, packet.from, packet.number);
    packet.queue->arrivals.emplace(key, std::move(packet));
  }
}

double SimNetwork::expected(const MessageQueue& queue) const {
  if (!queue.arrivals.empty()) return std::get<0>(queue.arrivals.begin()->first);
  const ReceiverPort& in = incoming_[static_cast<std::size_t>(queue.owner)];
  double free = in.free;
  for (const auto& [key, packet] : in.coming) {
    free = arrival_time(packet, free);
    if (packet.queue == &queue) return free;
  }
  return EventScheduler::forever;
}

Groups::Groups(int workers, EventScheduler& scheduler)
    : scheduler_(scheduler), calls_(static_cast<std::size_t>(workers), 0) {
  auto& members = members_.emplace_back();
  for (int r = 0; r < workers; ++r) members.push_back(r);
}

int Groups::position(Group g, int world_rank) const {
  const auto& m = members(g);
  const auto it = std::find(m.begin(), m.end(), world_rank);
  if (it == m.end()) throw std::logic_error(fmt::format("rank {} is not in group {}", world_rank, g.id));
  return static_cast<int>(it - m.begin());
}

int Groups::world_rank(Group g, int rank) const {
  if (rank < 0 || rank >= size(g)) throw std::logic_error(fmt::format("group {} has no rank {}", g.id, rank));
  return members(g)[static_cast<std::size_t>(rank)];
}

Group Groups::split(int world_rank, int color, int key) {
  const std::size_t call = calls_[static_cast<std::size_t>(world_rank)]++;
  if (splits_.size() <= call) splits_.resize(call + 1);
  splits_[call].asked.emplace_back(color, key, world_rank);
  if (splits_[call].asked.size() == members_[0].size()) form(splits_[call]);
  while (splits_[call].group_of_color.empty()) scheduler_.block(world_rank, "the others to split");
  return {splits_[call].group_of_color.at(color)};
}

void Groups::form(Splitting& s) {
  std::sort(s.asked.begin(), s.asked.end());
  for (const auto& [color, key, world_rank] : s.asked) {
    const auto [it, is_new] = s.group_of_color.try_emplace(color, static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    members_[static_cast<std::size_t>(it->second)].push_back(world_rank);
    scheduler_.wake(world_rank, scheduler_.now(scheduler_.running_thread()));
  }
}

SimContext::SimContext(int workers, SimMachine m)
    : sim_machine(std::move(m)),
      scheduler(workers),
      network(workers, sim_machine.machine, scheduler),
      groups(workers, scheduler),
      failure_times(static_cast<std::size_t>(workers), EventScheduler::forever),
      cores_free(sim_machine.shared_cores) {
  if (!sim_machine.algorithm) sim_machine.algorithm = allreduce::find_algorithm("ring");
  if (!sim_machine.algorithm->has_schedule()) {
    throw core::UsageError(
        fmt::format("algorithm {} has no schedule to run in virtual time; use ring", sim_machine.algorithm->name));
  }
  for (const RankFailure& failure : sim_machine.failures) {
    if (failure.rank < 0 || failure.rank >= workers) {
      throw core::UsageError(fmt::format("rank {} cannot die: there are {} ranks", failure.rank, workers));
    }
    failure_times[static_cast<std::size_t>(failure.rank)] = failure.at_s;
    scheduler.stop_at(failure.rank, failure.at_s);
  }
}

}  // namespace gradmeter::dataparallel
