#include "allreduce/schedule/algorithms/torus2d.hpp"

#include "allreduce/schedule/algorithms/hierarchical_lane.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

/// 0: there is no such torus.
u32 rows_of(const Request& r) {
  const u32 p = r.shape.ranks, given = number(r, "rows", 0);
  if (given != 0) return p % given == 0 ? given : 0;
  u32 best = 0;
  for (u32 rows = 2; std::uint64_t{rows} * rows <= p; ++rows) {
    if (p % rows == 0) best = rows;
  }
  return best;
}

}  // namespace

std::string torus2d_refusal(const Request& r) {
  const u32 given = number(r, "rows", 0);
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (rows_of(r) != 0) return {};
  if (given != 0) {
    return fmt::format("torus2d needs rows that divide the ranks, and {} does not divide {}; give another rows", given,
                       r.shape.ranks);
  }
  return fmt::format("torus2d needs two sides above 1, and {} has no such factors; take ring", r.shape.ranks);
}

std::vector<SchedulePtr> make_torus2d(const Request& r) {
  return {ring_grid(r.shape.ranks, r.shape.ranks / rows_of(r))};
}

StatedCost torus2d_cost(const Request& r) { return ring_grid_cost(r.shape.ranks, r.shape.ranks / rows_of(r)); }

}  // namespace gradmeter::allreduce
