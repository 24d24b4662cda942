// Computation in virtual time, for workers and for background tasks.
#pragma once
#include <algorithm>
#include <functional>

#include "dataparallel/simulation/context.hpp"

namespace gradmeter::dataparallel {

/// Interface: a worker's Fabric, or a background task's ExecutionContext.
template <class Interface>
class SimCompute : public Interface {
 public:
  using Slowdown = std::function<double(int rank, std::uint64_t n)>;
  /// count: of the rank's computations so far, by this kind of task.
  SimCompute(SimContext& g, int worker, int thread, const Slowdown& slowdown, std::uint64_t& count)
      : g_(g), worker_(worker), thread_(thread), slowdown_(slowdown), count_(count) {}

  int rank(Group g) const override { return g_.groups.position(g, worker_); }
  int size(Group g) const override { return g_.groups.size(g); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    work();
    const double begin = now();
    const double factor = slowdown_ ? slowdown_(worker_, count_) : 1.0;
    ++count_;
    const double time = std::max(cost.flops / g_.machine().flops_per_s, cost.bytes / g_.machine().memory_bytes_per_s);
    g_.scheduler.advance(thread_, time * factor);
    if (log_) log_->push_back({label, {begin, now()}});
  }
  void log_to(ComputeLog* log) override { log_ = log; }
  double now() const override { return g_.scheduler.now(thread_); }

 protected:
  SimContext& g_;
  const int worker_, thread_;

 private:
  const Slowdown& slowdown_;
  std::uint64_t& count_;
  ComputeLog* log_ = nullptr;
};

}  // namespace gradmeter::dataparallel
