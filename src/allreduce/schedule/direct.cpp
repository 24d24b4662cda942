// SPDX-License-Identifier: Apache-2.0
// Algorithms in which every rank sends to every other itself: direct, one-shot and pairwise. In the broadcast of direct
// only the root sends.
#include "allreduce/schedule/algorithms.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

namespace {

SchedulePtr root_to_all(u32 p, u32 root) {
  auto steps = [p, root](u32, u32 rank, Steps& out) {
    if (rank != root) return out.push_back({StepKind::recv, root, {0, 1}});
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::send, (rank + i) % p, {0, 1}});
  };
  return std::make_shared<Schedule>(CollectiveKind::broadcast, p, 1, p == 1 ? 0 : 1, steps, false, root);
}

SchedulePtr all_to_all(u32 p) {
  return std::make_shared<Schedule>(CollectiveKind::all_to_all, p, p, p == 1 ? 0 : 1, [p](u32, u32 rank, Steps& out) {
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::send, (rank + i) % p, {(rank + i) % p, 1}});
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::recv, (rank + p - i) % p, {(rank + p - i) % p, 1}});
  });
}

std::vector<SchedulePtr> make_direct(const Request& r) {
  const u32 p = r.shape.ranks;
  if (r.collective_kind == CollectiveKind::broadcast) return {root_to_all(p, r.root)};
  if (r.collective_kind == CollectiveKind::all_to_all) return {all_to_all(p)};
  return {butterfly(r.collective_kind, p, 1)};
}

StatedCost direct_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  if (r.collective_kind != CollectiveKind::broadcast) return butterfly_cost(r.collective_kind, p, 1);
  return {.rounds = p > 1 ? 1u : 0u, .messages = p - 1, .sent_per_rank_max = static_cast<double>(p - 1), .sent = p - 1};
}

std::vector<SchedulePtr> make_one_shot(const Request& r) {
  auto steps = [p = r.shape.ranks](u32, u32 rank, Steps& out) {
    // Every rank begins with its own successor, so that the first messages go to different ranks.
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::send, (rank + i) % p, {0, 1}});
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::recv_reduce, (rank + p - i) % p, {0, 1}});
    out.push_back({StepKind::finish, rank, {0, 1}});
  };
  constexpr bool finishes_everywhere = true;
  return {std::make_shared<Schedule>(CollectiveKind::all_reduce, r.shape.ranks, 1, 1, steps, finishes_everywhere)};
}

StatedCost one_shot_cost(const Request& r) {
  const std::uint64_t p = r.shape.ranks;
  return {.rounds = p > 1 ? 1u : 0u,
          .messages = p * (p - 1),
          .sent_per_rank_max = static_cast<double>(p - 1),
          .sent = p * (p - 1)};
}

std::vector<SchedulePtr> make_pairwise(const Request& r) {
  const u32 p = r.shape.ranks;
  auto steps = [p](u32 round, u32 rank, Steps& out) {
    const u32 partner = (round + p - rank) % p;
    if (partner == rank) return;
    out.push_back({StepKind::send, partner, {partner, 1}});
    out.push_back({StepKind::recv, partner, {partner, 1}});
  };
  return {std::make_shared<Schedule>(CollectiveKind::all_to_all, p, p, p == 1 ? 0 : p, steps)};
}

StatedCost pairwise_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  return {.rounds = p <= 2 ? p - 1 : p,
          .messages = std::uint64_t{p} * (p - 1),
          .sent_per_rank_max = static_cast<double>(p - 1) / p,
          .sent = p - 1};
}

}  // namespace

constinit const AlgorithmInfo direct_row{
    .name = "direct",
    .cost_text = "2 rounds of p-1 messages, 2n(p-1)/p sent",
    .source = "Markov et al., CGX, Middleware 2022",
    .adds_all_at_once = true,
    .refusal = refusal_unless<CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                              CollectiveKind::broadcast, CollectiveKind::all_to_all>,
    .make = make_direct,
    .cost = direct_cost};

constinit const AlgorithmInfo one_shot_row{.name = "one-shot",
                                           .cost_text = "1 round of p-1 messages, n(p-1) sent",
                                           .source = "Chan et al., CCPE 2007, section 4",
                                           .adds_all_at_once = true,
                                           .refusal = refusal_unless<CollectiveKind::all_reduce>,
                                           .make = make_one_shot,
                                           .cost = one_shot_cost};

constinit const AlgorithmInfo pairwise_row{.name = "pairwise",
                                           .cost_text = "p rounds, n(p-1)/p sent",
                                           .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                                           .refusal = refusal_unless<CollectiveKind::all_to_all>,
                                           .make = make_pairwise,
                                           .cost = pairwise_cost};

}  // namespace gradmeter::allreduce
