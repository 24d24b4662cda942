// SPDX-License-Identifier: Apache-2.0
// A device whose memory the host cannot reach, and a queue that runs work as late as polls require, on the polling
// thread. So one thread can play all ranks in any order, and what is read or sent too early is wrong every time.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/device.hpp"
#include "support/order.hpp"

namespace gradmeter::test {

/// Its addresses are the host's with a bit set that no pointer may have: whoever follows one ends the test.
class LateDevice final : public runtime::Device, public runtime::DeviceAccess {
 public:
  std::string_view name() const override { return "late"; }
  runtime::OwnedBuffer allocate(core::Element element, std::size_t count) override {
    const runtime::OwnedBuffer m = runtime::host_device().allocate(element, count);
    return {allocate_beside(element, {m.buffer.host(), m.buffer.bytes()}).buffer, m.memory};
  }
  runtime::OwnedBuffer allocate_beside(core::Element element, std::span<std::byte> memory) override {
    return {runtime::Buffer(element, runtime::DeviceSpan<std::byte>(flipped(memory.data()), memory.size()))};
  }
  std::unique_ptr<runtime::Queue> make_queue() override;
  std::byte* transport_address(const runtime::Buffer& b) const override {
    return b.on_device() ? flipped(b.device().device_address()) : b.host();
  }
  const std::byte* transport_address(const runtime::ConstBuffer& b) const override {
    return b.on_device() ? flipped(b.device().device_address()) : b.host();
  }
  std::byte* host_address(const std::byte* at, std::size_t, bool) const override { return flipped(at); }

 private:
  static std::byte* flipped(const std::byte* p) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(p) ^ (std::uintptr_t{1} << 62));
  }
};

/// For one thread.
class LateQueue final : public runtime::Queue {
 public:
  /// Seed 0: nothing runs until a poll demands it. Others: work also runs early, and polls are answered late, at
  /// random. `dropped`: see QueueOrder.
  explicit LateQueue(LateDevice& device, std::uint64_t seed, std::optional<std::size_t> dropped = {})
      : device_(device), order_(seed, dropped) {}
  runtime::Device& device() override { return device_; }
  void submit(std::string_view, runtime::Cost, const runtime::Work& work) override {
    work_.push_back(work.stored());
    run(done_ + order_.early(work_.size()));
  }
  runtime::EventPtr record() override {
    if (order_.forgets_event()) return nullptr;
    return std::make_shared<Reached>(*this, done_ + work_.size(), order_.timeout());
  }
  void synchronise() override { run(done_ + work_.size()); }
  std::size_t events() const { return order_.events(); }  ///< recorded so far

 private:
  class Reached final : public runtime::Event {
   public:
    Reached(LateQueue& queue, std::uint64_t end, std::uint64_t timeout) : queue_(queue), end_(end), timeout_(timeout) {}
    bool reached() const override {
      if (queue_.done_ >= end_) return true;
      if (timeout_ > 0) return --timeout_, false;
      queue_.run(end_);
      return true;
    }

   private:
    LateQueue& queue_;
    const std::uint64_t end_;
    mutable std::uint64_t timeout_;
  };

  /// All work up to this number.
  void run(std::uint64_t end) {
    const auto* before = std::exchange(runtime::device_access, &device_);
    while (done_ < end) {
      const runtime::StoredWork work = std::move(work_.front());
      work_.pop_front();
      work();
      ++done_;
    }
    runtime::device_access = before;
  }

  LateDevice& device_;
  QueueOrder order_;
  std::deque<runtime::StoredWork> work_;
  std::uint64_t done_ = 0;
};

inline std::unique_ptr<runtime::Queue> LateDevice::make_queue() { return std::make_unique<LateQueue>(*this, 0); }

}  // namespace gradmeter::test
