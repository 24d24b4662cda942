#include "allreduce/schedule/algorithms/double_tree.hpp"

#include <algorithm>
#include <bit>

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

u32 height(u32 p) { return static_cast<u32>(std::bit_width(p - 1)); }

/// Node 0 is the top with one child. Any other node is an odd multiple of 2^h: its children are 2^(h-1) away, its
/// parent 2^h; where the tree is cut off at `ranks`, a node hangs on the next one above it.
struct InOrderTree {
  u32 nodes;
  static u32 lowest_bit(u32 v) { return v & (~v + 1); }
  u32 parent(u32 v) const {
    const u32 low = lowest_bit(v), up = (v ^ low) | (low << 1);
    return up < nodes ? up : v ^ low;
  }
  u32 depth(u32 v) const {
    u32 d = 0;
    for (; v != 0; v = parent(v)) ++d;
    return d;
  }
  template <class Visit>
  void children(u32 v, Visit visit) const {
    if (v == 0) {
      if (nodes > 1) visit(std::bit_floor(nodes - 1));
      return;
    }
    u32 away = lowest_bit(v) / 2;
    if (away) visit(v - away);
    while (away && v + away >= nodes) away /= 2;
    if (away) visit(v + away);
  }
};

class BinaryTree final : public FixedSchedule {
 public:
  // A single rank still has one round: its value has to be finished.
  BinaryTree(u32 p, Mirror mirror)
      : FixedSchedule(CollectiveKind::all_reduce, p, 1, std::max(1u, 2 * height(p))), tree_{p}, mirror_(mirror) {}

  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 v = node(rank), depth = tree_.depth(v), levels = height(ranks());
    if (round < levels) {
      go_up(round, v, depth, out);
    } else {
      go_down(round - levels, v, depth, out);
    }
    if (v == 0 && round + 1 == std::max(1u, levels)) out.push_back({StepKind::finish, rank, {0, 1}});
  }

 private:
  void go_up(u32 round, u32 v, u32 depth, Steps& out) const {
    const u32 level = height(ranks()) - round;  // of those that send
    if (v != 0 && depth == level) out.push_back({StepKind::send, rank_of(tree_.parent(v)), {0, 1}});
    if (depth + 1 == level) {
      tree_.children(v, [&](u32 child) { out.push_back({StepKind::recv_reduce, rank_of(child), {0, 1}}); });
    }
  }
  void go_down(u32 level, u32 v, u32 depth, Steps& out) const {
    if (v != 0 && depth == level + 1) out.push_back({StepKind::recv, rank_of(tree_.parent(v)), {0, 1}});
    if (depth == level) {
      tree_.children(v, [&](u32 child) { out.push_back({StepKind::send, rank_of(child), {0, 1}}); });
    }
  }
  u32 node(u32 rank) const {
    if (mirror_ == Mirror::no) return rank;
    return ranks() % 2 ? (rank + ranks() - 1) % ranks() : ranks() - 1 - rank;
  }
  u32 rank_of(u32 v) const {
    if (mirror_ == Mirror::no) return v;
    return ranks() % 2 ? (v + 1) % ranks() : ranks() - 1 - v;
  }

  InOrderTree tree_;
  Mirror mirror_;
};

}  // namespace

SchedulePtr binary_tree(u32 ranks, Mirror mirror) { return std::make_shared<BinaryTree>(ranks, mirror); }

std::string double_tree_refusal(const Request& r) { return only_collectives(r, {CollectiveKind::all_reduce}); }

std::vector<SchedulePtr> make_double_tree(const Request& r) {
  return {binary_tree(r.shape.ranks, Mirror::no), binary_tree(r.shape.ranks, Mirror::yes)};
}

StatedCost double_tree_cost(const Request& r) {
  const u32 p = r.shape.ranks;
  return {.rounds = 2 * height(p),
          .messages = std::uint64_t{2} * (p - 1),
          .sent_per_rank_max = std::min(2.0, (p - 1) * (p == 3 ? 0.75 : 1.0)),
          .sent = std::uint64_t{2} * (p - 1)};
}

}  // namespace gradmeter::allreduce
