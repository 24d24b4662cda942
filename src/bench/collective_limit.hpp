// The wire between nodes, measured in the same run: what bounds a collective over several of them.
#pragma once
#include "bench/collective_plan.hpp"
#include "bench/session.hpp"

namespace gradmeter::bench {

/// What the ranks of one node together send to another node while all nodes do so; 0 on one node.
/// Collective over the session's world. Costs some milliseconds to a second.
core::BytesPerSecond measure_wire(Session&, const NodeMap&);

/// The nodes that the session's ranks are on, or the fake ones (by rank).
/// Collective. Errors: UsageError when there is not one fake node for each rank.
NodeMap find_nodes(const Session&, const std::vector<int>& fake);

}  // namespace gradmeter::bench
