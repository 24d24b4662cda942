#include "allreduce/schedule/verify_plan.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "allreduce/schedule/fingerprint.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

struct SentMessage {
  const SendStep* step;
  u32 round;
  std::vector<Fingerprint> at_posting;
  bool left = false, taken = false;
};

bool reads_in(const Plan& p) {
  auto from_in = [](const auto& step) { return step.from == Place::in; };
  return std::ranges::any_of(p.sends, from_in) || std::ranges::any_of(p.encodes, from_in) ||
         std::ranges::any_of(p.finishes, from_in) || std::ranges::any_of(p.first_copies, from_in) ||
         std::ranges::any_of(p.copies, from_in) ||
         std::ranges::any_of(p.reductions, [](const ReduceStep& x) { return x.own == Place::in; });
}

/// One rank's state in its plan.
struct Runner {
  const Plan* plan;
  std::array<std::vector<Fingerprint>, 4> memory;
  std::size_t round = 0;
  bool sent = false, posted = false;
  std::vector<SentMessage*> incoming;   ///< by receive of this round, once matched
  std::vector<char> received, reduced;  ///< of this round
  std::vector<std::unique_ptr<SentMessage>> sends;

  bool done() const { return round == plan->rounds.size(); }
  const PlanRound& now() const { return plan->rounds[round]; }
  std::vector<Fingerprint>& at(Place p) { return memory[static_cast<std::size_t>(p)]; }
  bool fenced(u32 fence) const {
    for (u32 i = 0; i < fence; ++i) {
      if (i >= sends.size() || !sends[i]->left) return false;
    }
    return true;
  }
};

/// All ranks run ahead of `last`, which acts only when no other can. Messages are read only when nothing else can be
/// done, so as late as possible.
class Simulation {
 public:
  Simulation(const Schedule& s, std::span<const Plan> plans, Reading reading, u32 last)
      : s_(s),
        reading_(reading),
        last_(last),
        coded_(std::ranges::any_of(plans, [](const Plan& p) { return p.form == Form::coded; })),
        runners_(plans.size()) {
    const auto given = contributions(s);
    for (u32 r = 0; r < plans.size(); ++r) {
      runners_[r].plan = &plans[r];
      for (auto& m : runners_[r].memory) m.resize(s.blocks());
      // Out of place, `out` holds nothing yet; in place, there is no `in`.
      auto& start = runners_[r].at(reads_in(plans[r]) ? Place::in : Place::out);
      std::copy_n(given.begin() + std::ptrdiff_t{r} * s.blocks(), s.blocks(), start.begin());
      copy(runners_[r], plans[r].first_copies);
    }
  }

  std::string run(const std::vector<Fingerprint>& expected) {
    while (fault_.empty() && step_any()) {
    }
    for (u32 r = 0; r < runners_.size() && fault_.empty(); ++r) {
      if (!runners_[r].done()) {
        fault_ = fmt::format("deadlock: rank {} stays in round {}", r, runners_[r].now().number);
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
        if (!runners_[r].done() && (reading ? read_one(r) : write_one(r))) return true;
      }
    }
    return false;
  }

  /// Anything but reading a message.
  bool write_one(u32 r) {
    Runner& me = runners_[r];
    if (!me.sent) return post_sends(r);
    if (!me.posted) return post_receives(r);
    for (char x : me.received) {
      if (!x) return false;
    }
    for (char x : me.reduced) {
      if (!x) return false;
    }
    for (u32 i = 0; i < me.now().finishes.count; ++i) {
      if (!me.fenced(me.plan->finishes[me.now().finishes.first + i].fence)) return false;
    }
    for (u32 i = 0; i < me.now().finishes.count; ++i) finish(r, me.plan->finishes[me.now().finishes.first + i]);
    ++me.round;
    me.sent = me.posted = false;
    return true;
  }

  bool post_sends(u32 r) {
    Runner& me = runners_[r];
    const PlanRound& round = me.now();
    const std::span<const EncodeStep> encodes{me.plan->encodes.data() + round.encodes.first, round.encodes.count};
    if (!std::ranges::all_of(encodes, [&](const EncodeStep& x) { return me.fenced(x.fence); })) return false;
    for (const EncodeStep& x : encodes) {
      for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
        me.at(Place::wire)[b] = algebra_.encode(me.at(x.from)[b], r);
      }
    }
    for (u32 i = 0; i < round.sends.count; ++i) {
      const SendStep& x = me.plan->sends[round.sends.first + i];
      auto m = std::make_unique<SentMessage>(SentMessage{&x, round.number, {}});
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
    const PlanRound& round = me.now();
    if (reading_ == Reading::landing) {
      for (u32 i = 0; i < round.receives.count; ++i) {
        const ReceiveStep& x = me.plan->receives[round.receives.first + i];
        if (x.direct && !me.fenced(x.fence)) return false;
      }
      for (u32 i = 0; i < round.receives.count; ++i) {
        const ReceiveStep& x = me.plan->receives[round.receives.first + i];
        if (x.direct) may_arrive_now(r, x);
      }
    }
    // A receive that is an operand is done with its reduction.
    for (u32 i = 0; i < round.receives.count; ++i) {
      me.received[i] = me.plan->receives[round.receives.first + i].direct ? 0 : 1;
    }
    me.posted = true;
    return true;
  }

  void may_arrive_now(u32 r, const ReceiveStep& x) {
    for (auto& m : runners_[r].sends) {
      if (!m->left && m->step->from == x.to && m->step->blocks.overlaps(x.blocks)) {
        race(r, m->step->peer, x.blocks.first);
      }
    }
    for (u32 b = 0; b < x.blocks.count; ++b) runners_[r].at(x.to)[x.blocks.first + b] = {};
  }

  bool read_one(u32 r) {
    Runner& me = runners_[r];
    if (!me.sent || !me.posted) return false;
    const PlanRound& round = me.now();
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
    const ReceiveStep& x = me.plan->receives[me.now().receives.first + i];
    SentMessage* m = match(r, i);
    if (!m || !me.fenced(x.fence)) return false;
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
    const ReduceStep& x = me.plan->reductions[me.now().reductions.first + i];
    if (!me.fenced(x.fence)) return false;
    const std::span<const u32> operands{me.plan->operands.data() + x.first_operand, x.operands};
    for (u32 o : operands) {
      if (o != own_operand && !match(r, o)) return false;
    }
    std::vector<std::vector<Fingerprint>> values;
    std::vector<u32> ranks;
    for (u32 o : operands) {
      if (o == own_operand) {
        const auto& own = me.at(x.own);
        values.emplace_back(own.begin() + x.blocks.first, own.begin() + x.blocks.first + x.blocks.count);
        ranks.push_back(r);
      } else {
        ranks.push_back(me.plan->receives[me.now().receives.first + o].peer);
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

  /// The message that receive i of this round gets: the first of that peer and round that nobody has.
  SentMessage* match(u32 r, u32 i) {
    Runner& me = runners_[r];
    if (me.incoming[i]) return me.incoming[i];
    for (u32 before = 0; before < i; ++before) {  // earlier receives from the same peer match first
      if (me.plan->receives[me.now().receives.first + before].peer == peer_of(me, i) && !match(r, before))
        return nullptr;
    }
    for (auto& m : runners_[peer_of(me, i)].sends) {
      if (m->step->peer == r && m->round == me.now().number && !m->taken) {
        m->taken = true;
        return me.incoming[i] = m.get();
      }
    }
    return nullptr;
  }
  static u32 peer_of(const Runner& me, u32 i) { return me.plan->receives[me.now().receives.first + i].peer; }

  std::vector<Fingerprint> read(u32 reader, SentMessage& m) {
    const u32 sender = sender_of(m);
    const auto& memory = runners_[sender].at(m.step->from);
    for (u32 b = 0; b < m.step->blocks.count; ++b) {
      if (!(memory[m.step->blocks.first + b] == m.at_posting[b])) race(sender, reader, m.step->blocks.first + b);
    }
    m.left = true;
    return m.at_posting;
  }
  u32 sender_of(const SentMessage& m) const {
    for (u32 r = 0; r < runners_.size(); ++r) {
      const auto& sends = runners_[r].plan->sends;
      if (m.step >= sends.data() && m.step < sends.data() + sends.size()) return r;
    }
    return 0;
  }

  void race(u32 sender, u32 reader, u32 block) {
    fault_ = fmt::format("race: rank {} overwrites block {} before rank {} has read it", sender, block, reader);
  }

  void finish(u32 r, const FinishStep& x) {
    Runner& me = runners_[r];
    for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
      auto& value = me.at(Place::out)[b] = algebra_.finish(me.at(x.from)[b]);
      if (x.encodes) me.at(Place::wire)[b] = value = algebra_.encode(value, r);
    }
  }

  static void copy(Runner& me, const std::vector<CopyStep>& steps) {
    for (const CopyStep& c : steps) {
      for (u32 b = c.blocks.first; b < c.blocks.first + c.blocks.count; ++b) me.at(Place::out)[b] = me.at(c.from)[b];
    }
  }

  void check_end(u32 r, const std::vector<Fingerprint>& expected) {
    Runner& me = runners_[r];
    copy(me, me.plan->copies);
    for (u32 b = 0; b < s_.blocks(); ++b) {
      if (!must_hold(s_.collective_kind(), r, b)) continue;
      const Fingerprint& has = me.at(Place::out)[b];
      Fingerprint due = expected[std::size_t{r} * s_.blocks() + b];
      if (coded_) due.tree = runners_[0].at(Place::out)[b].tree;  // encodings are in it: but all ranks' are the same
      if (!(has == due)) fault_ = fmt::format("rank {} ends with a wrong value in block {}", r, b);
    }
    if (fault_.empty()) fault_ = algebra_.fault;
  }

  const Schedule& s_;
  Reading reading_;
  u32 last_;
  bool coded_;
  std::vector<Runner> runners_;
  FingerprintAlgebra algebra_;
  std::string fault_;
};

}  // namespace

std::string verify_plans(const Schedule& s, std::span<const Plan> plans, Reading reading) {
  auto expected = contributions(s);
  FingerprintAlgebra algebra;
  const Played played = Player<FingerprintAlgebra>(s, algebra, expected).play();
  if (!played.fault.empty()) return played.fault;
  for (u32 last = 0; last < s.ranks(); ++last) {
    if (auto fault = Simulation(s, plans, reading, last).run(expected); !fault.empty()) return fault;
  }
  return {};
}

}  // namespace gradmeter::allreduce
