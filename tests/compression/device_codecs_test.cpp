// SPDX-License-Identifier: Apache-2.0
// Every codec on the device against the host's: the same bytes, the same floats.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "compression/codec.hpp"
#include "device_support.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::compression::cuda {
namespace {

/// Codecs with parameters that lead to other kernels, or to other ways through them.
const std::vector<std::string> variants{
    "bf16",
    "fp16",
    "onebit",
    "onebit:bucket=64",
    "onebit:bucket=1088",
    "onebit:bucket=64,means=2",
    "onebit:bucket=16384,means=2",
    "fp8-e4m3",
    "fp8-e5m2",
    "lns4",
    "lns4:bucket=1088",
    "natural8",
    "natural8:bucket=64",
    "qsgd1",
    "qsgd1:bucket=64",
    "qsgd1:bucket=1024",
    "qsgd1:bucket=1088",
    "qsgd2",
    "qsgd4",
    "qsgd8",
    "qsgd4:bucket=64",
    "qsgd4:bucket=1088",
    "qsgd4:bucket=2048",
    "qsgd8:bucket=16384",
    "qsgd2:norm=l2",
    "qsgd8:bucket=1024,norm=l2",
    "qsgd8:bucket=1088,norm=l2",
    "qsgd8:bucket=16384,norm=l2",
    "qsgd4:rounding=nearest",
    "terngrad",
    "terngrad:clip=0",
    "topk",
    "topk:density=0.2",
    "topk:density=1",
};

/// Odd tensors are not aligned (device_support.hpp), so kernels take their pieces with bounds.
const std::vector<std::size_t> sizes{0, 1, 3, 31, 32, 33, 64, 127, 128, 129, 511, 512, 513, 1000, 4098, 20001};

struct Data {
  std::string name;
  std::vector<float> x;
};

std::vector<Data> data_of(std::size_t n) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<Data> all{{"gaussian", gaussians(n)}};
  if (n == 0) return all;
  all.push_back({"zeros", std::vector<float>(n, 0.0F)});
  all.push_back({"subnormal", gaussians(n, 1e-41F)});
  all.push_back({"huge", gaussians(n, 5e37F)});
  all.push_back({"one NaN", gaussians(n)});
  all.back().x[n / 2] = std::numeric_limits<float>::quiet_NaN();
  all.push_back({"one infinity", gaussians(n)});
  all.back().x[n - 1] = -infinity;
  all.push_back({"sparse", std::vector<float>(n, -0.0F)});
  for (std::size_t i = 0; i < n; i += 37) all.back().x[i] = 1.0F / static_cast<float>(i + 1);
  return all;
}

class DeviceCodecs : public ::testing::TestWithParam<std::string> {
 protected:
  const CodecChoicePtr choice_ = find_codec(GetParam());
};

TEST_P(DeviceCodecs, EncodeTheHostsBytesAndDecodeTheHostsFloats) {
  test::each_device_seed([&] {
    for (const std::size_t n : sizes) {
      for (const auto& [name, x] : data_of(n)) {
        SCOPED_TRACE(name + " of " + std::to_string(n));
        const RandomDraw draw{.seed = 5, .step = n, .tensor = 3, .rank = 1, .first = n * 1000};
        OnDevice on(*choice_, n);
        const Bytes wire = on.encode(x, draw);
        ASSERT_EQ(wire, encoded(on.host, x, draw));
        expect_equal_floats(on.decode(wire, {}), decoded(on.host, wire, n));
        std::vector<float> addend = gaussians(n, 1, 2), sum(n);
        on.host.decode_add(wire, addend, sum);
        expect_equal_floats(on.decode(wire, addend), sum);
        expect_equal_floats(on.decode(wire, addend, true), sum);
      }
    }
  });
}

TEST_P(DeviceCodecs, AddUpAndEncodeWhatTheHostsReducerDoes) {
  test::each_device_seed([&] {
    for (const std::size_t n : {std::size_t{1}, std::size_t{700}, std::size_t{20001}}) {
      std::vector<Bytes> wires;
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
        SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(n));
        while (wires.size() < count) {
          wires.push_back(encoded(*choice_->codec, gaussians(n, 0.1F, wires.size()), {.seed = wires.size()}));
        }
        OnDevice on(*choice_, n);
        Reducer reducer(on.host, n);
        const std::vector<std::span<const std::byte>> spans(wires.begin(), wires.end());
        Bytes expected(on.host.wire_bytes(n));
        const RandomDraw draw{.seed = 9, .phase = 1};
        reducer.run(spans, n, expected.data(), draw);
        ASSERT_EQ(on.reduce(wires, draw), expected);
      }
    }
  });
}

TEST_P(DeviceCodecs, DrawTheHostsNumbersWhereTheirHighWordChanges) {
  const std::size_t n = 1500;
  const auto x = gaussians(n);
  const RandomDraw draw{.seed = 7, .first = (std::uint64_t{1} << 32) - 700};
  OnDevice on(*choice_, n);
  EXPECT_EQ(on.encode(x, draw), encoded(on.host, x, draw));
}

INSTANTIATE_TEST_SUITE_P(Table, DeviceCodecs, ::testing::ValuesIn(variants), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace gradmeter::compression::cuda
