#include "dataparallel/world_fabric.hpp"

#include <algorithm>
#include <map>

#include "allreduce/broadcast.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/operations.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/mpi_transport.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr int collective_channels = 4;  // pipelines that run side by side

/// Which node each member is on: nodes are numbered by their lowest member.
std::vector<int> nodes_of(const runtime::Communicator& all, const runtime::Communicator& node) {
  return all.all_gather_value(node.broadcast_value(all.rank()));
}

}  // namespace

/// A group of ranks with its transports: collectives and messages apart, so that each counts its own bytes.
struct WorldFabric::Circle {
  explicit Circle(runtime::Communicator c) : communicator(std::move(c)) {}
  runtime::Communicator communicator;
  std::vector<int> world_ranks;
  std::unique_ptr<runtime::SharedWindow> cells;
  std::unique_ptr<runtime::Transport> collectives, messages;
  std::unique_ptr<allreduce::AllReduce> all_reduce;
  std::map<int, std::unique_ptr<allreduce::Executor>> broadcasts;  ///< by root
  std::string label;                                               ///< "all-reduce ring"
};

namespace {

/// Two sets of cells in rank 0's part of a shared window.
struct CellSets {
  std::span<runtime::MailboxCell> collectives, messages;
  static std::size_t bytes(int size) {
    return sizeof(runtime::MailboxCell) *
           (runtime::mailbox_cell_count(size, collective_channels) + runtime::mailbox_cell_count(size, 1));
  }
  CellSets(std::span<std::byte> memory, int size) {
    auto* first = reinterpret_cast<runtime::MailboxCell*>(memory.data());
    const auto n = runtime::mailbox_cell_count(size, collective_channels);
    collectives = {first, n};
    messages = {first + n, runtime::mailbox_cell_count(size, 1)};
  }
};

std::size_t scratch_bytes(const WorldFabricOptions& o, int ranks) {
  // Alternate and landing for each pipeline: a slice holds a message for each block, at most one block a rank.
  const std::size_t slice = std::min(o.max_call_bytes, std::size_t{static_cast<unsigned>(ranks)} << 20);
  const std::size_t one =
      std::size_t{2} * collective_channels * (slice + 4096 + 256 * static_cast<std::size_t>(ranks) + 8192);
  return 3 * one;  // the all-reduce, and a broadcast from a root or two
}

}  // namespace

WorldFabric::WorldFabric(const runtime::Communicator& c, const WorldFabricOptions& o, runtime::Activity& activity)
    : options_(o), transport_(o.transport), activity_(activity), node_(c.split_by_node()) {
  node_of_world_ = nodes_of(c, node_);
  const bool one_node = node_.size() == c.size();
  if (transport_ == TransportKind::automatic) transport_ = c.all(one_node) ? TransportKind::shm : TransportKind::mpi;
  if (transport_ == TransportKind::shm && c.any(!one_node)) {
    throw core::UsageError("transport shm needs all ranks on one node; use --transport mpi or auto");
  }
  const std::size_t bytes = o.memory_bytes + scratch_bytes(o, c.size());
  if (transport_ == TransportKind::shm) {
    arena_ = std::make_unique<runtime::SharedArena>(node_, bytes);
  } else {
    arena_ = std::make_unique<runtime::PrivateArena>(bytes);
  }
  circles_.push_back(make_circle(c.duplicate()));
  engine_ = std::make_unique<Engine>(o.progress, o.patience, activity);
}

WorldFabric::~WorldFabric() = default;

std::size_t WorldFabric::resident_bytes(const WorldFabricOptions& o, int ranks) {
  return o.memory_bytes + scratch_bytes(o, ranks);
}

std::unique_ptr<WorldFabric::Circle> WorldFabric::make_circle(runtime::Communicator c) {
  auto circle = std::make_unique<Circle>(std::move(c));
  const auto& comm = circle->communicator;
  circle->world_ranks = comm.all_gather_value(circles_.empty() ? comm.rank() : rank(everybody));
  std::vector<int> node_of;
  for (int r : circle->world_ranks) node_of.push_back(node_of_world_[static_cast<std::size_t>(r)]);
  if (transport_ == TransportKind::shm) {
    circle->cells = std::make_unique<runtime::SharedWindow>(comm, comm.rank() == 0 ? CellSets::bytes(comm.size()) : 0);
    const CellSets cells(circle->cells->of(0), comm.size());
    runtime::MailboxMemory memory;
    for (int r : circle->world_ranks) memory.parts.push_back(static_cast<runtime::SharedArena&>(*arena_).of(r));
    circle->collectives = std::make_unique<runtime::MailboxTransport>("shm", comm.rank(), comm.size(),
                                                                      collective_channels, cells.collectives, memory);
    circle->messages =
        std::make_unique<runtime::MailboxTransport>("shm", comm.rank(), comm.size(), 1, cells.messages, memory);
  } else {
    circle->collectives = std::make_unique<runtime::MpiTransport>(comm, collective_channels, node_of);
    circle->messages = std::make_unique<runtime::MpiTransport>(comm, 1, node_of);
  }
  if (options_.algorithm) {
    const auto ranks = static_cast<std::uint32_t>(comm.size());
    circle->all_reduce =
        make_all_reduce(*options_.algorithm, {comm, *circle->collectives, *arena_, {ranks, ranks}},
                        {.placement = allreduce::Placement::in_place, .max_bytes = options_.max_call_bytes});
    circle->label = "all-reduce " + std::string(options_.algorithm->name);
  }
  return circle;
}

WorldFabric::Circle& WorldFabric::circle(Group g) const { return *circles_.at(static_cast<std::size_t>(g.id)); }
int WorldFabric::rank(Group g) const { return circle(g).communicator.rank(); }
int WorldFabric::size(Group g) const { return circle(g).communicator.size(); }
runtime::Arena& WorldFabric::memory() { return *arena_; }

Group WorldFabric::split(int color, int key) {
  circles_.push_back(make_circle(circle(everybody).communicator.split(color, key)));
  return {static_cast<int>(circles_.size()) - 1};
}

Ticket WorldFabric::all_reduce(Group g, Buffer b, allreduce::Op op, Ready ready) {
  Circle& c = circle(g);
  if (!c.all_reduce)
    throw core::BackendError("dataparallel", "all_reduce", "this fabric was made without an algorithm");
  auto ticket = std::make_shared<CollectiveOperation>(c.label.c_str(), g.id, std::move(ready), *c.all_reduce,
                                                      allreduce::Call{b.host(), b.host(), b.count(), b.element(), op},
                                                      c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket WorldFabric::broadcast(Group g, Buffer b, int root, Ready ready) {
  Circle& c = circle(g);
  auto& executor = c.broadcasts[root];
  if (!executor) {
    const auto ranks = static_cast<std::uint32_t>(c.communicator.size());
    executor = std::make_unique<allreduce::Executor>(
        allreduce::Algorithm{"binomial", {allreduce::binomial_broadcast(ranks, static_cast<std::uint32_t>(root))}},
        *c.collectives, *arena_,
        allreduce::ExecutorOptions{.placement = allreduce::Placement::in_place, .max_bytes = options_.max_call_bytes});
  }
  auto ticket = std::make_shared<CollectiveOperation>(
      "broadcast", g.id, std::move(ready), *executor,
      allreduce::Call{b.host(), b.host(), b.count(), b.element(), allreduce::Op::sum}, c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket WorldFabric::send(Group g, int peer, ConstBuffer b, Ready ready) {
  auto ticket = std::make_shared<SendOperation>(std::move(ready), *circle(g).messages, peer,
                                                std::span<const std::byte>{b.host(), b.bytes()}, circle(g).world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket WorldFabric::receive(Group g, int peer, Buffer b) {
  auto ticket = std::make_shared<ReceiveOperation>(*circle(g).messages, peer, std::span<std::byte>{b.host(), b.bytes()},
                                                   circle(g).world_ranks);
  engine_->submit(ticket);
  return ticket;
}

void WorldFabric::wait(const Ticket& t) { engine_->wait(static_cast<EngineOperation&>(*t)); }

void WorldFabric::compute(std::string_view label, model::Cost, const std::function<void()>& work) {
  const runtime::Computing note(activity_, label.data());
  const double begin = runtime::host_clock();
  work();
  if (log_) log_->push_back({label, {begin, runtime::host_clock()}});
}

}  // namespace gradmeter::dataparallel
