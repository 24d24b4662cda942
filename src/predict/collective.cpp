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

/// The steps of the first three nodes of a schedule in which each node has to do with itself, the next and the one
/// before, and all do the same: the third node stands for the one before the first.
SchedulePtr three_nodes(const SchedulePtr& schedule, u32 node) {
  const u32 nodes = schedule->ranks() / node;
  auto steps = [schedule, node, nodes](u32 round, u32 rank, allreduce::Steps& out) {
    const std::size_t before = out.size();
    schedule->steps(round, rank, out);
    for (std::size_t i = before; i < out.size(); ++i) {
      const u32 nodes_away = (out[i].peer / node + nodes - rank / node) % nodes;
      const u32 folded = (rank / node + (nodes_away == nodes - 1 ? 2 : nodes_away)) % 3;
      out[i].peer = folded * node + out[i].peer % node;
    }
  };
  return std::make_shared<allreduce::Schedule>(schedule->collective_kind(), 3 * node, schedule->blocks(),
                                               schedule->rounds(), std::move(steps));
}

/// The call's schedules, cut down to three nodes where these stand for all.
std::vector<SchedulePtr> walked_schedules(const CollectiveCall& c, const core::Machine& m) {
  auto schedules = c.algorithm->make(c.shape, c.kind);
  // Where all ranks are on one node, any one of a plain ring stands for a node.
  const bool is_grid = c.algorithm->info().name == "hierarchical-lane";
  const u32 node = is_grid ? c.shape.ranks_per_node : m.ranks_per_node == 0 ? 1 : m.ranks_per_node;
  const bool is_cut = is_ring_of_nodes(c.algorithm->info().name) && !m.trunk && c.shape.ranks % node == 0 &&
                      c.shape.ranks / node > 3 && (!is_grid || m.ranks_per_node == 0 || m.ranks_per_node == node);
  if (is_cut)
    for (SchedulePtr& s : schedules) s = three_nodes(s, node);
  return schedules;
}

/// The cost of one slice [s].
struct Cost {
  double chain = 0;  ///< the time of its rounds, one after another, where no other slice is under way
  double port = 0;   ///< the time for which it occupies the port of the busiest rank
  double core = 0;   ///< the time for which the busiest rank computes its sums
  double rounds = 0;
  bool is_tree = false;  ///< a rank works in a few rounds only, so that slices follow each other through the levels
};

/// A number of equal rounds.
struct Phase {
  double rounds = 1, share = 1, messages = 1;  ///< messages that a rank gets in a round, each this share of the slice
  bool reduces = false;
  double between = 0;  ///< share of the messages that come from other nodes
  double at_once = 1;  ///< ranks of a node that send to other nodes at once
  /// Every message passes links of both classes in turn; else a round waits for the slower class.
  bool goes_round = false;
};

/// Adds up the cost of one slice from its phases.
class SliceCostSum {
 public:
  SliceCostSum(const CollectiveCall& c, const core::Machine& m, double slice_bytes)
      : machine_(m), bytes_(slice_bytes), ranks_(c.shape.ranks), node_(node_size(m, c.shape.ranks)) {}

  double ranks() const { return ranks_; }
  double ranks_per_node() const { return node_; }
  double nodes() const { return std::ceil(ranks_ / node_); }
  Cost cost = {};

  double seconds(double share, bool between, double at_once = 1) const {
    const double bytes = share * bytes_;
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
  double sum(double share) const { return share * bytes_ / machine_.reduce_bytes_per_s; }

  void add(const Phase& p) {
    const double within_s = seconds(p.share, false), between_s = seconds(p.share, true, p.at_once);
    const auto mean = [&](double within, double between) { return (1 - p.between) * within + p.between * between; };
    const double slowest = p.between <= 0 ? within_s : p.between >= 1 ? between_s : std::max(within_s, between_s);
    const double sums = p.reduces ? sum(p.share) : 0;
    const double message = p.goes_round || p.messages > 1 ? mean(within_s, between_s) : slowest;
    const double wait = p.goes_round ? mean(latency(false), latency(true)) : latency(p.between > 0);
    // Round a ring of unlike links messages wait for the slower ones.
    const double round = wait + p.messages * (message + sums);
    cost.chain += p.rounds * (p.goes_round ? std::max(round, slowest) : round);
    cost.port += p.rounds * p.messages * (p.messages > 1 ? message : slowest);
    cost.core += p.rounds * p.messages * sums;
    cost.rounds += p.rounds;
  }

  /// Rounds of a ring of so many members: `away` ranks lie between two of them.
  void ring(double members, double share, bool reduces, double away = 1) {
    if (members <= 1) return;
    const double crossing = nodes() > 1 ? std::min(1.0, away / node_) : 0;
    add({.rounds = members - 1,
         .share = share,
         .reduces = reduces,
         .between = away * members <= node_ ? 0 : crossing,
         .at_once = std::min(away, node_),
         .goes_round = true});
  }
  /// An exchange among `base` ranks that lie `distance` apart, each message this share.
  void exchange(double base, double distance, double share, bool reduces) {
    double between = 0;
    if (distance * base > node_) between = distance >= node_ ? 1 : 1 - (node_ / distance - 1) / (base - 1);
    add({.share = share, .messages = base - 1, .reduces = reduces, .between = between, .at_once = node_});
  }

 private:
  const core::Machine& machine_;
  double bytes_, ranks_, node_;
};

double up_log2(double n) { return std::ceil(std::log2(n)); }

void ring(SliceCostSum& f, const CollectiveCall& c) {
  if (c.kind != CollectiveKind::all_gather) f.ring(f.ranks(), 1 / f.ranks(), true);
  if (c.kind != CollectiveKind::reduce_scatter) f.ring(f.ranks(), 1 / f.ranks(), false);
}

void neighbour(SliceCostSum& f, const CollectiveCall&) { f.add({.between = f.nodes() > 1 ? 1.0 : 0.0}); }

void levels(SliceCostSum& f, const CollectiveCall& c, double base, double levels) {
  const double ranks = std::pow(base, levels);
  for (double distance = ranks / base; c.kind != CollectiveKind::all_gather && distance >= 1; distance /= base)
    f.exchange(base, distance, distance / ranks, true);
  for (double distance = 1; c.kind != CollectiveKind::reduce_scatter && distance < ranks; distance *= base)
    f.exchange(base, distance, distance / ranks, false);
}

/// The rounds in which ranks beyond a power of two hand their buffers in, and get the answer. The first occupies a
/// port's way in, the other its way out.
void fold(SliceCostSum& f, bool hands_in) {
  if (std::exp2(std::floor(std::log2(f.ranks()))) == f.ranks()) return;
  const double port = f.cost.port;
  f.add({.reduces = hands_in, .between = f.ranks_per_node() > 1 ? 0.0 : 1.0});
  if (!hands_in) f.cost.port = port;
}

void rabenseifner(SliceCostSum& f, const CollectiveCall& c) {
  fold(f, true);
  levels(f, c, 2, std::floor(std::log2(f.ranks())));
  fold(f, false);
}

void recursive_doubling(SliceCostSum& f, const CollectiveCall&) {
  fold(f, true);
  for (double distance = 1; 2 * distance <= f.ranks(); distance *= 2) f.exchange(2, distance, 1, true);
  fold(f, false);
}

void direct(SliceCostSum& f, const CollectiveCall& c) {
  if (c.kind == CollectiveKind::broadcast || c.kind == CollectiveKind::all_to_all)
    return f.exchange(f.ranks(), 1, c.kind == CollectiveKind::broadcast ? 1 : 1 / f.ranks(), false);
  levels(f, c, f.ranks(), 1);
}

void bcube(SliceCostSum& f, const CollectiveCall& c) {
  const u32 base = allreduce::number_parameter(c.algorithm->request(c.shape, c.kind), "base", 2);
  u32 digits = 0, left = c.shape.ranks;
  for (; left % base == 0; left /= base) ++digits;
  if (left != 1) return direct(f, c);
  levels(f, c, base, digits);
}

void swing(SliceCostSum& f, const CollectiveCall&) {
  const double rounds = std::log2(f.ranks());
  for (const bool reduces : {true, false}) {
    double distance = 1;
    for (double s = 0; s < rounds; ++s) {
      f.add({.share = std::exp2(-(s + 1)),
             .reduces = reduces,
             .between = f.nodes() > 1 ? 1.0 : 0.0,
             .at_once = std::min(f.ranks_per_node(), distance)});
      distance = std::abs((1 - std::pow(-2, s + 2)) / 3);
    }
  }
}

void one_shot(SliceCostSum& f, const CollectiveCall&) { f.exchange(f.ranks(), 1, 1, true); }

void pairwise(SliceCostSum& f, const CollectiveCall&) {
  f.add({.rounds = f.ranks() == 2 ? 1 : f.ranks(),
         .share = 1 / f.ranks(),
         .between = f.nodes() > 1 ? (f.ranks() - f.ranks_per_node()) / (f.ranks() - 1) : 0,
         .at_once = f.ranks_per_node(),
         .goes_round = true});
  // In one of the rounds a rank rests, where the ranks are odd.
  if (f.ranks() > 2) f.cost.port *= (f.ranks() - 1) / f.ranks();
}

/// Up or down a binomial tree of so many members; the root is busy in every round.
void binomial(SliceCostSum& f, double members, bool reduces) {
  for (double distance = 1; distance < members; distance *= 2)
    f.add({.reduces = reduces,
           .between = distance >= f.ranks_per_node() ? 1.0 : 0.0,
           .at_once = reduces ? 1 : std::min(distance, f.ranks_per_node())});
}

void binomial_tree(SliceCostSum& f, const CollectiveCall& c) {
  if (c.kind == CollectiveKind::broadcast) return binomial(f, f.ranks(), false);
  binomial(f, f.ranks(), true);
  const Cost up = f.cost;
  binomial(f, f.ranks(), false);
  // The root receives on the way up and sends on the way down, on ports of their own.
  f.cost.port = std::max(up.port, f.cost.port - up.port);
}

/// Two children at each inner level and one at the top. Of two slices, one in each tree, a rank gets four messages and
/// sums two.
void double_tree(SliceCostSum& f, const CollectiveCall&) {
  const double depth = up_log2(f.ranks());
  for (double level = 0; level < depth; ++level) {
    const double children = level + 1 < depth && f.ranks() > 3 ? 2 : 1;
    const double between = std::exp2(level) >= f.ranks_per_node() ? 1 : 0;
    f.add({.messages = children, .reduces = true, .between = between});
    f.add({.messages = children, .between = between});
  }
  f.cost.port = (f.ranks() > 3 ? 2 : f.ranks() / 2) * f.seconds(1, f.nodes() > 1);
  f.cost.core = f.sum(1);
  f.cost.is_tree = true;
}

/// Rings in the rows of a grid, then in its columns, then in the rows again.
void grid(SliceCostSum& f, double width) {
  const double height = f.ranks() / width;
  f.ring(width, 1 / width, true);
  f.ring(height, 1 / f.ranks(), true, width);
  f.ring(height, 1 / f.ranks(), false, width);
  f.ring(width, 1 / width, false);
}

void hierarchical_lane(SliceCostSum& f, const CollectiveCall& c) { grid(f, c.shape.ranks_per_node); }

/// Without `rows`: the most nearly square torus.
void torus2d(SliceCostSum& f, const CollectiveCall& c) {
  const u32 rows_parameter = allreduce::number_parameter(c.algorithm->request(c.shape, c.kind), "rows", 0);
  u32 rows = std::max(1u, rows_parameter);
  for (u32 r = 2; rows_parameter == 0 && std::uint64_t{r} * r <= c.shape.ranks; ++r)
    if (c.shape.ranks % r == 0) rows = r;
  grid(f, f.ranks() / rows);
}

void hierarchical_leader(SliceCostSum& f, const CollectiveCall& c) {
  const double members = c.shape.ranks_per_node, leaders = f.ranks() / members;
  binomial(f, members, true);
  f.ring(leaders, 1 / leaders, true, members);
  f.ring(leaders, 1 / leaders, false, members);
  const double port = f.cost.port;
  binomial(f, members, false);
  f.cost.port = port;
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
  SliceCostSum f(call_, m, static_cast<double>(call_.bytes) / slices_);
  std::ranges::find(closed_forms, call_.algorithm->info().name, &ClosedForm::name)->add(f, call_);
  const Cost& slice = f.cost;
  if (slices_ <= 1) return slice.chain;
  const double turns = std::ceil(slices_ / lanes_);
  // The last slice's first round begins when the ports have sent all slices but it.
  const double fill = slice.is_tree ? slice.chain - slice.port : (slice.chain - slice.port) / slice.rounds;
  return std::max({turns * slice.chain, slices_ * slice.port + fill, slices_ * slice.core + fill});
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
