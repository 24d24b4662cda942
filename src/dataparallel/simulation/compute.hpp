// Computation in virtual time, for workers and for background tasks.
#pragma once
#include <algorithm>
#include <functional>

#include "core/random.hpp"
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
    if (!g_.simulated.time_only) work();
    const double begin = now();
    const double factor = (slowdown_ ? slowdown_(worker_, count_) : 1.0) * jitter();
    ++count_;
    const std::string_view operation = label.substr(label.find('.') + 1);
    const double time = std::max(cost.flops / g_.machine().compute_rate(operation, "fp32", ""),
                                 cost.bytes / g_.machine().memory_bytes_per_s);
    g_.scheduler.advance(thread_, time * factor);
    if (log_) log_->push_back({label, {begin, now()}});
  }
  void log_to(ComputeLog* log) override { log_ = log; }
  double now() const override { return g_.scheduler.now(thread_); }

 protected:
  SimContext& g_;
  const int worker_, thread_;

 private:
  double jitter() const {
    const double noise = g_.machine().noise;
    if (noise == 0) return 1;
    constexpr std::uint64_t seed = 0x6a697474;
    return std::max(0.0, 1 + noise * core::Random(seed, static_cast<std::uint64_t>(thread_)).gaussian(count_));
  }

  const Slowdown& slowdown_;
  std::uint64_t& count_;
  ComputeLog* log_ = nullptr;
};

}  // namespace gradmeter::dataparallel
