// SPDX-License-Identifier: Apache-2.0
// Two verifiers, one of schedules and one of plans. Both work on fingerprints, which show which ranks contributed to a
// value, how often, and in which order it was summed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allreduce/schedule/interpret.hpp"
#include "allreduce/schedule/plan.hpp"
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// `sum` adds up the contributors' hashes, so it shows which ranks contributed and how often; `tree` hashes the order
/// of the additions; `count` is the number of summands (0: there is no value here); `finishes` is how often the value
/// was finished.
struct Fingerprint {
  std::uint64_t sum = 0, tree = 0;
  std::uint32_t count = 0, finishes = 0;
  bool operator==(const Fingerprint&) const = default;
};

struct FingerprintAlgebra {
  using Value = Fingerprint;
  std::string fault;  ///< the last meaningless operation, empty when there was none
  Fingerprint reduce(const std::vector<Operand<Fingerprint>>& operands);
  Fingerprint finish(Fingerprint v);
  /// The value that ranks decode from rank `rank`'s encoding of v. It depends on `rank`, since encodings of v by two
  /// ranks may decode to different values.
  Fingerprint encode(Fingerprint v, std::uint32_t rank);
};

/// The values that every rank holds before the first round [ranks × blocks].
std::vector<Fingerprint> contributions(const Schedule&);
/// True where rank `rank` must hold a value of `block` at the end.
bool must_hold(CollectiveKind, std::uint32_t rank, std::uint32_t block);

// Proves a schedule right by playing it over fingerprints: each rank ends with each contribution exactly once, and no
// message is lost, mismatched or awaited for ever. Also compares the ranks' summation trees (equal trees: equal bits).

struct ScheduleVerdict {
  std::string fault;      ///< what is wrong; empty: the schedule is right
  bool same_bits = true;  ///< every rank's value of a block was summed in the same tree
  CountedCost cost;
  bool ok() const { return fault.empty(); }
};

/// Cost: O(steps) time, O(ranks × blocks) memory; a ring of 1024 ranks takes under a second.
ScheduleVerdict verify(const Schedule&);

// Proves that the plans of all ranks together are right even if every message is read as late as possible: no send's
// memory is overwritten before it was read (no race), no rank waits for ever (no deadlock), and every rank ends with
// the values that the schedule says.

/// The way by which a message's bytes reach the receiver.
enum class MessageDelivery {
  peer_memory,  ///< the receiver reads the sender's memory, as late as it can
  /// The transport moves the bytes, at any time after the receive is posted and at the latest when the receiver needs
  /// them. So the destination of a direct receive (ReceiveStep::direct) is undefined from the posting until the
  /// receiver takes the message.
  landing
};

/// Returns what is wrong; empty: the plans are right. plans[r] is rank r's plan of `schedule`.
/// Cost: O(steps × ranks) worst case; meant for p up to a few hundred.
std::string verify_plans(const Schedule& schedule, std::span<const Plan> plans, MessageDelivery);

}  // namespace gradmeter::allreduce
