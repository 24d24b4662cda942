// SPDX-License-Identifier: Apache-2.0
// Algorithms in which a rank sends to the next and receives from the one before: the ring and the single exchange.
#include "allreduce/schedule/algorithms.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

SchedulePtr ring_reduce_scatter(u32 p) {
  const u32 rounds = p == 1 ? 1 : p - 1;  // a single rank still has one round: its value has to be finished
  return std::make_shared<Schedule>(
      CollectiveKind::reduce_scatter, p, p, rounds, [p, rounds](u32 round, u32 rank, Steps& out) {
        if (p > 1) {
          // Block b starts at rank b+1, and after k hops is at rank b+1+k; it ends at its owner, rank b.
          const u32 sent_block = (rank + 2 * p - 1 - round) % p, received_block = (rank + 2 * p - 2 - round) % p;
          out.push_back({StepKind::send, (rank + 1) % p, {sent_block, 1}});
          out.push_back({StepKind::recv_reduce, (rank + p - 1) % p, {received_block, 1}});
        }
        if (round + 1 == rounds) out.push_back({StepKind::finish, rank, {rank, 1}});
      });
}

SchedulePtr ring_all_gather(u32 p) {
  return std::make_shared<Schedule>(CollectiveKind::all_gather, p, p, p - 1, [p](u32 round, u32 rank, Steps& out) {
    out.push_back({StepKind::send, (rank + 1) % p, {(rank + p - round) % p, 1}});
    out.push_back({StepKind::recv, (rank + p - 1) % p, {(rank + 2 * p - 1 - round) % p, 1}});
  });
}

SchedulePtr ring(u32 ranks) {
  return sequence(CollectiveKind::all_reduce, {ring_reduce_scatter(ranks), ring_all_gather(ranks)});
}

namespace {

std::vector<SchedulePtr> make_ring(const Request& r) {
  if (r.collective_kind == CollectiveKind::reduce_scatter) return {ring_reduce_scatter(r.shape.ranks)};
  if (r.collective_kind == CollectiveKind::all_gather) return {ring_all_gather(r.shape.ranks)};
  return {ring(r.shape.ranks)};
}

StatedCost ring_cost(const Request& r) {
  const std::uint64_t p = r.shape.ranks, hops = (r.collective_kind == CollectiveKind::all_reduce ? 2 : 1) * (p - 1);
  return {.rounds = static_cast<u32>(hops),
          .messages = hops * p,
          .sent_per_rank_max = static_cast<double>(hops) / static_cast<double>(p),
          .sent = hops};
}

std::vector<SchedulePtr> make_neighbour(const Request& r) {
  const u32 p = r.shape.ranks;
  return {
      std::make_shared<Schedule>(CollectiveKind::send_receive, p, 1, p == 1 ? 0 : 1, [p](u32, u32 rank, Steps& out) {
        out.push_back({StepKind::send, (rank + 1) % p, {0, 1}});
        out.push_back({StepKind::recv, (rank + p - 1) % p, {0, 1}});
      })};
}

StatedCost neighbour_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  if (p == 1) return {};
  return {.rounds = 1, .messages = p, .sent_per_rank_max = 1, .sent = p};
}

}  // namespace

constinit const AlgorithmInfo ring_row{
    .name = "ring",
    .cost_text = "2(p-1) rounds, 2n(p-1)/p sent",
    .source = "Patarasuk & Yuan, JPDC 2009",
    .refusal = refusal_unless<CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather>,
    .make = make_ring,
    .cost = ring_cost};

constinit const AlgorithmInfo neighbour_row{.name = "neighbour",
                                            .cost_text = "1 round, n sent",
                                            .source = "send-receive round a ring",
                                            .refusal = refusal_unless<CollectiveKind::send_receive>,
                                            .make = make_neighbour,
                                            .cost = neighbour_cost};

}  // namespace gradmeter::allreduce
