// SPDX-License-Identifier: Apache-2.0
#include "compression/codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "compression/registry.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

TEST(RandomDraw, AnyFieldChangesTheKey) {
  const RandomDraw base{.seed = 1, .step = 2, .tensor = 3, .rank = 4, .phase = 5};
  for (const RandomDraw other :
       {RandomDraw{2, 2, 3, 4, 5}, RandomDraw{1, 3, 3, 4, 5}, RandomDraw{1, 2, 4, 4, 5}, RandomDraw{1, 2, 3, 5, 5},
        RandomDraw{1, 2, 3, 4, 6}, RandomDraw{2, 1, 3, 4, 5}, RandomDraw{1, 2, 4, 3, 5}}) {
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

std::vector<std::string> labels(const std::vector<CodecChoicePtr>& codecs) {
  std::vector<std::string> out;
  for (const auto& c : codecs) out.push_back(c ? c->label : "none");
  return out;
}

TEST(FindCodec, IsExchangedAsTheRowSaysUnlessAParameterDoes) {
  for (const CodecInfo& row : codecs()) {
    EXPECT_EQ(find_codec(row.name)->exchange, row.default_exchange) << row.name;
  }
}

TEST(FindCodecs, NamesEachOnceInTheListsOrder) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels(find_codecs("qsgd4:bucket=64,norm=l2,none,bf16,fp32,qsgd4:norm=l2,bucket=64")),
            (Labels{"qsgd4:bucket=64,norm=l2", "none", "bf16"}));
  const auto all = labels(find_codecs("bf16,all"));
  EXPECT_EQ(all.size(), codecs().size() + 1) << "every row and none, bf16 once";
  EXPECT_EQ(Labels(all.begin(), all.begin() + 2), (Labels{"bf16", "none"}));
  EXPECT_THROW(find_codecs("bf16,"), core::UsageError);
  EXPECT_THROW(find_codecs("bf16,qsgd3"), core::UsageError);
}

TEST(FindCodecs, WhatIsTimedHasNoWarmUp) {
  EXPECT_EQ(labels(require_no_warm_up(find_codecs("all"))).size(), codecs().size() + 1)
      << "dgc's is made by train alone";
  EXPECT_NO_THROW(require_no_warm_up(find_codecs("dgc:warmup=0")));
  EXPECT_THROW(require_no_warm_up(find_codecs("bf16,dgc:warmup=4")), core::UsageError);
}

}  // namespace
}  // namespace gradmeter::compression
