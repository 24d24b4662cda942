#include "compression/codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "compression/registry.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

TEST(Draw, AnyFieldChangesTheKey) {
  const Draw base{.seed = 1, .step = 2, .tensor = 3, .rank = 4, .phase = 5};
  for (const Draw other : {Draw{2, 2, 3, 4, 5}, Draw{1, 3, 3, 4, 5}, Draw{1, 2, 4, 4, 5}, Draw{1, 2, 3, 5, 5},
                           Draw{1, 2, 3, 4, 6}, Draw{2, 1, 3, 4, 5}, Draw{1, 2, 4, 3, 5}}) {
    EXPECT_NE(base.key(), other.key());
  }
}

TEST(Sizes, AreRightWhereFloatsAreNot) {
  constexpr std::size_t n = (std::size_t{1} << 24) + 1;
  EXPECT_EQ(code_bytes(n, 8), n + 15);
  EXPECT_EQ(code_bytes(n, 1), (std::size_t{1} << 21) + 16);
  EXPECT_EQ(scale_bytes(n, 512), padded(4 * (32768 + 1)));
  EXPECT_EQ(scale_bytes(1024, 512), 16u);
  EXPECT_EQ(code_bytes(0, 4) + scale_bytes(0, 512), 0u);
}

TEST(FindCodec, NoneAndFp32MeanNoCodec) {
  EXPECT_EQ(find_codec("none"), nullptr);
  EXPECT_EQ(find_codec("fp32"), nullptr);
  EXPECT_THROW(find_codec("none:min=3"), core::UsageError);
}

TEST(FindCodec, RefusesWhatThereIsNotAndSaysWhatThereIs) {
  for (const auto* bad : {"qsgd3", "bf16:bucket=0", "qsgd4:bucket=100", "qsgd4:norm=l3", "bf16:ef=yes", "bf16:min=-1",
                          "bf16:min=01", "bf16:x"}) {
    try {
      find_codec(bad);
      ADD_FAILURE() << bad;
    } catch (const core::UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("codec"), std::string::npos) << e.what();
    }
  }
}

TEST(FindCodec, WritesOutEveryParameterAndKeepsAShortLabel) {
  EXPECT_EQ(find_codec("bf16")->name, "bf16:ef=off,min=1024");
  EXPECT_EQ(find_codec("bf16:min=1024")->name, find_codec("bf16")->name);
  EXPECT_EQ(find_codec("bf16:min=0")->label, "bf16:min=0");
}

}  // namespace
}  // namespace gradmeter::compression
