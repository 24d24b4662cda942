#include "allreduce/schedule/algorithms/direct.hpp"

#include "allreduce/schedule/algorithms/butterfly.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class RootToAll final : public FixedSchedule {
 public:
  RootToAll(u32 p, u32 root) : FixedSchedule(CollectiveKind::broadcast, p, 1, p == 1 ? 0 : 1), root_(root) {}
  u32 root() const override { return root_; }
  void steps(u32, u32 rank, Steps& out) const override {
    if (rank != root_) return out.push_back({StepKind::recv, root_, {0, 1}});
    for (u32 i = 1; i < ranks(); ++i) out.push_back({StepKind::send, (rank + i) % ranks(), {0, 1}});
  }

 private:
  u32 root_;
};

class AllToAll final : public FixedSchedule {
 public:
  explicit AllToAll(u32 p) : FixedSchedule(CollectiveKind::all_to_all, p, p, p == 1 ? 0 : 1) {}
  void steps(u32, u32 rank, Steps& out) const override {
    const u32 p = ranks();
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::send, (rank + i) % p, {(rank + i) % p, 1}});
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::recv, (rank + p - i) % p, {(rank + p - i) % p, 1}});
  }
};

}  // namespace

std::string direct_refusal(const Request& r) {
  return only_collectives(r, {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                              CollectiveKind::broadcast, CollectiveKind::all_to_all});
}

std::vector<SchedulePtr> make_direct(const Request& r) {
  const u32 p = r.shape.ranks;
  if (r.collective_kind == CollectiveKind::broadcast) return {std::make_shared<RootToAll>(p, r.root)};
  if (r.collective_kind == CollectiveKind::all_to_all) return {std::make_shared<AllToAll>(p)};
  return {butterfly(r.collective_kind, p, 1)};
}

StatedCost direct_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  if (r.collective_kind != CollectiveKind::broadcast) return butterfly_cost(r.collective_kind, p, 1);
  return {.rounds = p > 1 ? 1u : 0u, .messages = p - 1, .sent_per_rank_max = static_cast<double>(p - 1), .sent = p - 1};
}

}  // namespace gradmeter::allreduce
