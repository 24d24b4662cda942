// SPDX-License-Identifier: Apache-2.0
// Measures, in rounds, the highest rates at which data reach a rank: from its own node, and from other nodes. The probe
// runs on the ranks whose training steps are compared with these rates.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/engine/session.hpp"
#include "core/machine.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {

/// Lower bounds of the bytes that a training step must send [bytes]: by the rank that sends most, and by a node to the
/// other nodes.
struct MinimumSent {
  double by_busiest_rank = 0, by_busiest_node = 0;
};

/// A lower bound for the time of any exchange that sends these bytes. All that a node sends to other nodes goes through
/// its port. A rank sends at best over two links at once: to ranks of its own node, if others are on it, and to other
/// nodes, if there are any.
core::Seconds exchange_time_bound(MinimumSent, const core::Machine&);
/// The rate that bounds an exchange [bytes/s]: with several nodes the rate of a node's port, else the rate between
/// ranks of the node.
double link_rate(const core::Machine&);

/// By rank: the peer on the next node that the rank sends to. The first rank of a node sends to the first of the next
/// node, the second to the second, and so on.
std::vector<int> partners_on_next_node(std::span<const int> node_of);

/// Measures the rate at which a node sends to the next node while all nodes send at once. Partners exchange long
/// messages by MPI; the time of a short message is subtracted. The best of all rounds is kept: the rate serves as an
/// upper bound, and single exchanges are faster than the mean.
class PortProbe {
 public:
  /// Collective over `c`, as is `round`; `c` must outlive this object. node_of: the node of each rank; there are at
  /// least two nodes.
  PortProbe(Session&, const runtime::Communicator& c, std::span<const int> node_of);
  /// Measures one round, which takes up to some tens of milliseconds. No other data may be moved meanwhile.
  void round();
  /// The rate of all ranks of a node together, the same on all ranks; 0 before the first round.
  core::BytesPerSecond rate() const { return {best_rate_}; }

 private:
  double exchange(std::size_t bytes);

  Session& session_;
  const runtime::Communicator& c_;
  int fullest_node_ranks_;  ///< number of ranks on the fullest node
  int partner_;
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> transport_;
  std::vector<std::byte> outgoing_;
  std::vector<std::pair<int, std::vector<std::byte>>> incoming_;  ///< the rank that sends, and its buffer here
  std::size_t message_bytes_;  ///< length of the long messages; it grows until they take long enough
  double best_rate_ = 0;       ///< [bytes/s]
  double shortest_ = std::numeric_limits<double>::infinity();  ///< time of the exchange of a short message [s]
};

/// Measures the rate within a node, and between nodes by PortProbe. Within a node each rank reads what its neighbour
/// has just written, and stores nothing: any transport must do at least that. The data may still be in caches, as in an
/// exchange. Rates are the best of all rounds, ranks and sizes.
class LinkProbe {
 public:
  /// Collective over `c`, which must outlive it. fake_nodes: as in NetworkOptions.
  LinkProbe(Session&, const runtime::Communicator& c, int threads, const std::vector<int>& fake_nodes = {});
  /// Measures one round. Collective. No other data may be moved meanwhile.
  void round();
  /// Fills in three facts. ranks_per_node: the number of ranks on the fullest node, but 0 where two or more ranks are
  /// all on one node, as core::Machine has it. within_node: the bandwidth at which the best rank reads a peer's memory,
  /// if some node has two ranks. node_port: the rate at which a node sends to other nodes, if there are any.
  /// Collective.
  void fill(core::Machine&) const;

 private:
  void read_neighbour();

  Session& session_;
  const runtime::Communicator& c_;
  int threads_;
  runtime::Network network_;
  std::span<float> own_;
  std::span<const float> neighbour_memory_;  ///< the `own_` of another rank on this node; empty: there is none
  std::optional<PortProbe> port_probe_;      ///< empty on one node
  /// As Machine::ranks_per_node: 0 if several ranks are all on one node, else the number of ranks on the fullest node
  /// (1: no rank has a neighbour).
  int ranks_per_node_ = 0;
  std::uint64_t rounds_ = 0;
  double best_read_ = 0;  ///< [bytes/s]
};

}  // namespace gradmeter::bench
