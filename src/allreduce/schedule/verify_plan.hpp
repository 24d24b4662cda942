// Proves the plans of all ranks right together. Every message is read as late as possible. No send's memory is written
// before it was read (a race), no rank waits for ever (a deadlock), and every rank ends with what the schedule says.
#pragma once
#include <span>
#include <string>

#include "allreduce/schedule/plan.hpp"

namespace gradmeter::allreduce {

/// How a message's bytes reach the receiver.
enum class Reading {
  peer_memory,  ///< the receiver reads the sender's memory, as late as it can
  landing       ///< bytes are copied on sending; a direct receive may overwrite its place from the moment it is posted
};

/// Empty: right. plans[r] is rank r's plan of `schedule`.
/// Cost: O(steps × ranks) worst case; meant for p up to a few hundred.
std::string verify_plans(const Schedule& schedule, std::span<const Plan> plans, Reading);

}  // namespace gradmeter::allreduce
