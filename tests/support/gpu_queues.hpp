// SPDX-License-Identifier: Apache-2.0
// A GPU for each rank of a training run.
#pragma once
#include <memory>

#include "runtime/cuda/device.hpp"
#include "runtime/cuda/queue.hpp"
#include "support/training_runs.hpp"

namespace gradmeter::test {

class GpuQueues final : public RankQueues {
 public:
  /// exchanges: do collectives work on the GPU's memory, in a stream of their own? Else on what is copied to the host.
  explicit GpuQueues(bool exchanges = false)
      : device_(0), queue_(device_.make_queue()), exchange_queue_(device_.make_queue()) {
    computation = queue_.get();
    if (exchanges) exchange = exchange_queue_.get();
  }
  const runtime::CudaQueue::HostWork& host_work() const {
    return dynamic_cast<const runtime::CudaQueue&>(*queue_).host_work();
  }

 private:
  runtime::CudaDevice device_;
  std::unique_ptr<runtime::Queue> queue_, exchange_queue_;
};

inline std::vector<RunEnd> run_on_gpu(const RunCase& c, bool exchanges = false) {
  return run(c, [exchanges](int) { return std::make_shared<GpuQueues>(exchanges); });
}

}  // namespace gradmeter::test
