// The wire between nodes, measured in the same run: what bounds a collective over several of them.
#pragma once
#include "bench/collective_plan.hpp"
#include "bench/session.hpp"

namespace gradmeter::bench {

/// Whom a rank sends to and receives from when every node sends to the next: its counterpart there, never on its own
/// node, wherever its ranks lie among the others'. -1: nobody, where the emptiest node has fewer ranks, or one node.
struct WirePartners {
  int to = -1, from = -1;
};
WirePartners wire_partners(const NodeMap&, int rank);

/// What the ranks of one node together send to another node while all nodes do so; 0 on one node. usual: median over
/// exchanges; best: the fastest of them.
struct WireRate {
  core::BytesPerSecond usual{}, best{};
};
/// Collective over the session's world. Costs some milliseconds to a second.
WireRate measure_wire(Session&, const NodeMap&);

/// The nodes that the session's ranks are on, or the fake ones (by rank).
/// Collective. Errors: UsageError when there is not one fake node for each rank.
NodeMap find_nodes(const Session&, const std::vector<int>& fake);

}  // namespace gradmeter::bench
