// The times of calls on a device, by marks in its queue: neither the host's clock nor its waiting is in them.
#pragma once
#include <cstddef>
#include <functional>
#include <vector>

#include "core/units.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::bench {

/// For one thread. The device must outlive it.
class DeviceClock {
 public:
  explicit DeviceClock(runtime::Device&);

  /// Seconds a call in each of so many samples of `calls` calls, which `call` submits to the queue. All of them are
  /// queued before the host waits, behind work that occupies the device meanwhile. `cold`: before each sample the
  /// device clears more memory than its caches hold, outside the marks. A call that is shorter than its submission
  /// takes as long as that. `before`: once, before the first sample's mark.
  std::vector<double> time(
      runtime::Queue&, std::size_t samples, std::size_t calls, bool cold, const std::function<void()>& call,
      const std::function<void()>& before = [] {});

 private:
  void clear(runtime::Queue&);

  runtime::OwnedBuffer beyond_caches_;
};

/// Bytes read and written a second while a device copies `bytes` from one buffer to another: the median of copies that
/// together take about `budget`. Errors: BackendError when there is no such memory.
core::BytesPerSecond device_traffic(runtime::Device&, std::size_t bytes, core::Seconds budget);
/// The best rate among the square products that fit in the budget; 0 where the device has none in this precision.
core::FlopsPerSecond best_device_product(runtime::Device&, kernels::Precision, core::Seconds budget);

}  // namespace gradmeter::bench
