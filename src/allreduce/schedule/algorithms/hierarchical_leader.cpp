#include "allreduce/schedule/algorithms/hierarchical_leader.hpp"

#include "allreduce/schedule/algorithms/binomial_tree.hpp"
#include "allreduce/schedule/algorithms/embed.hpp"
#include "allreduce/schedule/algorithms/ring.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

std::string hierarchical_leader_refusal(const Request& r) {
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  return only_even_nodes(r);
}

std::vector<SchedulePtr> make_hierarchical_leader(const Request& r) {
  const u32 p = r.shape.ranks, g = r.shape.ranks_per_node, nodes = p / g;
  auto in_nodes = [&](SchedulePtr s, bool finishes) {
    return embed(std::move(s), {p, nodes, grid_rows(g), {.width = nodes, .stride = 0}, finishes});
  };
  return {sequence(CollectiveKind::all_reduce,
                   {in_nodes(binomial_reduce(g), false), embed(ring(nodes), {p, nodes, first_grid_column(g)}),
                    in_nodes(binomial_broadcast(g, 0), true)})};
}

StatedCost hierarchical_leader_cost(const Request& r) {
  const u32 g = r.shape.ranks_per_node, nodes = r.shape.ranks / g;
  auto on = [&](u32 ranks) {
    return Request{.shape = {ranks, 1}, .collective_kind = CollectiveKind::all_reduce, .name = {}};
  };
  const StatedCost between = ring_cost(on(nodes)), inside = binomial_tree_cost(on(g));
  return {.rounds = between.rounds + inside.rounds,
          .messages = between.messages + nodes * inside.messages,
          .sent_per_rank_max = between.sent_per_rank_max + inside.sent_per_rank_max,
          .sent = between.sent + nodes * inside.sent};
}

}  // namespace gradmeter::allreduce
