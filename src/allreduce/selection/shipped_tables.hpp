// SPDX-License-Identifier: Apache-2.0
// The tables of sizes that the program ships, for the row `auto`: they were measured elsewhere, and serve where nobody
// gives a table or has measured one (tuned_tables.hpp).
#pragma once
#include <string>

#include "allreduce/request.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {

/// The text of the table that `auto` ships with for this transport and number of ranks. A shipped range of sizes may
/// list several algorithms: the text names the first that serves the request, or else a fallback. private_buffers:
/// calls have buffers outside the network's arena, so the table has only algorithms that can work on such buffers.
/// Errors: UsageError when no algorithm is left for a range of sizes, or when there is no table for the transport.
std::string shipped_table(const Request&, runtime::TransportKind, bool private_buffers = false);

}  // namespace gradmeter::allreduce
