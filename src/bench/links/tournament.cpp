// SPDX-License-Identifier: Apache-2.0
#include "bench/links/tournament.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/clock.hpp"

namespace gradmeter::bench {
namespace {

/// The number of places on the circle of the circle method (tournament_partner), which turns by one place a round. With
/// an odd number of ranks all are on it, else the last one stands beside it.
int circle_of(int ranks) { return ranks % 2 == 0 ? ranks - 1 : ranks; }

}  // namespace

int tournament_rounds(int ranks) { return ranks < 2 ? 0 : circle_of(ranks); }

int tournament_partner(int ranks, int round, int rank) {
  const int circle = circle_of(ranks);
  const bool even = ranks % 2 == 0;
  // A round-robin tournament by the circle method: two ranks are paired in the round that is the sum of their numbers
  // modulo the circle. A rank whose partner would be itself is paired with the last rank if that is not on the circle
  // (an even number of ranks), else it sits out.
  if (even && rank == circle) {
    for (const int r : {round, round + circle}) {
      if (r % 2 == 0 && r / 2 < circle) return r / 2;
    }
  }
  const int other = ((round - rank) % circle + circle) % circle;
  if (other != rank) return other;
  return even ? circle : -1;
}

int tournament_pair(int ranks, int round, int rank) {
  const int circle = circle_of(ranks);
  const int partner = tournament_partner(ranks, round, rank);
  if (partner < 0 || partner == circle || rank == circle) return 0;
  // In the circle method, partners are equally far from the rank whose partner would be itself, on either side of it.
  const int twice_distance = ((rank - partner) % circle + circle) % circle;
  const int distance = twice_distance % 2 == 0 ? twice_distance / 2 : (circle - twice_distance) / 2;
  return ranks % 2 == 0 ? distance : distance - 1;
}

namespace {

constexpr double latency_block_s = 5e-3, window_block_s = 20e-3, too_long_to_discard_s = 1;
constexpr std::uint32_t discarded_round_trips = 1;

/// The factor, from 0.1 to 1, by which blocks become shorter, so that `rule.min_blocks` blocks of every link fit into
/// the budget.
double block_scale(int ranks, const LinkPassesOptions& o) {
  const double turns = 2.0 * tournament_rounds(ranks) * static_cast<double>(o.rule.min_blocks);
  return std::clamp(o.rule.budget.value / (turns * (latency_block_s + window_block_s)), 0.1, 1.0);
}

std::uint32_t calls_in(double block_s, double call_s, std::uint32_t least, std::uint32_t most) {
  const double wanted = call_s > 0 ? std::ceil(block_s / call_s) : least;
  return static_cast<std::uint32_t>(std::clamp<double>(wanted, least, most));
}

std::size_t peer_index(int peer) { return static_cast<std::size_t>(peer); }

}  // namespace

LinkPasses::LinkPasses(Session& session, const runtime::Communicator& c, LinkMessages& messages,
                       const LinkPassesOptions& o)
    : session_(session),
      communicator_(c),
      messages_(messages),
      options_(o),
      block_scale_(block_scale(c.size(), o)),
      links_(peer_index(c.size())),
      last_latency_(links_.size()),
      last_window_(links_.size()) {}

void LinkPasses::warm_up() {
  const double begin = runtime::host_clock();
  pass(false);
  warmup_s_ = communicator_.max(runtime::host_clock() - begin);
}

void LinkPasses::run() {
  const double begin = runtime::host_clock();
  do {
    pass(true);
  } while (!is_enough(begin));
}

bool LinkPasses::is_enough(double begin) {
  const core::Seconds spent{communicator_.broadcast_value(runtime::host_clock() - begin)};
  bool enough = true;
  for (OwnLink& link : links_) {
    if (link.windows.count() == 0) continue;  // this rank itself, or a link whose samples the peer has (both_ways)
    link.stop = options_.rule.decide(link.windows, spent, spent);
    enough &= link.stop != core::Stop::none;
  }
  return communicator_.all(enough);
}

void LinkPasses::pass(bool keep) {
  const int ranks = communicator_.size(), at_once = options_.pairs_at_once > 0 ? options_.pairs_at_once : ranks;
  for (int round = 0; round < tournament_rounds(ranks); ++round) {
    const int peer = tournament_partner(ranks, round, communicator_.rank());
    const int pair = peer < 0 ? -1 : tournament_pair(ranks, round, communicator_.rank());
    for (int first = 0; first < ranks / 2; first += at_once) {
      session_.stop_if_interrupted(communicator_);  // all ranks begin together
      if (pair >= first && pair < first + at_once) turn(peer, keep);
    }
  }
}

void LinkPasses::turn(int peer, bool keep) {
  if (options_.pattern == LinkPattern::both_ways) {
    measure_both_ways(peer, keep);
  } else if (communicator_.rank() < peer) {
    initiate(peer, keep);
    respond(peer);
  } else {
    respond(peer);
    initiate(peer, keep);
  }
  links_[peer_index(peer)].wrong += messages_.take_wrong(peer);
}

LinkPasses::Counts LinkPasses::counts_for(int peer, bool keep) const {
  if (!keep) return {.latencies = 5, .windows = warmup_windows, .discarded = 0};
  const double window = last_window_[peer_index(peer)];
  // Odd numbers, since a block's median leaves a sample of an even number out.
  return {.latencies = 1U | calls_in(block_scale_ * latency_block_s, 2 * last_latency_[peer_index(peer)], 4, 99),
          .windows = 1U | calls_in(block_scale_ * window_block_s, window, 1, 49),
          .discarded = window > too_long_to_discard_s ? 0U : 1U};
}

/// In the first window and in the last one, every byte that arrives is checked.
std::vector<double> LinkPasses::windows(const Window& w, const Counts& counts) {
  std::vector<double> times;
  const std::uint32_t windows = counts.discarded + counts.windows;
  for (std::uint32_t i = 0; i < windows; ++i) {
    const double took = messages_.exchange(w, i == 0 || i + 1 == windows);
    if (i >= counts.discarded) times.push_back(took);
  }
  return times;
}

void LinkPasses::initiate(int peer, bool keep) {
  const Counts counts = counts_for(peer, keep);
  communicator_.send_value(peer, counts);
  auto latencies = messages_.half_round_trips(peer, counts.latencies + discarded_round_trips);
  latencies.erase(latencies.begin(), latencies.begin() + discarded_round_trips);
  const Window w{.to = peer, .size_bytes = options_.size_bytes, .outstanding = options_.outstanding};
  add(peer, keep, latencies, windows(w, counts));
}

void LinkPasses::respond(int peer) {
  const auto counts = communicator_.receive_value<Counts>(peer);
  messages_.answer(peer, counts.latencies + discarded_round_trips);
  windows({.from = peer, .size_bytes = options_.size_bytes, .outstanding = options_.outstanding}, counts);
}

/// A window's time is the longer of the two ranks' times; the lower rank keeps the samples.
void LinkPasses::measure_both_ways(int peer, bool keep) {
  const bool leads = communicator_.rank() < peer;
  Counts counts{};
  if (leads) communicator_.send_value(peer, counts = counts_for(peer, keep));
  if (!leads) counts = communicator_.receive_value<Counts>(peer);
  const Window w{.to = peer, .from = peer, .size_bytes = options_.size_bytes, .outstanding = options_.outstanding};
  auto times = windows(w, counts);
  for (double& t : times) {
    if (leads) t = std::max(t, communicator_.receive_value<double>(peer));
    if (!leads) communicator_.send_value(peer, t);
  }
  if (leads) add(peer, keep, {}, times);
}

void LinkPasses::add(int peer, bool keep, const std::vector<double>& latencies, const std::vector<double>& windows) {
  OwnLink& link = links_[peer_index(peer)];
  if (!latencies.empty()) last_latency_[peer_index(peer)] = core::median(latencies);
  last_window_[peer_index(peer)] = core::median(windows);
  if (!keep) return;
  link.latencies.add(latencies);
  link.windows.add(windows);
}

}  // namespace gradmeter::bench
