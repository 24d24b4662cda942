// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/network.hpp"

#include <array>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/transport/decorators.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::runtime {
namespace {

Communicator split_by(const Communicator& world, const std::vector<int>& fake_nodes) {
  if (fake_nodes.empty()) return world.split_by_node();
  return world.split(fake_nodes.at(static_cast<std::size_t>(world.rank())), world.rank());
}

std::string cuda_mpi_refusal(std::string_view device) {
  if (device != "cuda") return "transport cuda-mpi moves memory of GPUs: add --device cuda, or use --transport mpi";
  switch (cuda_aware_mpi()) {
    case CudaAwareMpi::yes:
      return {};
    case CudaAwareMpi::no_mpi:
      return "transport cuda-mpi needs MPI, and this program was built without";
    case CudaAwareMpi::unknown:
      return "transport cuda-mpi needs a CUDA-aware MPI, and this one does not say whether it is; use --transport mpi, "
             "whose messages pass through the host";
    case CudaAwareMpi::no:
      break;
  }
  return "transport cuda-mpi needs a CUDA-aware MPI, and this one says that it is not: build Open MPI --with-cuda, or "
         "use --transport mpi, whose messages pass through the host";
}

}  // namespace

std::span<const TransportInfo> transport_table() {
  using enum TransportKind;
  static constexpr std::array table{
      TransportInfo{automatic, "auto", "shm where all ranks share a node, else hybrid", ""},
      TransportInfo{mpi, "mpi", "MPI point to point", "MPI 3.1, chapter 3"},
      TransportInfo{shm, "shm", "peers' buffers are read in shared memory", "MPI 3.1, section 11.2.3"},
      TransportInfo{hybrid, "hybrid", "shm inside a node, mpi between nodes", ""},
      TransportInfo{cuda_mpi, "cuda-mpi", "MPI point to point of GPUs' memory, where MPI is CUDA-aware",
                    "Open MPI, MPIX_Query_cuda_support(3)"},
  };
  return table;
}

std::string_view name(TransportKind t) { return transport_table()[static_cast<std::size_t>(t)].name; }

std::string transport_refusal(TransportKind t, RanksAs ranks, std::string_view device) {
  if (t == TransportKind::shm || t == TransportKind::automatic) return {};
  if (ranks == RanksAs::processes) return t == TransportKind::cuda_mpi ? cuda_mpi_refusal(device) : "";
  return fmt::format(
      "transport {} needs ranks as processes: start them by mpirun without --thread-ranks, or use --transport shm",
      name(t));
}

Network::Network(const Communicator& world, const NetworkOptions& o)
    : transport_(o.transport), rank_(world.rank()), node_(split_by(world, o.fake_nodes)), faults_(o.faults) {
  node_of_ = world.all_gather_value(node_.broadcast_value(world.rank()));
  rank_in_node_ = world.all_gather_value(node_.rank());
  const bool one_node = world.all(node_.size() == world.size());
  if (transport_ == TransportKind::automatic) transport_ = one_node ? TransportKind::shm : TransportKind::hybrid;
  if (transport_ == TransportKind::shm && !one_node) {
    throw core::UsageError("transport shm needs all ranks on one node; use --transport hybrid, mpi or auto");
  }
  // The device is not known here, so the check is made for a GPU. Callers have checked with their own device.
  if (auto why = transport_refusal(transport_, world.ranks_as(), "cuda"); !why.empty()) throw core::UsageError(why);
  if (uses_only_mpi()) {
    arena_ = std::make_unique<PrivateArena>(o.memory_bytes);
  } else {
    arena_ = std::make_unique<SharedArena>(node_, o.memory_bytes);
  }
  if (faults_.any()) world_ranks_ = world.all_gather_value(o.world_rank);
  connected_s_ = host_clock();
}

std::vector<int> Network::nodes_of(const Communicator& world, const std::vector<int>& fake_nodes) {
  return world.all_gather_value(split_by(world, fake_nodes).broadcast_value(world.rank()));
}

std::vector<int> Network::ranks_of(const Communicator& members) const { return members.all_gather_value(rank_); }

std::vector<int> Network::nodes_of(const Communicator& members) const {
  std::vector<int> out;
  for (int r : ranks_of(members)) out.push_back(node_of_[static_cast<std::size_t>(r)]);
  return out;
}

std::vector<std::span<std::byte>> Network::arenas_of(const Communicator& members) const {
  const auto ranks = ranks_of(members);
  std::vector<std::span<std::byte>> out(ranks.size());
  if (uses_only_mpi()) return out;
  const auto& shared = static_cast<const SharedArena&>(*arena_);
  const int own_node = node_of_[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto r = static_cast<std::size_t>(ranks[i]);
    if (node_of_[r] == own_node) out[i] = shared.of(rank_in_node_[r]);
  }
  return out;
}

std::vector<std::shared_ptr<void>> Network::pin(Device& device) const {
  std::vector<std::shared_ptr<void>> out{device.pin(arena_->memory())};
  const auto* const shared = dynamic_cast<const SharedArena*>(arena_.get());
  if (!shared || node_.ranks_as() == RanksAs::threads) return out;
  for (int r = 0; r < node_.size(); ++r) {
    if (r != node_.rank()) out.push_back(device.pin(shared->of(r)));
  }
  return out;
}

std::unique_ptr<Transport> Network::connect(const Communicator& members, int channels) const {
  auto reliable = connect_reliably(members, channels);
  if (!faults_.any()) return reliable;
  std::vector<int> world_ranks;
  for (int r : ranks_of(members)) world_ranks.push_back(world_ranks_[static_cast<std::size_t>(r)]);
  return std::make_unique<UnreliableTransport>(std::move(reliable), faults_, std::move(world_ranks), connected_s_);
}

std::unique_ptr<Transport> Network::connect_reliably(const Communicator& members, int channels) const {
  auto mpi = [&] { return members.member().connect(channels, nodes_of(members)); };
  if (uses_only_mpi()) return mpi();
  const Communicator local = members.split(node_of_[static_cast<std::size_t>(rank_)], members.rank());
  const std::size_t count = shared_memory_cell_count(local.size(), channels);
  // All cells of a node are in the memory of its first rank.
  const SharedParts shared = share_memory(local, local.rank() == 0 ? sizeof(SharedMemoryCell) * count : 0);
  const std::span<SharedMemoryCell> cells{reinterpret_cast<SharedMemoryCell*>(shared.of(0).data()), count};
  auto shm = std::make_unique<SharedMemoryTransport>("shm", local.rank(), local.size(), channels, cells,
                                                     arenas_of(local), shared.owner);
  if (transport_ == TransportKind::shm) return shm;
  std::vector<int> local_rank(static_cast<std::size_t>(members.size()), HybridTransport::elsewhere);
  const auto nodes = nodes_of(members);
  for (int r = 0, next = 0; r < members.size(); ++r) {
    const auto peer = static_cast<std::size_t>(r);
    if (nodes[peer] == node_of_[static_cast<std::size_t>(rank_)]) local_rank[peer] = next++;
  }
  return std::make_unique<HybridTransport>(std::move(shm), mpi(), std::move(local_rank));
}

}  // namespace gradmeter::runtime
