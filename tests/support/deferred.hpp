// SPDX-License-Identifier: Apache-2.0
// A second device for tests: memory that the host cannot touch, and queues whose work runs as late as polls and waits
// require. What reads or writes too early, or without asking, gets wrong data or a fault.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/device.hpp"
#include "support/order.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::test {

/// Its addresses are of pages without access; the memory itself lies elsewhere in this process.
class DeferredDevice final : public runtime::Device, public runtime::DeviceAccess {
 public:
  DeferredDevice() = default;
  ~DeferredDevice() override;
  std::string_view name() const override { return "deferred"; }
  runtime::OwnedBuffer allocate(core::Element, std::size_t count) override;
  runtime::OwnedBuffer allocate_beside(core::Element, std::span<std::byte> memory) override;
  std::byte* transport_address(const runtime::Buffer&) const override;
  const std::byte* transport_address(const runtime::ConstBuffer&) const override;
  std::byte* host_address(const std::byte* device_address, std::size_t bytes, bool is_writable) const override;
  /// As late as can be.
  std::unique_ptr<runtime::Queue> make_queue() override;

 private:
  struct Range {
    std::byte* memory;
    std::size_t bytes, mapped;
  };
  void unmap(const std::byte* device_address);

  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  ///< by device address
};

/// When work runs that nothing demands yet.
struct DeferredPolicy {
  std::uint64_t seed = 0;
  std::optional<std::uint64_t> dropped_event = {};  ///< see QueueOrder
  /// Passes before each piece of work, so that whoever does not wait is earlier. Where an event is dropped, only the
  /// work before that event is late: of all other work, nobody's waiting is missing.
  std::chrono::microseconds delay{0};
};

/// Seeds of a case: 5, or GRADMETER_SEEDS; 2 under a sanitizer, which needs a path but once. 0 runs all work as late as
/// can be.
inline std::uint64_t seeds() {
  const char* given = std::getenv("GRADMETER_SEEDS");
  return given ? std::strtoull(given, nullptr, 10) : sanitized ? 2 : 5;
}

/// In order, on a thread of its own, with the number of compute threads of the thread that made it.
class DeferredQueue final : public runtime::Queue {
 public:
  DeferredQueue(DeferredDevice&, DeferredPolicy);
  ~DeferredQueue() override;
  runtime::Device& device() override { return device_; }
  void submit(std::string_view label, runtime::Cost, const runtime::Work&) override;
  runtime::EventPtr record() override;
  void begin_after(const runtime::EventPtr&) override;
  /// Errors: what the work threw.
  void synchronise() override;
  std::uint64_t events() const { return order_.events(); }  ///< recorded so far
  std::uint64_t unfinished() const {                        ///< pieces of work
    const std::lock_guard lock(mutex_);
    return submitted_ - done_;
  }

 private:
  class Reached;
  void demand(std::uint64_t number);
  void run();

  DeferredDevice& device_;
  const std::chrono::microseconds delay_;
  QueueOrder order_;
  mutable std::mutex mutex_;
  std::condition_variable demanded_changed_, done_changed_;
  std::deque<runtime::StoredWork> waiting_;
  std::uint64_t submitted_ = 0, demanded_ = 0, done_ = 0;
  std::uint64_t forgotten_ = 0;  ///< pieces of work before the dropped event; 0: not recorded yet
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gradmeter::test
