// Which ranks share a node, and which of them a point takes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Which ranks of the job a point with fewer takes. packed: fills a node before the next. spread: one of each node in
/// turn.
enum class Placement : std::uint8_t { packed, spread };
std::string_view name(Placement);
std::span<const Placement> placements();

/// Where the ranks are. Fake nodes simulate several on one host. Every function costs O(ranks).
struct NodeMap {
  std::vector<int> node_of;  ///< by rank
  bool fake = false;
  runtime::RanksAs ranks_as = runtime::RanksAs::processes;
  int ranks() const { return static_cast<int>(node_of.size()); }
  int nodes() const;
  int ranks_per_node() const;   ///< on the fullest
  std::string mapping() const;  ///< "fake:0,0,1,1"; empty for real nodes
  /// So many of the ranks, node after node whatever the placement, nodes by their lowest rank: hierarchical algorithms
  /// want a node's ranks consecutive. Rank 0 comes first.
  std::vector<int> ranks_for(int ranks, Placement) const;
  /// The map of some ranks, in the order given.
  NodeMap of(std::span<const int> ranks) const;
};

/// Sets the factors that say which ranks a point has: how many, on how many nodes, and what they are.
void fill_ranks(const NodeMap&, core::Factors&);

/// The index of a node among all nodes, in the order of their lowest ranks. Made in O(ranks), asked in O(log nodes).
class NodePlaces {
 public:
  /// node_of: by rank; nodes are called by their lowest ranks.
  explicit NodePlaces(std::span<const int> node_of);
  std::size_t of(int node) const;

 private:
  std::vector<int> nodes_;
};

}  // namespace gradmeter::bench
