// SPDX-License-Identifier: Apache-2.0
// Data to the device and back, for tests that compare kernels with the host's loops.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/cuda/handles.hpp"

namespace gradmeter::test {

template <class T>
runtime::DeviceBuffer<T> on_device(std::span<const std::type_identity_t<T>> values, const runtime::Stream& stream) {
  runtime::DeviceBuffer<T> buffer(values.size());
  if (!values.empty()) runtime::copy<T>(buffer.span(), values, stream);
  return buffer;
}

/// Waits for the stream.
template <class T>
std::vector<T> read_back(runtime::DeviceSpan<const std::type_identity_t<T>> from, const runtime::Stream& stream) {
  std::vector<T> values(from.size());
  if (!values.empty()) runtime::copy<T>(std::span<T>(values), from, stream);
  stream.synchronize();
  return values;
}

/// Bit for bit, but for NaN, whose bits are the device's.
inline void expect_equal_floats(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i])) << i << " of " << a.size();
  }
}

}  // namespace gradmeter::test
