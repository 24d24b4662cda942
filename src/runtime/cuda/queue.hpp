// A stream of a GPU as a Queue.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "runtime/cuda/device.hpp"
#include "runtime/cuda/host_view.hpp"

namespace gradmeter::runtime {

/// Its work runs beside that of other queues of the device. Errors of all members: BackendError with CUDA's own text.
class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(CudaDevice&);
  ~CudaQueue() override;
  CudaDevice& device() override { return device_; }
  /// Runs it here, with this queue's stream and what host code sees of its memory.
  void submit(std::string_view label, Cost, const Work&) override;
  EventPtr record() override;
  /// Of an event of another kind than a stream's the caller waits.
  void begin_after(const EventPtr&) override;
  void synchronise() override;
  /// What the host does for want of kernels: labels of work that asked for copies of memory, each of which waits for
  /// the stream, and how often.
  using HostWork = std::map<std::string, std::size_t, std::less<>>;
  const HostWork& host_work() const { return host_work_; }

 private:
  CudaDevice& device_;
  Stream stream_;
  HostView view_;
  HostWork host_work_;
};

}  // namespace gradmeter::runtime
