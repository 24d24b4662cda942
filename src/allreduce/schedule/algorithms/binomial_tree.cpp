#include "allreduce/schedule/algorithms/binomial_tree.hpp"

#include <bit>

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

u32 ceil_log2(u32 p) { return static_cast<u32>(std::bit_width(p - 1)); }
u32 floor_log2(u32 p) { return static_cast<u32>(std::bit_width(p)) - 1; }

class BinomialBroadcast final : public FixedSchedule {
 public:
  BinomialBroadcast(u32 p, u32 root) : FixedSchedule(CollectiveKind::broadcast, p, 1, ceil_log2(p)), root_(root) {}
  u32 root() const override { return root_; }
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 p = ranks(), have = 1u << round, from_root = (rank + p - root_) % p;
    auto rank_at = [&](u32 distance) { return (distance + root_) % p; };
    if (from_root < have) {
      if (from_root + have < p) out.push_back({StepKind::send, rank_at(from_root + have), {0, 1}});
    } else if (from_root < 2 * have) {
      out.push_back({StepKind::recv, rank_at(from_root - have), {0, 1}});
    }
  }

 private:
  u32 root_;
};

class BinomialReduce final : public FixedSchedule {
 public:
  // A single rank still has one round: its value has to be finished.
  explicit BinomialReduce(u32 p) : FixedSchedule(CollectiveKind::all_reduce, p, 1, p == 1 ? 1 : ceil_log2(p)) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 distance = 1u << round;
    if (rank % (2 * distance) == distance) out.push_back({StepKind::send, rank - distance, {0, 1}});
    if (rank % (2 * distance) == 0 && rank + distance < ranks()) {
      out.push_back({StepKind::recv_reduce, rank + distance, {0, 1}});
    }
    if (rank == 0 && round + 1 == rounds()) out.push_back({StepKind::finish, rank, {0, 1}});
  }
};

}  // namespace

SchedulePtr binomial_broadcast(u32 ranks, u32 root) { return std::make_shared<BinomialBroadcast>(ranks, root); }
SchedulePtr binomial_reduce(u32 ranks) { return std::make_shared<BinomialReduce>(ranks); }

std::string binomial_tree_refusal(const Request& r) {
  return only_collectives(r, {CollectiveKind::all_reduce, CollectiveKind::broadcast});
}

std::vector<SchedulePtr> make_binomial_tree(const Request& r) {
  const u32 p = r.shape.ranks;
  if (r.collective_kind == CollectiveKind::broadcast) return {binomial_broadcast(p, r.root)};
  return {sequence(CollectiveKind::all_reduce, {binomial_reduce(p), binomial_broadcast(p, 0)})};
}

StatedCost binomial_tree_cost(const Request& r) {
  const u32 p = r.shape.ranks, reduction = r.collective_kind == CollectiveKind::broadcast ? 0 : 1;
  return {.rounds = floor_log2(p) + reduction * ceil_log2(p),
          .messages = (std::uint64_t{1} + reduction) * (p - 1),
          .sent_per_rank_max = static_cast<double>(ceil_log2(p)),
          .sent = (std::uint64_t{1} + reduction) * (p - 1)};
}

}  // namespace gradmeter::allreduce
