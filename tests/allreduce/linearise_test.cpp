// SPDX-License-Identifier: Apache-2.0
// The static order, followed by ranks that cannot poll: each completes a turn's messages before it takes the next, and
// messages between two ranks match by their order alone.
#include "allreduce/schedule/slices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/interpret.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/verify.hpp"
#include "core/format.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

using Values = std::vector<float>;

float value_at(std::uint32_t rank, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(rank));
}

/// Runs the plans of all ranks by given orders.
class Exchange {
 public:
  Exchange(std::span<const SchedulePtr> schedules, const Slices& slices, std::size_t n, Placement placement)
      : ranks_(schedules.front()->ranks()), slices_(slices), all_(ranks_) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      for (const auto& s : schedules) all_[r].plans.push_back(compile(*s, r, placement));
      Values given(n);
      for (std::size_t i = 0; i < n; ++i) given[i] = value_at(r, i);
      all_[r].places[Place::out] = placement == Placement::in_place ? given : Values(n, -1);
      all_[r].places[Place::in] = std::move(given);
      all_[r].places[Place::alternate].resize(n + 64 * std::size_t{schedules.front()->blocks()});
    }
  }

  /// Why it does not end; empty: it does, and `result` has every rank's numbers.
  std::string run(const std::vector<std::vector<Turn>>& orders) {
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      for (std::size_t i = 0; i < slices_.count(); ++i) copy(r, i, plan(r, i).first_copies);
    }
    for (bool moved = true; moved && fault_.empty();) {
      moved = false;
      for (std::uint32_t r = 0; r < ranks_; ++r) moved |= take_turn(r, orders[r]);
    }
    for (std::uint32_t r = 0; r < ranks_ && fault_.empty(); ++r) {
      if (all_[r].next < orders[r].size()) fault_ = fmt::format("deadlock: rank {} in turn {}", r, all_[r].next);
      for (std::size_t i = 0; i < slices_.count(); ++i) copy(r, i, plan(r, i).copies);
    }
    return fault_;
  }
  const Values& result(std::uint32_t r) { return all_[r].places[Place::out]; }

 private:
  struct Message {
    Values values;
    std::uint32_t* awaited;  ///< of the sender: its messages in this turn that nobody has taken
  };
  struct Rank {
    std::vector<Plan> plans;
    std::map<Place, Values> places;
    std::size_t next = 0;
    bool posted = false;
    std::uint32_t awaited = 0;
    std::vector<std::optional<Values>> received;
  };

  const Plan& plan(std::uint32_t r, std::size_t slice) const { return all_[r].plans[slice % all_[r].plans.size()]; }

  bool take_turn(std::uint32_t r, const std::vector<Turn>& order) {
    Rank& me = all_[r];
    if (me.next == order.size()) return false;
    const Turn t = order[me.next];
    const Plan& p = plan(r, t.slice);
    const auto round = std::ranges::find(p.rounds, t.round, &PlanRound::number);
    if (round == p.rounds.end()) return ++me.next, true;
    bool moved = !me.posted;
    if (!me.posted) post(r, p, *round, slices_[t.slice]);
    moved |= take(r, p, *round, slices_[t.slice]);
    if (me.awaited > 0 || std::ranges::any_of(me.received, [](const auto& x) { return !x; })) return moved;
    end(r, p, *round, slices_[t.slice]);
    me.posted = false;
    ++me.next;
    return true;
  }

  void post(std::uint32_t r, const Plan& p, const PlanRound& round, const Slice& slice) {
    Rank& me = all_[r];
    for (const SendStep& x : std::span(p.sends).subspan(round.sends.first, round.sends.count)) {
      const auto from = at(r, x.from, slice.extent(x.blocks));
      channels_[{r, x.peer}].push_back({{from.begin(), from.end()}, &me.awaited});
      ++me.awaited;
    }
    me.received.assign(round.receives.count, std::nullopt);
    me.posted = true;
  }

  bool take(std::uint32_t r, const Plan& p, const PlanRound& round, const Slice& slice) {
    bool moved = false;
    for (std::uint32_t i = 0; i < round.receives.count; ++i) {
      const ReceiveStep& x = p.receives[round.receives.first + i];
      auto& channel = channels_[{x.peer, r}];
      if (all_[r].received[i] || channel.empty()) continue;
      Message m = std::move(channel.front());
      channel.pop_front();
      --*m.awaited;
      if (m.values.size() != slice.extent(x.blocks).elements) fault_ = "a message of another length than awaited";
      all_[r].received[i] = std::move(m.values);
      moved = true;
    }
    return moved;
  }

  void end(std::uint32_t r, const Plan& p, const PlanRound& round, const Slice& slice) {
    Rank& me = all_[r];
    for (std::uint32_t i = 0; i < round.receives.count; ++i) {
      const ReceiveStep& x = p.receives[round.receives.first + i];
      if (x.direct) std::ranges::copy(*me.received[i], at(r, x.to, slice.extent(x.blocks)).begin());
    }
    for (const ReduceStep& x : std::span(p.reductions).subspan(round.reductions.first, round.reductions.count)) {
      const Extent e = slice.extent(x.blocks);
      if (e.elements == 0) continue;
      std::vector<const std::byte*> sources;
      for (std::uint32_t i = 0; i < x.operands; ++i) {
        const std::uint32_t o = p.operands[x.first_operand + i];
        const float* from = o == own_operand ? at(r, x.own_place, e).data() : me.received[o]->data();
        sources.push_back(reinterpret_cast<const std::byte*>(from));
      }
      reduce(core::Element::f32, core::Element::f32, Op::sum, bytes(at(r, x.to, e)), sources, e.elements);
    }
    for (const LocalStep& x : std::span(p.finishes).subspan(round.finishes.first, round.finishes.count)) {
      const Extent e = slice.extent(x.blocks);
      finish(core::Element::f32, Op::sum, bytes(at(r, Place::out, e)), bytes(at(r, x.from, e)), e.elements,
             static_cast<int>(ranks_));
    }
  }

  static std::byte* bytes(std::span<float> x) { return reinterpret_cast<std::byte*>(x.data()); }
  std::span<float> at(std::uint32_t r, Place p, const Extent& e) {
    return std::span(all_[r].places[p]).subspan(e.offset, e.elements);
  }
  void copy(std::uint32_t r, std::size_t slice, const std::vector<LocalStep>& steps) {
    for (const LocalStep& x : steps) {
      const Extent e = slices_[slice].extent(x.blocks);
      std::ranges::copy(at(r, x.from, e), at(r, Place::out, e).begin());
    }
  }

  std::uint32_t ranks_;
  const Slices& slices_;
  std::vector<Rank> all_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Message>> channels_;
  std::string fault_;
};

bool spans_blocks(const Schedule& s) {
  Steps steps;
  for (std::uint32_t k = 0; k < s.rounds(); ++k) s.steps(k, 0, steps);
  return std::ranges::any_of(steps, [](const Step& x) { return x.blocks.count > 1; });
}

/// Of a collective in slices of short messages, where its kind allows several.
struct Sliced {
  std::vector<SchedulePtr> schedules;
  std::size_t n;
  Slices slices;

  Sliced(std::vector<SchedulePtr> all, std::size_t elements)
      : schedules(std::move(all)),
        n(elements / schedules.front()->blocks() * schedules.front()->blocks()),
        slices(slice_cut_for(schedules.front()->collective_kind()), n, 4, schedules.front()->blocks(), 128,
               slice_cut_for(schedules.front()->collective_kind()) == SliceCut::share_of_each_block &&
                   spans_blocks(*schedules.front())) {}
  std::uint32_t ranks() const { return schedules.front()->ranks(); }
};

/// The numbers in one slice after the other; the sums do not depend on it.
std::vector<Values> interpreted(const Sliced& c) {
  std::vector<Values> values(c.ranks(), Values(c.n));
  for (std::uint32_t r = 0; r < c.ranks(); ++r) {
    for (std::size_t i = 0; i < c.n; ++i) values[r][i] = value_at(r, i);
  }
  std::vector<std::span<float>> buffers(values.begin(), values.end());
  const Schedule& s = *c.schedules.front();
  if (slice_cut_for(s.collective_kind()) == SliceCut::run) {
    interpret(c.schedules, c.slices, buffers, Op::sum);
  } else {
    interpret(c.schedules, Slices(SliceCut::share_of_each_block, c.n, sizeof(float), s.blocks(), c.n, true), buffers,
              Op::sum);
  }
  return values;
}

void expect_bits(const Sliced& c, std::size_t depth, Placement placement, const std::string& where) {
  Exchange exchange(c.schedules, c.slices, c.n, placement);
  const auto order = linearise(c.schedules, c.slices.count(), depth);
  ASSERT_EQ(exchange.run(std::vector(c.ranks(), order)), "") << where;
  const auto expected = interpreted(c);
  const Schedule& s = *c.schedules.front();
  for (std::uint32_t r = 0; r < c.ranks(); ++r) {
    for (std::uint32_t b = 0; b < s.blocks(); ++b) {
      if (!must_hold(s.collective_kind(), r, b)) continue;
      const std::size_t from = block_begin(c.n, s.blocks(), b), to = block_begin(c.n, s.blocks(), b + 1);
      ASSERT_TRUE(std::equal(expected[r].begin() + std::ptrdiff_t(from), expected[r].begin() + std::ptrdiff_t(to),
                             exchange.result(r).begin() + std::ptrdiff_t(from)))
          << where << " rank " << r << " block " << b;
    }
  }
}

TEST(LineariseContract, RanksThatFollowTheOrderEndWithTheBitsOfTheSchedule) {
  for (const auto& algorithm : test::scheduled_algorithms()) {
    const auto choice = find_algorithm(algorithm);
    for (const CollectiveKind kind : test::all_goals) {
      for (std::uint32_t p : {1u, 2u, 3u, 4u, 5u, 8u, 12u}) {
        for (const RankShape shape : test::shapes_of(*choice, p)) {
          if (!choice->refusal(shape, kind).empty()) continue;
          const Sliced c(choice->make(shape, kind, p - 1), 1000);
          for (const std::size_t depth : {std::size_t{1}, std::size_t{3}, lanes_for(c.schedules)}) {
            const auto where =
                fmt::format("{} {} p {} per node {} depth {}", algorithm, name(kind), p, shape.ranks_per_node, depth);
            for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
              expect_bits(c, depth, placement, where);
            }
          }
        }
      }
    }
  }
}

TEST(Linearise, EachRoundComesOnceAfterTheOneBeforeAndNoMoreSlicesAreUnderWayThanItsDepth) {
  for (const char* algorithm : {"ring", "double-tree", "direct"}) {
    const auto schedules = find_algorithm(algorithm)->make({5, 1});
    for (const std::size_t slices : {1u, 2u, 7u, 20u}) {
      for (const std::size_t depth : {1u, 3u, 8u}) {
        std::vector<std::uint32_t> done(slices, 0);
        for (const Turn& t : linearise(schedules, slices, depth)) {
          EXPECT_EQ(t.round, done[t.slice]++);
          std::size_t under_way = 0;
          for (std::size_t i = 0; i < slices; ++i) {
            under_way += done[i] > 0 && (done[i] < schedules[i % schedules.size()]->rounds() || i == t.slice);
          }
          EXPECT_LE(under_way, depth);
        }
        for (std::size_t i = 0; i < slices; ++i) EXPECT_EQ(done[i], schedules[i % schedules.size()]->rounds());
      }
    }
  }
}

TEST(Linearise, RanksWithOrdersOfTheirOwnDoNotEnd) {
  const Sliced c(find_algorithm("ring")->make({4, 1}), 1003);
  std::vector orders(4, linearise(c.schedules, c.slices.count(), 4));
  orders[2] = linearise(c.schedules, c.slices.count(), 1);
  Exchange exchange(c.schedules, c.slices, c.n, Placement::in_place);
  EXPECT_NE(exchange.run(orders), "");
}

}  // namespace
}  // namespace gradmeter::allreduce
