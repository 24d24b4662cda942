// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/simulation/world.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "dataparallel/fabric/simulation/collectives.hpp"
#include "dataparallel/fabric/simulation/context.hpp"
#include "dataparallel/fabric/simulation/messages.hpp"

namespace gradmeter::dataparallel {

/// Computation in virtual time. Interface: a worker's Fabric, or a background task's ExecutionContext.
template <class Interface>
class SimCompute : public Interface {
 public:
  using Slowdown = std::function<double(int rank, std::uint64_t n)>;
  /// count: the number of the rank's computations so far, by this kind of task.
  SimCompute(SimContext& context, int worker, int thread, const Slowdown& slowdown, std::uint64_t& count)
      : context_(context), worker_(worker), thread_(thread), slowdown_(slowdown), count_(count) {}

  int rank(Group g) const override { return context_.groups.position(g, worker_); }
  int size(Group g) const override { return context_.groups.size(g); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    if (!context_.sim_machine.time_only) work();
    const double begin = now();
    const double factor = (slowdown_ ? slowdown_(worker_, count_) : 1.0) * jitter();
    ++count_;
    const std::string_view operation = label.substr(label.find('.') + 1);
    const double time = std::max(cost.flops / context_.machine().compute_rate(operation, "fp32", ""),
                                 cost.bytes / context_.machine().memory_bytes_per_s);
    context_.scheduler.advance(thread_, wait_for_core(begin, time * factor) + time * factor);
    if (log_) log_->push_back({label, {begin, now()}});
  }
  void log_to(ComputeLog* log) override { log_ = log; }
  double now() const override { return context_.scheduler.now(thread_); }

 protected:
  SimContext& context_;
  const int worker_, thread_;

 private:
  /// Reserves the rank's core after the computations that were asked for earlier. Returns how long the computation
  /// waits for the core [s].
  double wait_for_core(double now_s, double seconds) {
    if (context_.cores_free.empty()) return 0;
    double& free = context_.cores_free[static_cast<std::size_t>(worker_) % context_.cores_free.size()];
    const double begin = std::max(now_s, free);
    free = begin + seconds;
    return begin - now_s;
  }
  double jitter() const {
    const double noise = context_.machine().noise;
    if (noise == 0) return 1;
    constexpr std::uint64_t seed = 0x6a697474;
    return std::max(0.0, 1 + noise * core::Random(seed, static_cast<std::uint64_t>(thread_)).gaussian(count_));
  }

  const Slowdown& slowdown_;
  std::uint64_t& count_;
  ComputeLog* log_ = nullptr;
};

namespace {

/// A background task in virtual time, with a clock of its own. It starts at the running thread's time.
class SimBackgroundTask final : public BackgroundTask {
 public:
  /// count: the number of computations of this worker's background tasks so far.
  SimBackgroundTask(SimContext& context, SimMessenger& messenger, std::uint64_t& count, int worker,
                    BackgroundProgram program)
      : context_(context), launcher_(context.scheduler.running_thread()) {
    thread_ = context.scheduler.spawn(
        fmt::format("the background task of rank {}", worker),
        [this, &messenger, &count, worker, program = std::move(program)] { run(messenger, count, worker, program); });
  }
  SimBackgroundTask(const SimBackgroundTask&) = delete;
  SimBackgroundTask& operator=(const SimBackgroundTask&) = delete;
  ~SimBackgroundTask() override { context_.scheduler.stop(thread_); }

  void join() override {
    while (!has_returned_) {
      is_awaited_ = true;
      context_.scheduler.block(launcher_, "the end of its background task");
      is_awaited_ = false;
    }
    if (const double end = context_.scheduler.now(thread_); end > context_.scheduler.now(launcher_)) {
      context_.scheduler.block(launcher_, "the end of its background task", end);
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void run(SimMessenger& messenger, std::uint64_t& count, int worker, const BackgroundProgram& program) {
    try {
      SimCompute<ExecutionContext> context(context_, worker, thread_, context_.sim_machine.background_slowdown, count);
      program(context);
      // The task's memory is in use until its last message has left. By then all of the task's calls are done.
      const double left = messenger.take_last_send_end(thread_);
      if (left > context_.scheduler.now(thread_)) context_.scheduler.block(thread_, "its last message to leave", left);
    } catch (const EventScheduler::Stopped&) {
      throw;
    } catch (...) {
      error_ = std::current_exception();
      context_.scheduler.suspect(error_);
    }
    has_returned_ = true;
    if (is_awaited_) context_.scheduler.wake(launcher_, context_.scheduler.now(thread_));
  }

  SimContext& context_;
  const int launcher_;
  int thread_ = -1;
  bool has_returned_ = false, is_awaited_ = false;
  std::exception_ptr error_;
};

}  // namespace

/// The state that all workers share; only the running thread touches it.
class SimState {
 public:
  SimState(int workers, SimMachine m)
      : context(workers, std::move(m)),
        collectives(context),
        point_to_point(context),
        messenger(context),
        computations(static_cast<std::size_t>(workers), 0),
        background_computations(computations) {}
  SimContext context;
  SimCollectives collectives;
  PointToPoint point_to_point;
  SimMessenger messenger;
  std::vector<std::uint64_t> computations, background_computations;  ///< number of computations so far, by worker
};

namespace {

class SimFabric final : public SimCompute<Fabric> {
 public:
  /// queue: null: the host's queue.
  SimFabric(SimState& s, int worker, runtime::Queue* queue)
      : SimCompute<Fabric>(s.context, worker, worker, s.context.sim_machine.slowdown,
                           s.computations[static_cast<std::size_t>(worker)]),
        state_(s),
        queue_(queue ? *queue : host_queue_) {}

  runtime::Device& device() override { return queue_.device(); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    SimCompute<Fabric>::submit(label, cost, [&] { queue_.submit(label, cost, work); });
  }
  runtime::EventPtr record() override { return queue_.record(); }
  void begin_after(const runtime::EventPtr& e) override { queue_.begin_after(e); }
  void synchronise() override { queue_.synchronise(); }

  Group split(int color, int key) override { return context_.groups.split(worker_, color, key); }
  Ticket start(const FabricCall& given) override {
    while (given.ready && !given.ready->reached()) std::this_thread::yield();
    FabricCall c = given;
    c.in = ConstBuffer(c.in.element(), std::span(device().transport_address(c.in), c.in.bytes()));
    c.out = Buffer(c.out.element(), std::span(device().transport_address(c.out), c.out.bytes()));
    if (c.kind == CallKind::send) return state_.point_to_point.send(c.group, worker_, c.peer, c.in);
    if (c.kind == CallKind::receive) return state_.point_to_point.receive(c.group, worker_, c.peer, c.out);
    return state_.collectives.join(worker_, c);
  }
  void wait(const Ticket& t) override { static_cast<SimPendingCall&>(*t).wait(); }

  Ports open(Group g, const PortOptions& o) override { return state_.messenger.open(g, worker_, o); }
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    std::uint64_t& count = state_.background_computations[static_cast<std::size_t>(worker_)];
    return std::make_unique<SimBackgroundTask>(context_, state_.messenger, count, worker_, std::move(program));
  }
  Buffer memory(std::size_t floats) override {
    const auto on_host = std::as_writable_bytes(std::span(memory_.emplace_back(floats)));
    return buffers_.emplace_back(device().allocate_beside(core::Element::f32, on_host)).buffer;
  }

 private:
  SimState& state_;
  runtime::HostQueue host_queue_;
  runtime::Queue& queue_;
  std::deque<std::vector<float>> memory_;
  std::deque<runtime::OwnedBuffer> buffers_;  ///< what `memory` has given, beside `memory_`
};

}  // namespace

SimWorld::SimWorld(int workers, SimMachine m, std::vector<runtime::Queue*> queues)
    : state_(std::make_unique<SimState>(workers, std::move(m))), queues_(std::move(queues)) {}
SimWorld::~SimWorld() = default;

std::vector<double> SimWorld::run(const std::function<void(Fabric&)>& body) {
  state_->context.scheduler.run([&](int worker) {
    SimFabric fabric(*state_, worker, queues_.empty() ? nullptr : queues_[static_cast<std::size_t>(worker)]);
    body(fabric);
  });
  std::vector<double> end;
  for (const int w : state_->context.groups.members(everybody)) end.push_back(state_->context.scheduler.now(w));
  return end;
}

}  // namespace gradmeter::dataparallel
