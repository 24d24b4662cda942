// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/queue.hpp"

#include <iterator>
#include <new>
#include <stdexcept>

#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/nvtx.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::runtime {
namespace {

std::uintptr_t number_of(const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address); }
std::byte* address_of(std::uintptr_t number) {
  return reinterpret_cast<std::byte*>(number);  // NOLINT(performance-no-int-to-ptr)
}

/// An event in a CUDA stream. Each member selects the GPU, since any thread may call it or destroy the event last, even
/// one that has selected no GPU, such as the progress thread.
class StreamEvent final : public Event {
 public:
  StreamEvent(int gpu, std::shared_ptr<EventPool> pool, const Stream& stream)
      : gpu_(gpu), pool_(std::move(pool)), event_(pool_->take()) {
    event_->record(stream);
  }
  ~StreamEvent() override {
    select_gpu_to_release(gpu_);
    pool_->give_back(std::move(event_));
  }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  bool reached() const override {
    select_gpu(gpu_);
    return event_->done();
  }
  void wait() const override {
    select_gpu(gpu_);
    event_->synchronize();
  }
  double until(const Event& later) const override {
    select_gpu(gpu_);
    return dynamic_cast<const StreamEvent&>(later).event_->since(*event_).value;
  }
  const CudaEvent& event() const { return *event_; }

 private:
  const int gpu_;
  std::shared_ptr<EventPool> pool_;
  std::unique_ptr<CudaEvent> event_;
};

}  // namespace

std::unique_ptr<CudaEvent> EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto event = std::move(free_.back());
      free_.pop_back();
      return event;
    }
  }
  return std::make_unique<CudaEvent>();
}

void EventPool::give_back(std::unique_ptr<CudaEvent> event) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    free_.push_back(std::move(event));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the event is destroyed instead
  }
}

HostView::Copy& HostView::copy_of(const CudaDevice::Range& range) const {
  // Drops copies of allocations that overlap this one: they have been freed, and CUDA has given out their addresses
  // again.
  const std::uintptr_t begin = number_of(range.begin);
  if (range.bytes > 0) copies_.erase(copies_.upper_bound(begin), copies_.lower_bound(begin + range.bytes));
  Copy& copy = copies_[begin];
  if (copy.bytes == range.bytes) return copy;
  check_cuda(cudaHostAlloc(copy.memory.out_address(), range.bytes, cudaHostAllocDefault), "cudaHostAlloc");
  copy.bytes = range.bytes;
  return copy;
}

std::byte* HostView::pinned_address_of(std::uintptr_t device_address) const {
  const auto& [begin, copy] = *std::prev(copies_.upper_bound(device_address));
  return copy.at(device_address - begin);
}

std::byte* HostView::host_address(const std::byte* device_address, std::size_t bytes, bool is_writable) const {
  ++requests_;
  const CudaDevice::Range range = device_.range_of(device_address, bytes);
  const std::size_t offset = static_cast<std::size_t>(device_address - range.begin);
  // Must come before the copy is used, since the stream may still read or write it. The functions of `when_done` may
  // have results that host code reads.
  stream_.synchronize();
  run_when_done();
  const Copy& copy = copy_of(range);
  const auto requested =
      boost::icl::interval<std::uintptr_t>::right_open(number_of(device_address), number_of(device_address) + bytes);
  Addresses missing(requested);
  missing -= present_;
  for (const auto& part : missing) {
    check_cuda(cudaMemcpyAsync(pinned_address_of(part.lower()), address_of(part.lower()), part.upper() - part.lower(),
                               cudaMemcpyDeviceToHost, stream_.get()),
               "cudaMemcpyAsync");
  }
  stream_.synchronize();
  present_ += requested;
  if (is_writable) written_ += requested;
  return copy.at(offset);
}

void HostView::flush() const {
  for (const auto& part : written_) {
    check_cuda(cudaMemcpyAsync(address_of(part.lower()), pinned_address_of(part.lower()), part.upper() - part.lower(),
                               cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync");
  }
  written_.clear();
  present_.clear();
}

bool HostView::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (bytes == 0) return true;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()), "cudaMemcpyAsync");
  return true;
}

void HostView::to_transport(const std::byte* device_address, std::size_t bytes) const {
  copy(device_.host_copy_of(device_address, bytes), device_address, bytes);
}
void HostView::from_transport(std::byte* device_address, std::size_t bytes) const {
  copy(device_address, device_.host_copy_of(device_address, bytes), bytes);
}

EventPtr HostView::event() const { return std::make_shared<StreamEvent>(device_.number(), events_, stream_); }

EventPtr HostView::mark() const {
  flush();
  return event();
}

void HostView::run_when_done() const {
  for (const StoredWork& then : std::exchange(when_done_, {})) then();
}

namespace {

/// The view of the work that runs on this thread; null: none runs.
thread_local const HostView* running = nullptr;

/// Sets `running` for its scope and then restores it, since work may submit work of another queue.
class RunningScope {
 public:
  explicit RunningScope(const HostView& view) : outer_view_(running), outer_access_(device_access) {
    running = &view;
    device_access = &view;
  }
  ~RunningScope() {
    running = outer_view_;
    device_access = outer_access_;
  }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  const HostView* outer_view_;
  const DeviceAccess* outer_access_;
};

}  // namespace

CudaQueue::CudaQueue(CudaDevice& device) : device_((device.select(), device)), view_(device, stream_) {}

// Waits for work that is still under way, since it uses memory that the queue's owner frees next.
CudaQueue::~CudaQueue() {
  select_gpu_to_release(device_.number());
  note_cuda_error(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

void CudaQueue::submit(std::string_view label, Cost, const Work& work) {
  const NvtxRange range(label);
  device_.select();
  note_gpu_work(label);
  const RunningScope scope(view_);
  const std::size_t before = view_.requests();
  work();
  if (view_.requests() != before) ++host_work_[std::string(label)];
  view_.flush();
}

EventPtr CudaQueue::record() {
  device_.select();
  return view_.event();
}

void CudaQueue::begin_after(const EventPtr& event) {
  if (!event) return;
  device_.select();
  if (const auto* const other = dynamic_cast<const StreamEvent*>(event.get())) return stream_.wait(other->event());
  event->wait();
}

void CudaQueue::synchronise() {
  device_.select();
  stream_.synchronize();
  view_.run_when_done();
}

namespace {

class CapturedGraph final : public CapturedWork {
 public:
  CapturedGraph(Queue& queue, const std::function<void()>& body) : graph_(queue, body) {}
  void submit() const override { graph_.launch(); }

 private:
  CudaGraph graph_;
};

}  // namespace

std::unique_ptr<CapturedWork> CudaQueue::capture(const std::function<void()>& body) {
  try {
    return std::make_unique<CapturedGraph>(*this, body);
  } catch (const core::BackendError&) {
    return nullptr;
  }
}

}  // namespace gradmeter::runtime

namespace gradmeter::gpu {

cudaStream_t stream() {
  if (!runtime::running) throw std::logic_error("a kernel was launched outside work of a GPU's queue");
  return runtime::running->stream();
}

void when_done(std::function<void()> then) {
  if (!runtime::running) throw std::logic_error("something was to follow work of a GPU's queue outside such work");
  runtime::running->when_done(std::move(then));
}

}  // namespace gradmeter::gpu
