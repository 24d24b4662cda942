#include "allreduce/schedule/algorithms/fold.hpp"

#include <bit>
#include <utility>

#include "allreduce/schedule/algorithms/embed.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

/// One round between the two of each pair: all blocks to the odd rank, to be summed, or back to the even one.
class PairExchange final : public FixedSchedule {
 public:
  enum class Way : std::uint8_t { hand_in, hand_back };
  PairExchange(u32 ranks, u32 blocks, Way way)
      : FixedSchedule(CollectiveKind::all_reduce, ranks, blocks, 1), fold_(ranks), way_(way) {}
  void steps(u32, u32 rank, Steps& out) const override {
    if (!fold_.paired(rank)) return;
    const bool even = rank % 2 == 0, gives = even == (way_ == Way::hand_in);
    const StepKind takes = way_ == Way::hand_in ? StepKind::recv_reduce : StepKind::recv;
    out.push_back({gives ? StepKind::send : takes, even ? rank + 1 : rank - 1, {0, blocks()}});
  }

 private:
  Fold fold_;
  Way way_;
};

}  // namespace

Fold::Fold(u32 ranks)
    : power(std::bit_floor(ranks)), extra(ranks - power), levels(static_cast<u32>(std::countr_zero(power))) {}

SchedulePtr folded(SchedulePtr inner, u32 ranks) {
  const Fold fold(ranks);
  if (fold.extra == 0) return inner;
  const u32 blocks = inner->blocks();
  Groups actives{.seat =
                     [fold](u32 r) {
                       return fold.active(r) ? std::optional(Seat{0, fold.position(r)}) : std::nullopt;
                     },
                 .rank = [fold](Seat s) { return fold.rank_at(s.place); }};
  return sequence(CollectiveKind::all_reduce,
                  {std::make_shared<PairExchange>(ranks, blocks, PairExchange::Way::hand_in),
                   embed(std::move(inner), {ranks, blocks, std::move(actives)}),
                   std::make_shared<PairExchange>(ranks, blocks, PairExchange::Way::hand_back)});
}

StatedCost folded(StatedCost c, u32 ranks) {
  const Fold fold(ranks);
  if (fold.extra == 0) return c;
  return {.rounds = c.rounds + 2,
          .messages = c.messages + std::uint64_t{2} * fold.extra,
          .sent_per_rank_max = c.sent_per_rank_max + 1,
          .sent = c.sent + std::uint64_t{2} * fold.extra};
}

}  // namespace gradmeter::allreduce
