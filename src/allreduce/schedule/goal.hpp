// SPDX-License-Identifier: Apache-2.0
// Writes schedules as text in GOAL (Group Operation Assembly Language), which network simulators read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "allreduce/schedule/schedule.hpp"
#include "allreduce/schedule/slices.hpp"

namespace gradmeter::allreduce {

/// The schedules to write: slice s runs schedule s mod schedules.size(), as in the executor.
struct GoalSource {
  std::span<const SchedulePtr> schedules;
  const Slices& slices;
  std::size_t element_bytes = 4;
  /// Rate at which a sum reads what was received [bytes/s]; 0, by convention: sums take no time.
  double reduce_bytes_per_s = 0;
};

/// Writes one rank after another; `write` gets pieces of some 64 KiB.
/// Operations: `send` and `recv` of each message that is not empty, and a `calc` [ns] for each sum. The tag is slice ·
/// rounds + round, modulo 2^30; messages between two ranks with one tag match in their order.
/// Labels: s (send), r (recv) or c (the sum that adds received data to the buffer), a number that is unique in the
/// rank, and the offset of the message in the rank's buffer [bytes]: "s4_at_65536". A recv that no sum follows replaces
/// the buffer's bytes. "j7" is a `calc 0` at which all receives and sums of a round come together. Dependencies: those
/// of the executor. A round of a slice requires the receives and sums of the slice's previous round, but not its sends;
/// a slice requires the previous slice on its lane (`lanes_for`). The file leaves out copies inside a rank and the
/// division of an average. It also leaves out that a receive waits until the memory that it overwrites has been sent.
/// Cost: O(steps) time; memory for one rank's steps of one round.
/// Source: Hoefler, Siebert, Lumsdaine, ICPP 2009 (GOAL); Hoefler, Schneider, Lumsdaine, LSAP 2010 (LogGOPSim), whose
/// converter txt2bin states the grammar.
void write_goal(const GoalSource&, const std::function<void(std::string_view)>& write);

/// An upper bound of the bytes that `write_goal` writes. messages: the number of messages that all ranks together send
/// for one slice, as AlgorithmInfo::cost states it. Cost: O(schedules).
std::uint64_t goal_bytes_at_most(const GoalSource&, std::uint64_t messages);

}  // namespace gradmeter::allreduce
