#include "dataparallel/virtual/world.hpp"

#include <deque>

#include "dataparallel/virtual/clocked.hpp"
#include "dataparallel/virtual/companion.hpp"
#include "dataparallel/virtual/mail.hpp"
#include "dataparallel/virtual/meeting.hpp"
#include "dataparallel/virtual/messages.hpp"

namespace gradmeter::dataparallel {

/// Shared by all workers; touched only by the one that holds the baton.
class VirtualState {
 public:
  VirtualState(int workers, VirtualMachine m)
      : ground(workers, std::move(m)),
        meetings(ground),
        messages(ground),
        mail(ground),
        computations(static_cast<std::size_t>(workers), 0),
        computations_beside(computations) {}
  Ground ground;
  Meetings meetings;
  Messages messages;
  VirtualMail mail;
  Counts computations, computations_beside;
};

namespace {

using allreduce::Goal;

class WorkerFabric final : public Clocked<Fabric> {
 public:
  WorkerFabric(VirtualState& s, int worker)
      : Clocked<Fabric>(s.ground, worker, worker, s.ground.machine.slowdown,
                        s.computations[static_cast<std::size_t>(worker)]),
        s_(s) {}

  Group split(int color, int key) override { return g_.groups.split(worker_, color, key); }
  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, Ready, const allreduce::Contents&) override {
    return s_.meetings.join(g, worker_, b, Goal::all_reduce, 0, op);
  }
  Ticket reduce_scatter(Group g, Buffer b, allreduce::Op op, Ready) override {
    return s_.meetings.join(g, worker_, b, Goal::reduce_scatter, 0, op);
  }
  Ticket all_gather(Group g, Buffer b, Ready) override {
    return s_.meetings.join(g, worker_, b, Goal::all_gather, 0, allreduce::Op::sum);
  }
  Ticket broadcast(Group g, Buffer b, int root, Ready) override {
    return s_.meetings.join(g, worker_, b, Goal::broadcast, root, allreduce::Op::sum);
  }
  Ticket send(Group g, int peer, ConstBuffer b, Ready) override { return s_.messages.send(g, worker_, peer, b); }
  Ticket receive(Group g, int peer, Buffer b) override { return s_.messages.receive(g, worker_, peer, b); }
  void wait(const Ticket& t) override { static_cast<VirtualOperation&>(*t).wait(); }

  Ports open(Group g, const MailOptions& o) override { return s_.mail.open(g, worker_, o); }
  std::unique_ptr<Companion> launch(std::function<void(Fabric&)> program) override {
    return dataparallel::launch(g_, s_.mail, s_.computations_beside, worker_, std::move(program));
  }
  std::span<float> memory(std::size_t floats) override { return memory_.emplace_back(floats); }

 private:
  VirtualState& s_;
  std::deque<std::vector<float>> memory_;
};

}  // namespace

VirtualWorld::VirtualWorld(int workers, VirtualMachine m)
    : state_(std::make_unique<VirtualState>(workers, std::move(m))) {}
VirtualWorld::~VirtualWorld() = default;

std::vector<double> VirtualWorld::run(const std::function<void(Fabric&)>& body) {
  state_->ground.baton.run([&](int worker) {
    WorkerFabric fabric(*state_, worker);
    body(fabric);
  });
  std::vector<double> end;
  for (const int w : state_->ground.groups.members(everybody)) end.push_back(state_->ground.baton.now(w));
  return end;
}

}  // namespace gradmeter::dataparallel
