// In what two sides' launches differ beside the points' factors, and whether their order in time confounds them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/launches.hpp"

namespace gradmeter::analysis {

/// "commit: 1a2b to 3c4d", a line each: program, hosts, processor, MPI, libraries, environment, GPUs. Empty: none.
std::vector<std::string> differing_conditions(const Side& a, const Side& b);

/// Every launch of one side began before every launch of the other: a machine that drifts looks like a difference.
bool launched_in_two_blocks(const Side& a, const Side& b);

/// Hosts, processor, GPUs: what stays when drivers and libraries are updated.
std::string machine_of(const core::RunInfo&);

/// Fingerprint, version, commit and libraries: launches of two origins are not replicates of each other.
std::string origin_of(const core::RunInfo&);

/// "scripts/launches.sh 5 -- mpirun -np 2 gradmeter ...": so many more launches of the run. Empty where its command is
/// not known or no gradmeter's, or would replace or only complete the file.
std::string repeat_command(const core::RunInfo&, std::int64_t launches);

}  // namespace gradmeter::analysis
