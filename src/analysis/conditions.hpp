// Under what conditions launches and points were measured: in what two sides differ beside the points' factors, whether
// their order in time confounds them, and which points other programs disturbed.
#pragma once
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

/// Share of the time for which the point's threads waited for a core [0..1]. 0 where they outnumber the cores: they
/// wait for each other then, which is no sign of other load.
double run_delay(const core::Point&);
/// Over a twentieth of the time.
bool waits_for_cores(const core::Point&);
/// The hypervisor had over a twentieth of the time.
bool loses_cores(const core::Point&);
/// In most blocks the machine was not in its usual state.
bool is_mostly_disturbed(const core::Point&);
/// One of the three: such a point is marked, and every conclusion from it says so.
bool is_disturbed(const core::Point&);

}  // namespace gradmeter::analysis
