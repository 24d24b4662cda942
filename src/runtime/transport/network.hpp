// SPDX-License-Identifier: Apache-2.0
// The connections between the ranks of a job: which ranks share a node, where their memory is, and the transports
// between them.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/injection.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// The transport of messages. automatic: shm if all ranks share a node, else hybrid (shm inside a node, MPI between
/// nodes). cuda_mpi: MPI gets memory of GPUs directly. With all other kinds, messages of GPUs are copied through host
/// memory.
enum class TransportKind : std::uint8_t { automatic, mpi, shm, hybrid, cuda_mpi };
/// One row of `transport_table`, whose rows are in the order of the enumerators.
struct TransportInfo {
  TransportKind kind;
  std::string_view name, about, source;
};
std::span<const TransportInfo> transport_table();
std::string_view name(TransportKind);

/// The reason why ranks of this kind (processes or threads) that use this device ("cpu", "cuda") cannot have this
/// transport; empty: they can. Threads have shm only; cuda_mpi needs an MPI that says it is CUDA-aware.
std::string transport_refusal(TransportKind, RanksAs, std::string_view device);

struct NetworkOptions {
  TransportKind transport = TransportKind::automatic;
  std::size_t memory_bytes = 0;      ///< size of each rank's arena
  std::vector<int> fake_nodes = {};  ///< by rank: the node that it simulates; empty: all ranks are on their real nodes
  core::MessageFaults faults = {};   ///< faults to inject into all messages of the network's transports
  int world_rank = 0;                ///< this rank's number in the world, for the faults
};

/// The network of a communicator's ranks. Collective: construction, all calls with `members`, and the destructors of
/// networks and transports, which free windows. Errors: UsageError when shm is asked for over several nodes;
/// BackendError when memory is short.
class Network {
 public:
  Network(const Communicator& world, const NetworkOptions&);

  /// The node of each rank; a node's number is its lowest rank. Collective; needs no Network object.
  static std::vector<int> nodes_of(const Communicator& world, const std::vector<int>& fake_nodes);

  /// The transport in use, which is never `automatic`.
  TransportKind transport() const { return transport_; }
  /// True if transports of this network can send from and receive into memory of GPUs.
  bool takes_device_memory() const { return transport_ == TransportKind::cuda_mpi; }
  /// This rank's arena. With the transports mpi and cuda_mpi it is private memory; with the others the node's ranks
  /// share it.
  Arena& arena() { return *arena_; }
  /// The arenas that this process maps, by rank of `members`; an empty span for a rank on another node, and for all
  /// ranks if arenas are private.
  std::vector<std::span<std::byte>> arenas_of(const Communicator& members) const;
  /// Pins those arenas of this node's ranks that this process maps. While the result lives, the device copies them
  /// faster. Ranks that are threads pin only their own arena, since pinning holds for the whole process.
  std::vector<std::shared_ptr<void>> pin(Device&) const;
  /// The node of each member; a node's number is its lowest rank in the whole network.
  std::vector<int> nodes_of(const Communicator& members) const;
  /// Makes a transport over some or all ranks of the network. Messages of different transports never mix.
  std::unique_ptr<Transport> connect(const Communicator& members, int channels) const;

 private:
  bool uses_only_mpi() const { return transport_ == TransportKind::mpi || takes_device_memory(); }
  std::vector<int> ranks_of(const Communicator& members) const;
  std::unique_ptr<Transport> connect_reliably(const Communicator& members, int channels) const;

  TransportKind transport_;
  int rank_;
  Communicator node_;
  std::vector<int> node_of_;       ///< by rank of the network
  std::vector<int> rank_in_node_;  ///< by rank of the network
  std::unique_ptr<Arena> arena_;
  core::MessageFaults faults_;
  std::vector<int> world_ranks_;  ///< number of each rank of the network in the world; empty: there are no faults
  double connected_s_;            ///< host clock when construction ended
};

}  // namespace gradmeter::runtime
