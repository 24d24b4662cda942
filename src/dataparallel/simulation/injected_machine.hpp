// The faults of --inject in virtual time.
#pragma once
#include "core/injection.hpp"
#include "dataparallel/simulation/machine.hpp"

namespace gradmeter::dataparallel {

/// The machine with the slow rank, and with drop, delay and cut on the messages between ports; those of collectives are
/// reliable there. A lost message is sent again by the port's own timer (`ReliablePort`), and a rank whose link is cut
/// is dead from then on. flip, omit and drift are left to FaultInjector and the clocks. Errors: UsageError for a link
/// that comes back.
SimMachine injected(SimMachine machine, const core::Injection&);

}  // namespace gradmeter::dataparallel
