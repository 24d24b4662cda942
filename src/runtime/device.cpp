// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.hpp"

#include <cstring>

#include "runtime/host/random_pages.hpp"

namespace gradmeter::runtime {
namespace {

class HostDevice final : public Device {
 public:
  std::string_view name() const override { return "host"; }
  OwnedBuffer allocate(core::Element element, std::size_t count) override {
    const std::size_t bytes = count * core::size_of(element);
    std::shared_ptr<void> memory(allocate_at_random_page(bytes), free_at_random_page);
    std::memset(memory.get(), 0, bytes);
    return {Buffer(element, std::span(static_cast<std::byte*>(memory.get()), bytes)), std::move(memory)};
  }
  OwnedBuffer allocate_beside(core::Element element, std::span<std::byte> memory) override {
    return {Buffer(element, memory)};
  }
  std::byte* transport_address(const Buffer& b) const override { return b.host(); }
  const std::byte* transport_address(const ConstBuffer& b) const override { return b.host(); }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<HostQueue>(); }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace gradmeter::runtime
