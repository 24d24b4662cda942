#include "dataparallel/simulation/world.hpp"

#include <deque>
#include <thread>

#include "dataparallel/simulation/background_task.hpp"
#include "dataparallel/simulation/collectives.hpp"
#include "dataparallel/simulation/compute.hpp"
#include "dataparallel/simulation/messenger.hpp"
#include "dataparallel/simulation/point_to_point.hpp"

namespace gradmeter::dataparallel {

/// Shared by all workers; only the running thread touches it.
class SimState {
 public:
  SimState(int workers, SimMachine m)
      : context(workers, std::move(m)),
        collectives(context),
        messages(context),
        messenger(context),
        computations(static_cast<std::size_t>(workers), 0),
        background_computations(computations) {}
  SimContext context;
  SimCollectives collectives;
  PointToPoint messages;
  SimMessenger messenger;
  Counts computations, background_computations;
};

namespace {

class SimFabric final : public SimCompute<Fabric> {
 public:
  /// queue: null for the host's.
  SimFabric(SimState& s, int worker, runtime::Queue* queue)
      : SimCompute<Fabric>(s.context, worker, worker, s.context.simulated.slowdown,
                           s.computations[static_cast<std::size_t>(worker)]),
        s_(s),
        queue_(queue ? *queue : host_queue_) {}

  runtime::Device& device() override { return queue_.device(); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    SimCompute<Fabric>::submit(label, cost, [&] { queue_.submit(label, cost, work); });
  }
  runtime::EventPtr record() override { return queue_.record(); }
  void begin_after(const runtime::EventPtr& e) override { queue_.begin_after(e); }
  void synchronise() override { queue_.synchronise(); }

  Group split(int color, int key) override { return g_.groups.split(worker_, color, key); }
  Ticket start(const FabricCall& given) override {
    while (given.ready && !given.ready->reached()) std::this_thread::yield();
    FabricCall c = given;
    c.in = ConstBuffer(c.in.element(), std::span(device().transport_address(c.in), c.in.bytes()));
    c.out = Buffer(c.out.element(), std::span(device().transport_address(c.out), c.out.bytes()));
    if (c.kind == CallKind::send) return s_.messages.send(c.group, worker_, c.peer, c.in);
    if (c.kind == CallKind::receive) return s_.messages.receive(c.group, worker_, c.peer, c.out);
    return s_.collectives.join(worker_, c);
  }
  void wait(const Ticket& t) override { static_cast<SimOperation&>(*t).wait(); }

  Ports open(Group g, const PortOptions& o) override { return s_.messenger.open(g, worker_, o); }
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    return dataparallel::launch(g_, s_.messenger, s_.background_computations, worker_, std::move(program));
  }
  Buffer memory(std::size_t floats) override {
    return mapped_
        .emplace_back(device().map(core::Element::f32, std::as_writable_bytes(std::span(memory_.emplace_back(floats)))))
        .buffer;
  }

 private:
  SimState& s_;
  runtime::HostQueue host_queue_;
  runtime::Queue& queue_;
  std::deque<std::vector<float>> memory_;
  std::deque<runtime::OwnedBuffer> mapped_;
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
