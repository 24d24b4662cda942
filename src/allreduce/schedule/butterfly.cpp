// SPDX-License-Identifier: Apache-2.0
// The algorithms whose ranks exchange in levels: the butterfly in any base, which rabenseifner, bcube and direct use,
// recursive doubling, and swing. Ranks beyond a power of two are folded into their neighbours.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

using u32 = std::uint32_t;

namespace {

u32 power(u32 base, u32 exponent) {
  u32 x = 1;
  for (u32 i = 0; i < exponent; ++i) x *= base;
  return x;
}

/// The peers of `rank` on one level: they differ from it in the digit worth `distance`. next(i) is the i-th peer to
/// send to, before(i) the i-th to receive from. Every rank begins with its own successor, so that the first messages go
/// to different ranks.
struct DigitPeers {
  u32 base, distance, rank;
  u32 digit() const { return rank / distance % base; }
  u32 at(u32 d) const { return rank + d * distance - digit() * distance; }
  u32 next(u32 i) const { return at((digit() + i) % base); }
  u32 before(u32 i) const { return at((digit() + base - i) % base); }
};
Blocks run_of(u32 rank, u32 distance) { return {rank / distance * distance, distance}; }

/// A reduce-scatter of base^levels ranks and as many blocks: rank r ends with the finished sum of block r. The farthest
/// digit comes first, so that each message is one run of blocks. With 0 levels there is a single rank.
/// Cost: `levels` rounds of base-1 messages by each rank; (p-1)/p of the buffer sent by each.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4 (base 2: recursive halving).
SchedulePtr butterfly_reduce_scatter(u32 base, u32 levels) {
  const u32 p = power(base, levels), rounds = std::max(1u, levels);  // a single rank has its value to finish
  if (levels == 0) base = 1;
  auto steps = [p, base, rounds](u32 round, u32 rank, Steps& out) {
    const u32 distance = p / power(base, round + 1);
    const DigitPeers peers{base, distance, rank};
    for (u32 i = 1; i < base; ++i) {
      out.push_back({StepKind::send, peers.next(i), run_of(peers.next(i), distance)});
    }
    for (u32 i = 1; i < base; ++i) {
      out.push_back({StepKind::recv_reduce, peers.before(i), run_of(rank, distance)});
    }
    if (round + 1 == rounds) out.push_back({StepKind::finish, rank, {rank, 1}});
  };
  return std::make_shared<Schedule>(CollectiveKind::reduce_scatter, p, p, rounds, steps);
}

/// The all-gather that reverses it: block r starts at rank r, and the nearest digit comes first. Cost: as above.
SchedulePtr butterfly_all_gather(u32 base, u32 levels) {
  const u32 p = power(base, levels);
  return std::make_shared<Schedule>(CollectiveKind::all_gather, p, p, levels, [base](u32 round, u32 rank, Steps& out) {
    const u32 distance = power(base, round);
    const DigitPeers peers{base, distance, rank};
    for (u32 i = 1; i < base; ++i) out.push_back({StepKind::send, peers.next(i), run_of(rank, distance)});
    for (u32 i = 1; i < base; ++i) {
      out.push_back({StepKind::recv, peers.before(i), run_of(peers.before(i), distance)});
    }
  });
}

}  // namespace

SchedulePtr butterfly(CollectiveKind collective_kind, u32 base, u32 levels) {
  if (collective_kind == CollectiveKind::reduce_scatter) return butterfly_reduce_scatter(base, levels);
  if (collective_kind == CollectiveKind::all_gather) return butterfly_all_gather(base, levels);
  return sequence(CollectiveKind::all_reduce,
                  {butterfly_reduce_scatter(base, levels), butterfly_all_gather(base, levels)});
}

StatedCost butterfly_cost(CollectiveKind collective_kind, u32 base, u32 levels) {
  const u32 phases = collective_kind == CollectiveKind::all_reduce ? 2 : 1;
  const std::uint64_t p = power(base, levels);
  return {.rounds = p > 1 ? phases * levels : 0,
          .messages = p * phases * levels * (base - 1),
          .sent_per_rank_max = phases * static_cast<double>(p - 1) / static_cast<double>(p),
          .sent = phases * (p - 1)};
}

namespace {

// Folding, by which an algorithm for powers of two serves any number of ranks: some ranks hand their buffers to a
// neighbour before it, and get the answer back after it.

/// The roles of ranks = power + extra ranks. Ranks 0 … 2·extra-1 form pairs, in which the even rank hands its buffer to
/// the odd one.
struct Fold {
  u32 power, extra, levels;  ///< power = 2^levels, the largest up to `ranks`
  explicit Fold(u32 ranks)
      : power(std::bit_floor(ranks)), extra(ranks - power), levels(static_cast<u32>(std::countr_zero(power))) {}
  bool is_paired(u32 rank) const { return rank < 2 * extra; }
  bool is_active(u32 rank) const { return !is_paired(rank) || rank % 2 == 1; }
  u32 position(u32 rank) const { return is_paired(rank) ? rank / 2 : rank - extra; }
  u32 rank_at(u32 position) const { return position < extra ? 2 * position + 1 : position + extra; }
};

/// A round between the two ranks of each pair. hands_in: the even rank sends all blocks to the odd one, which sums
/// them; else the odd rank sends all blocks back.
SchedulePtr pair_exchange(u32 ranks, u32 blocks, bool hands_in) {
  auto steps = [fold = Fold(ranks), blocks, hands_in](u32, u32 rank, Steps& out) {
    if (!fold.is_paired(rank)) return;
    const bool is_even = rank % 2 == 0, is_sender = is_even == hands_in;
    const StepKind receive = hands_in ? StepKind::recv_reduce : StepKind::recv;
    out.push_back({is_sender ? StepKind::send : receive, is_even ? rank + 1 : rank - 1, {0, blocks}});
  };
  return std::make_shared<Schedule>(CollectiveKind::all_reduce, ranks, blocks, 1, steps);
}

/// An all-reduce over `ranks` ranks, made of one over the largest power of two up to that.
/// Cost: 2 rounds, 2·extra messages of the whole buffer more; nothing when `ranks` is a power of two.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, section 4.
SchedulePtr folded(const SchedulePtr& inner, u32 ranks) {
  const Fold fold(ranks);
  if (fold.extra == 0) return inner;
  const u32 blocks = inner->blocks();
  const auto position = [fold](u32 r) -> std::optional<GroupRank> {
    if (!fold.is_active(r)) return std::nullopt;
    return GroupRank{0, fold.position(r)};
  };
  Groups actives{.in_group = position, .in_whole = [fold](GroupRank r) { return fold.rank_at(r.rank); }};
  return sequence(CollectiveKind::all_reduce,
                  {pair_exchange(ranks, blocks, true), embed(inner, {ranks, blocks, std::move(actives)}),
                   pair_exchange(ranks, blocks, false)});
}

/// The cost of `folded` from that of the inner schedule.
StatedCost folded_cost(StatedCost c, u32 ranks) {
  const Fold fold(ranks);
  if (fold.extra == 0) return c;
  return {.rounds = c.rounds + 2,
          .messages = c.messages + std::uint64_t{2} * fold.extra,
          .sent_per_rank_max = c.sent_per_rank_max + 1,
          .sent = c.sent + std::uint64_t{2} * fold.extra};
}

std::string rabenseifner_refusal(const Request& r) {
  if (auto why =
          refusal_unless(r, {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather});
      !why.empty())
    return why;
  return r.collective_kind == CollectiveKind::all_reduce ? "" : refusal_unless_power_of_two(r, "ring");
}

std::vector<SchedulePtr> make_rabenseifner(const Request& r) {
  const Fold fold(r.shape.ranks);
  return {folded(butterfly(r.collective_kind, 2, fold.levels), r.shape.ranks)};
}

StatedCost rabenseifner_cost(const Request& r) {
  const Fold fold(r.shape.ranks);
  return folded_cost(butterfly_cost(r.collective_kind, 2, fold.levels), r.shape.ranks);
}

}  // namespace

SchedulePtr recursive_doubling(u32 ranks) {
  const Fold f(ranks);
  const u32 p = f.power, rounds = std::max(1u, f.levels);  // a single rank has its value to finish
  auto steps = [p, rounds](u32 round, u32 rank, Steps& out) {
    if (p > 1) {
      const u32 peer = rank ^ (1u << round);
      out.push_back({StepKind::send, peer, {0, 1}});
      out.push_back({StepKind::recv_reduce, peer, {0, 1}});
    }
    if (round + 1 == rounds) out.push_back({StepKind::finish, rank, {0, 1}});
  };
  constexpr bool finishes_everywhere = true;
  return folded(std::make_shared<Schedule>(CollectiveKind::all_reduce, p, 1, rounds, steps, finishes_everywhere),
                ranks);
}

namespace {

std::vector<SchedulePtr> make_recursive_doubling(const Request& r) { return {recursive_doubling(r.shape.ranks)}; }

StatedCost recursive_doubling_cost(const Request& r) {
  const Fold f(r.shape.ranks);
  const StatedCost inner{.rounds = f.levels,
                         .messages = std::uint64_t{f.power} * f.levels,
                         .sent_per_rank_max = static_cast<double>(f.levels),
                         .sent = std::uint64_t{f.power} * f.levels};
  return folded_cost(inner, r.shape.ranks);
}

/// The number of digits of a rank in this base; null: the number of ranks is no power of the base.
std::optional<u32> digits_of(u32 ranks, u32 base) {
  u32 digits = 0;
  for (; ranks % base == 0; ranks /= base) ++digits;
  return ranks == 1 ? std::optional(digits) : std::nullopt;
}

std::string bcube_refusal(const Request& r) {
  whole_number_from(r, "base", 2);
  return refusal_unless(r, {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather});
}

std::vector<SchedulePtr> make_bcube(const Request& r) {
  const u32 base = whole_number_from(r, "base", 2);
  const auto digits = digits_of(r.shape.ranks, base);
  return {digits ? butterfly(r.collective_kind, base, *digits) : butterfly(r.collective_kind, r.shape.ranks, 1)};
}

StatedCost bcube_cost(const Request& r) {
  const u32 base = whole_number_from(r, "base", 2);
  const auto digits = digits_of(r.shape.ranks, base);
  return digits ? butterfly_cost(r.collective_kind, base, *digits)
                : butterfly_cost(r.collective_kind, r.shape.ranks, 1);
}

/// Let rho(s) = (1 - (-2)^(s+1)) / 3. In round s an even rank sends to the rank rho(s) after it, an odd one to the rank
/// rho(s) before it. So rounds s and s+1 together lead from an even rank e to e + rho(s) - rho(s+1), and rho(s+1) -
/// rho(s) = (-2)^(s+1). Rounds s, s+1 … therefore reach, from an even rank e, the even ranks e + k·2^(s+1) and the odd
/// ranks e + rho(s) + k·2^(s+1): a set that is the same for all its members. The lowest s bits of e/2 identify an even
/// rank's set, so these bits, reversed, are the top bits of block numbers. An odd rank's block comes right after that
/// of the even rank with which it exchanges in the last round.
class Swing {
 public:
  explicit Swing(u32 p) : p_(p), levels_(static_cast<u32>(std::countr_zero(p))) {}
  u32 rounds() const { return std::max(1u, 2 * levels_); }  // a single rank has its value to finish
  void steps(u32 round, u32 rank, Steps& out) const {
    const bool gathers = round >= std::max(1u, levels_);
    if (levels_ > 0) {
      const u32 s = gathers ? 2 * levels_ - 1 - round : round, other = peer(rank, s);
      const Blocks mine = run(rank, s), theirs = run(other, s);
      out.push_back({StepKind::send, other, gathers ? mine : theirs});
      out.push_back({gathers ? StepKind::recv : StepKind::recv_reduce, other, gathers ? theirs : mine});
    }
    if (round + 1 == std::max(1u, levels_)) out.push_back({StepKind::finish, rank, {block(rank), 1}});
  }

 private:
  u32 peer(u32 rank, u32 s) const { return rank % 2 == 0 ? (rank + rho(s)) % p_ : (rank + p_ - rho(s)) % p_; }
  /// The block that ends at `rank`.
  u32 block(u32 rank) const {
    if (levels_ == 0) return 0;
    return rank % 2 == 0 ? reversed(rank / 2) * 2 : block(peer(rank, levels_ - 1)) + 1;
  }
  /// The blocks of all ranks that `rank` reaches after round s.
  Blocks run(u32 rank, u32 s) const {
    const u32 width = p_ >> (s + 1);
    return {block(rank) / width * width, width};
  }
  /// rho(s) = 1 - 2 + 4 - 8 …, modulo p (a power of two, so the wrap of the 32 bits does no harm).
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

std::string swing_refusal(const Request& r) {
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  return refusal_unless_power_of_two(r, "rabenseifner");
}

std::vector<SchedulePtr> make_swing(const Request& r) {
  const u32 p = r.shape.ranks;
  const Swing swing(p);
  return {std::make_shared<Schedule>(CollectiveKind::all_reduce, p, p, swing.rounds(),
                                     [swing](u32 round, u32 rank, Steps& out) { swing.steps(round, rank, out); })};
}

StatedCost swing_cost(const Request& r) {
  return butterfly_cost(CollectiveKind::all_reduce, 2, static_cast<u32>(std::countr_zero(r.shape.ranks)));
}

}  // namespace

constinit const AlgorithmInfo rabenseifner_row{.name = "rabenseifner",
                                               .cost_text = "2·log2 p rounds, 2n(p-1)/p sent",
                                               .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                                               .refusal = rabenseifner_refusal,
                                               .make = make_rabenseifner,
                                               .cost = rabenseifner_cost};

constinit const AlgorithmInfo recursive_doubling_row{.name = "recursive-doubling",
                                                     .cost_text = "log2 p rounds, n·log2 p sent",
                                                     .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                                                     .refusal = refusal_unless<CollectiveKind::all_reduce>,
                                                     .make = make_recursive_doubling,
                                                     .cost = recursive_doubling_cost};

constinit const AlgorithmInfo bcube_row{.name = "bcube",
                                        .parameters = "base=4",
                                        .cost_text = "2·log_base p rounds, 2n(p-1)/p sent; p no power: direct",
                                        .source = "gloo, gloo/allreduce.cc",
                                        .refusal = bcube_refusal,
                                        .make = make_bcube,
                                        .cost = bcube_cost};

constinit const AlgorithmInfo swing_row{.name = "swing",
                                        .cost_text = "2·log2 p rounds, 2n(p-1)/p sent",
                                        .source = "De Sensi et al., NSDI 2024",
                                        .refusal = swing_refusal,
                                        .make = make_swing,
                                        .cost = swing_cost};

}  // namespace gradmeter::allreduce
