// How a model requests computation, so that a probe can time it and a virtual clock can replace it.
#pragma once
#include <functional>
#include <string_view>

namespace gradmeter::model {

/// What a piece of work costs: floating-point operations and bytes moved to and from memory.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// Runs work. Labels are static strings ("forward.gemm"); the work itself is a kernel call, nothing else, so that the
/// sum of these intervals is the time inside kernels.
class Computer {
 public:
  virtual ~Computer() = default;
  virtual void compute(std::string_view label, Cost cost, const std::function<void()>& work) = 0;
};

/// Runs the work and nothing else.
class PlainComputer final : public Computer {
 public:
  void compute(std::string_view, Cost, const std::function<void()>& work) override { work(); }
};

}  // namespace gradmeter::model
