// SPDX-License-Identifier: Apache-2.0
// Schedules made of rings and trees in groups of ranks: hierarchical-lane, hierarchical-leader and torus2d.
#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

namespace {

/// Rings along the rows and columns of a grid that is filled row by row, with rows of `width` ranks: reduce-scatter in
/// the rows, all-reduce in the columns, all-gather in the rows. `width` divides `ranks`.
/// Cost: 2(width + ranks/width - 2) rounds of one message by each rank; 2n(p-1)/p sent by each.
SchedulePtr ring_grid(u32 ranks, u32 width) {
  const u32 height = ranks / width;
  // In each row, the i-th rank owns the blocks from i·height to (i + 1)·height - 1. So all ranks of a column own the
  // same blocks, and the column's all-reduce sums these.
  auto in_rows = [&](const SchedulePtr& s, bool finishes) {
    return embed(s,
                 {.ranks = ranks, .blocks = ranks, .groups = grid_rows(width), .width = height, .finishes = finishes});
  };
  return sequence(
      CollectiveKind::all_reduce,
      {in_rows(ring_reduce_scatter(width), false),
       embed(ring(height), {.ranks = ranks, .blocks = ranks, .groups = grid_columns(width), .stride = height}),
       in_rows(ring_all_gather(width), true)});
}

StatedCost ring_grid_cost(u32 ranks, u32 width) {
  const std::uint64_t rounds = std::uint64_t{2} * (width + ranks / width - 2);
  return {.rounds = static_cast<u32>(rounds),
          .messages = rounds * ranks,
          .sent_per_rank_max = 2.0 * static_cast<double>(ranks - 1) / ranks,
          .sent = std::uint64_t{2} * (ranks - 1)};
}

std::string hierarchical_lane_refusal(const Request& r) {
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  return refusal_unless_equal_nodes(r);
}

std::vector<SchedulePtr> make_hierarchical_lane(const Request& r) {
  return {ring_grid(r.shape.ranks, r.shape.ranks_per_node)};
}

StatedCost hierarchical_lane_cost(const Request& r) { return ring_grid_cost(r.shape.ranks, r.shape.ranks_per_node); }

/// The number of rows of the torus; 0: there is none with these ranks and this parameter.
u32 torus_rows(const Request& r) {
  const u32 p = r.shape.ranks, parameter = whole_number_from(r, "rows", 0);
  if (parameter != 0) return p % parameter == 0 ? parameter : 0;
  u32 best = 0;
  for (u32 rows = 2; std::uint64_t{rows} * rows <= p; ++rows) {
    if (p % rows == 0) best = rows;
  }
  return best;
}

std::string torus2d_refusal(const Request& r) {
  const u32 rows = whole_number_from(r, "rows", 0);
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (torus_rows(r) != 0) return {};
  if (rows != 0) {
    return fmt::format("torus2d needs rows that divide the ranks, and {} does not divide {}; give another rows", rows,
                       r.shape.ranks);
  }
  return fmt::format("torus2d needs two sides above 1, and {} has no such factors; take ring", r.shape.ranks);
}

std::vector<SchedulePtr> make_torus2d(const Request& r) {
  return {ring_grid(r.shape.ranks, r.shape.ranks / torus_rows(r))};
}

StatedCost torus2d_cost(const Request& r) { return ring_grid_cost(r.shape.ranks, r.shape.ranks / torus_rows(r)); }

std::string hierarchical_leader_refusal(const Request& r) {
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  return refusal_unless_equal_nodes(r);
}

std::vector<SchedulePtr> make_hierarchical_leader(const Request& r) {
  const u32 p = r.shape.ranks, g = r.shape.ranks_per_node, nodes = p / g;
  auto in_nodes = [&](const SchedulePtr& s, bool finishes) {
    return embed(s, {.ranks = p, .blocks = nodes, .groups = grid_rows(g), .width = nodes, .finishes = finishes});
  };
  return {sequence(CollectiveKind::all_reduce,
                   {in_nodes(binomial_reduce(g), false), embed(ring(nodes), {p, nodes, first_grid_column(g)}),
                    in_nodes(binomial_broadcast(g, 0), true)})};
}

StatedCost hierarchical_leader_cost(const Request& r) {
  const u32 g = r.shape.ranks_per_node, nodes = r.shape.ranks / g;
  auto all_reduce_on = [&](u32 ranks) {
    return Request{.shape = {ranks, 1}, .collective_kind = CollectiveKind::all_reduce, .name = {}};
  };
  const StatedCost between = ring_row.cost(all_reduce_on(nodes)), inside = binomial_tree_row.cost(all_reduce_on(g));
  return {.rounds = between.rounds + inside.rounds,
          .messages = between.messages + nodes * inside.messages,
          .sent_per_rank_max = between.sent_per_rank_max + inside.sent_per_rank_max,
          .sent = between.sent + nodes * inside.sent};
}

}  // namespace

constinit const AlgorithmInfo hierarchical_lane_row{.name = "hierarchical-lane",
                                                    .cost_text = "2(g+p/g-2) rounds, 2n(p-1)/p sent",
                                                    .source = "Träff & Hunold, CLUSTER 2020",
                                                    .refusal = hierarchical_lane_refusal,
                                                    .make = make_hierarchical_lane,
                                                    .cost = hierarchical_lane_cost};

constinit const AlgorithmInfo torus2d_row{.name = "torus2d",
                                          .parameters = "rows=0",
                                          .cost_text = "2(a+b-2) rounds, 2n(p-1)/p sent",
                                          .source = "Mikami et al., arXiv:1811.05233",
                                          .refusal = torus2d_refusal,
                                          .make = make_torus2d,
                                          .cost = torus2d_cost};

constinit const AlgorithmInfo hierarchical_leader_row{
    .name = "hierarchical-leader",
    .cost_text = "2(p/g-1)+2·log2 g rounds, 2n(m-1)/m+n·log2 g sent by the leader",
    .source = "Luo et al., CLUSTER 2020",
    .refusal = hierarchical_leader_refusal,
    .make = make_hierarchical_leader,
    .cost = hierarchical_leader_cost};

}  // namespace gradmeter::allreduce
