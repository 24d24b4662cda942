#include "allreduce/broadcast.hpp"

#include <bit>

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class BinomialBroadcast final : public FixedSchedule {
 public:
  BinomialBroadcast(u32 p, u32 root)
      : FixedSchedule(Goal::broadcast, p, 1, static_cast<u32>(std::bit_width(p - 1))), root_(root) {}
  u32 root() const override { return root_; }
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 p = ranks(), have = 1u << round, from_root = (rank + p - root_) % p;
    auto rank_at = [&](u32 distance) { return (distance + root_) % p; };
    if (from_root < have) {
      if (from_root + have < p) out.push_back({StepKind::send, rank_at(from_root + have), {0, 1}});
    } else if (from_root < 2 * have) {
      out.push_back({StepKind::recv, rank_at(from_root - have), {0, 1}});
    }
  }

 private:
  u32 root_;
};

}  // namespace

SchedulePtr binomial_broadcast(u32 ranks, u32 root) { return std::make_shared<BinomialBroadcast>(ranks, root); }

}  // namespace gradmeter::allreduce
