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

/// `alternate` is scratch of the buffer's size. While a peer reads a block in `out`, the block is summed into
/// `alternate`, and the other way round, since a sum in place would need a fence that deadlocks. `wire` holds blocks as
/// a codec encoded them. With a codec all messages are sent from there, so sums need no alternate.
enum class Place : std::uint8_t { in, out, alternate, wire };
enum class Placement : std::uint8_t { out_of_place, in_place };

/// The content of a message: the values themselves, or a codec's encoding of them.
enum class Form : std::uint8_t { plain, coded };

/// Work on blocks of this rank's own memory: an encoding, a finish or a copy. `fence`: how many of this rank's own
/// sends, in posting order, must have left before the write.
struct LocalStep {
  Blocks blocks;
  Place from;
  std::uint32_t fence = 0;
  bool encodes = false;  ///< coded: the finish encodes the sum once, to the wire, and the rank takes the decoded value
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
  Place to;     ///< wire: the values are decoded to `out` as well
  std::uint32_t fence;
  bool forwards = false;  ///< coded: the received bytes are sent on later
};
inline constexpr std::uint32_t own_operand = 0xffffffff;
/// to = operands summed in rank order; an operand is a receive of this round (by index) or our own value.
struct ReduceStep {
  Blocks blocks;
  Place own, to;
  std::uint32_t fence, first_operand, operands;
};
/// The part of one of the plan's lists of steps that belongs to one round.
struct StepRange {
  std::uint32_t first = 0, count = 0;
  template <class Step>
  std::span<const Step> of(const std::vector<Step>& all) const {
    return std::span(all).subspan(first, count);
  }
};
/// A round is executed in this order: encodings; sends are posted; receives are posted; reductions and direct receives
/// as their data arrive; finishes.
struct PlanRound {
  std::uint32_t number;  ///< the schedule's round
  StepRange encodes, sends, receives, reductions, finishes;
};

struct Plan {
  Form form = Form::plain;
  std::uint32_t blocks = 0;
  std::vector<PlanRound> rounds;
  /// Coded plans: encodings before the round's sends, of blocks that are not on the wire yet. Such a block is a partial
  /// sum, which later rounds add to.
  std::vector<LocalStep> encodes;
  std::vector<SendStep> sends;
  std::vector<ReceiveStep> receives;
  std::vector<ReduceStep> reductions;
  std::vector<std::uint32_t> operands;
  std::vector<LocalStep> finishes;
  /// Copies before the first round, which bring blocks beside received ones that later leave in the same message.
  std::vector<LocalStep> first_copies;
  std::vector<LocalStep> copies;     ///< after the last round: values that are not yet in `out`
  std::uint32_t landing_blocks = 0;  ///< most blocks that land for reduction in one round
  bool uses_alternate = false;
};

/// Compiles the plan; of the ways to use `alternate` it takes the one with the fewest copies at the end.
/// Errors: std::logic_error when a message would span two places or two reductions overlap in part, or when a coded
/// plan is refused (`coded_refusal`).
Plan compile(const Schedule&, std::uint32_t rank, Placement, Form = Form::plain);
/// The plan's `uses_alternate`, without compiling the whole plan. In place, true is known after a round or two.
bool uses_alternate(const Schedule&, std::uint32_t rank, Placement);

/// The reason why ranks would not end with equal values if messages were encoded; empty: they would. Values are equal
/// where one rank finishes each block and encodes it once, and all others get those bytes. They are also equal where
/// there is one round, so that all ranks decode the same contributions.
std::string coded_refusal(const Schedule&);

}  // namespace gradmeter::allreduce
