// Simulates hundreds of workers in one process, in virtual time: the tests run every strategy here. Data is really
// moved, by the same schedules in the same order as over ranks; only time is modelled.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/simulation/machine.hpp"

namespace gradmeter::dataparallel {

class SimState;

class SimWorld {
 public:
  /// queues: where each worker computes, by worker; none: at once, on the host. Only time is virtual: a call that comes
  /// before the work that it needs gets wrong data here too.
  SimWorld(int workers, SimMachine, std::vector<runtime::Queue*> queues = {});
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;
  /// Runs body(fabric) for every worker, one thread at a time in a deterministic order; returns each worker's end time
  /// [s].
  /// Equal inputs give equal runs, however busy the real machine is.
  /// Errors: what a body throws; std::logic_error when all wait, naming who waits for what, and who died.
  std::vector<double> run(const std::function<void(Fabric&)>& body);

 private:
  std::unique_ptr<SimState> state_;
  std::vector<runtime::Queue*> queues_;
};

}  // namespace gradmeter::dataparallel
