#include "allreduce/schedule/algorithms/ring.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class RingReduceScatter final : public FixedSchedule {
 public:
  // A single rank still has one round: its value has to be finished.
  explicit RingReduceScatter(u32 p) : FixedSchedule(CollectiveKind::reduce_scatter, p, p, p == 1 ? 1 : p - 1) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 p = ranks();
    if (p > 1) {
      // The block that ends at its owner r starts its way at r+1 and is r+1+k after k hops.
      const u32 leaves = (rank + 2 * p - 1 - round) % p, comes = (rank + 2 * p - 2 - round) % p;
      out.push_back({StepKind::send, (rank + 1) % p, {leaves, 1}});
      out.push_back({StepKind::recv_reduce, (rank + p - 1) % p, {comes, 1}});
    }
    if (round + 1 == rounds()) out.push_back({StepKind::finish, rank, {rank, 1}});
  }
};

class RingAllGather final : public FixedSchedule {
 public:
  explicit RingAllGather(u32 p) : FixedSchedule(CollectiveKind::all_gather, p, p, p - 1) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 p = ranks();
    out.push_back({StepKind::send, (rank + 1) % p, {(rank + p - round) % p, 1}});
    out.push_back({StepKind::recv, (rank + p - 1) % p, {(rank + 2 * p - 1 - round) % p, 1}});
  }
};

}  // namespace

SchedulePtr ring_reduce_scatter(u32 ranks) { return std::make_shared<RingReduceScatter>(ranks); }
SchedulePtr ring_all_gather(u32 ranks) { return std::make_shared<RingAllGather>(ranks); }
SchedulePtr ring(u32 ranks) {
  return sequence(CollectiveKind::all_reduce, {ring_reduce_scatter(ranks), ring_all_gather(ranks)});
}

std::string ring_refusal(const Request& r) {
  return only_collectives(r, {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather});
}

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

}  // namespace gradmeter::allreduce
