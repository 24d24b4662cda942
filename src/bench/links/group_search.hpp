// SPDX-License-Identifier: Apache-2.0
// Finds the few slow nodes among many by testing groups (adaptive group testing). It measures nothing itself: the
// caller gives a function that measures groups.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace gradmeter::bench {

using NodeGroup = std::vector<int>;

/// Measures all groups at once, and returns their times [s]. Groups share no node, and each has at least two nodes. A
/// group takes as long as its slowest node.
using MeasureGroups = std::function<std::vector<double>(std::span<const NodeGroup>)>;

struct GroupSearchOptions {
  /// A group is slow when it takes more than this many times as long as groups usually do.
  double slow_ratio = 1.3;
  /// The number of groups at first, but at most half of the number of nodes. By convention 0 stands for 16.
  int first_groups = 0;
};

struct GroupSearchResult {
  std::vector<int> slow;   ///< ascending
  std::size_t tests = 0;   ///< number of groups measured
  std::size_t rounds = 0;  ///< number of calls of the measuring function
  /// Number of groups that were slow, though afterwards neither half was: a disturbance.
  std::size_t disturbed_groups = 0;
  double usual_s = 0;  ///< time of a group without a slow node
};

/// Finds the slow nodes among 0 to nodes - 1. All nodes are shuffled by `seed` and dealt into the first groups. The
/// usual time is the shortest time of these groups; with eight groups or more it is the second shortest, since the
/// shortest may be short by chance. If most groups are slow, or if one group is faster than all others by more than
/// `slow_ratio`, the groups are too large: those of four nodes or more are halved, and the usual time is taken anew. A
/// slow group is measured once more, since a disturbance can only lengthen times. If it is slow again, it is halved and
/// both halves are measured, so that two slow nodes in one group are both found. If neither half is slow, both are
/// measured again; if still neither is, the group counts as lost. A single node is measured together with a node from a
/// group that was not slow.
/// Cost: about first_groups + 3 k log2(nodes / first_groups) tests for k slow nodes, in log2(nodes) levels of at most
/// three rounds; more rounds where few nodes are known not to be slow.
/// Errors: UsageError for fewer than four nodes.
/// Source: Hwang, "A method for detecting all defective members in a population by group testing", JASA 67, 1972.
GroupSearchResult find_slow_nodes(int nodes, const GroupSearchOptions&, unsigned seed, const MeasureGroups&);

}  // namespace gradmeter::bench
