// SPDX-License-Identifier: Apache-2.0
// Plays a schedule round by round over any type of value: fingerprints (verify.hpp) or numbers (below). The player
// defines what a schedule means, without transports, memory or overlap.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "allreduce/schedule/slices.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {

/// A value to be reduced, and the rank that it comes from.
template <class Value>
struct Operand {
  std::uint32_t rank;
  const Value* value;
};

/// The operations on the values that flow through a schedule. `reduce` gets two or more operands in ascending rank
/// order.
template <class A>
concept Algebra = requires(A a, const std::vector<Operand<typename A::Value>>& operands, typename A::Value v) {
  { a.reduce(operands) } -> std::same_as<typename A::Value>;
  { a.finish(v) } -> std::same_as<typename A::Value>;
};

/// The cost that is counted while a schedule is played.
struct CountedCost {
  std::uint32_t rounds = 0;
  std::uint64_t messages = 0;
  double sent_per_rank_max = 0;  ///< [buffers]
  std::uint32_t sends_per_round_max = 0;
  std::uint32_t blocks = 1;                ///< blocks of the schedule
  std::vector<std::uint64_t> blocks_sent;  ///< by rank
  double buffers_sent(std::size_t rank) const { return static_cast<double>(blocks_sent[rank]) / blocks; }
};

/// Plays a schedule on values [ranks × blocks], rank-major, which hold each rank's contribution before `play` and its
/// result after. Cost: O(steps), memory for one round's messages.
template <Algebra A>
class Player {
 public:
  using Value = typename A::Value;
  Player(const Schedule& s, A& algebra, std::vector<Value>& values)
      : schedule_(s), algebra_(algebra), values_(values), inbox_(s.ranks()), steps_(s.ranks()), chain_(s.ranks(), 0) {
    cost_.blocks = s.blocks();
    cost_.blocks_sent.assign(s.ranks(), 0);
  }

  /// Plays all rounds. Returns an empty text where messages match (every message has a receiver, and both sides name
  /// the same blocks); else what is wrong.
  std::string play() {
    for (std::uint32_t k = 0; k < schedule_.rounds() && fault_.empty(); ++k) play_round(k);
    cost_.rounds = *std::max_element(chain_.begin(), chain_.end());
    const auto most = *std::max_element(cost_.blocks_sent.begin(), cost_.blocks_sent.end());
    cost_.sent_per_rank_max = static_cast<double>(most) / schedule_.blocks();
    return fault_;
  }
  /// The cost that was counted; call it after `play`.
  const CountedCost& cost() const { return cost_; }

 private:
  struct Message {
    std::uint32_t from;
    Blocks blocks;
    std::size_t at;  ///< the index in `wire_` of its first block
    bool taken = false;
  };
  /// A received block that is to be reduced.
  struct Part {
    std::uint32_t block, from;
    std::size_t at;  ///< its index in `wire_`
  };

  Value& value(std::uint32_t rank, std::uint32_t block) {
    return values_[std::size_t{rank} * schedule_.blocks() + block];
  }
  void fault(std::uint32_t round, std::string what) {
    if (fault_.empty()) fault_ = fmt::format("round {}: {}", round, what);
  }

  void play_round(std::uint32_t k) {
    wire_.clear();
    for (auto& box : inbox_) box.clear();
    for (std::uint32_t r = 0; r < schedule_.ranks(); ++r) send_all(k, r);
    next_chain_ = chain_;
    for (std::uint32_t r = 0; r < schedule_.ranks() && fault_.empty(); ++r) receive_all(k, r);
    chain_ = next_chain_;
  }

  void send_all(std::uint32_t k, std::uint32_t r) {
    steps_[r].clear();
    schedule_.steps(k, r, steps_[r]);
    std::uint32_t sends = 0;
    for (const Step& x : steps_[r]) {
      if (x.peer >= schedule_.ranks() || x.blocks.count == 0 || x.blocks.first + x.blocks.count > schedule_.blocks() ||
          (x.peer == r) != (x.kind == StepKind::finish)) {
        return fault(k, fmt::format("rank {} has a step outside the schedule's ranks or blocks", r));
      }
      if (x.kind != StepKind::send) continue;
      inbox_[x.peer].push_back({r, x.blocks, wire_.size()});
      for (std::uint32_t b = 0; b < x.blocks.count; ++b) wire_.push_back(value(r, x.blocks.first + b));
      cost_.blocks_sent[r] += x.blocks.count;
      ++cost_.messages;
      ++sends;
    }
    cost_.sends_per_round_max = std::max(cost_.sends_per_round_max, sends);
  }

  void receive_all(std::uint32_t k, std::uint32_t r) {
    parts_.clear();
    for (const Step& x : steps_[r]) {
      if (x.kind == StepKind::send || x.kind == StepKind::finish) continue;
      auto m = std::lower_bound(inbox_[r].begin(), inbox_[r].end(), x.peer,
                                [](const Message& y, std::uint32_t peer) { return y.from < peer; });
      while (m != inbox_[r].end() && m->from == x.peer && m->taken) ++m;
      if (m == inbox_[r].end() || m->from != x.peer) {
        return fault(k, fmt::format("rank {} waits for rank {}, which does not send: deadlock", r, x.peer));
      }
      if (schedule_.collective_kind() == CollectiveKind::all_to_all ? m->blocks.count != x.blocks.count
                                                                    : m->blocks != x.blocks) {
        return fault(k, fmt::format("rank {} expects blocks {}+{} from rank {}, which sends {}+{}", r, x.blocks.first,
                                    x.blocks.count, x.peer, m->blocks.first, m->blocks.count));
      }
      m->taken = true;
      next_chain_[r] = std::max({next_chain_[r], chain_[x.peer] + 1, chain_[r] + 1});
      for (std::uint32_t b = 0; b < x.blocks.count; ++b) {
        if (x.kind == StepKind::recv_reduce) {
          parts_.push_back({x.blocks.first + b, x.peer, m->at + b});
        } else {
          value(r, x.blocks.first + b) = wire_[m->at + b];
        }
      }
    }
    for (const Message& m : inbox_[r]) {
      if (!m.taken)
        return fault(k, fmt::format("rank {} gets a message from rank {} that it does not receive", r, m.from));
    }
    reduce_parts(r);
    for (const Step& x : steps_[r]) {
      if (x.kind != StepKind::finish) continue;
      for (std::uint32_t b = 0; b < x.blocks.count; ++b) {
        value(r, x.blocks.first + b) = algebra_.finish(value(r, x.blocks.first + b));
      }
    }
  }

  void reduce_parts(std::uint32_t r) {
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.block != b.block ? a.block < b.block : a.from < b.from; });
    for (std::size_t i = 0; i < parts_.size();) {
      const std::uint32_t block = parts_[i].block;
      operands_.clear();
      bool own_added = false;
      auto add_own = [&] { operands_.push_back({r, &value(r, block)}), own_added = true; };
      for (; i < parts_.size() && parts_[i].block == block; ++i) {
        if (!own_added && r < parts_[i].from) add_own();
        operands_.push_back({parts_[i].from, &wire_[parts_[i].at]});
      }
      if (!own_added) add_own();
      value(r, block) = algebra_.reduce(operands_);
    }
  }

  const Schedule& schedule_;
  A& algebra_;
  std::vector<Value>& values_;
  std::vector<std::vector<Message>> inbox_;  ///< by receiver, in the order of the senders
  std::vector<Steps> steps_;
  std::vector<Value> wire_;  ///< the blocks of all messages of this round
  std::vector<Part> parts_;
  std::vector<Operand<Value>> operands_;
  std::vector<std::uint32_t> chain_, next_chain_;  ///< by rank: rounds on the longest chain of messages to it
  std::string fault_;
  CountedCost cost_;
};

// Runs a schedule on numbers, for all ranks in one thread. Tests compare the executor's result with this one, and
// simulated ranks (dataparallel/fabric/simulation) move their data in this way. Sums are added in the same order as in
// the executor, so bits are equal.

/// buffers[r] is the buffer of rank r, worked on in place; all buffers are equally long. Returns the bytes that each
/// rank has sent. Slices are cut and run as in the executor: slice s runs schedule s mod (number of schedules).
/// Collectives in which ranks own blocks need one slice. Cost: O(elements moved). Errors: std::logic_error when a
/// schedule is not sound, or for several slices where ranks own blocks.
std::vector<std::uint64_t> interpret(std::span<const SchedulePtr>, const Slices&,
                                     std::span<const std::span<float>> buffers, Op);

}  // namespace gradmeter::allreduce
