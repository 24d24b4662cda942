#include "dataparallel/ranks/fabric.hpp"

#include <algorithm>
#include <map>

#include "allreduce/schedule/algorithms/binomial_tree.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/ranks/background_task.hpp"
#include "dataparallel/ranks/messenger.hpp"
#include "dataparallel/ranks/operations.hpp"

namespace gradmeter::dataparallel {

/// A group of ranks with its transports: collectives and messages apart, so that each counts its own bytes.
struct RankFabric::CommGroup {
  CommGroup(runtime::Communicator c, const runtime::Network& n)
      : communicator(std::move(c)),
        collectives(n.connect(communicator, allreduce::most_lanes(communicator.size()))),
        messages(n.connect(communicator, 1)) {}
  runtime::Communicator communicator;
  std::vector<int> world_ranks;
  runtime::OwnedTransport collectives, messages;
  std::unique_ptr<allreduce::Collective> all_reduce;
  std::map<int, std::unique_ptr<allreduce::Executor>> broadcasts;  ///< by root
  std::map<allreduce::CollectiveKind, std::unique_ptr<allreduce::Collective>> others;
  std::vector<std::unique_ptr<Messenger>> messengers;
  std::string label;  ///< "all-reduce ring"
};

namespace {

allreduce::ExecutorOptions executor_options(const RankFabricOptions& o) {
  return {.placement = allreduce::Placement::in_place, .max_bytes = o.max_call_bytes};
}

allreduce::CodedRequest coded_request(const RankFabricOptions& o, allreduce::Shape shape) {
  return {.codec = *o.codec, .algorithm = *o.algorithm, .shape = shape, .options = executor_options(o)};
}

/// The chosen algorithm where it has this collective kind; the ring has all.
allreduce::AlgorithmPtr algorithm_for(const RankFabricOptions& o, allreduce::Shape shape,
                                      allreduce::CollectiveKind collective_kind) {
  const bool fits = o.algorithm && o.algorithm->has_schedule() && o.algorithm->refusal(shape, collective_kind).empty();
  return fits ? o.algorithm : allreduce::find_algorithm("ring");
}

/// For the collectives of all groups, each as large as all ranks; broadcasts need no memory that peers read.
std::size_t scratch_bytes(const RankFabricOptions& o, allreduce::Shape shape, int rank) {
  const auto r = static_cast<std::uint32_t>(rank);
  std::size_t all = 0;
  if (o.algorithm && o.codec) all = allreduce::coded_arena_bytes(coded_request(o, shape), r);
  if (o.algorithm && !o.codec) all = o.algorithm->arena_bytes(shape, r, executor_options(o));
  using enum allreduce::CollectiveKind;
  for (const auto collective_kind : {all_reduce, reduce_scatter, all_gather}) {
    const bool wanted = collective_kind == all_reduce ? !o.algorithm || o.codec : o.scatters;
    if (wanted)
      all += algorithm_for(o, shape, collective_kind)->arena_bytes(shape, r, executor_options(o), collective_kind);
  }
  return static_cast<std::size_t>(o.groups) * all;
}

std::size_t scratch_bytes(const RankFabricOptions& o, const runtime::Communicator& c) {
  return scratch_bytes(o, allreduce::shape_of(runtime::Network::nodes_of(c, {})), c.rank());
}

}  // namespace

RankFabric::RankFabric(const runtime::Communicator& c, const RankFabricOptions& o, runtime::Activity& activity)
    : options_(o),
      network_(c, {.transport = o.transport, .memory_bytes = o.memory_bytes + scratch_bytes(o, c)}),
      activity_(activity) {
  comm_groups_.push_back(make_comm_group(c.duplicate()));
  engine_ = std::make_unique<Engine>(o.progress, o.spin_policy, activity);
}

RankFabric::~RankFabric() = default;

std::size_t RankFabric::resident_bytes(const RankFabricOptions& o, int ranks) {
  const auto p = static_cast<std::uint32_t>(ranks);
  // Further ranks have the same roles as the first few.
  std::size_t most = 0;
  for (int r = 0; r < std::min(ranks, 16); ++r) most = std::max(most, scratch_bytes(o, {p, p}, r));
  return o.memory_bytes + most;
}

std::unique_ptr<RankFabric::CommGroup> RankFabric::make_comm_group(runtime::Communicator c) {
  auto comm_group = std::make_unique<CommGroup>(std::move(c), network_);
  const auto& comm = comm_group->communicator;
  comm_group->world_ranks = comm.all_gather_value(comm_groups_.empty() ? comm.rank() : rank(everybody));
  if (options_.algorithm) {
    const allreduce::Site site{comm, network_, *comm_group->collectives};
    comm_group->all_reduce =
        options_.codec
            ? allreduce::bind_coded(coded_request(options_, allreduce::shape_of(network_.nodes_of(comm))), site)
            : options_.algorithm->bind(site, executor_options(options_));
    comm_group->label = "all-reduce " + comm_group->all_reduce->name();
  }
  return comm_group;
}

RankFabric::CommGroup& RankFabric::comm_group(Group g) const {
  return *comm_groups_.at(static_cast<std::size_t>(g.id));
}
int RankFabric::rank(Group g) const { return comm_group(g).communicator.rank(); }
int RankFabric::size(Group g) const { return comm_group(g).communicator.size(); }
std::size_t RankFabric::message_bytes(Group g) const { return comm_group(g).collectives->message_bytes(); }
runtime::Arena& RankFabric::arena() { return network_.arena(); }
std::span<float> RankFabric::memory(std::size_t floats) { return network_.arena().take_of<float>(floats); }

Group RankFabric::split(int color, int key) {
  const Engine::ProgressPause progress_pause(*engine_);
  comm_groups_.push_back(make_comm_group(comm_group(everybody).communicator.split(color, key)));
  return {static_cast<int>(comm_groups_.size()) - 1};
}

void RankFabric::forget() {
  for (auto& c : comm_groups_) {
    if (c->all_reduce) c->all_reduce->forget();
  }
}

Ticket RankFabric::all_reduce(Group g, Buffer b, allreduce::Op op, Ready ready,
                              const allreduce::TensorLayout& tensor_layout) {
  CommGroup& c = comm_group(g);
  const allreduce::Call call{.in = b.host(),
                             .out = b.host(),
                             .count = b.count(),
                             .element = b.element(),
                             .op = op,
                             .tensor_layout = tensor_layout};
  // A codec is for gradients, which have a tensor layout; words and activations are sent plain.
  if (!c.all_reduce || (options_.codec && tensor_layout.tensors.empty())) {
    return collective(g, allreduce::CollectiveKind::all_reduce, call, std::move(ready));
  }
  auto ticket = std::make_shared<CollectiveOperation>(c.label.c_str(), g.id, std::move(ready), *c.all_reduce, call,
                                                      c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket RankFabric::broadcast(Group g, Buffer b, int root, Ready ready) {
  CommGroup& c = comm_group(g);
  auto& executor = c.broadcasts[root];
  if (!executor) {
    const auto ranks = static_cast<std::uint32_t>(c.communicator.size());
    executor = std::make_unique<allreduce::Executor>(
        allreduce::Algorithm{"binomial", {allreduce::binomial_broadcast(ranks, static_cast<std::uint32_t>(root))}},
        *c.collectives, network_.arena(), executor_options(options_));
  }
  auto ticket = std::make_shared<CollectiveOperation>(
      "broadcast", g.id, std::move(ready), *executor,
      allreduce::Call{b.host(), b.host(), b.count(), b.element(), allreduce::Op::sum}, c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket RankFabric::collective(Group g, allreduce::CollectiveKind collective_kind, const allreduce::Call& call,
                              Ready ready) {
  CommGroup& c = comm_group(g);
  auto& bound = c.others[collective_kind];
  if (!bound) {  // binding a schedule calls no MPI
    const allreduce::Site site{c.communicator, network_, *c.collectives};
    const auto shape = allreduce::shape_of(network_.nodes_of(c.communicator));
    bound = algorithm_for(options_, shape, collective_kind)->bind(site, executor_options(options_), collective_kind);
  }
  const char* label = collective_kind == allreduce::CollectiveKind::reduce_scatter ? "reduce-scatter"
                      : collective_kind == allreduce::CollectiveKind::all_gather   ? "all-gather"
                                                                                   : "all-reduce";
  auto ticket = std::make_shared<CollectiveOperation>(label, g.id, std::move(ready), *bound, call, c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket RankFabric::reduce_scatter(Group g, Buffer b, allreduce::Op op, Ready ready) {
  return collective(g, allreduce::CollectiveKind::reduce_scatter,
                    {.in = b.host(), .out = b.host(), .count = b.count(), .element = b.element(), .op = op},
                    std::move(ready));
}

Ticket RankFabric::all_gather(Group g, Buffer b, Ready ready) {
  return collective(g, allreduce::CollectiveKind::all_gather,
                    {.in = b.host(), .out = b.host(), .count = b.count(), .element = b.element()}, std::move(ready));
}

Ports RankFabric::open(Group g, const PortOptions& o) {
  CommGroup& c = comm_group(g);
  const Engine::ProgressPause progress_pause(*engine_);
  constexpr int roles = 2;
  auto& messenger = *c.messengers.emplace_back(std::make_unique<Messenger>(
      network_.connect(c.communicator, roles), network_.arena(), o, activity_, c.world_ranks));
  engine_->attach(messenger);
  return {.worker = messenger.port(Role::worker), .server = messenger.port(Role::server)};
}

std::unique_ptr<BackgroundTask> RankFabric::launch(std::function<void(Fabric&)> program) {
  return start_background_task(*this, *engine_, options_.background_threads, std::move(program));
}

Ticket RankFabric::send(Group g, int peer, ConstBuffer b, Ready ready) {
  auto ticket =
      std::make_shared<SendOperation>(std::move(ready), *comm_group(g).messages, peer,
                                      std::span<const std::byte>{b.host(), b.bytes()}, comm_group(g).world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket RankFabric::receive(Group g, int peer, Buffer b) {
  auto ticket = std::make_shared<ReceiveOperation>(
      *comm_group(g).messages, peer, std::span<std::byte>{b.host(), b.bytes()}, comm_group(g).world_ranks);
  engine_->submit(ticket);
  return ticket;
}

void RankFabric::wait(const Ticket& t) { engine_->wait(static_cast<EngineOperation&>(*t)); }

void RankFabric::compute(std::string_view label, model::Cost, const std::function<void()>& work) {
  const runtime::Computing note(activity_, label.data());
  const double begin = runtime::host_clock();
  work();
  if (log_) log_->push_back({label, {begin, runtime::host_clock()}});
}

void RankFabric::exchange(std::string_view label, const std::function<void()>& work) {
  const double begin = runtime::host_clock();
  work();
  if (log_) log_->push_back({.label = label, .when = {begin, runtime::host_clock()}, .exchanges = true});
}

}  // namespace gradmeter::dataparallel
