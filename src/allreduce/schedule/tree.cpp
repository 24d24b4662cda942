// SPDX-License-Identifier: Apache-2.0
// The binomial tree, and the double tree: two binary trees, each of which carries half of the slices.
#include <algorithm>
#include <bit>

#include "allreduce/schedule/algorithms.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

namespace {

u32 ceil_log2(u32 p) { return static_cast<u32>(std::bit_width(p - 1)); }
u32 floor_log2(u32 p) { return static_cast<u32>(std::bit_width(p)) - 1; }

}  // namespace

SchedulePtr binomial_broadcast(u32 p, u32 root) {
  auto steps = [p, root](u32 round, u32 rank, Steps& out) {
    const u32 holders = 1u << round, from_root = (rank + p - root) % p;  // holders: ranks that have the buffer already
    auto rank_at = [&](u32 distance) { return (distance + root) % p; };
    if (from_root < holders) {
      if (from_root + holders < p) out.push_back({StepKind::send, rank_at(from_root + holders), {0, 1}});
    } else if (from_root < 2 * holders) {
      out.push_back({StepKind::recv, rank_at(from_root - holders), {0, 1}});
    }
  };
  return std::make_shared<Schedule>(CollectiveKind::broadcast, p, 1, ceil_log2(p), steps, false, root);
}

SchedulePtr binomial_reduce(u32 p) {
  const u32 rounds = std::max(1u, ceil_log2(p));  // a single rank still has one round: its value has to be finished
  return std::make_shared<Schedule>(CollectiveKind::all_reduce, p, 1, rounds,
                                    [p, rounds](u32 round, u32 rank, Steps& out) {
                                      const u32 distance = 1u << round;
                                      if (rank % (2 * distance) == distance)
                                        out.push_back({StepKind::send, rank - distance, {0, 1}});
                                      if (rank % (2 * distance) == 0 && rank + distance < p) {
                                        out.push_back({StepKind::recv_reduce, rank + distance, {0, 1}});
                                      }
                                      if (rank == 0 && round + 1 == rounds)
                                        out.push_back({StepKind::finish, rank, {0, 1}});
                                    });
}

namespace {

std::vector<SchedulePtr> make_binomial_tree(const Request& r) {
  const u32 p = r.shape.ranks;
  if (r.collective_kind == CollectiveKind::broadcast) return {binomial_broadcast(p, r.root)};
  return {sequence(CollectiveKind::all_reduce, {binomial_reduce(p), binomial_broadcast(p, 0)})};
}

StatedCost binomial_tree_cost(const Request& r) {
  const u32 p = r.shape.ranks, reductions = r.collective_kind == CollectiveKind::broadcast ? 0 : 1;
  return {.rounds = floor_log2(p) + reductions * ceil_log2(p),
          .messages = (std::uint64_t{1} + reductions) * (p - 1),
          .sent_per_rank_max = static_cast<double>(ceil_log2(p)),
          .sent = (std::uint64_t{1} + reductions) * (p - 1)};
}

/// A binary tree. Values go up to its top, where the sum is finished, and down again. Nodes are numbered from 0. In the
/// first tree, node v is rank v. Node 0 is the top and has one child. Any other node is an odd multiple of 2^h; its
/// children are the nodes at distance 2^(h-1), and its parent is at distance 2^h. Where that parent is no rank, since
/// its number is too large, the parent is the nearest ancestor that is one. The second tree is the first one mirrored
/// (p even) or shifted by one rank (p odd), so that the inner ranks of one tree are leaves of the other.
class BinaryTree {
 public:
  BinaryTree(u32 p, bool second) : ranks_(p), second_(second) {}

  void steps(u32 round, u32 rank, Steps& out) const {
    const u32 v = node_of(rank), depth = depth_of(v), levels = ceil_log2(ranks_);
    if (round < levels) {
      go_up(round, v, depth, out);
    } else {
      go_down(round - levels, v, depth, out);
    }
    if (v == 0 && round + 1 == std::max(1u, levels)) out.push_back({StepKind::finish, rank, {0, 1}});
  }

 private:
  void go_up(u32 round, u32 v, u32 depth, Steps& out) const {
    const u32 sending_level = ceil_log2(ranks_) - round;
    if (v != 0 && depth == sending_level) out.push_back({StepKind::send, rank_of(parent(v)), {0, 1}});
    if (depth + 1 == sending_level) {
      children(v, [&](u32 child) { out.push_back({StepKind::recv_reduce, rank_of(child), {0, 1}}); });
    }
  }
  void go_down(u32 sending_level, u32 v, u32 depth, Steps& out) const {
    if (v != 0 && depth == sending_level + 1) out.push_back({StepKind::recv, rank_of(parent(v)), {0, 1}});
    if (depth == sending_level) {
      children(v, [&](u32 child) { out.push_back({StepKind::send, rank_of(child), {0, 1}}); });
    }
  }

  static u32 lowest_bit(u32 v) { return v & (~v + 1); }
  u32 parent(u32 v) const {
    const u32 low = lowest_bit(v), full_tree_parent = (v ^ low) | (low << 1);
    return full_tree_parent < ranks_ ? full_tree_parent : v ^ low;
  }
  u32 depth_of(u32 v) const {
    u32 d = 0;
    for (; v != 0; v = parent(v)) ++d;
    return d;
  }
  template <class Visit>
  void children(u32 v, Visit visit) const {
    if (v == 0) {
      if (ranks_ > 1) visit(std::bit_floor(ranks_ - 1));
      return;
    }
    u32 distance = lowest_bit(v) / 2;
    if (distance) visit(v - distance);
    while (distance && v + distance >= ranks_) distance /= 2;
    if (distance) visit(v + distance);
  }

  u32 node_of(u32 rank) const {
    if (!second_) return rank;
    return ranks_ % 2 ? (rank + ranks_ - 1) % ranks_ : ranks_ - 1 - rank;
  }
  u32 rank_of(u32 v) const {
    if (!second_) return v;
    return ranks_ % 2 ? (v + 1) % ranks_ : ranks_ - 1 - v;
  }

  u32 ranks_;
  bool second_;
};

SchedulePtr binary_tree(u32 p, bool second) {
  const u32 rounds = std::max(1u, 2 * ceil_log2(p));  // a single rank still has one round: its value has to be finished
  return std::make_shared<Schedule>(
      CollectiveKind::all_reduce, p, 1, rounds,
      [tree = BinaryTree(p, second)](u32 round, u32 rank, Steps& out) { tree.steps(round, rank, out); });
}

std::vector<SchedulePtr> make_double_tree(const Request& r) {
  return {binary_tree(r.shape.ranks, false), binary_tree(r.shape.ranks, true)};
}

StatedCost double_tree_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  return {.rounds = 2 * ceil_log2(p),
          .messages = std::uint64_t{2} * (p - 1),
          .sent_per_rank_max = std::min(2.0, (p - 1) * (p == 3 ? 0.75 : 1.0)),
          .sent = std::uint64_t{2} * (p - 1)};
}

}  // namespace

constinit const AlgorithmInfo binomial_tree_row{
    .name = "binomial-tree",
    .cost_text = "about 2·log2 p rounds, n·log2 p sent by rank 0",
    .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
    .refusal = refusal_unless<CollectiveKind::all_reduce, CollectiveKind::broadcast>,
    .make = make_binomial_tree,
    .cost = binomial_tree_cost};

constinit const AlgorithmInfo double_tree_row{.name = "double-tree",
                                              .cost_text = "2·log2 p rounds, 2n sent",
                                              .source = "Sanders, Speck, Träff, Parallel Computing 2009",
                                              .refusal = refusal_unless<CollectiveKind::all_reduce>,
                                              .make = make_double_tree,
                                              .cost = double_tree_cost};

}  // namespace gradmeter::allreduce
