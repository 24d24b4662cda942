#include "allreduce/schedules/rabenseifner.hpp"

#include "allreduce/schedules/butterfly.hpp"
#include "allreduce/schedules/fold.hpp"

namespace gradmeter::allreduce {

std::string rabenseifner_refusal(const Request& r) {
  if (auto why = only_goals(r, {Goal::all_reduce, Goal::reduce_scatter, Goal::all_gather}); !why.empty()) return why;
  return r.goal == Goal::all_reduce ? "" : only_powers_of_two(r, "ring");
}

std::vector<SchedulePtr> make_rabenseifner(const Request& r) {
  const Fold fold(r.shape.ranks);
  return {folded(butterfly(r.goal, 2, fold.levels), r.shape.ranks)};
}

StatedCost rabenseifner_cost(const Request& r) {
  const Fold fold(r.shape.ranks);
  return folded(butterfly_cost(r.goal, 2, fold.levels), r.shape.ranks);
}

}  // namespace gradmeter::allreduce
