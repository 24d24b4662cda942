// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_memory.hpp"

#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <ranges>
#include <span>
#include <stdexcept>

#include "runtime/buffer.hpp"

namespace gradmeter::runtime {
namespace {

template <class T>
concept Indexable = requires(T t) {
  t[0];
};
template <class T>
concept Dereferenceable = requires(T t) {
  *t;
};

// Mixing host and device memory must not compile, in either direction.
static_assert(Indexable<std::span<float>>, "the check itself can fail");
static_assert(!Indexable<DeviceSpan<float>>);
static_assert(!Dereferenceable<DeviceSpan<float>>);
static_assert(!std::ranges::range<DeviceSpan<float>>);
static_assert(!std::convertible_to<DeviceSpan<float>, std::span<float>>);
static_assert(!std::convertible_to<std::span<float>, DeviceSpan<float>>);
static_assert(!std::constructible_from<std::span<float>, DeviceSpan<float>>);
static_assert(!std::constructible_from<std::span<const float>, DeviceSpan<const float>>);
static_assert(!std::constructible_from<DeviceSpan<float>, std::span<float>>);
static_assert(!std::constructible_from<DeviceSpan<float>, float*>);
static_assert(!std::assignable_from<DeviceSpan<float>&, std::span<float>>);
// What spans allow among themselves, and no more.
static_assert(std::convertible_to<DeviceSpan<float>, DeviceSpan<const float>>);
static_assert(!std::convertible_to<DeviceSpan<const float>, DeviceSpan<float>>);
static_assert(!std::convertible_to<DeviceSpan<float>, DeviceSpan<double>>);

TEST(DeviceSpan, CutsAsSpansDo) {
  std::array<float, 10> stand_in{};  // an address is enough: nothing is read
  const DeviceSpan<float> all(stand_in.data(), stand_in.size());
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(all.bytes(), 40u);
  EXPECT_EQ(all.first(3).size(), 3u);
  EXPECT_EQ(all.subspan(4).device_address(), stand_in.data() + 4);
  EXPECT_EQ(all.subspan(4).size(), 6u);
  EXPECT_EQ(all.subspan(4, 2).size(), 2u);
  EXPECT_TRUE(all.subspan(10).empty());
  const DeviceSpan<const float> read_only = all;
  EXPECT_EQ(read_only.device_address(), stand_in.data());
  EXPECT_TRUE(DeviceSpan<float>().empty());
}

TEST(Buffer, IsOfTheHostOrOfADevice) {
  std::array<float, 10> stand_in{};
  const Buffer host(stand_in), device(DeviceSpan<float>(stand_in.data(), stand_in.size()));
  EXPECT_EQ(host.part(4, 2).values<float>().data(), stand_in.data() + 4);
  EXPECT_EQ(host.part(4, 2).bytes(), 8U);
  EXPECT_THROW((void)host.device(), std::logic_error);
  EXPECT_THROW((void)host.values<double>(), std::logic_error);
  EXPECT_THROW((void)host.part(4, 7), std::logic_error);
  const ConstBuffer part = device.part(4, 2);
  ASSERT_TRUE(part.on_device());
  EXPECT_EQ(static_cast<const void*>(part.device().device_address()), stand_in.data() + 4);
  EXPECT_EQ(part.device().bytes(), 8U);
  EXPECT_THROW((void)part.host(), std::logic_error);
}

#ifndef NDEBUG
TEST(DeviceSpan, APieceOutsideIsAContractBroken) {
  const DeviceSpan<float> all(nullptr, 10);
  EXPECT_DEATH(all.subspan(4, 7), "");
  EXPECT_DEATH(all.subspan(11), "");
}
#endif

}  // namespace
}  // namespace gradmeter::runtime
