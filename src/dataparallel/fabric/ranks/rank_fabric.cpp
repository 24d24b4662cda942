// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/ranks/rank_fabric.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "allreduce/schedule/algorithms.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/fabric/ranks/engine.hpp"
#include "dataparallel/fabric/ranks/messenger.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::dataparallel {

namespace {

/// The context in which a background task on a real rank computes. Rank and size are those of `owner`.
class ThreadContext final : public ExecutionContext {
 public:
  explicit ThreadContext(const ExecutionContext& owner) : owner_(owner) {}
  int rank(Group g) const override { return owner_.rank(g); }
  int size(Group g) const override { return owner_.size(g); }
  void submit(std::string_view label, runtime::Cost, const runtime::Work& work) override {
    const double begin = runtime::host_clock();
    work();
    if (log_) log_->push_back({label, {begin, runtime::host_clock()}});
  }
  void log_to(ComputeLog* log) override { log_ = log; }
  double now() const override { return runtime::host_clock(); }

 private:
  const ExecutionContext& owner_;
  ComputeLog* log_ = nullptr;
};

/// A background task on a real rank, with a thread of its own. Tells `engine` of the task's errors, and of its own
/// destruction without `join`; both make all calls under way fail. Owner and engine must outlive the task.
class ThreadTask final : public BackgroundTask {
 public:
  /// threads: the number of threads of the task's kernels.
  ThreadTask(const ExecutionContext& owner, Engine& engine, int threads, BackgroundProgram program)
      : engine_(engine), thread_([this, &owner, threads, program = std::move(program)] {
          try {
            kernels::set_compute_threads(threads);
            ThreadContext context(owner);
            program(context);
          } catch (...) {
            error_ = std::current_exception();
            engine_.report(error_);
          }
        }) {}

  ~ThreadTask() override {
    if (!thread_.joinable()) return;
    // An exception is unwinding the owner, which will not tell the task to end any more; this error ends it.
    engine_.report(
        std::make_exception_ptr(core::BackendError("dataparallel", "background task", "its worker ended before it")));
    thread_.join();
  }

  void join() override {
    thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Engine& engine_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

/// A group of ranks with its transports: collectives and messages apart, so that each counts its own bytes.
struct RankFabric::CommGroup {
  CommGroup(runtime::Communicator c, const runtime::Network& n)
      : communicator(std::move(c)),
        collectives(n.connect(communicator, allreduce::most_lanes(communicator.size()))),
        messages(n.connect(communicator, 1)) {}
  runtime::Communicator communicator;
  std::vector<int> world_ranks;
  std::unique_ptr<runtime::Transport> collectives, messages;
  std::unique_ptr<allreduce::Collective> all_reduce;
  std::map<std::pair<CallKind, int>, std::unique_ptr<allreduce::Collective>> other_collectives;  ///< by kind and root
  std::vector<std::unique_ptr<Messenger>> messengers;
  std::string label;  ///< "all-reduce ring"
};

namespace {

/// The spec for calls without a codec.
allreduce::ExchangeSpec without_codec(allreduce::ExchangeSpec spec) {
  spec.codec = nullptr;
  return spec;
}

allreduce::ExchangeSpec on_ranks(allreduce::ExchangeSpec spec, allreduce::RankShape shape) {
  spec.shape = shape;
  return spec;
}

/// The chosen algorithm if it has this collective kind, otherwise the ring, which has all kinds.
allreduce::AlgorithmPtr algorithm_for(const allreduce::AlgorithmPtr& chosen, allreduce::RankShape shape,
                                      allreduce::CollectiveKind collective_kind) {
  const bool fits = chosen && chosen->has_schedule() && chosen->refusal(shape, collective_kind).empty();
  return fits ? chosen : allreduce::find_algorithm("ring");
}

/// The bytes of the arena that the collectives of all groups need, if each group were as large as all ranks. Broadcasts
/// need none.
std::size_t scratch_bytes(const RankFabricOptions& options, allreduce::RankShape shape, int rank) {
  const auto r = static_cast<std::uint32_t>(rank);
  const allreduce::AlgorithmPtr& algorithm = options.exchange.algorithm;
  const bool codec = options.exchange.codec != nullptr;
  const allreduce::ExchangeSpec plain = without_codec(options.exchange);
  std::size_t arena_bytes = 0;
  if (algorithm && codec) arena_bytes = allreduce::coded_arena_bytes(on_ranks(options.exchange, shape), r);
  if (algorithm && !codec) arena_bytes = algorithm->arena_bytes(shape, r, plain);
  using enum allreduce::CollectiveKind;
  for (const auto collective_kind : {all_reduce, reduce_scatter, all_gather}) {
    const bool wanted = collective_kind == all_reduce ? !algorithm || codec : options.uses_reduce_scatter;
    if (wanted)
      arena_bytes += algorithm_for(algorithm, shape, collective_kind)->arena_bytes(shape, r, plain, collective_kind);
  }
  return static_cast<std::size_t>(options.groups) * arena_bytes;
}

std::size_t scratch_bytes(const RankFabricOptions& options, const runtime::Communicator& c) {
  return scratch_bytes(options, allreduce::shape_of(runtime::Network::nodes_of(c, {})), c.rank());
}

}  // namespace

RankFabric::RankFabric(const runtime::Communicator& c, const RankFabricOptions& options, runtime::Activity& activity)
    : options_(options),
      network_(c, {.transport = options.transport,
                   .memory_bytes = options.memory_bytes + scratch_bytes(options, c),
                   .faults = options.message_faults,
                   .world_rank = options.world_rank}),
      activity_(activity),
      queue_(options.queue ? options.queue : &host_queue_) {
  if (device().is_staged()) {
    pinned_ = network_.pin(device());
    copies_ = device().make_queue();
  }
  comm_groups_.push_back(make_comm_group(c.duplicate()));
  engine_ = std::make_unique<Engine>(options.progress, options.spin_policy, activity);
}

// After an error, an abandoned call may still have work under way on the memory of its collective.
RankFabric::~RankFabric() {
  engine_.reset();
  if (!options_.exchange.queue) return;
  try {
    options_.exchange.queue->synchronise();
  } catch (
      ...) {  // NOLINT(bugprone-empty-catch): the thread that polled the queue's events has thrown its error already
  }
}

std::size_t RankFabric::resident_bytes(const RankFabricOptions& options, int ranks) {
  const auto p = static_cast<std::uint32_t>(ranks);
  // Higher ranks need no more memory than the first 16, since their roles in schedules are the same.
  std::size_t most = 0;
  for (int r = 0; r < std::min(ranks, 16); ++r) most = std::max(most, scratch_bytes(options, {p, p}, r));
  return options.memory_bytes + most;
}

std::unique_ptr<RankFabric::CommGroup> RankFabric::make_comm_group(runtime::Communicator c) {
  auto comm_group = std::make_unique<CommGroup>(std::move(c), network_);
  const auto& comm = comm_group->communicator;
  comm_group->world_ranks = comm.all_gather_value(comm_groups_.empty() ? comm.rank() : rank(everybody));
  if (const allreduce::ExchangeSpec& spec = options_.exchange; spec.algorithm) {
    const allreduce::GroupConnection connection{comm, network_, *comm_group->collectives};
    comm_group->all_reduce = spec.codec
                                 ? allreduce::bind_coded(on_ranks(spec, allreduce::shape_of(network_.nodes_of(comm))),
                                                         connection, options_.codec_seed)
                                 : spec.algorithm->bind(connection, spec);
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
Buffer RankFabric::memory(std::size_t floats) {
  const std::span<std::byte> in_arena = network_.arena().take(floats * sizeof(float));
  return buffers_.emplace_back(device().allocate_beside(core::Element::f32, in_arena)).buffer;
}

Group RankFabric::split(int color, int key) {
  comm_groups_.push_back(make_comm_group(comm_group(everybody).communicator.split(color, key)));
  return {static_cast<int>(comm_groups_.size()) - 1};
}

void RankFabric::forget() {
  for (auto& c : comm_groups_) {
    if (c->all_reduce) c->all_reduce->forget();
  }
}

Ticket RankFabric::start(const FabricCall& given) {
  FabricCall call = given;
  const bool needs_copies = is_staged(given);
  if (needs_copies) {
    // The event is recorded on the queue of copies, so the call also begins after the copy of an earlier call's result,
    // whose host memory `out` may share.
    copies_->begin_after(call.ready);
    copies_->to_transport(call.in);
    call.ready = copies_->record();
  }
  EngineTicket ticket = operation(call);
  if (needs_copies && call.out.count() > 0) arriving_.insert_or_assign(ticket, call.out);
  engine_->submit(ticket);
  return ticket;
}

bool RankFabric::is_staged(const FabricCall& call) {
  if (!copies_) return false;
  if (call.kind == CallKind::send || call.kind == CallKind::receive) return true;
  return !collective(comm_group(call.group), call).works_on_device_memory();
}

EngineTicket RankFabric::operation(const FabricCall& call) {
  CommGroup& group = comm_group(call.group);
  const std::span<const std::byte> in{device().transport_address(call.in), call.in.bytes()};
  const std::span<std::byte> out{device().transport_address(call.out), call.out.bytes()};
  if (call.kind == CallKind::send || call.kind == CallKind::receive)
    return std::make_shared<MessageOperation>(call.kind, call.ready, *group.messages, call.peer, in, out,
                                              group.world_ranks);
  allreduce::Collective& bound = collective(group, call);
  allreduce::Call bound_call{.in = call.in, .out = call.out, .op = call.op, .tensor_layout = call.tensor_layout};
  if (!bound.takes_device_memory()) bound_call.in = {call.in.element(), in}, bound_call.out = {call.out.element(), out};
  const int sequence = bound.holds_up_other_calls() ? ordered_collectives : call.group.id;
  return std::make_shared<CollectiveOperation>(
      &bound == group.all_reduce.get() ? group.label.c_str() : label(call.kind), sequence, call.ready, bound,
      bound_call, group.world_ranks);
}

allreduce::Collective& RankFabric::collective(CommGroup& group, const FabricCall& call) {
  // A codec is for gradients, which have a tensor layout; all other values, such as activations, are sent without it.
  const bool goes_plain = options_.exchange.codec && call.tensor_layout.tensors.empty();
  if (call.kind == CallKind::all_reduce && group.all_reduce && !goes_plain) return *group.all_reduce;
  auto& bound = group.other_collectives[{call.kind, call.peer}];
  if (bound) return *bound;
  if (call.kind == CallKind::broadcast) {
    allreduce::ExchangeSpec spec = without_codec(options_.exchange);
    spec.transport_takes_device = network_.takes_device_memory();
    const auto ranks = static_cast<std::uint32_t>(group.communicator.size()),
               root = static_cast<std::uint32_t>(call.peer);
    bound = std::make_unique<allreduce::Executor>(
        allreduce::ScheduledAlgorithm{"binomial", {allreduce::binomial_broadcast(ranks, root)}}, *group.collectives,
        network_.arena(), std::move(spec));
  } else {  // binding a schedule calls no MPI
    const allreduce::GroupConnection connection{group.communicator, network_, *group.collectives};
    const auto shape = allreduce::shape_of(network_.nodes_of(group.communicator));
    const auto kind = collective_kind(call.kind);
    bound = algorithm_for(options_.exchange.algorithm, shape, kind)
                ->bind(connection, without_codec(options_.exchange), kind);
  }
  return *bound;
}

Ports RankFabric::open(Group g, const PortOptions& o) {
  CommGroup& group = comm_group(g);
  auto& messenger = *group.messengers.emplace_back(
      std::make_unique<Messenger>(network_.connect(group.communicator, Messenger::channels), network_.arena(), o,
                                  activity_, group.world_ranks, options_.worker_spin_policy));
  engine_->attach(messenger);
  return {.worker = messenger.port(Role::worker), .server = messenger.port(Role::server)};
}

std::unique_ptr<BackgroundTask> RankFabric::launch(BackgroundProgram program) {
  return std::make_unique<ThreadTask>(*this, *engine_, options_.background_threads, std::move(program));
}

void RankFabric::wait(const Ticket& t) {
  engine_->wait(static_cast<PendingEngineCall&>(*t));
  const auto arriving = arriving_.find(t);
  if (arriving == arriving_.end()) return;
  copies_->from_transport(arriving->second);
  queue_->begin_after(copies_->record());
  arriving_.erase(arriving);
}

/// A piece of work, and the log that was set when the work was submitted. A device may run it later, in another step.
struct RankFabric::LoggedWork {
  RankFabric& fabric;
  std::string_view label;
  const runtime::Work& work;
  ComputeLog* log;
  void operator()() const { fabric.run(label, work, false, log); }
  runtime::StoredWork stored() const {
    return [&f = fabric, name = label, copy = work.stored(), to = log] { f.run(name, copy, false, to); };
  }
};

void RankFabric::submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) {
  if (queue_ == &host_queue_) return run(label, work, false, log_);
  queue_->submit(label, cost, LoggedWork{*this, label, work, log_});
}

void RankFabric::handle_messages(std::string_view label, const runtime::Work& work) { run(label, work, true, log_); }

void RankFabric::run(std::string_view label, const runtime::Work& work, bool is_exchange, ComputeLog* log) {
  std::optional<runtime::Computing> note;
  if (!is_exchange) note.emplace(activity_, label.data());
  if (runtime::device_access && log) {
    if (runtime::EventPtr begin = runtime::device_access->mark()) {
      return run_marked(label, work, std::move(begin), *log);
    }
  }
  const double begin = runtime::host_clock();
  work();
  const Interval when{begin, runtime::host_clock()};
  const auto lock = log_lock();
  if (log) log->push_back({label, when, is_exchange});
}

void RankFabric::run_marked(std::string_view label, const runtime::Work& work, runtime::EventPtr begin,
                            ComputeLog& log) {
  work();
  marked_.push_back({label, std::move(begin), runtime::device_access->mark(), &log});
}

void RankFabric::stamp(double& to) {
  if (queue_ == &host_queue_) {
    to = now();
    return;
  }
  queue_->submit("clock", {}, [this, &to] {
    to = now();
    if (auto mark = runtime::device_access->mark()) stamps_.push_back({&to, std::move(mark)});
  });
}

void RankFabric::synchronise() {
  // Copies need no wait of their own: whatever reads copied data, the queue or a call, begins after the copy.
  if (marked_.empty() && stamps_.empty()) return queue_->synchronise();
  runtime::EventPtr mark;
  queue_->submit("clock", {}, [&mark] { mark = runtime::device_access->mark(); });
  queue_->synchronise();
  read_marks(*mark, runtime::host_clock());
}

void RankFabric::read_marks(const runtime::Event& mark, double now) {
  const auto time_of = [&](const runtime::EventPtr& m) { return now - m->until(mark); };
  for (const Marked& m : marked_) m.log->push_back({m.label, {time_of(m.begin), time_of(m.end)}, false});
  for (const Stamp& s : stamps_) *s.to = time_of(s.mark);
  marked_.clear();
  stamps_.clear();
}

std::unique_lock<std::mutex> RankFabric::log_lock() {
  return queue_ == &host_queue_ ? std::unique_lock<std::mutex>() : std::unique_lock(log_mutex_);
}

}  // namespace gradmeter::dataparallel
