// SPDX-License-Identifier: Apache-2.0
#include "support/deferred.hpp"

#include <sys/mman.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/host/threads.hpp"
#include "support/host_backends.hpp"

// oneDNN keeps what it has prepared for all threads, under locks that the thread sanitizer does not see.
extern "C" const char* __tsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:dnnl::matmul::primitive_desc::primitive_desc\nrace:dnnl::matmul::matmul\n";
}

namespace gradmeter::test {
namespace {

constexpr std::size_t page = 4096;

/// The host's kernels compute for the deferred device too: its work runs on this processor.
[[maybe_unused]] const bool has_backends = host_computes_for("deferred");

}  // namespace

DeferredDevice::~DeferredDevice() {
  while (!ranges_.empty()) unmap(ranges_.begin()->first);
}

runtime::OwnedBuffer DeferredDevice::allocate_beside(core::Element element, std::span<std::byte> memory) {
  // A page more than is needed, so that what runs over the end of one range is in no other.
  const std::size_t mapped = (memory.size() / page + 2) * page;
  void* at = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* const address = static_cast<std::byte*>(at);
  const std::lock_guard lock(mutex_);
  ranges_[address] = {memory.data(), memory.size(), mapped};
  const auto free = [this](void* a) { unmap(static_cast<std::byte*>(a)); };
  return {runtime::Buffer(element, runtime::DeviceSpan<std::byte>(address, memory.size())),
          std::shared_ptr<void>(address, free)};
}

void DeferredDevice::unmap(const std::byte* device_address) {
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find(device_address);
  munmap(const_cast<std::byte*>(it->first), it->second.mapped);
  ranges_.erase(it);
}

runtime::OwnedBuffer DeferredDevice::allocate(core::Element element, std::size_t count) {
  const runtime::OwnedBuffer memory = runtime::host_device().allocate(element, count);
  const runtime::OwnedBuffer mapped = allocate_beside(element, {memory.buffer.host(), memory.buffer.bytes()});
  return {mapped.buffer,
          std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(memory.memory, mapped.memory)};
}

std::byte* DeferredDevice::host_address(const std::byte* device_address, std::size_t bytes, bool) const {
  const std::lock_guard lock(mutex_);
  auto it = ranges_.upper_bound(device_address);
  if (it != ranges_.begin()) {
    --it;
    const auto offset = static_cast<std::size_t>(device_address - it->first);
    if (offset + bytes <= it->second.bytes) return it->second.memory + offset;
  }
  throw std::logic_error("an address that is not this device's");
}

std::byte* DeferredDevice::transport_address(const runtime::Buffer& b) const {
  return b.on_device() ? host_address(b.device().device_address(), b.bytes(), false) : b.host();
}

const std::byte* DeferredDevice::transport_address(const runtime::ConstBuffer& b) const {
  return b.on_device() ? host_address(b.device().device_address(), b.bytes(), false) : b.host();
}

/// A poll demands the work, once it has been asked as often as it draws.
class DeferredQueue::Reached final : public runtime::Event {
 public:
  Reached(DeferredQueue& queue, std::uint64_t number, std::size_t timeout)
      : queue_(queue), number_(number), timeout_(timeout) {}
  bool reached() const override {
    const std::lock_guard lock(queue_.mutex_);
    if (queue_.error_) std::rethrow_exception(queue_.error_);
    if (queue_.done_ >= number_) return true;
    if (timeout_ == 0) queue_.demand(number_);
    if (timeout_ > 0) --timeout_;
    return false;
  }

 private:
  DeferredQueue& queue_;
  const std::uint64_t number_;
  mutable std::size_t timeout_;
};

std::unique_ptr<runtime::Queue> DeferredDevice::make_queue() {
  return std::make_unique<DeferredQueue>(*this, DeferredPolicy{});
}

DeferredQueue::DeferredQueue(DeferredDevice& device, DeferredPolicy policy)
    : device_(device), delay_(policy.delay), order_(policy.seed, policy.dropped_event) {
  thread_ = std::thread([this, threads = kernels::compute_threads()] {
    kernels::set_compute_threads(threads);
    runtime::device_access = &device_;
    run();
  });
}

DeferredQueue::~DeferredQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  demanded_changed_.notify_all();
  thread_.join();
}

void DeferredQueue::demand(std::uint64_t number) {
  if (number <= demanded_) return;
  demanded_ = number;
  demanded_changed_.notify_all();
}

void DeferredQueue::submit(std::string_view, runtime::Cost, const runtime::Work& work) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(work.stored());
  ++submitted_;
  demand(done_ + order_.early(submitted_ - done_));
}

runtime::EventPtr DeferredQueue::record() {
  const std::lock_guard lock(mutex_);
  if (order_.forgets_event()) {
    forgotten_ = submitted_;
    return nullptr;
  }
  return std::make_shared<Reached>(*this, submitted_, order_.timeout());
}

void DeferredQueue::begin_after(const runtime::EventPtr& event) {
  if (!event) return;
  submit("wait", {}, [event] {
    while (!event->reached()) std::this_thread::yield();
  });
}

void DeferredQueue::synchronise() {
  std::unique_lock lock(mutex_);
  demand(submitted_);
  const std::uint64_t all = submitted_;
  done_changed_.wait(lock, [&] { return done_ >= all || error_; });
  if (error_) std::rethrow_exception(error_);
}

void DeferredQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    demanded_changed_.wait(lock, [&] { return stop_ || (demanded_ > done_ && !error_); });
    if (stop_) return;
    const runtime::StoredWork work = std::move(waiting_.front());
    waiting_.pop_front();
    const bool is_late = delay_.count() > 0 && (!order_.drops_an_event() || done_ < forgotten_);
    lock.unlock();
    std::exception_ptr error;
    if (is_late) std::this_thread::sleep_for(delay_);
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    ++done_;
    if (error) error_ = error;
    done_changed_.notify_all();
  }
}

}  // namespace gradmeter::test
