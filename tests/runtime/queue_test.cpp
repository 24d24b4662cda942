// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gradmeter::runtime {
namespace {

TEST(Queue, CopiesEqualLengthsAndRefusesOthers) {
  HostQueue queue;
  const std::vector<float> from{1, 2, 3};
  std::vector<float> to(3), shorter(2);
  queue.copy("copy", from, to);
  EXPECT_EQ(to, from);
  EXPECT_THROW(queue.copy("copy", from, shorter), std::logic_error);
}

TEST(Queue, APendingValueIsKnownAfterItsWork) {
  HostQueue queue;
  const Pending<double> sum(queue);
  queue.submit("sum", {}, [place = sum.place()] { *place = 4.5; });
  EXPECT_EQ(sum.get(), 4.5);
}

TEST(Device, TheHostsMemoryIsZeroAlignedAndFreedWithTheLastCopy) {
  std::weak_ptr<void> watched;
  {
    const OwnedBuffer owned = host_device().allocate(core::Element::f32, 100);
    const OwnedBuffer copy = owned;
    watched = owned.memory;
    EXPECT_EQ(owned.buffer.count(), 100U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(owned.buffer.host()) % 64, 0U);
    for (const float x : owned.buffer.values<float>()) EXPECT_EQ(x, 0);
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Buffer, OfATypeKnownAtRunTimeHasWholeElements) {
  std::vector<std::byte> memory(16);
  EXPECT_EQ(Buffer(core::Element::f32, std::span(memory)).count(), 4U);
  EXPECT_THROW(Buffer(core::Element::f32, std::span(memory).first(7)), std::logic_error);
}

// A second place for the bytes of a device, 64 behind the first.
class Shifted final : public DeviceAccess {
 public:
  std::byte* host_address(const std::byte* device_address, std::size_t, bool) const override {
    return const_cast<std::byte*>(device_address) + 64;
  }
};

TEST(Buffer, DeviceMemoryIsReachedOnlyWhileItsDeviceAllowsIt) {
  std::vector<float> memory(32);
  const Buffer device = DeviceSpan<float>(memory.data(), 16);
  EXPECT_THROW(device.host(), std::logic_error);
  const Shifted access;
  device_access = &access;
  EXPECT_EQ(device.part(3, 2).values<float>().data(), memory.data() + 19);
  device_access = nullptr;
  EXPECT_THROW(device.values<float>(), std::logic_error);
}

}  // namespace
}  // namespace gradmeter::runtime
