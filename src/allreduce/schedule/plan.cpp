// SPDX-License-Identifier: Apache-2.0
#include "allreduce/schedule/plan.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "allreduce/schedule/verify.hpp"

namespace gradmeter::allreduce {
namespace {

using u32 = std::uint32_t;

class Compiler {
 public:
  Compiler(const Schedule& s, u32 rank, Placement placement, MessageForm form, Place first_sum_place)
      : schedule_(s), rank_(rank), form_(form), first_sum_place_(first_sum_place) {
    if (coded()) {
      if (const auto why = coded_refusal(s); !why.empty()) throw std::logic_error(why);
      on_wire_.assign(s.blocks(), false);
    }
    plan_.form = form;
    plan_.blocks = s.blocks();
    place_.assign(s.blocks(), placement == Placement::in_place ? Place::out : Place::in);
    for (auto& l : last_send_) l.assign(s.blocks(), 0);
    read_in_round_.assign(s.blocks(), 0);
    // A run of blocks in a message must lie in one place.
    if (placement == Placement::out_of_place && s.collective_kind() == CollectiveKind::all_gather &&
        sends_several_blocks(s, rank)) {
      plan_.first_copies.push_back({{rank, 1}, Place::in});
      place_[rank] = Place::out;
    }
  }

  Plan compile() {
    for (u32 k = 0; k < schedule_.rounds(); ++k) compile_round(k);
    for (u32 b = 0; b < plan_.blocks; ++b) {
      if (place_[b] != Place::out && must_hold(schedule_.collective_kind(), rank_, b))
        plan_.copies.push_back({{b, 1}, place_[b]});
    }
    note_forwarded();
    return std::move(plan_);
  }

  /// True where any value is written to `alternate`. It compiles only as far as the first round in which one is.
  bool uses_alternate() {
    for (u32 k = 0; k < schedule_.rounds() && !plan_.uses_alternate; ++k) compile_round(k);
    return plan_.uses_alternate;
  }

 private:
  void compile_round(u32 k) {
    steps_.clear();
    schedule_.steps(k, rank_, steps_);
    if (steps_.empty()) return;
    PlanRound round{.number = k,
                    .encodes = {size(plan_.encodes), 0},
                    .sends = {size(plan_.sends), 0},
                    .receives = {size(plan_.receives), 0},
                    .reductions = {size(plan_.reductions), 0},
                    .finishes = {size(plan_.finishes), 0}};
    for (const Step& x : steps_) {
      if (x.kind != StepKind::send) continue;
      add_send(x);
      for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) read_in_round_[b] = k + 1;
    }
    round.sends.count = size(plan_.sends) - round.sends.first;
    round.encodes.count = size(plan_.encodes) - round.encodes.first;
    add_receives(k, round);
    for (const Step& x : steps_) {
      if (x.kind == StepKind::finish) add_finish(x);
    }
    round.finishes.count = size(plan_.finishes) - round.finishes.first;
    plan_.rounds.push_back(round);
  }

  void add_send(const Step& x) {
    if (coded()) encode(x.blocks);
    const Place from = coded() ? Place::wire : common_place(x.blocks);
    plan_.sends.push_back({x.peer, x.blocks, from});
    for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) last_sends_from(from)[b] = size(plan_.sends);
  }

  void encode(Blocks blocks) {
    for (u32 b = blocks.first; b < blocks.first + blocks.count; ++b) {
      if (on_wire_[b]) continue;
      plan_.encodes.push_back({{b, 1}, place_[b], sends_before_write(Place::wire, {b, 1})});
      on_wire_[b] = true;
    }
  }

  void add_receives(u32 k, PlanRound& round) {
    // All destinations depend on where values lie before the round, so the places are updated only afterwards.
    u32 landing_blocks = 0;
    for (const Step& x : steps_) {
      if (x.kind != StepKind::recv && x.kind != StepKind::recv_reduce) continue;
      const bool direct = x.kind == StepKind::recv;
      const Place to = destination(k, x);
      plan_.receives.push_back({x.peer, x.blocks, direct, to, direct ? sends_before_write(to, x.blocks) : 0});
      if (!direct) landing_blocks += x.blocks.count;
    }
    round.receives.count = size(plan_.receives) - round.receives.first;
    plan_.landing_blocks = std::max(plan_.landing_blocks, landing_blocks);
    group_reductions(round);
    for (const ReceiveStep& x : round.receives.of(plan_.receives)) {
      plan_.uses_alternate |= x.to == Place::alternate;
      for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
        place_[b] = x.to == Place::wire ? Place::out : x.to;
        if (coded()) on_wire_[b] = x.direct;
      }
    }
  }

  void group_reductions(PlanRound& round) {
    const auto receive = [receives = round.receives.of(plan_.receives)](u32 i) -> const ReceiveStep& {
      return receives[i];
    };
    std::vector<u32> order;
    for (u32 i = 0; i < round.receives.count; ++i) {
      if (!receive(i).direct) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) {
      return receive(a).blocks.first != receive(b).blocks.first ? receive(a).blocks.first < receive(b).blocks.first
                                                                : receive(a).peer < receive(b).peer;
    });
    for (std::size_t i = 0; i < order.size();) {
      const ReceiveStep first_receive = receive(order[i]);
      ReduceStep r{.blocks = first_receive.blocks,
                   .own_place = own_operand_place(first_receive.blocks),
                   .to = first_receive.to,
                   .sends_before_write = sends_before_write(first_receive.to, first_receive.blocks),
                   .first_operand = size(plan_.operands),
                   .operands = 0};
      bool own_added = false;
      for (; i < order.size() && receive(order[i]).blocks.overlaps(first_receive.blocks); ++i) {
        if (receive(order[i]).blocks != first_receive.blocks) throw std::logic_error("two reductions overlap in part");
        if (!own_added && rank_ < receive(order[i]).peer) plan_.operands.push_back(own_operand), own_added = true;
        plan_.operands.push_back(order[i]);
      }
      if (!own_added) plan_.operands.push_back(own_operand);
      r.operands = size(plan_.operands) - r.first_operand;
      plan_.reductions.push_back(r);
    }
    round.reductions.count = size(plan_.reductions) - round.reductions.first;
  }

  void add_finish(const Step& x) {
    const bool encodes = coded() && schedule_.rounds() > 1 && schedule_.ranks() > 1;
    plan_.finishes.push_back(
        {x.blocks, common_place(x.blocks), sends_before_write(coded() ? Place::wire : Place::out, x.blocks), encodes});
    for (u32 b = x.blocks.first; b < x.blocks.first + x.blocks.count; ++b) {
      place_[b] = Place::out;
      if (coded()) on_wire_[b] = encodes;
    }
  }

  /// Marks the receives whose blocks this rank sends on.
  void note_forwarded() {
    if (!coded()) return;
    for (const PlanRound& round : plan_.rounds) {
      for (u32 i = 0; i < round.receives.count; ++i) {
        ReceiveStep& x = plan_.receives[round.receives.first + i];
        const u32 sent_before = round.sends.first + round.sends.count;
        x.forwards = x.direct && sends_before_write(Place::wire, x.blocks) > sent_before;
      }
    }
  }

  /// The place of this rank's own operand in a sum. A coded plan takes the value itself, not its encoding. But in a
  /// single round, in which all ranks add up the same contributions, each takes its own as encoded.
  Place own_operand_place(Blocks blocks) const {
    return coded() && schedule_.rounds() == 1 ? Place::wire : common_place(blocks);
  }

  /// The place for the values of a receive: `out`, unless peers read the block in this round; then another place than
  /// the one that they read.
  Place destination(u32 k, const Step& x) const {
    if (coded()) return x.kind == StepKind::recv ? Place::wire : Place::out;
    const auto first = read_in_round_.begin() + x.blocks.first;
    if (std::find(first, first + x.blocks.count, k + 1) == first + x.blocks.count) return Place::out;
    const Place now = place_[x.blocks.first];
    if (now == Place::in) return first_sum_place_;
    return now == Place::out ? Place::alternate : Place::out;
  }

  Place common_place(Blocks blocks) const {
    for (u32 b = blocks.first; b < blocks.first + blocks.count; ++b) {
      if (place_[b] != place_[blocks.first]) throw std::logic_error("a message spans two places");
    }
    return place_[blocks.first];
  }
  u32 sends_before_write(Place to, Blocks blocks) {
    u32 count = 0;
    for (u32 b = blocks.first; b < blocks.first + blocks.count; ++b) count = std::max(count, last_sends_from(to)[b]);
    return count;
  }
  std::vector<u32>& last_sends_from(Place p) { return last_send_[static_cast<std::size_t>(p)]; }
  template <class V>
  static u32 size(const V& v) {
    return static_cast<u32>(v.size());
  }

  bool coded() const { return form_ == MessageForm::coded; }

  const Schedule& schedule_;
  u32 rank_;
  MessageForm form_;
  Place first_sum_place_;  ///< the place of a sum while peers read its block in `in`
  Plan plan_;
  Steps steps_;
  std::vector<Place> place_;
  std::vector<u32> read_in_round_;  ///< by block: the last round in which a peer reads it, from 1 on
  std::vector<bool> on_wire_;       ///< by block: `wire` holds the encoding of the present value
  /// The last of this rank's sends, counted from 1, that reads a block; for each place, by block.
  std::array<std::vector<u32>, 4> last_send_;
};

/// The number of blocks that the plan copies to `out` at the end or when they are finished.
std::size_t copied_blocks(const Plan& p) {
  std::size_t n = 0;
  for (const auto& c : p.copies) n += c.blocks.count;
  for (const auto& f : p.finishes) n += f.from != Place::out ? f.blocks.count : 0;
  return n;
}

}  // namespace

std::string coded_refusal(const Schedule& s) {
  if (s.collective_kind() != CollectiveKind::all_reduce)
    return fmt::format("{} has no codec", name(s.collective_kind()));
  if (s.rounds() <= 1 || !s.finishes_everywhere()) return {};
  return "several ranks finish the same sum, each from other encodings, and would end with different values";
}

bool uses_alternate(const Schedule& s, u32 rank, Placement placement) {
  if (placement == Placement::out_of_place) return compile(s, rank, placement).uses_alternate;
  return Compiler(s, rank, placement, MessageForm::plain, Place::out).uses_alternate();
}

Plan compile(const Schedule& s, u32 rank, Placement placement, MessageForm form) {
  Plan plan = Compiler(s, rank, placement, form, Place::out).compile();
  if (form == MessageForm::plain && placement == Placement::out_of_place && copied_blocks(plan) > 0) {
    Plan other = Compiler(s, rank, placement, form, Place::alternate).compile();
    if (copied_blocks(other) < copied_blocks(plan)) return other;
  }
  return plan;
}

}  // namespace gradmeter::allreduce
