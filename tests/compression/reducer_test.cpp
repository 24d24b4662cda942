// SPDX-License-Identifier: Apache-2.0
#include "compression/codec.hpp"

#include <gtest/gtest.h>

#include "compression/registry.hpp"
#include "compression/test_gradients.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::size_t parts = 3;

struct Encoded {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::span<const std::byte>> wires;
};
Encoded encoded(const Codec& codec, const GradientSource& gradient, std::size_t n) {
  Encoded out{std::vector<std::vector<std::byte>>(parts), {}};
  std::vector<float> x(n);
  for (std::size_t p = 0; p < parts; ++p) {
    gradient.draw(1, p, x);
    auto& memory = out.memory[p];
    memory.resize(codec.wire_bytes(n));
    const std::size_t bytes = codec.encode(x, memory.data(), {.seed = 1, .rank = static_cast<std::uint32_t>(p)});
    out.wires.emplace_back(memory.data(), bytes);
  }
  return out;
}

/// `offset`: where the result begins, from a multiple of 16 on.
void expect_bits_of_whole_spans(const Codec& codec, std::span<const std::span<const std::byte>> wires, std::size_t n,
                                std::size_t offset = 0) {
  std::vector<float> sum(n);
  codec.decode(wires[0], sum);
  for (const auto& wire : wires.subspan(1)) codec.decode_add(wire, sum, sum);
  const RandomDraw draw{.seed = 4, .phase = 1, .first = 512};
  std::vector<std::byte> wanted(codec.wire_bytes(n)), found(offset + codec.wire_bytes(n), std::byte{0xff});
  wanted.resize(codec.encode(sum, wanted.data(), draw));
  Reducer reducer(codec, n);
  found.resize(offset + reducer.run(wires, n, found.data() + offset, draw));
  found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(offset));
  EXPECT_TRUE(found == wanted) << codec.name() << ", " << wires.size() << " parts of " << n
                               << (reducer.in_tiles() ? " in tiles" : " whole");
}

TEST(Reducer, GivesTheBitsOfWholeSpansForEveryCodecAndLength) {
  const GradientSource laplace("laplace");
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    const CodecPtr codec = find_codec(row.name)->codec;
    for (const std::size_t n : {0u, 1u, 511u, 512u, 8191u, 8192u, 8193u, 20000u, 40961u}) {
      expect_bits_of_whole_spans(*codec, encoded(*codec, laplace, n).wires, n);
    }
  }
}

TEST(Reducer, GivesTheBitsOfWholeSpansForAnyNumberOfParts) {
  const GradientSource laplace("laplace");
  const std::size_t n = 5000;
  for (const char* name : {"bf16", "qsgd4", "onebit", "natural8"}) {
    const CodecPtr codec = find_codec(name)->codec;
    const Encoded e = encoded(*codec, laplace, n);
    for (const std::size_t count : {1u, 2u, 16u, 17u, 33u}) {
      std::vector<std::span<const std::byte>> wires;
      for (std::size_t p = 0; p < count; ++p) wires.push_back(e.wires[p % parts]);
      expect_bits_of_whole_spans(*codec, wires, n);
    }
  }
}

TEST(Reducer, GivesTheBitsOfWholeSpansThatNoCacheHolds) {
  const GradientSource laplace("laplace");
  const std::size_t n = (std::size_t{1} << 20) + 1001;
  for (const char* name : {"bf16", "qsgd8"}) {
    const CodecPtr codec = find_codec(name)->codec;
    std::vector<float> x(n);
    laplace.draw(1, 0, x);
    std::vector<std::byte> wire(codec->wire_bytes(n));
    codec->encode(x, wire.data(), {});
    const std::vector<std::span<const std::byte>> wires(31, wire);
    for (const std::size_t offset : {0u, 8u}) expect_bits_of_whole_spans(*codec, wires, n, offset);
  }
}

TEST(Reducer, GoesInTilesWhereSpansCanBeCut) {
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    const auto choice = find_codec(row.name);
    const bool scales = choice->parsed.parameters.contains("bucket"),
               cast = choice->codec->layout() && choice->codec->grain() == 1;
    EXPECT_EQ(Reducer(*choice->codec, 100).in_tiles(), (scales || cast) && !choice->codec->variable()) << row.name;
  }
  const auto layout = find_codec("bf16")->codec->layout();
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->bits, 16u);
  EXPECT_EQ(layout->scale_width, 0u);
}

}  // namespace
}  // namespace gradmeter::compression
