// SPDX-License-Identifier: Apache-2.0
#include "predict/collective.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "allreduce/executor/executor.hpp"
#include "allreduce/schedule/cost_model.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::predict {
namespace {

using allreduce::CollectiveKind;
using allreduce::SchedulePtr;
using u32 = std::uint32_t;

u32 node_size(const core::Machine& m, u32 ranks) {
  return m.ranks_per_node == 0 ? ranks : std::min(m.ranks_per_node, ranks);
}

allreduce::Slices slices_of(const CollectiveCall& c, const std::vector<SchedulePtr>& schedules) {
  return allreduce::Executor::slices({c.algorithm->name, schedules},
                                     {.max_bytes = c.bytes, .message_bytes = c.message_bytes},
                                     c.bytes / c.element_bytes, c.element_bytes);
}

bool is_ring_of_nodes(std::string_view algorithm) {
  return algorithm == "ring" || algorithm == "neighbour" || algorithm == "hierarchical-lane";
}

/// Cuts a schedule down to its first three nodes, of `node_ranks` ranks each. Each node must exchange only with itself,
/// the next node and the previous one, and all nodes must do the same. The third node then stands for the one before
/// the first.
SchedulePtr three_nodes(const SchedulePtr& schedule, u32 node_ranks) {
  const u32 nodes = schedule->ranks() / node_ranks;
  auto steps = [schedule, node_ranks, nodes](u32 round, u32 rank, allreduce::Steps& out) {
    const std::size_t first_step = out.size();
    schedule->steps(round, rank, out);
    for (std::size_t i = first_step; i < out.size(); ++i) {
      const u32 nodes_away = (out[i].peer / node_ranks + nodes - rank / node_ranks) % nodes;
      const u32 folded = (rank / node_ranks + (nodes_away == nodes - 1 ? 2 : nodes_away)) % 3;
      out[i].peer = folded * node_ranks + out[i].peer % node_ranks;
    }
  };
  return std::make_shared<allreduce::Schedule>(schedule->collective_kind(), 3 * node_ranks, schedule->blocks(),
                                               schedule->rounds(), std::move(steps));
}

/// The call's schedules, cut down to three nodes where three can stand for all.
std::vector<SchedulePtr> walked_schedules(const CollectiveCall& c, const core::Machine& m) {
  auto schedules = c.algorithm->make(c.shape, c.kind);
  // Where all ranks are on one node, each rank of a plain ring counts as a node.
  const bool is_grid = c.algorithm->info().name == "hierarchical-lane";
  const u32 node_ranks = is_grid ? c.shape.ranks_per_node : m.ranks_per_node == 0 ? 1 : m.ranks_per_node;
  const bool is_cut = is_ring_of_nodes(c.algorithm->info().name) && !m.trunk && c.shape.ranks % node_ranks == 0 &&
                      c.shape.ranks / node_ranks > 3 &&
                      (!is_grid || m.ranks_per_node == 0 || m.ranks_per_node == node_ranks);
  if (is_cut)
    for (SchedulePtr& s : schedules) s = three_nodes(s, node_ranks);
  return schedules;
}

/// The cost of one slice [s].
struct Cost {
  double chain = 0;  ///< the time of the slice's rounds, one after another, while no other slice is under way
  double port = 0;   ///< the time for which the slice occupies the port of the busiest rank
  double core = 0;   ///< the time for which the busiest rank computes its sums
  double rounds = 0;
  /// Each rank works in few of the rounds, so that slices follow each other through the levels of a tree.
  bool is_tree = false;
};

/// A number of equal rounds of a slice.
struct Phase {
  double rounds = 1, share = 1, messages = 1;  ///< messages that a rank gets in a round, each this share of the slice
  bool reduces = false;
  double between = 0;  ///< share of the messages that come from other nodes
  double at_once = 1;  ///< ranks of a node that send to other nodes at once
  /// True: around a ring, data pass links within and between nodes in turn, so that a round takes the mean of both.
  /// False: a round waits for the slower class of links.
  bool goes_round = false;
};

/// Adds up the cost of one slice from its phases.
class SliceCostSum {
 public:
  SliceCostSum(const CollectiveCall& c, const core::Machine& m, double slice_bytes)
      : machine_(m), slice_bytes_(slice_bytes), ranks_(c.shape.ranks), ranks_per_node_(node_size(m, c.shape.ranks)) {}

  double ranks() const { return ranks_; }
  double ranks_per_node() const { return ranks_per_node_; }
  double nodes() const { return std::ceil(ranks_ / ranks_per_node_); }
  Cost cost = {};

  /// The time of one message [s]. between: whether it goes to another node; at_once: ranks of a node that send then.
  double message_seconds(double share, bool between, double at_once = 1) const {
    const double bytes = share * slice_bytes_;
    const auto size = static_cast<std::uint64_t>(bytes);
    if (!between) return bytes / machine_.within_node.bytes_per_s(size);
    double s = bytes / machine_.between_nodes.bytes_per_s(size);
    if (machine_.node_port.bytes_per_s > 0) s = std::max(s, at_once * bytes / machine_.node_port.bytes_per_s);
    if (machine_.trunk) s = std::max(s, nodes() * at_once * bytes / machine_.trunk->bytes_per_s(size));
    return s;
  }
  double latency(bool between) const {
    const core::Link& link = between ? machine_.between_nodes : machine_.within_node;
    return link.overhead_s + link.latency_s + (between && machine_.trunk ? machine_.trunk->latency_s : 0);
  }
  double sum_seconds(double share) const { return share * slice_bytes_ / machine_.reduce_bytes_per_s; }

  void add(const Phase& p) {
    const double within_s = message_seconds(p.share, false), between_s = message_seconds(p.share, true, p.at_once);
    const auto mean = [&](double within, double between) { return (1 - p.between) * within + p.between * between; };
    const double slowest = p.between <= 0 ? within_s : p.between >= 1 ? between_s : std::max(within_s, between_s);
    const double sums = p.reduces ? sum_seconds(p.share) : 0;
    const double message = p.goes_round || p.messages > 1 ? mean(within_s, between_s) : slowest;
    const double wait = p.goes_round ? mean(latency(false), latency(true)) : latency(p.between > 0);
    // In a ring whose links differ, messages wait for the slower links.
    const double round = wait + p.messages * (message + sums);
    cost.chain += p.rounds * (p.goes_round ? std::max(round, slowest) : round);
    cost.port += p.rounds * p.messages * (p.messages > 1 ? message : slowest);
    cost.core += p.rounds * p.messages * sums;
    cost.rounds += p.rounds;
  }

  /// The rounds of a ring of so many members, where neighbours are `distance` ranks apart.
  void ring(double members, double share, bool reduces, double distance = 1) {
    if (members <= 1) return;
    const double crossing = nodes() > 1 ? std::min(1.0, distance / ranks_per_node_) : 0;
    add({.rounds = members - 1,
         .share = share,
         .reduces = reduces,
         .between = distance * members <= ranks_per_node_ ? 0 : crossing,
         .at_once = std::min(distance, ranks_per_node_),
         .goes_round = true});
  }
  /// A round in which `base` ranks, each `distance` ranks from the next, send each other this share of the slice.
  void exchange(double base, double distance, double share, bool reduces) {
    double between = 0;
    if (distance * base > ranks_per_node_)
      between = distance >= ranks_per_node_ ? 1 : 1 - (ranks_per_node_ / distance - 1) / (base - 1);
    add({.share = share, .messages = base - 1, .reduces = reduces, .between = between, .at_once = ranks_per_node_});
  }

 private:
  const core::Machine& machine_;
  double slice_bytes_, ranks_, ranks_per_node_;
};

double ceil_log2(double n) { return std::ceil(std::log2(n)); }

void ring(SliceCostSum& slice, const CollectiveCall& c) {
  if (c.kind != CollectiveKind::all_gather) slice.ring(slice.ranks(), 1 / slice.ranks(), true);
  if (c.kind != CollectiveKind::reduce_scatter) slice.ring(slice.ranks(), 1 / slice.ranks(), false);
}

void neighbour(SliceCostSum& slice, const CollectiveCall&) { slice.add({.between = slice.nodes() > 1 ? 1.0 : 0.0}); }

/// Reduce-scatter, then all-gather, of which a collective may have only one: in each of the levels, groups of `base`
/// ranks exchange.
void levels(SliceCostSum& slice, const CollectiveCall& c, double base, double level_count) {
  const double ranks = std::pow(base, level_count);
  for (double distance = ranks / base; c.kind != CollectiveKind::all_gather && distance >= 1; distance /= base)
    slice.exchange(base, distance, distance / ranks, true);
  for (double distance = 1; c.kind != CollectiveKind::reduce_scatter && distance < ranks; distance *= base)
    slice.exchange(base, distance, distance / ranks, false);
}

/// The round in which the ranks beyond a power of two hand in their buffers (`hands_in`), or get the result. The first
/// of these rounds occupies the way into a port and the other the way out, so only the first adds to the port's time.
void fold(SliceCostSum& slice, bool hands_in) {
  if (std::exp2(std::floor(std::log2(slice.ranks()))) == slice.ranks()) return;
  const double port = slice.cost.port;
  slice.add({.reduces = hands_in, .between = slice.ranks_per_node() > 1 ? 0.0 : 1.0});
  if (!hands_in) slice.cost.port = port;
}

void rabenseifner(SliceCostSum& slice, const CollectiveCall& c) {
  fold(slice, true);
  levels(slice, c, 2, std::floor(std::log2(slice.ranks())));
  fold(slice, false);
}

void recursive_doubling(SliceCostSum& slice, const CollectiveCall&) {
  fold(slice, true);
  for (double distance = 1; 2 * distance <= slice.ranks(); distance *= 2) slice.exchange(2, distance, 1, true);
  fold(slice, false);
}

void direct(SliceCostSum& slice, const CollectiveCall& c) {
  if (c.kind == CollectiveKind::broadcast || c.kind == CollectiveKind::all_to_all)
    return slice.exchange(slice.ranks(), 1, c.kind == CollectiveKind::broadcast ? 1 : 1 / slice.ranks(), false);
  levels(slice, c, slice.ranks(), 1);
}

void bcube(SliceCostSum& slice, const CollectiveCall& c) {
  const u32 base = allreduce::whole_number_from(c.algorithm->request(c.shape, c.kind), "base", 2);
  u32 digits = 0, left = c.shape.ranks;
  for (; left % base == 0; left /= base) ++digits;
  if (left != 1) return direct(slice, c);
  levels(slice, c, base, digits);
}

void swing(SliceCostSum& slice, const CollectiveCall&) {
  const double rounds = std::log2(slice.ranks());
  for (const bool reduces : {true, false}) {
    double distance = 1;
    for (double step = 0; step < rounds; ++step) {
      slice.add({.share = std::exp2(-(step + 1)),
                 .reduces = reduces,
                 .between = slice.nodes() > 1 ? 1.0 : 0.0,
                 .at_once = std::min(slice.ranks_per_node(), distance)});
      distance = std::abs((1 - std::pow(-2, step + 2)) / 3);
    }
  }
}

void one_shot(SliceCostSum& slice, const CollectiveCall&) { slice.exchange(slice.ranks(), 1, 1, true); }

void pairwise(SliceCostSum& slice, const CollectiveCall&) {
  slice.add({.rounds = slice.ranks() == 2 ? 1 : slice.ranks(),
             .share = 1 / slice.ranks(),
             .between = slice.nodes() > 1 ? (slice.ranks() - slice.ranks_per_node()) / (slice.ranks() - 1) : 0,
             .at_once = slice.ranks_per_node(),
             .goes_round = true});
  // Each rank rests in one of the rounds.
  if (slice.ranks() > 2) slice.cost.port *= (slice.ranks() - 1) / slice.ranks();
}

/// Up or down a binomial tree of so many members; the root is busy in every round.
void binomial(SliceCostSum& slice, double members, bool reduces) {
  for (double distance = 1; distance < members; distance *= 2)
    slice.add({.reduces = reduces,
               .between = distance >= slice.ranks_per_node() ? 1.0 : 0.0,
               .at_once = reduces ? 1 : std::min(distance, slice.ranks_per_node())});
}

void binomial_tree(SliceCostSum& slice, const CollectiveCall& c) {
  if (c.kind == CollectiveKind::broadcast) return binomial(slice, slice.ranks(), false);
  binomial(slice, slice.ranks(), true);
  const Cost up = slice.cost;
  binomial(slice, slice.ranks(), false);
  // The root receives on the way up and sends on the way down, on ports of their own.
  slice.cost.port = std::max(up.port, slice.cost.port - up.port);
}

/// A rank inside a tree has two children, and the root has one. Of two slices, one in each tree, a rank gets four
/// messages and sums two.
void double_tree(SliceCostSum& slice, const CollectiveCall&) {
  const double depth = ceil_log2(slice.ranks());
  for (double level = 0; level < depth; ++level) {
    const double children = level + 1 < depth && slice.ranks() > 3 ? 2 : 1;
    const double between = std::exp2(level) >= slice.ranks_per_node() ? 1 : 0;
    slice.add({.messages = children, .reduces = true, .between = between});
    slice.add({.messages = children, .between = between});
  }
  slice.cost.port = (slice.ranks() > 3 ? 2 : slice.ranks() / 2) * slice.message_seconds(1, slice.nodes() > 1);
  slice.cost.core = slice.sum_seconds(1);
  slice.cost.is_tree = true;
}

/// Rings in the rows of a grid, then in its columns, then in the rows again.
void grid(SliceCostSum& slice, double width) {
  const double height = slice.ranks() / width;
  slice.ring(width, 1 / width, true);
  slice.ring(height, 1 / slice.ranks(), true, width);
  slice.ring(height, 1 / slice.ranks(), false, width);
  slice.ring(width, 1 / width, false);
}

void hierarchical_lane(SliceCostSum& slice, const CollectiveCall& c) { grid(slice, c.shape.ranks_per_node); }

/// Without the parameter `rows`, the torus is as nearly square as possible.
void torus2d(SliceCostSum& slice, const CollectiveCall& c) {
  const u32 rows_parameter = allreduce::whole_number_from(c.algorithm->request(c.shape, c.kind), "rows", 0);
  u32 rows = std::max(1u, rows_parameter);
  for (u32 r = 2; rows_parameter == 0 && std::uint64_t{r} * r <= c.shape.ranks; ++r)
    if (c.shape.ranks % r == 0) rows = r;
  grid(slice, slice.ranks() / rows);
}

void hierarchical_leader(SliceCostSum& slice, const CollectiveCall& c) {
  const double members = c.shape.ranks_per_node, leaders = slice.ranks() / members;
  binomial(slice, members, true);
  slice.ring(leaders, 1 / leaders, true, members);
  slice.ring(leaders, 1 / leaders, false, members);
  const double port = slice.cost.port;
  binomial(slice, members, false);
  slice.cost.port = port;
}

struct ClosedForm {
  std::string_view name;
  void (*add)(SliceCostSum&, const CollectiveCall&);
};
constexpr std::array closed_forms{ClosedForm{"bcube", bcube},
                                  ClosedForm{"binomial-tree", binomial_tree},
                                  ClosedForm{"direct", direct},
                                  ClosedForm{"double-tree", double_tree},
                                  ClosedForm{"hierarchical-lane", hierarchical_lane},
                                  ClosedForm{"hierarchical-leader", hierarchical_leader},
                                  ClosedForm{"neighbour", neighbour},
                                  ClosedForm{"one-shot", one_shot},
                                  ClosedForm{"pairwise", pairwise},
                                  ClosedForm{"rabenseifner", rabenseifner},
                                  ClosedForm{"recursive-doubling", recursive_doubling},
                                  ClosedForm{"ring", ring},
                                  ClosedForm{"swing", swing},
                                  ClosedForm{"torus2d", torus2d}};

}  // namespace

double walked_seconds(const CollectiveCall& c, const core::Machine& m) {
  const auto schedules = walked_schedules(c, m);
  if (schedules.front()->rounds() == 0) return 0;
  const std::vector<double> begin(schedules.front()->ranks(), 0.0);
  return std::ranges::max(
      allreduce::hockney_finish_times(schedules, slices_of(c, schedules), c.element_bytes, begin, m));
}

bool has_closed_form(std::string_view algorithm) {
  return std::ranges::find(closed_forms, algorithm, &ClosedForm::name) != closed_forms.end();
}

PreparedCollective::PreparedCollective(const CollectiveCall& c) : call_(c) {
  if (!has_closed_form(c.algorithm->info().name))
    throw core::UsageError(fmt::format("algorithm {} has no closed form; take ring", c.algorithm->name));
  if (const auto why = c.algorithm->refusal(c.shape, c.kind); !why.empty()) throw core::UsageError(why);
  const auto schedules = c.algorithm->make(c.shape, c.kind);
  slices_ = static_cast<double>(slices_of(c, schedules).count());
  lanes_ = static_cast<double>(allreduce::lanes_for(schedules));
}

double PreparedCollective::seconds(const core::Machine& m) const {
  if (call_.shape.ranks <= 1) return 0;
  SliceCostSum slice(call_, m, static_cast<double>(call_.bytes) / slices_);
  std::ranges::find(closed_forms, call_.algorithm->info().name, &ClosedForm::name)->add(slice, call_);
  const Cost& cost = slice.cost;
  if (slices_ <= 1) return cost.chain;
  const double turns = std::ceil(slices_ / lanes_);
  // The last slice's first round begins when the ports have sent all other slices.
  const double fill = cost.is_tree ? cost.chain - cost.port : (cost.chain - cost.port) / cost.rounds;
  return std::max({turns * cost.chain, slices_ * cost.port + fill, slices_ * cost.core + fill});
}

double formula_seconds(const CollectiveCall& c, const core::Machine& m) { return PreparedCollective(c).seconds(m); }

double collective_seconds(const CollectiveCall& c, const core::Machine& m) {
  constexpr double most_walked_rounds = 4000;
  if (c.shape.ranks <= 1) return 0;
  const auto schedules = walked_schedules(c, m);
  const double rounds = static_cast<double>(schedules.front()->ranks()) * schedules.front()->rounds() *
                        static_cast<double>(slices_of(c, schedules).count());
  return rounds <= most_walked_rounds ? walked_seconds(c, m) : formula_seconds(c, m);
}

}  // namespace gradmeter::predict
