#include "allreduce/schedule/algorithms/recursive_doubling.hpp"

#include <algorithm>

#include "allreduce/schedule/algorithms/fold.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class PowerOfTwo final : public FixedSchedule {
 public:
  // A single rank still has one round: its value has to be finished.
  explicit PowerOfTwo(Fold f) : FixedSchedule(CollectiveKind::all_reduce, f.power, 1, std::max(1u, f.levels)) {}
  bool finishes_everywhere() const override { return true; }
  void steps(u32 round, u32 rank, Steps& out) const override {
    if (ranks() > 1) {
      const u32 peer = rank ^ (1u << round);
      out.push_back({StepKind::send, peer, {0, 1}});
      out.push_back({StepKind::recv_reduce, peer, {0, 1}});
    }
    if (round + 1 == rounds()) out.push_back({StepKind::finish, rank, {0, 1}});
  }
};

}  // namespace

SchedulePtr recursive_doubling(u32 ranks) { return folded(std::make_shared<PowerOfTwo>(Fold(ranks)), ranks); }

std::string recursive_doubling_refusal(const Request& r) { return only_collectives(r, {CollectiveKind::all_reduce}); }

std::vector<SchedulePtr> make_recursive_doubling(const Request& r) { return {recursive_doubling(r.shape.ranks)}; }

StatedCost recursive_doubling_cost(const Request& r) {
  const Fold f(r.shape.ranks);
  const StatedCost inner{.rounds = f.levels,
                         .messages = std::uint64_t{f.power} * f.levels,
                         .sent_per_rank_max = static_cast<double>(f.levels),
                         .sent = std::uint64_t{f.power} * f.levels};
  return folded(inner, r.shape.ranks);
}

}  // namespace gradmeter::allreduce
