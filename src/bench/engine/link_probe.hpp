// How fast bytes come to a rank at best, measured over and over on the same ranks as the steps that are held against
// it.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/engine/session.hpp"
#include "runtime/network.hpp"

namespace gradmeter::bench {

/// What must be moved in a step at least [bytes]: by one rank, and by one node to the others.
struct LeastSent {
  double rank = 0, node = 0;
};

/// memory: what a rank reads of a peer's memory on its node; port: what the ranks of one node send to another node
/// together. 0: there is no peer there.
struct LinkRates {
  core::BytesPerSecond memory = {}, port = {};
};

/// No exchange can be shorter: a node's bytes go through its port, and a rank's come by both ways at once at best.
core::Seconds least_exchange_time(LeastSent, LinkRates);

/// To whom each rank sends over the border of its node: ranks of a node to those of the next, place by place.
std::vector<int> partners_on_next_node(std::span<const int> node_of);

/// What a node sends to the next while all do: counterparts exchange long messages by MPI, less the time of a short
/// one. The best of all rounds and sizes: a mean may be beaten by any call that the machine is kinder to, a bound may
/// not.
class PortProbe {
 public:
  /// Collective over `c`, which must outlive it, as is `round`. node_of: by rank; of more nodes than one.
  PortProbe(Session&, const runtime::Communicator& c, std::span<const int> node_of);
  /// Some milliseconds, while no other thread uses MPI.
  void round();
  /// Of the ranks of a node together, alike on all ranks; 0 before the first round.
  core::BytesPerSecond rate() const { return {best_}; }

 private:
  double exchange(std::size_t bytes);

  Session& session_;
  const runtime::Communicator& c_;
  int most_mates_;  ///< ranks on the fullest node
  int to_;
  runtime::Network network_;
  runtime::OwnedTransport link_;
  std::vector<std::byte> leaving_;
  std::vector<std::pair<int, std::vector<std::byte>>> arriving_;  ///< from whom, and where to
  std::size_t message_bytes_;
  double best_ = 0;                                            ///< [bytes/s]
  double shortest_ = std::numeric_limits<double>::infinity();  ///< exchange of a short message [s]
};

/// Rates are the best of all rounds, ranks and sizes. On a node a reader loads what its neighbour has just written,
/// into no place of its own: any transport must do that much, whether it copies, adds or both, and from the caches
/// where they still have it. Between nodes as PortProbe says.
class LinkProbe {
 public:
  /// Collective over `c`, which must outlive it. fake_nodes: as NetworkOptions has them.
  LinkProbe(Session&, const runtime::Communicator& c, int threads, const std::vector<int>& fake_nodes = {});
  /// Collective, some milliseconds: while no other thread uses MPI.
  void round();
  /// Collective: of the best rank.
  LinkRates rates() const;

 private:
  void read_neighbour();

  Session& session_;
  const runtime::Communicator& c_;
  int threads_;
  runtime::Network network_;
  std::span<float> own_;
  std::span<const float> neighbours_;  ///< the same of another rank on this node; empty: there is none
  std::optional<PortProbe> port_;      ///< empty on one node
  std::uint64_t rounds_ = 0;
  double best_read_ = 0;  ///< [bytes/s]
};

}  // namespace gradmeter::bench
