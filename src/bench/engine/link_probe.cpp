// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/link_probe.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"
#include "runtime/threads/this_thread.hpp"

namespace gradmeter::bench {
namespace {

/// Read one after another, each once after it was written [bytes].
constexpr std::array<std::size_t, 4> read_sizes{32 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr std::size_t read_bytes = std::accumulate(read_sizes.begin(), read_sizes.end(), std::size_t{0});
constexpr std::size_t shortest_message = 64, first_message = 64 << 10, longest_message = 16 << 20;
// Then the start of an exchange hardly counts: a message of 9 ms on a link of 1 Gbit/s showed 4 to 9 % too little
// (results/interconnects.md).
constexpr double long_enough_s = 20e-3, long_enough_starts = 10;
constexpr double in_memory_s = 2.5e-3;  // the longest message takes less: no link, but memory with caches
constexpr std::size_t page = 4096;

std::span<const float> const_floats_of(std::span<std::byte> memory) {
  return {reinterpret_cast<const float*>(memory.data()), memory.size() / sizeof(float)};
}

}  // namespace

core::Seconds least_exchange_time(LeastSent least, const core::Machine& m) {
  const double memory = m.ranks_per_node == 1 ? 0 : m.within_node.bytes_per_s(static_cast<std::uint64_t>(least.rank));
  const double port = m.ranks_per_node == 0 ? 0 : m.node_port.bytes_per_s;
  const double both = memory + port;
  const double rank = both > 0 ? least.rank / both : 0;
  const double node = port > 0 ? least.node / port : 0;
  return core::Seconds{std::max(rank, node)};
}

double link_rate(const core::Machine& m) {
  return m.ranks_per_node == 0 ? m.within_node.bandwidth.back().bytes_per_s : m.node_port.bytes_per_s;
}

std::vector<int> partners_on_next_node(std::span<const int> node_of) {
  std::map<int, std::vector<int>> ranks_of;
  std::vector<std::size_t> place;
  for (std::size_t r = 0; r < node_of.size(); ++r) {
    auto& mates = ranks_of[node_of[r]];
    place.push_back(mates.size());
    mates.push_back(static_cast<int>(r));
  }
  std::vector<int> partners;
  for (std::size_t r = 0; r < node_of.size(); ++r) {
    auto next = ranks_of.upper_bound(node_of[r]);
    if (next == ranks_of.end()) next = ranks_of.begin();
    partners.push_back(next->second[place[r] % next->second.size()]);
  }
  return partners;
}

PortProbe::PortProbe(Session& session, const runtime::Communicator& c, std::span<const int> node_of)
    : session_(session),
      c_(c),
      most_mates_(NodeMap{.node_of = {node_of.begin(), node_of.end()}}.ranks_per_node()),
      network_(c, {.transport = runtime::TransportKind::mpi, .memory_bytes = page}),
      link_(network_.connect(c, 1)),
      leaving_(longest_message),
      message_bytes_(first_message) {
  const auto partners = partners_on_next_node(node_of);
  to_ = partners[static_cast<std::size_t>(c.rank())];
  for (std::size_t r = 0; r < partners.size(); ++r) {
    if (partners[r] == c.rank()) arriving_.emplace_back(static_cast<int>(r), std::vector<std::byte>(longest_message));
  }
}

void PortProbe::round() {
  const runtime::Computing note(session_.activity(), "link");
  shortest_ = std::min(shortest_, exchange(shortest_message));
  const double long_enough = std::max(long_enough_s, long_enough_starts * shortest_);
  double took = 0, best_shorter = 0;
  for (std::size_t bytes = first_message;; bytes *= 4) {
    took = exchange(bytes);
    if (bytes < longest_message && bytes == message_bytes_ && took < long_enough) message_bytes_ *= 4;
    if (bytes == message_bytes_) break;
    best_shorter = std::max(best_shorter, most_mates_ * static_cast<double>(bytes) / took);
  }
  // Shorter messages count where they are faster because they stay in caches: on fake nodes. A link that shapes its
  // traffic lets them pass in a burst: 64 KiB at 6 Gbit/s where 1 Gbit/s is its rate.
  if (took < in_memory_s) best_ = std::max(best_, best_shorter);
  const double moved = most_mates_ * static_cast<double>(message_bytes_);
  best_ = std::max(best_, moved / std::max(took - shortest_, took / 2));
}

/// All ranks at once; the longest time of all.
double PortProbe::exchange(std::size_t bytes) {
  runtime::Backoff backoff(runtime::spin_policy_for(most_mates_, session_.cores_per_node()));
  c_.barrier();
  const double begin = runtime::host_clock();
  std::vector<runtime::MessageHandle> arriving;
  for (auto& [from, landing] : arriving_) arriving.push_back(link_->receive(from, 0, std::span(landing).first(bytes)));
  auto sent = link_->send(to_, 0, std::span(leaving_).first(bytes));
  const auto is_done = [&] {
    link_->progress();
    bool done = link_->send_done(sent);
    for (auto& t : arriving) done &= link_->try_receive(t) != nullptr;
    return done;
  };
  while (!is_done()) backoff.wait();
  const double took = runtime::host_clock() - begin;
  for (auto& t : arriving) link_->release(t);
  return c_.max(took);
}

LinkProbe::LinkProbe(Session& session, const runtime::Communicator& c, int threads, const std::vector<int>& fake_nodes)
    : session_(session),
      c_(c),
      threads_(threads),
      network_(c, {.memory_bytes = read_bytes + page, .fake_nodes = fake_nodes}),
      own_(network_.arena().take_of<float>(read_bytes / sizeof(float))) {
  if (c.size() == 1) ranks_per_node_ = 1;
  const auto node_of = network_.nodes_of(c);
  if (const NodeMap map{.node_of = node_of}; map.nodes() > 1) {
    ranks_per_node_ = map.ranks_per_node();
    port_.emplace(session, c, node_of);
  }
  // Arenas are alike, so a peer's values lie as far from its begin as ours.
  const auto arenas = network_.arenas_of(c);
  const auto me = static_cast<std::size_t>(c.rank());
  const auto at = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(own_.data()) - arenas[me].data());
  for (std::size_t hop = 1; hop < node_of.size() && neighbours_.empty(); ++hop) {
    const std::size_t peer = (me + hop) % node_of.size();
    if (node_of[peer] == node_of[me]) neighbours_ = const_floats_of(arenas[peer].subspan(at, read_bytes));
  }
}

void LinkProbe::round() {
  ++rounds_;
  if (c_.size() > 1) read_neighbour();
  if (port_) port_->round();
}

void LinkProbe::read_neighbour() {
  const runtime::Computing note(session_.activity(), "link");
  kernels::set_compute_threads(threads_);
  // Elements are written backwards, so that the first ones that are read were written last.
  for (std::size_t i = own_.size(); i-- > 0;) own_[i] = static_cast<float>(i % 64 + rounds_);
  c_.barrier();
  if (!neighbours_.empty()) {
    std::size_t first = 0;
    for (const std::size_t bytes : read_sizes) {
      const std::size_t count = bytes / sizeof(float);
      const double begin = runtime::host_clock();
      const float sum = kernels::read_once(neighbours_.subspan(first, count));
      const double took = runtime::host_clock() - begin;
      if (sum > 0) best_read_ = std::max(best_read_, static_cast<double>(bytes) / took);
      first += count;
    }
  }
  c_.barrier();  // no rank writes what is still being read
}

void LinkProbe::fill(core::Machine& m) const {
  m.ranks_per_node = static_cast<std::uint32_t>(ranks_per_node_);
  if (const double best = c_.max(best_read_); best > 0) m.within_node.bandwidth = {{.bytes_per_s = best}};
  if (port_) m.node_port.bytes_per_s = port_->rate().value;
}

}  // namespace gradmeter::bench
