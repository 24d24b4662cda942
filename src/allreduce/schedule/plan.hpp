// One rank's part of a schedule, bound to memory: where each value lies, and which of our own earlier messages must
// have been read before a place may be written. Compiled once, run many times.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// `alternate` is scratch of the buffer's size. A block that a peer reads in this round is summed into the other place,
/// since reducing in place meanwhile would need a fence that deadlocks. `wire` holds blocks as a codec encoded them.
/// With a codec all messages are sent from there, so sums need no alternate.
enum class Place : std::uint8_t { in, out, alternate, wire };
enum class Placement : std::uint8_t { out_of_place, in_place };

/// What a message holds: the values themselves, or a codec's encoding of them.
enum class Form : std::uint8_t { plain, coded };

/// `fence`: how many of this rank's own sends, in posting order, must have left before the write.
/// Coded: encodes what is not on the wire yet, before the round's sends. It is a partial sum, which later rounds add
/// to.
struct EncodeStep {
  Blocks blocks;
  Place from;
  std::uint32_t fence;
};
struct SendStep {
  std::uint32_t peer;
  Blocks blocks;
  Place from;
};
struct ReceiveStep {
  std::uint32_t peer;
  Blocks blocks;
  bool direct;  ///< straight into `to`; else it is an operand of a reduction
  Place to;     ///< wire: it is decoded to `out` as well
  std::uint32_t fence;
  bool forwards = false;  ///< coded: these bytes are sent on later
};
inline constexpr std::uint32_t own_operand = 0xffffffff;
/// to = operands summed in rank order; an operand is a receive of this round (by index) or our own value.
struct ReduceStep {
  Blocks blocks;
  Place own, to;
  std::uint32_t fence, first_operand, operands;
};
struct FinishStep {
  Blocks blocks;
  Place from;
  std::uint32_t fence;
  bool encodes = false;  ///< coded: once, to the wire; the rank itself takes what it decodes from there
};
struct CopyStep {
  Blocks blocks;
  Place from;
};

struct Range {
  std::uint32_t first = 0, count = 0;
};
/// Executed in this order: encodings; sends are posted; receives are posted; reductions and direct receives as they
/// arrive; finishes.
struct PlanRound {
  std::uint32_t number;  ///< the schedule's round
  Range encodes, sends, receives, reductions, finishes;
};

struct Plan {
  Form form = Form::plain;
  std::uint32_t blocks = 0;
  std::vector<PlanRound> rounds;
  std::vector<EncodeStep> encodes;
  std::vector<SendStep> sends;
  std::vector<ReceiveStep> receives;
  std::vector<ReduceStep> reductions;
  std::vector<std::uint32_t> operands;
  std::vector<FinishStep> finishes;
  std::vector<CopyStep> first_copies;  ///< before the first round: what later goes out in one message with what came in
  std::vector<CopyStep> copies;        ///< after the last round: values that are not yet in `out`
  std::uint32_t landing_blocks = 0;    ///< most blocks that land for reduction in one round
  bool uses_alternate = false;
};

/// Of the ways to use `alternate`, the one with fewest copies at the end.
/// Errors: std::logic_error when a message would span two places or two reductions overlap in part, or when a codec
/// cannot be had (`coded_refusal`).
Plan compile(const Schedule&, std::uint32_t rank, Placement, Form = Form::plain);
/// The plan's `uses_alternate`, without the whole plan: in place, a yes is known after a round or two.
bool uses_alternate(const Schedule&, std::uint32_t rank, Placement);

/// Why ranks would not end with equal values if messages were encoded; empty: they would. They do where one rank
/// finishes each block, encodes it once and all others get those bytes. They also do where there is one round, so that
/// all decode the same contributions.
std::string coded_refusal(const Schedule&);

}  // namespace gradmeter::allreduce
