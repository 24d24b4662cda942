#include "allreduce/recursive_doubling.hpp"

#include <algorithm>
#include <bit>

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

/// p = q + extra with q a power of two: ranks 0 … 2·extra-1 pair up, the even one hands its buffer to the odd one.
struct Fold {
  u32 power, extra, levels;
  explicit Fold(u32 p)
      : power(std::bit_floor(p)), extra(p - power), levels(static_cast<u32>(std::countr_zero(power))) {}
  bool paired(u32 rank) const { return rank < 2 * extra; }
  bool active(u32 rank) const { return !paired(rank) || rank % 2 == 1; }
  u32 position(u32 rank) const { return paired(rank) ? rank / 2 : rank - extra; }
  u32 rank_at(u32 position) const { return position < extra ? 2 * position + 1 : position + extra; }
  u32 rounds() const { return std::max(1u, levels + (extra ? 2 : 0)); }
};

class RecursiveDoubling final : public FixedSchedule {
 public:
  explicit RecursiveDoubling(u32 p) : FixedSchedule(Goal::all_reduce, p, 1, Fold(p).rounds()), fold_(p) {}

  void steps(u32 round, u32 rank, Steps& out) const override {
    const bool folds = fold_.extra > 0;
    if (folds && round == 0) return hand_in(rank, out);
    if (folds && round + 1 == rounds()) return hand_back(rank, out);
    if (!fold_.active(rank)) return;
    const u32 level = round - (folds ? 1 : 0);
    if (level < fold_.levels) {
      const u32 peer = fold_.rank_at(fold_.position(rank) ^ (1u << level));
      out.push_back({StepKind::send, peer, {0, 1}});
      out.push_back({StepKind::recv_reduce, peer, {0, 1}});
    }
    if (level + 1 >= fold_.levels) out.push_back({StepKind::finish, rank, {0, 1}});
  }

 private:
  void hand_in(u32 rank, Steps& out) const {
    if (!fold_.paired(rank)) return;
    if (rank % 2 == 0) {
      out.push_back({StepKind::send, rank + 1, {0, 1}});
    } else {
      out.push_back({StepKind::recv_reduce, rank - 1, {0, 1}});
    }
  }
  void hand_back(u32 rank, Steps& out) const {
    if (!fold_.paired(rank)) return;
    if (rank % 2 == 1) {
      out.push_back({StepKind::send, rank - 1, {0, 1}});
    } else {
      out.push_back({StepKind::recv, rank + 1, {0, 1}});
    }
  }
  Fold fold_;
};

}  // namespace

SchedulePtr recursive_doubling(u32 ranks) { return std::make_shared<RecursiveDoubling>(ranks); }

StatedCost recursive_doubling_cost(Shape s) {
  const Fold f(s.ranks);
  return {.rounds = f.levels + (f.extra ? 2 : 0),
          .messages = std::uint64_t{2} * f.extra + std::uint64_t{f.power} * f.levels,
          .sent_per_rank_max = static_cast<double>(f.levels + (f.extra ? 1 : 0))};
}

}  // namespace gradmeter::allreduce
