#include "allreduce/schedule/algorithms/rabenseifner.hpp"

#include "allreduce/schedule/algorithms/butterfly.hpp"
#include "allreduce/schedule/algorithms/fold.hpp"

namespace gradmeter::allreduce {

std::string rabenseifner_refusal(const Request& r) {
  if (auto why =
          only_collectives(r, {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather});
      !why.empty())
    return why;
  return r.collective_kind == CollectiveKind::all_reduce ? "" : only_powers_of_two(r, "ring");
}

std::vector<SchedulePtr> make_rabenseifner(const Request& r) {
  const Fold fold(r.shape.ranks);
  return {folded(butterfly(r.collective_kind, 2, fold.levels), r.shape.ranks)};
}

StatedCost rabenseifner_cost(const Request& r) {
  const Fold fold(r.shape.ranks);
  return folded(butterfly_cost(r.collective_kind, 2, fold.levels), r.shape.ranks);
}

}  // namespace gradmeter::allreduce
