#include "allreduce/schedule/algorithms/butterfly.hpp"

#include <algorithm>

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

u32 power(u32 base, u32 exponent) {
  u32 x = 1;
  for (u32 i = 0; i < exponent; ++i) x *= base;
  return x;
}

/// The peers that differ from `rank` in the digit worth `distance`: the i-th that it sends to, the i-th that sends to
/// it. Every rank begins with its own successor, so that the first messages go to different ranks.
struct DigitPeers {
  u32 base, distance, rank;
  u32 digit() const { return rank / distance % base; }
  u32 at(u32 d) const { return rank + d * distance - digit() * distance; }
  u32 next(u32 i) const { return at((digit() + i) % base); }
  u32 before(u32 i) const { return at((digit() + base - i) % base); }
};
Blocks run_of(u32 rank, u32 distance) { return {rank / distance * distance, distance}; }

class ReduceScatter final : public FixedSchedule {
 public:
  // A single rank still has one round: its value has to be finished.
  ReduceScatter(u32 base, u32 levels)
      : FixedSchedule(CollectiveKind::reduce_scatter, power(base, levels), power(base, levels), std::max(1u, levels)),
        base_(levels == 0 ? 1 : base) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 distance = ranks() / power(base_, round + 1);
    const DigitPeers peers{base_, distance, rank};
    for (u32 i = 1; i < base_; ++i) {
      out.push_back({StepKind::send, peers.next(i), run_of(peers.next(i), distance)});
    }
    for (u32 i = 1; i < base_; ++i) {
      out.push_back({StepKind::recv_reduce, peers.before(i), run_of(rank, distance)});
    }
    if (round + 1 == rounds()) out.push_back({StepKind::finish, rank, {rank, 1}});
  }

 private:
  u32 base_;
};

class AllGather final : public FixedSchedule {
 public:
  AllGather(u32 base, u32 levels)
      : FixedSchedule(CollectiveKind::all_gather, power(base, levels), power(base, levels), levels), base_(base) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 distance = power(base_, round);
    const DigitPeers peers{base_, distance, rank};
    for (u32 i = 1; i < base_; ++i) out.push_back({StepKind::send, peers.next(i), run_of(rank, distance)});
    for (u32 i = 1; i < base_; ++i) {
      out.push_back({StepKind::recv, peers.before(i), run_of(peers.before(i), distance)});
    }
  }

 private:
  u32 base_;
};

}  // namespace

SchedulePtr butterfly_reduce_scatter(u32 base, u32 levels) { return std::make_shared<ReduceScatter>(base, levels); }
SchedulePtr butterfly_all_gather(u32 base, u32 levels) { return std::make_shared<AllGather>(base, levels); }

SchedulePtr butterfly(CollectiveKind collective_kind, u32 base, u32 levels) {
  if (collective_kind == CollectiveKind::reduce_scatter) return butterfly_reduce_scatter(base, levels);
  if (collective_kind == CollectiveKind::all_gather) return butterfly_all_gather(base, levels);
  return sequence(CollectiveKind::all_reduce,
                  {butterfly_reduce_scatter(base, levels), butterfly_all_gather(base, levels)});
}

StatedCost butterfly_cost(CollectiveKind collective_kind, u32 base, u32 levels) {
  const u32 phases = collective_kind == CollectiveKind::all_reduce ? 2 : 1;
  const std::uint64_t p = power(base, levels);
  return {.rounds = p > 1 ? phases * levels : 0,
          .messages = p * phases * levels * (base - 1),
          .sent_per_rank_max = phases * static_cast<double>(p - 1) / static_cast<double>(p),
          .sent = phases * (p - 1)};
}

}  // namespace gradmeter::allreduce
