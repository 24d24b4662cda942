#include "dataparallel/simulation/world.hpp"

#include <deque>

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
  SimFabric(SimState& s, int worker)
      : SimCompute<Fabric>(s.context, worker, worker, s.context.machine.slowdown,
                           s.computations[static_cast<std::size_t>(worker)]),
        s_(s) {}

  Group split(int color, int key) override { return g_.groups.split(worker_, color, key); }
  Ticket start(const FabricCall& c) override {
    if (c.kind == CallKind::send) return s_.messages.send(c.group, worker_, c.peer, c.in);
    if (c.kind == CallKind::receive) return s_.messages.receive(c.group, worker_, c.peer, c.out);
    return s_.collectives.join(worker_, c);
  }
  void wait(const Ticket& t) override { static_cast<SimOperation&>(*t).wait(); }

  Ports open(Group g, const PortOptions& o) override { return s_.messenger.open(g, worker_, o); }
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    return dataparallel::launch(g_, s_.messenger, s_.background_computations, worker_, std::move(program));
  }
  Buffer memory(std::size_t floats) override { return memory_.emplace_back(floats); }

 private:
  SimState& s_;
  std::deque<std::vector<float>> memory_;
};

}  // namespace

SimWorld::SimWorld(int workers, SimMachine m) : state_(std::make_unique<SimState>(workers, std::move(m))) {}
SimWorld::~SimWorld() = default;

std::vector<double> SimWorld::run(const std::function<void(Fabric&)>& body) {
  state_->context.scheduler.run([&](int worker) {
    SimFabric fabric(*state_, worker);
    body(fabric);
  });
  std::vector<double> end;
  for (const int w : state_->context.groups.members(everybody)) end.push_back(state_->context.scheduler.now(w));
  return end;
}

}  // namespace gradmeter::dataparallel
