// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/verify.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace gradmeter::allreduce {
namespace {

std::uint64_t mix(std::uint64_t x) {  // SplitMix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// True where the rank contributes a value of this block.
bool gives(const Schedule& s, std::uint32_t rank, std::uint32_t block) {
  switch (s.collective_kind()) {
    case CollectiveKind::all_gather:
      return rank == block;
    case CollectiveKind::broadcast:
      return rank == s.root();
    default:
      return true;
  }
}

}  // namespace

Fingerprint FingerprintAlgebra::reduce(const std::vector<Operand<Fingerprint>>& operands) {
  Fingerprint out = *operands.front().value;
  for (const auto& o : operands) {
    if (o.value->count == 0) fault = fmt::format("rank {} sums a block that holds nothing", o.rank);
    if (o.value->finishes) fault = fmt::format("rank {}'s finished block is summed again", o.rank);
  }
  for (std::size_t i = 1; i < operands.size(); ++i) {
    const Fingerprint& x = *operands[i].value;
    out.sum += x.sum;
    out.tree = mix(mix(out.tree) + 3 * mix(x.tree));  // 3: a+b differs from b+a
    out.count += x.count;
  }
  return out;
}

Fingerprint FingerprintAlgebra::finish(Fingerprint v) {
  ++v.finishes;
  return v;
}

Fingerprint FingerprintAlgebra::encode(Fingerprint v, std::uint32_t rank) {
  if (v.count == 0) fault = fmt::format("rank {} encodes a block that holds nothing", rank);
  v.tree = mix(v.tree + mix(std::uint64_t{rank} + 0x51ED270B));
  return v;
}

std::vector<Fingerprint> contributions(const Schedule& s) {
  std::vector<Fingerprint> values(std::size_t{s.ranks()} * s.blocks());
  for (std::uint32_t r = 0; r < s.ranks(); ++r) {
    for (std::uint32_t b = 0; b < s.blocks(); ++b) {
      if (!gives(s, r, b)) continue;
      const std::uint64_t hash = mix((std::uint64_t{r} << 32 | b) + 1);
      values[std::size_t{r} * s.blocks() + b] = {hash, hash, 1, 0};
    }
  }
  return values;
}

bool must_hold(CollectiveKind kind, std::uint32_t rank, std::uint32_t block) {
  return kind != CollectiveKind::reduce_scatter || rank == block;
}

namespace {

/// The values that every rank must hold at the end [ranks × blocks], apart from the order of the additions. `given` are
/// the contributions.
std::vector<Fingerprint> due_at_the_end(const Schedule& s, const std::vector<Fingerprint>& given) {
  const std::uint32_t ranks = s.ranks(), blocks = s.blocks();
  const auto at = [blocks](std::uint32_t r, std::uint32_t b) { return std::size_t{r} * blocks + b; };
  std::vector<Fingerprint> sums(blocks), due(given.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    sums[i % blocks].sum += given[i].sum;
    sums[i % blocks].count += given[i].count;
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) {
      switch (s.collective_kind()) {
        case CollectiveKind::all_to_all:
          due[at(r, b)] = given[at(b, r)];
          break;
        case CollectiveKind::send_receive:
          due[at(r, b)] = given[at((r + ranks - 1) % ranks, b)];
          break;
        default:
          due[at(r, b)] = sums[b];
      }
    }
  }
  return due;
}

std::string wrong(std::uint32_t rank, std::uint32_t block, const Fingerprint& has, const Fingerprint& must,
                  bool is_sum) {
  if (has.count == 1 && must.count == 1 && has.sum != must.sum) {
    return fmt::format("rank {} ends with other contents in block {} than are due", rank, block);
  }
  if (has.sum != must.sum || has.count != must.count) {
    return fmt::format("rank {} ends with {} summands in block {} where {} different ones are due", rank, has.count,
                       block, must.count);
  }
  if (has.finishes != (is_sum ? 1u : 0u)) {
    return fmt::format("rank {} ends with block {} finished {} times", rank, block, has.finishes);
  }
  return {};
}

}  // namespace

ScheduleVerdict verify(const Schedule& s) {
  std::vector<Fingerprint> values = contributions(s);
  const std::vector<Fingerprint> due = due_at_the_end(s, values);
  FingerprintAlgebra algebra;
  Player<FingerprintAlgebra> player(s, algebra, values);
  ScheduleVerdict v{.fault = player.play(), .same_bits = true, .cost = player.cost()};
  if (v.ok()) v.fault = algebra.fault;
  const bool is_sum = reduces(s.collective_kind());
  for (std::size_t i = 0; i < values.size() && v.ok(); ++i) {
    const auto rank = static_cast<std::uint32_t>(i / s.blocks()), block = static_cast<std::uint32_t>(i % s.blocks());
    if (!must_hold(s.collective_kind(), rank, block)) continue;
    v.fault = wrong(rank, block, values[i], due[i], is_sum);
    if (s.collective_kind() == CollectiveKind::all_reduce && values[i].tree != values[block].tree) v.same_bits = false;
  }
  return v;
}

namespace {

using u32 = std::uint32_t;

struct SentMessage {
  const SendStep* step;
  u32 sender, round;
  std::vector<Fingerprint> at_posting;
  bool was_read = false, taken = false;  ///< left: it was read; taken: a receive has been matched with it
};

bool reads_input(const Plan& p) {
  auto from_in = [](const auto& step) { return step.from == Place::in; };
  return std::ranges::any_of(p.sends, from_in) || std::ranges::any_of(p.encodes, from_in) ||
         std::ranges::any_of(p.finishes, from_in) || std::ranges::any_of(p.first_copies, from_in) ||
         std::ranges::any_of(p.copies, from_in) ||
         std::ranges::any_of(p.reductions, [](const ReduceStep& x) { return x.own_place == Place::in; });
}

/// One rank's state in its plan.
struct Runner {
  const Plan* plan;
  std::array<std::vector<Fingerprint>, 4> memory;
  std::size_t round = 0;
  bool sent = false, posted = false;
  std::vector<SentMessage*> incoming;   ///< by receive of this round, once matched
  std::vector<char> received, reduced;  ///< by receive, and by reduction, of this round: whether it is done
  std::vector<std::unique_ptr<SentMessage>> sends;

  bool done() const { return round == plan->rounds.size(); }
  const PlanRound& current_round() const { return plan->rounds[round]; }
  std::vector<Fingerprint>& at(Place p) { return memory[static_cast<std::size_t>(p)]; }
  bool first_sends_done(u32 count) const {
    for (u32 i = 0; i < count; ++i) {
      if (i >= sends.size() || !sends[i]->was_read) return false;
    }
    return true;
  }
};

/// All other ranks run ahead of rank `last`, which acts only when no other can. Messages are read only when nothing
/// else can be done, so as late as possible.
class Simulation {
 public:
  Simulation(const Schedule& s, std::span<const Plan> plans, MessageDelivery delivery, u32 last)
      : schedule_(s),
        delivery_(delivery),
        last_(last),
        coded_(std::ranges::any_of(plans, [](const Plan& p) { return p.form == MessageForm::coded; })),
        runners_(plans.size()) {
    const auto inputs = contributions(s);
    for (u32 r = 0; r < plans.size(); ++r) {
      runners_[r].plan = &plans[r];
      for (auto& m : runners_[r].memory) m.resize(s.blocks());
      // Out of place, `out` holds nothing yet; in place, there is no `in`.
      auto& start = runners_[r].at(reads_input(plans[r]) ? Place::in : Place::out);
      std::copy_n(inputs.begin() + std::ptrdiff_t{r} * s.blocks(), s.blocks(), start.begin());
      copy(runners_[r], plans[r].first_copies);
    }
  }

  std::string run(const std::vector<Fingerprint>& expected) {
    while (fault_.empty() && step_any()) {
    }
    for (u32 r = 0; r < runners_.size() && fault_.empty(); ++r) {
      if (!runners_[r].done()) {
        fault_ = fmt::format("deadlock: rank {} stays in round {}", r, runners_[r].current_round().number);
      } else {
        check_end(r, expected);
      }
    }
    return fault_;
  }

 private:
  bool step_any() {
    for (const bool reading : {false, true}) {
      for (u32 i = 1; i <= runners_.size(); ++i) {
        const auto r = static_cast<u32>((last_ + i) % runners_.size());
        if (!runners_[r].done() && (reading ? read_one(r) : act_without_reading(r))) return true;
      }
    }
    return false;
  }

  /// Does one thing that is not reading a message.
  bool act_without_reading(u32 r) {
    Runner& me = runners_[r];
    if (!me.sent) return post_sends(r);
    if (!me.posted) return post_receives(r);
    if (std::ranges::count(me.received, 0) > 0 || std::ranges::count(me.reduced, 0) > 0) return false;
    const std::span finishes = me.current_round().finishes.of(me.plan->finishes);
    if (!std::ranges::all_of(finishes, [&](const LocalStep& x) { return me.first_sends_done(x.sends_before_write); }))
      return false;
    for (const LocalStep& x : finishes) finish(r, x);
    ++me.round;
    me.sent = me.posted = false;
    return true;
  }

  bool post_sends(u32 r) {
    Runner& me = runners_[r];
    const PlanRound& round = me.current_round();
    const std::span encodes = round.encodes.of(me.plan->encodes);
    if (!std::ranges::all_of(encodes, [&](const LocalStep& x) { return me.first_sends_done(x.sends_before_write); }))
      return false;
    for (const LocalStep& x : encodes) {
      for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
        me.at(Place::wire)[b] = algebra_.encode(me.at(x.from)[b], r);
      }
    }
    for (const SendStep& x : round.sends.of(me.plan->sends)) {
      auto m = std::make_unique<SentMessage>(SentMessage{&x, r, round.number, {}});
      for (u32 b = 0; b < x.blocks.count; ++b) m->at_posting.push_back(me.at(x.from)[x.blocks.first + b]);
      me.sends.push_back(std::move(m));
    }
    me.sent = true;
    me.incoming.assign(round.receives.count, nullptr);
    me.received.assign(round.receives.count, 0);
    me.reduced.assign(round.reductions.count, 0);
    return true;
  }

  bool post_receives(u32 r) {
    Runner& me = runners_[r];
    const std::span receives = me.current_round().receives.of(me.plan->receives);
    if (delivery_ == MessageDelivery::landing) {
      for (const ReceiveStep& x : receives) {
        if (x.direct && !me.first_sends_done(x.sends_before_write)) return false;
      }
      for (const ReceiveStep& x : receives) {
        if (x.direct) may_arrive_now(r, x);
      }
    }
    // A receive that is an operand is read with its reduction, so it counts as done here.
    for (std::size_t i = 0; i < receives.size(); ++i) me.received[i] = receives[i].direct ? 0 : 1;
    me.posted = true;
    return true;
  }

  void may_arrive_now(u32 r, const ReceiveStep& x) {
    for (auto& m : runners_[r].sends) {
      if (!m->was_read && m->step->from == x.to && m->step->blocks.overlaps(x.blocks)) {
        race(r, m->step->peer, x.blocks.first);
      }
    }
    for (u32 b = 0; b < x.blocks.count; ++b) runners_[r].at(x.to)[x.blocks.first + b] = {};
  }

  bool read_one(u32 r) {
    Runner& me = runners_[r];
    if (!me.sent || !me.posted) return false;
    const PlanRound& round = me.current_round();
    for (u32 i = 0; i < round.receives.count; ++i) {
      if (!me.received[i] && read_direct(r, i)) return true;
    }
    for (u32 i = 0; i < round.reductions.count; ++i) {
      if (!me.reduced[i] && read_operands(r, i)) return true;
    }
    return false;
  }

  bool read_direct(u32 r, u32 i) {
    Runner& me = runners_[r];
    const ReceiveStep& x = me.plan->receives[me.current_round().receives.first + i];
    SentMessage* m = match(r, i);
    if (!m || !me.first_sends_done(x.sends_before_write)) return false;
    const auto values = read(r, *m);
    for (u32 b = 0; b < x.blocks.count; ++b) {
      me.at(x.to)[x.blocks.first + b] = values[b];
      if (x.to == Place::wire) me.at(Place::out)[x.blocks.first + b] = values[b];
    }
    me.received[i] = 1;
    return true;
  }

  bool read_operands(u32 r, u32 i) {
    Runner& me = runners_[r];
    const ReduceStep& x = me.plan->reductions[me.current_round().reductions.first + i];
    if (!me.first_sends_done(x.sends_before_write)) return false;
    const std::span<const u32> operands{me.plan->operands.data() + x.first_operand, x.operands};
    for (u32 o : operands) {
      if (o != own_operand && !match(r, o)) return false;
    }
    std::vector<std::vector<Fingerprint>> values;
    std::vector<u32> ranks;
    for (u32 o : operands) {
      if (o == own_operand) {
        const auto& own = me.at(x.own_place);
        values.emplace_back(own.begin() + x.blocks.first, own.begin() + x.blocks.first + x.blocks.count);
        ranks.push_back(r);
      } else {
        ranks.push_back(me.plan->receives[me.current_round().receives.first + o].peer);
        values.push_back(read(r, *match(r, o)));
      }
    }
    for (u32 b = 0; b < x.blocks.count; ++b) {
      std::vector<Operand<Fingerprint>> column;
      for (std::size_t o = 0; o < values.size(); ++o) column.push_back({ranks[o], &values[o][b]});
      me.at(x.to)[x.blocks.first + b] = algebra_.reduce(column);
    }
    me.reduced[i] = 1;
    return true;
  }

  /// The message that receive i of this round gets: the first of its peer in this round that no receive has taken;
  /// null: it has not been sent.
  SentMessage* match(u32 r, u32 i) {
    Runner& me = runners_[r];
    if (me.incoming[i]) return me.incoming[i];
    for (u32 before = 0; before < i; ++before) {  // earlier receives from the same peer match first
      if (me.plan->receives[me.current_round().receives.first + before].peer == peer_of(me, i) && !match(r, before))
        return nullptr;
    }
    for (auto& m : runners_[peer_of(me, i)].sends) {
      if (m->step->peer == r && m->round == me.current_round().number && !m->taken) {
        m->taken = true;
        return me.incoming[i] = m.get();
      }
    }
    return nullptr;
  }
  static u32 peer_of(const Runner& me, u32 i) { return me.plan->receives[me.current_round().receives.first + i].peer; }

  std::vector<Fingerprint> read(u32 reader, SentMessage& m) {
    const auto& memory = runners_[m.sender].at(m.step->from);
    for (u32 b = 0; b < m.step->blocks.count; ++b) {
      if (!(memory[m.step->blocks.first + b] == m.at_posting[b])) race(m.sender, reader, m.step->blocks.first + b);
    }
    m.was_read = true;
    return m.at_posting;
  }
  void race(u32 sender, u32 reader, u32 block) {
    fault_ = fmt::format("race: rank {} overwrites block {} before rank {} has read it", sender, block, reader);
  }

  void finish(u32 r, const LocalStep& x) {
    Runner& me = runners_[r];
    for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
      auto& value = me.at(Place::out)[b] = algebra_.finish(me.at(x.from)[b]);
      if (x.encodes) me.at(Place::wire)[b] = value = algebra_.encode(value, r);
    }
  }

  static void copy(Runner& me, const std::vector<LocalStep>& steps) {
    for (const LocalStep& c : steps) {
      for (u32 b = c.blocks.first; b < c.blocks.first + c.blocks.count; ++b) me.at(Place::out)[b] = me.at(c.from)[b];
    }
  }

  void check_end(u32 r, const std::vector<Fingerprint>& expected) {
    Runner& me = runners_[r];
    copy(me, me.plan->copies);
    for (u32 b = 0; b < schedule_.blocks(); ++b) {
      if (!must_hold(schedule_.collective_kind(), r, b)) continue;
      const Fingerprint& has = me.at(Place::out)[b];
      Fingerprint due = expected[std::size_t{r} * schedule_.blocks() + b];
      // The tree of a coded value includes encodings, which `expected` lacks; it must be the same on all ranks.
      if (coded_) due.tree = runners_[0].at(Place::out)[b].tree;
      if (!(has == due)) fault_ = fmt::format("rank {} ends with a wrong value in block {}", r, b);
    }
    if (fault_.empty()) fault_ = algebra_.fault;
  }

  const Schedule& schedule_;
  MessageDelivery delivery_;
  u32 last_;
  bool coded_;
  std::vector<Runner> runners_;
  FingerprintAlgebra algebra_;
  std::string fault_;
};

}  // namespace

std::string verify_plans(const Schedule& s, std::span<const Plan> plans, MessageDelivery delivery) {
  auto expected = contributions(s);
  FingerprintAlgebra algebra;
  if (auto fault = Player<FingerprintAlgebra>(s, algebra, expected).play(); !fault.empty()) return fault;
  for (u32 last = 0; last < s.ranks(); ++last) {
    if (auto fault = Simulation(s, plans, delivery, last).run(expected); !fault.empty()) return fault;
  }
  return {};
}

}  // namespace gradmeter::allreduce
