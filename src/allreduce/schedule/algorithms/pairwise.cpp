#include "allreduce/schedule/algorithms/pairwise.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class Pairwise final : public FixedSchedule {
 public:
  explicit Pairwise(u32 p) : FixedSchedule(CollectiveKind::all_to_all, p, p, p == 1 ? 0 : p) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 partner = (round + ranks() - rank) % ranks();
    if (partner == rank) return;
    out.push_back({StepKind::send, partner, {partner, 1}});
    out.push_back({StepKind::recv, partner, {partner, 1}});
  }
};

}  // namespace

std::string pairwise_refusal(const Request& r) { return only_collectives(r, {CollectiveKind::all_to_all}); }

std::vector<SchedulePtr> make_pairwise(const Request& r) { return {std::make_shared<Pairwise>(r.shape.ranks)}; }

StatedCost pairwise_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  return {.rounds = p <= 2 ? p - 1 : p,
          .messages = std::uint64_t{p} * (p - 1),
          .sent_per_rank_max = static_cast<double>(p - 1) / p,
          .sent = p - 1};
}

}  // namespace gradmeter::allreduce
