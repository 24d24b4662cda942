// Hundreds of workers in one process, in virtual time: every strategy is proven here. Data moves for real, by the same
// schedules in the same order as over ranks; only time is modelled.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "allreduce/hockney.hpp"
#include "allreduce/registry.hpp"
#include "dataparallel/fabric.hpp"

namespace gradmeter::dataparallel {

/// What the virtual machine is like. A computation takes max(flops / flops_per_s, bytes / bytes_per_s) · slowdown.
struct VirtualMachine {
  double flops_per_s = 1e11, bytes_per_s = 1e10;
  allreduce::Link link{.latency_s = 2e-6, .bytes_per_s = 1e10, .reduce_bytes_per_s = 2e10};
  allreduce::AlgorithmPtr algorithm = {};  ///< null: ring
  /// Of a rank's n-th computation (from 0): stragglers and jitter. Must depend on its arguments alone. Null: 1.
  std::function<double(int rank, std::uint64_t n)> slowdown;
};

class VirtualWorld {
 public:
  VirtualWorld(int workers, VirtualMachine);
  ~VirtualWorld();
  /// Runs body(fabric) for every worker under one deterministic baton; returns each worker's end time [s].
  /// Equal inputs give equal runs, whatever the machine does. Threads: one runs at a time.
  /// Errors: what a body throws; std::logic_error when all wait, naming who waits for what.
  std::vector<double> run(const std::function<void(Fabric&)>& body);

 private:
  class State;
  class WorkerFabric;
  std::unique_ptr<State> state_;
};

}  // namespace gradmeter::dataparallel
