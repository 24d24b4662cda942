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
Encoded encoded(const Codec& codec, const TestGradient& gradient, std::size_t n) {
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

TEST(Reducer, GivesTheBitsOfWholeSpansForEveryCodecAndLength) {
  const TestGradient laplace("laplace");
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    const CodecPtr codec = find_codec(row.name)->codec;
    for (const std::size_t n : {0u, 1u, 511u, 512u, 8191u, 8192u, 8193u, 20000u, 40961u}) {
      const Encoded e = encoded(*codec, laplace, n);
      std::vector<float> sum(n);
      codec->decode(e.wires[0], sum);
      for (std::size_t p = 1; p < parts; ++p) codec->decode_add(e.wires[p], sum, sum);
      const Draw draw{.seed = 4, .phase = 1, .first = 512};
      std::vector<std::byte> wanted(codec->wire_bytes(n)), found(codec->wire_bytes(n), std::byte{0xff});
      wanted.resize(codec->encode(sum, wanted.data(), draw));
      Reducer reducer(*codec, n);
      found.resize(reducer.run(e.wires, n, found.data(), draw));
      EXPECT_EQ(found, wanted) << row.name << ", " << n << (reducer.in_tiles() ? " in tiles" : " whole");
    }
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
