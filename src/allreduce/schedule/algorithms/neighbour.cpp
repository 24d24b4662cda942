#include "allreduce/schedule/algorithms/neighbour.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class Neighbour final : public FixedSchedule {
 public:
  explicit Neighbour(u32 p) : FixedSchedule(CollectiveKind::send_receive, p, 1, p == 1 ? 0 : 1) {}
  void steps(u32, u32 rank, Steps& out) const override {
    out.push_back({StepKind::send, (rank + 1) % ranks(), {0, 1}});
    out.push_back({StepKind::recv, (rank + ranks() - 1) % ranks(), {0, 1}});
  }
};

}  // namespace

std::string neighbour_refusal(const Request& r) { return only_collectives(r, {CollectiveKind::send_receive}); }

std::vector<SchedulePtr> make_neighbour(const Request& r) { return {std::make_shared<Neighbour>(r.shape.ranks)}; }

StatedCost neighbour_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  if (p == 1) return {};
  return {.rounds = 1, .messages = p, .sent_per_rank_max = 1, .sent = p};
}

}  // namespace gradmeter::allreduce
