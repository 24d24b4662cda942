#include "allreduce/schedule/algorithms/hierarchical_lane.hpp"

#include "allreduce/schedule/algorithms/embed.hpp"
#include "allreduce/schedule/algorithms/ring.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

SchedulePtr ring_grid(u32 ranks, u32 width) {
  const u32 height = ranks / width;
  // Place i of a row owns blocks i·height … in all rows: the window of its column.
  auto in_rows = [&](SchedulePtr s, bool finishes) {
    return embed(std::move(s), {ranks, ranks, grid_rows(width), {.width = height, .stride = 0}, finishes});
  };
  return sequence(CollectiveKind::all_reduce,
                  {in_rows(ring_reduce_scatter(width), false),
                   embed(ring(height), {ranks, ranks, grid_columns(width), {.width = 1, .stride = height}, true}),
                   in_rows(ring_all_gather(width), true)});
}

StatedCost ring_grid_cost(u32 ranks, u32 width) {
  const std::uint64_t hops = std::uint64_t{2} * (width + ranks / width - 2);
  return {.rounds = static_cast<u32>(hops),
          .messages = hops * ranks,
          .sent_per_rank_max = 2.0 * static_cast<double>(ranks - 1) / ranks,
          .sent = std::uint64_t{2} * (ranks - 1)};
}

std::string hierarchical_lane_refusal(const Request& r) {
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  return only_even_nodes(r);
}

std::vector<SchedulePtr> make_hierarchical_lane(const Request& r) {
  return {ring_grid(r.shape.ranks, r.shape.ranks_per_node)};
}

StatedCost hierarchical_lane_cost(const Request& r) { return ring_grid_cost(r.shape.ranks, r.shape.ranks_per_node); }

}  // namespace gradmeter::allreduce
