// SPDX-License-Identifier: Apache-2.0
#include "analysis/words.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Value;

std::string codec(const char* name, const std::vector<Value>& beside = {}) {
  return in_words(Factor::codec, std::string(name), beside);
}

TEST(Words, SayWhatACodecMakesOfGradients) {
  EXPECT_EQ(codec("qsgd4:bucket=512,norm=max,rounding=stochastic"), "4-bit gradients");
  EXPECT_EQ(codec("none"), "uncompressed gradients");
  EXPECT_EQ(codec("topk:density=0.001,ef=on"), "largest 0.1 % of gradients");
  EXPECT_EQ(codec("powersgd:rank=4"), "rank-4 gradients");
}

TEST(Words, HaveParametersOnlyWhereTheyTellValuesApart) {
  const std::vector<Value> beside{std::string("qsgd4:bucket=128,ef=off"), std::string("qsgd8:bucket=64,ef=on")};
  EXPECT_EQ(codec("qsgd4:bucket=512,ef=off", beside), "4-bit gradients (bucket=512)");
  EXPECT_EQ(codec("qsgd8:bucket=64,ef=on", beside), "8-bit gradients");
}

TEST(Words, ATableOfAlgorithmsIsNoNameAndStaysAsItIs) {
  const std::string table = "0-2896:shm-direct,2896-:ring";
  EXPECT_EQ(in_words(Factor::algorithm, table, std::vector<Value>{std::string("ring"), table}), table);
  EXPECT_EQ(in_words(Factor::algorithm, std::string("0-:shm-direct")), "0-:shm-direct") << "with one range too";
}

TEST(Words, KeepTheNameOfAModel) {
  EXPECT_EQ(in_words(Factor::model, std::string("mlp:784-1024-1024-10")), "mlp:784-1024-1024-10");
  EXPECT_EQ(in_words(Factor::model, Value{}), "");
}

TEST(Words, CountWithTheirUnit) {
  EXPECT_EQ(in_words(Factor::ranks, std::int64_t{1}), "1 rank");
  EXPECT_EQ(in_words(Factor::size_bytes, std::int64_t{4194304}), "4 MiB");
  EXPECT_EQ(in_words(Factor::in_place, false), "out of place");
}

}  // namespace
}  // namespace gradmeter::analysis
