// SPDX-License-Identifier: Apache-2.0
// One rank's part of a schedule, bound to memory. It says where each value lies, and which of this rank's earlier
// messages must have been read before a place may be written. A plan is compiled once and run many times.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// The place of a value: the caller's input, the caller's output, `alternate` (scratch for one slice), or `wire`
/// (blocks as a codec encoded them). A sum may not overwrite a value that a peer still reads, and waiting for that peer
/// could deadlock. So while peers read a block in `out`, its next sum is written to `alternate`, and the other way
/// round. With a codec, peers read `wire` only, so `alternate` is not used.
enum class Place : std::uint8_t { in, out, alternate, wire };
enum class Placement : std::uint8_t { out_of_place, in_place };

/// The content of a message: the values themselves, or a codec's encoding of them.
enum class MessageForm : std::uint8_t { plain, coded };

/// Work on blocks of this rank's own memory: an encoding, a copy, or a finish. A finish turns the complete sum into the
/// result; in a plan without a codec it divides by the ranks for an average. `sends_before_write`: how many of this
/// rank's sends, in the order of posting, must be done before the work may write.
struct LocalStep {
  Blocks blocks;
  Place from;
  std::uint32_t sends_before_write = 0;
  /// Only in coded plans: this finish also encodes the sum into `wire`, once; the rank itself then keeps the decoded
  /// value, as all others do.
  bool encodes = false;
};
struct SendStep {
  std::uint32_t peer;
  Blocks blocks;
  Place from;
};
struct ReceiveStep {
  std::uint32_t peer;
  Blocks blocks;
  bool direct;  ///< the values go straight into `to`; else they are an operand of a reduction
  Place to;     ///< place of the values, or of their sum; values that go to `wire` are also decoded into `out`
  std::uint32_t sends_before_write;
  bool forwards = false;  ///< only in coded plans: the received bytes are sent on in a later round
};
inline constexpr std::uint32_t own_operand = 0xffffffff;
/// Combines operands in rank order and writes the result into `to`. The operands are `operands` entries of
/// Plan::operands from index `first_operand` on. An entry is the index of a receive of this round, or own_operand for
/// this rank's own value.
struct ReduceStep {
  Blocks blocks;
  Place own_place, to;
  std::uint32_t sends_before_write, first_operand, operands;
};
/// One round's range in one of the plan's lists of steps.
struct StepRange {
  std::uint32_t first = 0, count = 0;
  template <class Step>
  std::span<const Step> of(const std::vector<Step>& all) const {
    return std::span(all).subspan(first, count);
  }
};
/// The order within a round: blocks are encoded, sends posted, receives posted; then reductions and direct receives are
/// executed as their data arrive; finishes come last.
struct PlanRound {
  std::uint32_t number;  ///< the schedule's round
  StepRange encodes, sends, receives, reductions, finishes;
};

struct Plan {
  MessageForm form = MessageForm::plain;
  std::uint32_t blocks = 0;
  std::vector<PlanRound> rounds;
  /// Only in coded plans: encodings before the round's sends, of blocks that are not yet in `wire`. Such a block is
  /// this rank's own contribution or a partial sum.
  std::vector<LocalStep> encodes;
  std::vector<SendStep> sends;
  std::vector<ReceiveStep> receives;
  std::vector<ReduceStep> reductions;
  std::vector<std::uint32_t> operands;
  std::vector<LocalStep> finishes;
  /// Copies into `out` before the first round. A message must lie in one piece, so if a later message holds this rank's
  /// own block together with received blocks, the own block is copied to where these arrive.
  std::vector<LocalStep> first_copies;
  std::vector<LocalStep> copies;     ///< after the last round: copies of values that are not yet in `out`
  std::uint32_t landing_blocks = 0;  ///< the most blocks that one round receives for reductions
  bool uses_alternate = false;
};

/// Compiles the plan. For a call out of place without a codec, it may compile two plans and return the one with fewer
/// copies: in the second plan, sums of blocks that peers still read in `in` go to `alternate` instead of `out`.
/// Errors: std::logic_error when a message would come from two places, when two reductions overlap in part, or when
/// `coded_refusal` refuses a coded plan.
Plan compile(const Schedule&, std::uint32_t rank, Placement, MessageForm = MessageForm::plain);
/// The `uses_alternate` of the plan that `compile` would make. To save time, a call in place is compiled only up to the
/// first round that uses `alternate`.
bool uses_alternate(const Schedule&, std::uint32_t rank, Placement);

/// The reason why messages of this schedule cannot be encoded; empty: they can be. Only an all-reduce can have a codec,
/// and all ranks must end with equal values. They do so in two cases: one rank finishes each block and encodes it once,
/// and all others get those bytes; or there is only one round, so that all ranks decode the same contributions.
std::string coded_refusal(const Schedule&);

}  // namespace gradmeter::allreduce
