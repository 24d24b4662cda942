// SPDX-License-Identifier: Apache-2.0
// Reductions on the device against the host's, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "allreduce/gpu/reduce.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;
using test::on_device;
using test::read_back;
using Bytes = std::vector<std::byte>;

constexpr std::size_t lengths[] = {0, 1, 3, 15, 16, 17, 31, 32, 33, 1000, 4097};

/// Any bits: all exponents, NaNs, infinities; zeros of both signs, and small whole numbers that are often equal.
Bytes random_bytes(std::size_t n, Element e, std::uint64_t stream) {
  const core::Random random(7, stream);
  Bytes bytes(n * core::size_of(e));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.bits(i));
  for (std::size_t i = 0; i < n; i += 5) {
    core::store(e, bytes.data() + i * core::size_of(e), random.below(i, 2) == 0 ? 0.0 : -0.0);
  }
  for (std::size_t i = 1; i < n; i += 3) {
    core::store(e, bytes.data() + i * core::size_of(e), static_cast<double>(random.below(i, 8)));
  }
  return bytes;
}

/// On the device, the destination among the sources where `in_place`; `shift` elements from where cudaMalloc's memory
/// begins, so that accesses of 16 bytes are not possible.
Bytes reduced(Element e, Element accumulate, Op op, const std::vector<Bytes>& sources, std::size_t n, bool in_place,
              std::size_t shift) {
  const runtime::Stream stream;
  const std::size_t skipped = shift * core::size_of(e);
  std::vector<runtime::DeviceBuffer<std::byte>> on;
  std::vector<const std::byte*> addresses;
  for (const Bytes& source : sources) {
    Bytes shifted(skipped + source.size(), std::byte{0xa5});
    std::copy(source.begin(), source.end(), shifted.begin() + static_cast<std::ptrdiff_t>(skipped));
    addresses.push_back(on.emplace_back(on_device<std::byte>(shifted, stream)).span().device_address() + skipped);
  }
  constexpr std::size_t guard = 64;
  auto own = on_device<std::byte>(Bytes(skipped + n * core::size_of(e) + guard, std::byte{0xa5}), stream);
  auto& to = in_place ? on.back() : own;
  cuda::reduce(e, accumulate, op, to.span().device_address() + skipped, addresses, n, stream.get());
  Bytes all = read_back<std::byte>(to.span(), stream);
  for (std::size_t i = skipped + n * core::size_of(e); i < all.size(); ++i) EXPECT_EQ(all[i], std::byte{0xa5});
  return {all.begin() + static_cast<std::ptrdiff_t>(skipped),
          all.begin() + static_cast<std::ptrdiff_t>(skipped + n * core::size_of(e))};
}

Bytes expected(Element e, Element accumulate, Op op, const std::vector<Bytes>& sources, std::size_t n) {
  std::vector<const std::byte*> addresses;
  for (const Bytes& source : sources) addresses.push_back(source.data());
  Bytes to(n * core::size_of(e));
  reduce(e, accumulate, op, to.data(), addresses, n);
  return to;
}

class DeviceReduce : public ::testing::TestWithParam<Element> {};

TEST_P(DeviceReduce, HasTheHostsBits) {
  const Element e = GetParam();
  test::each_device_seed([&] {
    for (const Element accumulate : {e, Element::f32}) {
      if (accumulate != e && !core::is_small_float(e)) continue;
      for (const std::size_t n : lengths) {
        for (const std::size_t count : {2u, 3u, 7u}) {
          std::vector<Bytes> sources;
          for (std::size_t k = 0; k < count; ++k) sources.push_back(random_bytes(n, e, k));
          for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
            SCOPED_TRACE(std::string(name(op)) + " of " + std::to_string(count) + " times " + std::to_string(n));
            const Bytes right = expected(e, accumulate, op, sources, n);
            ASSERT_EQ(reduced(e, accumulate, op, sources, n, false, 0), right);
            ASSERT_EQ(reduced(e, accumulate, op, sources, n, true, 1), right);
          }
        }
      }
    }
  });
}

TEST_P(DeviceReduce, FinishesAveragesAsTheHost) {
  const Element e = GetParam();
  if (core::is_integer(e)) GTEST_SKIP() << "integers have no average";
  const std::size_t n = 1000;
  Bytes sum = random_bytes(n, e, 1), right(sum.size());
  for (std::size_t i = 0; i < n; ++i) {
    std::byte* at = sum.data() + i * core::size_of(e);
    if (std::isnan(core::load(e, at))) core::store(e, at, 1);
  }
  for (const int ranks : {1, 2, 3}) {
    finish(e, Op::average, right.data(), sum.data(), n, ranks);
    const runtime::Stream stream;
    const auto on = on_device<std::byte>(sum, stream);
    runtime::DeviceBuffer<std::byte> to(sum.size());
    cuda::finish(e, Op::average, to.span().device_address(), on.span().device_address(), n, ranks, stream.get());
    EXPECT_EQ(read_back<std::byte>(to.span(), stream), right) << ranks;
  }
}

TEST_P(DeviceReduce, WidensAndNarrowsAsTheHost) {
  const Element e = GetParam();
  if (!core::is_small_float(e)) GTEST_SKIP() << "not a small float";
  const std::size_t n = 4097;
  const Bytes codes = random_bytes(n, e, 2);
  std::vector<float> wide(n);
  widen(e, wide.data(), codes.data(), n);
  const runtime::Stream stream;
  const auto on = on_device<std::byte>(codes, stream);
  runtime::DeviceBuffer<float> on_wide(n);
  cuda::widen(e, on_wide.span().device_address(), on.span().device_address(), n, stream.get());
  test::expect_equal_floats(read_back<float>(on_wide.span(), stream), wide);

  const core::Random random(3, 0);
  for (std::size_t i = 0; i < n; ++i) wide[i] *= static_cast<float>(1 + random.uniform(i));
  Bytes narrowed(codes.size());
  narrow(e, narrowed.data(), wide.data(), n);
  const auto from = on_device<float>(wide, stream);
  runtime::DeviceBuffer<std::byte> to(codes.size());
  cuda::narrow(e, to.span().device_address(), from.span().device_address(), n, stream.get());
  EXPECT_EQ(read_back<std::byte>(to.span(), stream), narrowed);
}

INSTANTIATE_TEST_SUITE_P(Elements, DeviceReduce, ::testing::ValuesIn([] {
                           std::vector<Element> all;
                           for (const auto& row : core::elements) all.push_back(row.element);
                           return all;
                         }()),
                         [](const auto& test) {
                           std::string name(core::info(test.param).name);
                           std::erase(name, '-');
                           return name;
                         });

TEST(DeviceReduce, RefusesOneSourceAndTooMany) {
  const std::vector<const std::byte*> sources(cuda::most_sources + 1, nullptr);
  for (const std::size_t count : {std::size_t{1}, sources.size()}) {
    EXPECT_THROW(
        cuda::reduce(Element::f32, Element::f32, Op::sum, nullptr, std::span(sources).first(count), 1, nullptr),
        std::invalid_argument);
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
