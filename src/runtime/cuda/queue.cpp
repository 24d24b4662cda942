#include "runtime/cuda/queue.hpp"

#include <stdexcept>
#include <thread>

#include "runtime/cuda/nvtx.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::runtime {
namespace {

/// Of the queue whose work runs on this thread.
thread_local const HostView* running = nullptr;

/// Work may submit work of another queue's.
class Running {
 public:
  explicit Running(const HostView& view) : view_(running), access_(device_access) {
    running = &view;
    device_access = &view;
  }
  ~Running() {
    running = view_;
    device_access = access_;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const HostView* view_;
  const DeviceAccess* access_;
};

class StreamEvent final : public Event {
 public:
  explicit StreamEvent(const Stream& stream) { event_.record(stream); }
  bool reached() const override { return event_.done(); }
  const CudaEvent& event() const { return event_; }

 private:
  CudaEvent event_;
};

}  // namespace

CudaQueue::CudaQueue(CudaDevice& device) : device_((device.select(), device)), view_(device, stream_) {}

// What is still under way uses memory that the queue's owner frees next.
CudaQueue::~CudaQueue() { release_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }

void CudaQueue::submit(std::string_view label, Cost, const Work& work) {
  const NvtxRange range(label);
  device_.select();
  const Running here(view_);
  const std::size_t before = view_.requests();
  work();
  if (view_.requests() != before) ++host_work_[std::string(label)];
  view_.flush();
}

EventPtr CudaQueue::record() {
  device_.select();
  return std::make_shared<StreamEvent>(stream_);
}

void CudaQueue::begin_after(const EventPtr& event) {
  if (!event) return;
  device_.select();
  if (const auto* const other = dynamic_cast<const StreamEvent*>(event.get())) return stream_.wait(other->event());
  while (!event->reached()) std::this_thread::yield();
}

void CudaQueue::synchronise() {
  device_.select();
  stream_.synchronize();
}

}  // namespace gradmeter::runtime

namespace gradmeter::gpu {

cudaStream_t stream() {
  if (!runtime::running) throw std::logic_error("a kernel was launched outside work of a GPU's queue");
  return runtime::running->stream();
}

}  // namespace gradmeter::gpu
