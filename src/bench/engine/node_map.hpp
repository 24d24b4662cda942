// SPDX-License-Identifier: Apache-2.0
// Says which ranks share a node, and which ranks a point takes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// The ranks that a point takes. packed: they fill a node before the next. spread: each node gives one rank in turn.
enum class Placement : std::uint8_t { packed, spread };
std::string_view name(Placement);
std::span<const Placement> placements();

/// The node of each rank. Fake nodes simulate several nodes on one host. Every function costs O(ranks).
struct NodeMap {
  std::vector<int> node_of;  ///< by rank
  bool fake = false;
  runtime::RanksAs ranks_as = runtime::RanksAs::processes;
  int ranks() const { return static_cast<int>(node_of.size()); }
  int nodes() const;
  int ranks_per_node() const;   ///< number of ranks on the fullest node
  std::string mapping() const;  ///< "fake:0,0,1,1"; empty for real nodes
  /// The ranks of each node, in the order of the nodes' lowest ranks: "0-1,2-3"; "0-6:2,1-7:2" where every second rank
  /// is on the same node; "0+3-4,1-2" where ranks 0, 3 and 4 are on the first node.
  std::string ranks_by_node() const;
  /// The ranks that a point with `ranks` ranks takes, node after node for either placement, since hierarchical
  /// algorithms want a node's ranks consecutive. Nodes are ordered by their lowest rank, so rank 0 comes first.
  std::vector<int> ranks_for(int ranks, Placement) const;
  /// The map of these ranks alone, in the order given.
  NodeMap of(std::span<const int> ranks) const;
};

/// Sets the factors that describe a point's ranks: how many there are, on how many nodes, and whether they are
/// processes or threads.
void fill_ranks(const NodeMap&, core::Factors&);

/// Gives the index of a node among all nodes, in the order of their lowest ranks. Cost: O(ranks) to make, O(log nodes)
/// to ask.
class NodeIndices {
 public:
  /// node_of: the node of each rank; a node's number is its lowest rank.
  explicit NodeIndices(std::span<const int> node_of);
  std::size_t index_of(int node) const;

 private:
  std::vector<int> nodes_;
};

}  // namespace gradmeter::bench
