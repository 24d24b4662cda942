#include "allreduce/schedule/algorithms/one_shot.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class OneShot final : public FixedSchedule {
 public:
  explicit OneShot(u32 p) : FixedSchedule(CollectiveKind::all_reduce, p, 1, 1) {}
  bool finishes_everywhere() const override { return true; }
  void steps(u32, u32 rank, Steps& out) const override {
    const u32 p = ranks();
    // Every rank begins with its own successor, so that the first messages go to different ranks.
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::send, (rank + i) % p, {0, 1}});
    for (u32 i = 1; i < p; ++i) out.push_back({StepKind::recv_reduce, (rank + p - i) % p, {0, 1}});
    out.push_back({StepKind::finish, rank, {0, 1}});
  }
};

}  // namespace

std::string one_shot_refusal(const Request& r) { return only_collectives(r, {CollectiveKind::all_reduce}); }

std::vector<SchedulePtr> make_one_shot(const Request& r) { return {std::make_shared<OneShot>(r.shape.ranks)}; }

StatedCost one_shot_cost(const Request& r) {
  const std::uint64_t p = r.shape.ranks;
  return {.rounds = p > 1 ? 1u : 0u,
          .messages = p * (p - 1),
          .sent_per_rank_max = static_cast<double>(p - 1),
          .sent = p * (p - 1)};
}

}  // namespace gradmeter::allreduce
