// SPDX-License-Identifier: Apache-2.0
// The tables of sizes that the program ships, for the row `auto`: they were measured elsewhere, and serve where nobody
// gives a table or has measured one (tuned_tables.hpp).
#pragma once
#include <string>

#include "allreduce/request.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {

/// The text of the table that `auto` ships with for this transport and number of ranks, restricted to algorithms that
/// serve this request and, if they say so, buffers outside the arena. Errors: UsageError when no such algorithm is left
/// for a range of sizes.
std::string shipped_table(const Request&, runtime::TransportKind, bool private_buffers = false);

}  // namespace gradmeter::allreduce
