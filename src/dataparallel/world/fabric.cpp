#include "dataparallel/world/fabric.hpp"

#include <algorithm>
#include <map>

#include "allreduce/schedules/binomial_tree.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/world/companion.hpp"
#include "dataparallel/world/operations.hpp"
#include "dataparallel/world/post_office.hpp"

namespace gradmeter::dataparallel {

/// A group of ranks with its transports: collectives and messages apart, so that each counts its own bytes.
struct WorldFabric::Circle {
  Circle(runtime::Communicator c, const runtime::Network& n)
      : communicator(std::move(c)),
        collectives(n.connect(communicator, allreduce::most_lanes(communicator.size()))),
        messages(n.connect(communicator, 1)) {}
  runtime::Communicator communicator;
  std::vector<int> world_ranks;
  runtime::Link collectives, messages;
  std::unique_ptr<allreduce::Collective> all_reduce;
  std::map<int, std::unique_ptr<allreduce::Executor>> broadcasts;  ///< by root
  std::map<allreduce::Goal, std::unique_ptr<allreduce::Collective>> others;
  std::vector<std::unique_ptr<PostOffice>> offices;
  std::string label;  ///< "all-reduce ring"
};

namespace {

allreduce::ExecutorOptions executor_options(const WorldFabricOptions& o) {
  return {.placement = allreduce::Placement::in_place, .max_bytes = o.max_call_bytes};
}

allreduce::CodedRequest coded_request(const WorldFabricOptions& o, allreduce::Shape shape) {
  return {.codec = *o.codec, .algorithm = *o.algorithm, .shape = shape, .options = executor_options(o)};
}

/// The one that was chosen where it has the goal; the ring has all.
allreduce::AlgorithmPtr algorithm_for(const WorldFabricOptions& o, allreduce::Shape shape, allreduce::Goal goal) {
  const bool fits = o.algorithm && o.algorithm->has_schedule() && o.algorithm->refusal(shape, goal).empty();
  return fits ? o.algorithm : allreduce::find_algorithm("ring");
}

/// Of the collectives of all groups, as if each were everybody; broadcasts need no memory that peers read.
std::size_t scratch_bytes(const WorldFabricOptions& o, allreduce::Shape shape, int rank) {
  const auto r = static_cast<std::uint32_t>(rank);
  std::size_t all = 0;
  if (o.algorithm && o.codec) all = allreduce::coded_arena_bytes(coded_request(o, shape), r);
  if (o.algorithm && !o.codec) all = o.algorithm->arena_bytes(shape, r, executor_options(o));
  using enum allreduce::Goal;
  for (const auto goal : {all_reduce, reduce_scatter, all_gather}) {
    const bool wanted = goal == all_reduce ? !o.algorithm || o.codec : o.scatters;
    if (wanted) all += algorithm_for(o, shape, goal)->arena_bytes(shape, r, executor_options(o), goal);
  }
  return static_cast<std::size_t>(o.groups) * all;
}

std::size_t scratch_bytes(const WorldFabricOptions& o, const runtime::Communicator& c) {
  return scratch_bytes(o, allreduce::shape_of(runtime::Network::nodes_of(c, {})), c.rank());
}

}  // namespace

WorldFabric::WorldFabric(const runtime::Communicator& c, const WorldFabricOptions& o, runtime::Activity& activity)
    : options_(o),
      network_(c, {.transport = o.transport, .memory_bytes = o.memory_bytes + scratch_bytes(o, c)}),
      activity_(activity) {
  circles_.push_back(make_circle(c.duplicate()));
  engine_ = std::make_unique<Engine>(o.progress, o.patience, activity);
}

WorldFabric::~WorldFabric() = default;

std::size_t WorldFabric::resident_bytes(const WorldFabricOptions& o, int ranks) {
  const auto p = static_cast<std::uint32_t>(ranks);
  // Ranks beyond the first few play the same parts again.
  std::size_t most = 0;
  for (int r = 0; r < std::min(ranks, 16); ++r) most = std::max(most, scratch_bytes(o, {p, p}, r));
  return o.memory_bytes + most;
}

std::unique_ptr<WorldFabric::Circle> WorldFabric::make_circle(runtime::Communicator c) {
  auto circle = std::make_unique<Circle>(std::move(c), network_);
  const auto& comm = circle->communicator;
  circle->world_ranks = comm.all_gather_value(circles_.empty() ? comm.rank() : rank(everybody));
  if (options_.algorithm) {
    const allreduce::Site site{comm, network_, *circle->collectives};
    circle->all_reduce =
        options_.codec
            ? allreduce::bind_coded(coded_request(options_, allreduce::shape_of(network_.nodes_of(comm))), site)
            : options_.algorithm->bind(site, executor_options(options_));
    circle->label = "all-reduce " + circle->all_reduce->name();
  }
  return circle;
}

WorldFabric::Circle& WorldFabric::circle(Group g) const { return *circles_.at(static_cast<std::size_t>(g.id)); }
int WorldFabric::rank(Group g) const { return circle(g).communicator.rank(); }
int WorldFabric::size(Group g) const { return circle(g).communicator.size(); }
std::size_t WorldFabric::message_bytes(Group g) const { return circle(g).collectives->message_bytes(); }
runtime::Arena& WorldFabric::arena() { return network_.arena(); }
std::span<float> WorldFabric::memory(std::size_t floats) { return network_.arena().take_of<float>(floats); }

Group WorldFabric::split(int color, int key) {
  const Engine::Quiet quiet(*engine_);
  circles_.push_back(make_circle(circle(everybody).communicator.split(color, key)));
  return {static_cast<int>(circles_.size()) - 1};
}

void WorldFabric::forget() {
  for (auto& c : circles_) {
    if (c->all_reduce) c->all_reduce->forget();
  }
}

Ticket WorldFabric::all_reduce(Group g, Buffer b, allreduce::Op op, Ready ready, const allreduce::Contents& contents) {
  Circle& c = circle(g);
  const allreduce::Call call{
      .in = b.host(), .out = b.host(), .count = b.count(), .element = b.element(), .op = op, .contents = contents};
  // A codec is for gradients, which say what they are; words and activations go plain.
  if (!c.all_reduce || (options_.codec && contents.tensors.empty())) {
    return collective(g, allreduce::Goal::all_reduce, call, std::move(ready));
  }
  auto ticket = std::make_shared<CollectiveOperation>(c.label.c_str(), g.id, std::move(ready), *c.all_reduce, call,
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
        *c.collectives, network_.arena(), executor_options(options_));
  }
  auto ticket = std::make_shared<CollectiveOperation>(
      "broadcast", g.id, std::move(ready), *executor,
      allreduce::Call{b.host(), b.host(), b.count(), b.element(), allreduce::Op::sum}, c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket WorldFabric::collective(Group g, allreduce::Goal goal, const allreduce::Call& call, Ready ready) {
  Circle& c = circle(g);
  auto& bound = c.others[goal];
  if (!bound) {  // a schedule's binding calls no MPI
    const allreduce::Site site{c.communicator, network_, *c.collectives};
    const auto shape = allreduce::shape_of(network_.nodes_of(c.communicator));
    bound = algorithm_for(options_, shape, goal)->bind(site, executor_options(options_), goal);
  }
  const char* label = goal == allreduce::Goal::reduce_scatter ? "reduce-scatter"
                      : goal == allreduce::Goal::all_gather   ? "all-gather"
                                                              : "all-reduce";
  auto ticket = std::make_shared<CollectiveOperation>(label, g.id, std::move(ready), *bound, call, c.world_ranks);
  engine_->submit(ticket);
  return ticket;
}

Ticket WorldFabric::reduce_scatter(Group g, Buffer b, allreduce::Op op, Ready ready) {
  return collective(g, allreduce::Goal::reduce_scatter,
                    {.in = b.host(), .out = b.host(), .count = b.count(), .element = b.element(), .op = op},
                    std::move(ready));
}

Ticket WorldFabric::all_gather(Group g, Buffer b, Ready ready) {
  return collective(g, allreduce::Goal::all_gather,
                    {.in = b.host(), .out = b.host(), .count = b.count(), .element = b.element()}, std::move(ready));
}

Ports WorldFabric::open(Group g, const MailOptions& o) {
  Circle& c = circle(g);
  const Engine::Quiet quiet(*engine_);
  constexpr int roles = 2;
  auto& office = *c.offices.emplace_back(std::make_unique<PostOffice>(network_.connect(c.communicator, roles),
                                                                      network_.arena(), o, activity_, c.world_ranks));
  engine_->attach(office);
  return {.worker = office.port(Role::worker), .server = office.port(Role::server)};
}

std::unique_ptr<Companion> WorldFabric::launch(std::function<void(Fabric&)> program) {
  return start_companion(*this, *engine_, options_.companion_threads, std::move(program));
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

void WorldFabric::exchange(std::string_view label, const std::function<void()>& work) {
  const double begin = runtime::host_clock();
  work();
  if (log_) log_->push_back({.label = label, .when = {begin, runtime::host_clock()}, .exchanges = true});
}

}  // namespace gradmeter::dataparallel
