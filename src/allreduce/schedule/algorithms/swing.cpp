#include "allreduce/schedule/algorithms/swing.hpp"

#include <algorithm>
#include <bit>

#include "allreduce/schedule/algorithms/butterfly.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

/// In round s an even rank sends to the rank rho(s) after it, an odd one to the rank rho(s) before it. So rounds s and
/// s+1 together lead from e to e + rho(s) - rho(s+1), and rho(s+1) - rho(s) = (-2)^(s+1). Rounds s, s+1 … therefore
/// reach, from an even rank e, the even ranks e + k·2^(s+1) and the odd ranks e + rho(s) + k·2^(s+1): one set for all
/// its members. The lowest s bits of e/2 identify an even rank's set, so block numbers have these bits on top, the
/// lowest first. An odd rank comes right after the even rank that it exchanges with in the last round.
class SwingRing {
 public:
  explicit SwingRing(u32 p) : p_(p), levels_(static_cast<u32>(std::countr_zero(p))) {}
  u32 levels() const { return levels_; }
  u32 peer(u32 rank, u32 s) const { return rank % 2 == 0 ? (rank + rho(s)) % p_ : (rank + p_ - rho(s)) % p_; }
  /// The block that ends at `rank`.
  u32 block(u32 rank) const {
    if (levels_ == 0) return 0;
    return rank % 2 == 0 ? reversed(rank / 2) * 2 : block(peer(rank, levels_ - 1)) + 1;
  }
  /// The blocks of all ranks that are reached from `rank` after round s.
  Blocks run(u32 rank, u32 s) const {
    const u32 width = p_ >> (s + 1);
    return {block(rank) / width * width, width};
  }

 private:
  /// 1 - 2 + 4 - 8 …, modulo p (a power of two, so the wrap of the 32 bits does no harm).
  u32 rho(u32 s) const {
    u32 sum = 0, term = 1;
    for (u32 i = 0; i <= s; ++i, term *= ~1u) sum += term;
    return sum % p_;
  }
  u32 reversed(u32 x) const {
    u32 out = 0;
    for (u32 i = 0; i + 1 < levels_; ++i) out = out << 1 | ((x >> i) & 1);
    return out;
  }
  u32 p_, levels_;
};

class Swing final : public FixedSchedule {
 public:
  // A single rank still has one round: its value has to be finished.
  explicit Swing(u32 p)
      : FixedSchedule(CollectiveKind::all_reduce, p, p, std::max(1u, 2 * SwingRing(p).levels())), ring_(p) {}
  void steps(u32 round, u32 rank, Steps& out) const override {
    const u32 levels = ring_.levels();
    const bool gathers = round >= std::max(1u, levels);
    if (levels > 0) {
      const u32 s = gathers ? 2 * levels - 1 - round : round, peer = ring_.peer(rank, s);
      const Blocks mine = ring_.run(rank, s), theirs = ring_.run(peer, s);
      out.push_back({StepKind::send, peer, gathers ? mine : theirs});
      out.push_back({gathers ? StepKind::recv : StepKind::recv_reduce, peer, gathers ? theirs : mine});
    }
    if (round + 1 == std::max(1u, levels)) out.push_back({StepKind::finish, rank, {ring_.block(rank), 1}});
  }

 private:
  SwingRing ring_;
};

}  // namespace

std::string swing_refusal(const Request& r) {
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  return only_powers_of_two(r, "rabenseifner");
}

std::vector<SchedulePtr> make_swing(const Request& r) { return {std::make_shared<Swing>(r.shape.ranks)}; }

StatedCost swing_cost(const Request& r) {
  return butterfly_cost(CollectiveKind::all_reduce, 2, static_cast<u32>(std::countr_zero(r.shape.ranks)));
}

}  // namespace gradmeter::allreduce
