// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/link_probe.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"
#include "runtime/threads/backoff.hpp"

namespace gradmeter::bench {
namespace {

/// The lengths of the pieces that a rank reads one after another, each once after it was written [bytes].
constexpr std::array<std::size_t, 4> read_sizes{32 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr std::size_t read_bytes = std::accumulate(read_sizes.begin(), read_sizes.end(), std::size_t{0});
constexpr std::size_t shortest_message = 64, first_message = 64 << 10, longest_message = 16 << 20;
// A message is long enough if it takes 20 ms and ten times as long as a short one, so that the start of an exchange
// hardly counts: messages of 9 ms on a link of 1 Gbit/s showed rates 4 to 9 % too low (results/interconnects.md).
constexpr double long_enough_s = 20e-3, long_enough_starts = 10;
constexpr double in_memory_s = 2.5e-3;  // if the longest message takes less, it crossed no link, but memory

std::span<const float> const_floats_of(std::span<std::byte> memory) {
  return {reinterpret_cast<const float*>(memory.data()), memory.size() / sizeof(float)};
}

}  // namespace

core::Seconds exchange_time_bound(MinimumSent least, const core::Machine& m) {
  const double memory =
      m.ranks_per_node == 1 ? 0 : m.within_node.bytes_per_s(static_cast<std::uint64_t>(least.by_busiest_rank));
  const double port = m.ranks_per_node == 0 ? 0 : m.node_port.bytes_per_s;
  const double both = memory + port;
  const double rank = both > 0 ? least.by_busiest_rank / both : 0;
  const double node = port > 0 ? least.by_busiest_node / port : 0;
  return core::Seconds{std::max(rank, node)};
}

double link_rate(const core::Machine& m) {
  return m.ranks_per_node == 0 ? m.within_node.bandwidth.back().bytes_per_s : m.node_port.bytes_per_s;
}

std::vector<int> partners_on_next_node(std::span<const int> node_of) {
  std::map<int, std::vector<int>> ranks_of;
  std::vector<std::size_t> index_on_node;
  for (std::size_t r = 0; r < node_of.size(); ++r) {
    auto& node_ranks = ranks_of[node_of[r]];
    index_on_node.push_back(node_ranks.size());
    node_ranks.push_back(static_cast<int>(r));
  }
  std::vector<int> partners;
  for (std::size_t r = 0; r < node_of.size(); ++r) {
    auto next = ranks_of.upper_bound(node_of[r]);
    if (next == ranks_of.end()) next = ranks_of.begin();
    partners.push_back(next->second[index_on_node[r] % next->second.size()]);
  }
  return partners;
}

PortProbe::PortProbe(Session& session, const runtime::Communicator& c, std::span<const int> node_of)
    : session_(session),
      c_(c),
      fullest_node_ranks_(NodeMap{.node_of = {node_of.begin(), node_of.end()}}.ranks_per_node()),
      network_(c, {.transport = runtime::TransportKind::mpi, .memory_bytes = runtime::page_bytes}),
      transport_(network_.connect(c, 1)),
      outgoing_(longest_message),
      message_bytes_(first_message) {
  const auto partners = partners_on_next_node(node_of);
  partner_ = partners[static_cast<std::size_t>(c.rank())];
  for (std::size_t r = 0; r < partners.size(); ++r) {
    if (partners[r] == c.rank()) incoming_.emplace_back(static_cast<int>(r), std::vector<std::byte>(longest_message));
  }
}

void PortProbe::round() {
  const runtime::Computing note(session_.activity(), "link");
  shortest_ = std::min(shortest_, exchange(shortest_message));
  const double long_enough = std::max(long_enough_s, long_enough_starts * shortest_);
  double exchange_s = 0, best_shorter = 0;
  for (std::size_t bytes = first_message;; bytes *= 4) {
    exchange_s = exchange(bytes);
    if (bytes < longest_message && bytes == message_bytes_ && exchange_s < long_enough) message_bytes_ *= 4;
    if (bytes == message_bytes_) break;
    best_shorter = std::max(best_shorter, fullest_node_ranks_ * static_cast<double>(bytes) / exchange_s);
  }
  // The rates of shorter messages count only on fake nodes, where short messages are faster because they stay in
  // caches. On a link with traffic shaping they would pass in a burst: 64 KiB at 6 Gbit/s where the link's rate is 1
  // Gbit/s.
  if (exchange_s < in_memory_s) best_rate_ = std::max(best_rate_, best_shorter);
  const double moved = fullest_node_ranks_ * static_cast<double>(message_bytes_);
  best_rate_ = std::max(best_rate_, moved / std::max(exchange_s - shortest_, exchange_s / 2));
}

/// Every rank sends `bytes` bytes to its partner at once. Returns the longest time of all ranks [s].
double PortProbe::exchange(std::size_t bytes) {
  runtime::Backoff backoff(runtime::spin_policy_for(fullest_node_ranks_, session_.cores_per_node()));
  c_.barrier();
  const double begin = runtime::host_clock();
  std::vector<runtime::MessageHandle> receives;
  for (auto& [from, landing] : incoming_)
    receives.push_back(transport_->receive(from, 0, std::span(landing).first(bytes)));
  auto sent = transport_->send(partner_, 0, std::span(outgoing_).first(bytes));
  const auto is_done = [&] {
    transport_->progress();
    bool done = transport_->send_done(sent);
    for (auto& t : receives) done &= transport_->try_receive(t) != nullptr;
    return done;
  };
  while (!is_done()) backoff.wait();
  const double took = runtime::host_clock() - begin;
  for (auto& t : receives) transport_->release(t);
  return c_.max(took);
}

LinkProbe::LinkProbe(Session& session, const runtime::Communicator& c, int threads, const std::vector<int>& fake_nodes)
    : session_(session),
      c_(c),
      threads_(threads),
      network_(c, {.memory_bytes = read_bytes + runtime::page_bytes, .fake_nodes = fake_nodes}),
      own_(network_.arena().take_of<float>(read_bytes / sizeof(float))) {
  if (c.size() == 1) ranks_per_node_ = 1;
  const auto node_of = network_.nodes_of(c);
  if (const NodeMap map{.node_of = node_of}; map.nodes() > 1) {
    ranks_per_node_ = map.ranks_per_node();
    port_probe_.emplace(session, c, node_of);
  }
  // All ranks' arenas have the same layout, so a peer's `own_` is as far from the begin of its arena as ours.
  const auto arenas = network_.arenas_of(c);
  const auto me = static_cast<std::size_t>(c.rank());
  const auto own_offset = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(own_.data()) - arenas[me].data());
  for (std::size_t hop = 1; hop < node_of.size() && neighbour_memory_.empty(); ++hop) {
    const std::size_t peer = (me + hop) % node_of.size();
    if (node_of[peer] == node_of[me]) neighbour_memory_ = const_floats_of(arenas[peer].subspan(own_offset, read_bytes));
  }
}

void LinkProbe::round() {
  ++rounds_;
  if (c_.size() > 1) read_neighbour();
  if (port_probe_) port_probe_->round();
}

void LinkProbe::read_neighbour() {
  const runtime::Computing note(session_.activity(), "link");
  kernels::set_compute_threads(threads_);
  // Elements are written backwards, so that the first ones that are read were written last.
  for (std::size_t i = own_.size(); i-- > 0;) own_[i] = static_cast<float>(i % 64 + rounds_);
  c_.barrier();
  if (!neighbour_memory_.empty()) {
    std::size_t first = 0;
    for (const std::size_t bytes : read_sizes) {
      const std::size_t count = bytes / sizeof(float);
      const double begin = runtime::host_clock();
      const float sum = kernels::read_once(neighbour_memory_.subspan(first, count));
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
  if (port_probe_) m.node_port.bytes_per_s = port_probe_->rate().value;
}

}  // namespace gradmeter::bench
