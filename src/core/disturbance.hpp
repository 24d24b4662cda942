// A row says how much other programs and the hypervisor took from its point while it was measured.
#pragma once
#include "core/result.hpp"

namespace gradmeter::core {

/// Share of the time for which its threads waited for a core [0..1]. 0 where they outnumber the cores: they wait for
/// each other then, which is no sign of other load.
double run_delay(const Metrics&);
/// Over a twentieth of the time.
bool waits_for_cores(const Metrics&);
/// Share of the time that the hypervisor had [0..1].
double steal(const Metrics&);
/// Over a twentieth of the time.
bool loses_cores(const Metrics&);
/// In most blocks the machine was not in its usual state.
bool is_mostly_disturbed(const Metrics&);
/// One of the three: such a point is marked, and what is concluded from it says so.
bool is_disturbed(const Metrics&);
/// The share of its times that the machine's state may account for [0..1]; 0 where that was steady.
double share_of_disturbance(const Metrics&);

}  // namespace gradmeter::core
