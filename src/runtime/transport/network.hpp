// How the ranks of a job reach each other: which share a node, where their memory lies, and the transports between
// them.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/message_faults.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::runtime {

/// How messages travel. automatic: shm where all ranks share a node, else hybrid (shm inside a node, MPI between).
/// cuda_mpi: MPI is given memory of GPUs as it is; with all others their messages pass through the host's.
enum class TransportKind : std::uint8_t { automatic, mpi, shm, hybrid, cuda_mpi };
/// One row, in the order of the enumerators.
struct TransportInfo {
  TransportKind kind;
  std::string_view name, about, source;
};
std::span<const TransportInfo> transport_table();
std::string_view name(TransportKind);

/// Why ranks of this kind that drive this device ("cpu", "cuda") cannot have this transport; empty: they can. Threads
/// have shm; cuda_mpi needs an MPI that says it is CUDA-aware.
std::string transport_refusal(TransportKind, RanksAs, std::string_view device);

struct NetworkOptions {
  TransportKind transport = TransportKind::automatic;
  std::size_t memory_bytes = 0;      ///< of each rank's arena
  std::vector<int> fake_nodes = {};  ///< by rank: the node that it plays on; empty: where it really is
  core::MessageFaults faults = {};   ///< of all messages of its transports
  int world_rank = 0;                ///< this rank's in the world, for the faults
};

/// A transport with the shared memory it needs, if any.
class OwnedTransport {
 public:
  OwnedTransport(std::unique_ptr<SharedWindow> cells, std::unique_ptr<Transport> t)
      : cells_(std::move(cells)), transport_(std::move(t)) {}
  Transport& operator*() const { return *transport_; }
  Transport* operator->() const { return transport_.get(); }
  /// Puts what `wrap` makes of the transport in its place.
  template <class Wrap>
  void replace(Wrap wrap) {
    transport_ = wrap(std::move(transport_));
  }

 private:
  std::unique_ptr<SharedWindow> cells_;
  std::unique_ptr<Transport> transport_;  ///< after the cells that it uses
};

/// Collective over the communicator, as are `connect` and the destructor's window.
/// Errors: UsageError when shm is asked for over several nodes; BackendError when memory is short.
class Network {
 public:
  Network(const Communicator& all, const NetworkOptions&);

  /// Collective. The node of each rank, numbered by lowest rank: known before a network is made.
  static std::vector<int> nodes_of(const Communicator& all, const std::vector<int>& fake_nodes);

  /// Never automatic.
  TransportKind transport() const { return transport_; }
  /// May messages of its transports be memory of GPUs?
  bool takes_device_memory() const { return transport_ == TransportKind::cuda_mpi; }
  /// Shared by the node's ranks unless the transport is mpi or cuda_mpi; private then.
  Arena& arena() { return *arena_; }
  /// Arenas that this process maps, by rank of `members`; an empty span for a rank on another node.
  std::vector<std::span<std::byte>> arenas_of(const Communicator& members) const;
  /// What of the node's arenas this rank's process maps, pinned for a device's copies while the result lives. Threads
  /// pin their own, which holds for all.
  std::vector<std::shared_ptr<void>> pin(Device&) const;
  /// The node of each member, numbered by lowest rank in the whole network.
  std::vector<int> nodes_of(const Communicator& members) const;
  /// A new transport over some or all ranks of the network; messages of two transports never meet.
  OwnedTransport connect(const Communicator& members, int channels) const;

 private:
  bool is_mpi_alone() const { return transport_ == TransportKind::mpi || takes_device_memory(); }
  std::vector<int> ranks_of(const Communicator& members) const;
  OwnedTransport connect_reliably(const Communicator& members, int channels) const;

  TransportKind transport_;
  int rank_;
  Communicator node_;
  std::vector<int> node_of_;       ///< by rank of the network
  std::vector<int> rank_in_node_;  ///< by rank of the network
  std::unique_ptr<Arena> arena_;
  core::MessageFaults faults_;
  std::vector<int> world_ranks_;  ///< by rank of the network; empty: no faults
  double connected_s_;            ///< on the host clock
};

}  // namespace gradmeter::runtime
