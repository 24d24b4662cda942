// The head line of a run in the result file, as far as one process knows it.
#pragma once
#include <string>

#include "core/result.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::bench {

/// "2026-11-26T17:05:19Z".
std::string utc_now();

/// Complete for a process alone: one rank on one node. Needs no MPI session.
core::RunInfo describe_process(const runtime::HostFacts&, std::string command);

}  // namespace gradmeter::bench
