// SPDX-License-Identifier: Apache-2.0
#include "core/print.hpp"

#include <gtest/gtest.h>

#include "core/result.hpp"

namespace gradmeter::core {
namespace {

TEST(ShellWord, IsQuotedOnlyWhereAShellWouldDoSomethingWithIt) {
  for (const char* plain : {"ring,mpi", "topk:density=0.01", "results/größe_1.jsonl", "--sizes=1K", "50%"})
    EXPECT_EQ(shell_word(plain), plain);
  EXPECT_EQ(shell_word("my results/a.jsonl"), "'my results/a.jsonl'");
  EXPECT_EQ(shell_word("slow:rank=1;cut"), "'slow:rank=1;cut'");
  EXPECT_EQ(shell_word("$HOME*`x`"), "'$HOME*`x`'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a\nb\x1b"), "'a b\uFFFD'");
}

TEST(KeyPart, OfDifferentFactorsAreDifferentKeys) {
  Factors one, two;
  one[Factor::interconnect] = std::string("x model=m");
  two[Factor::interconnect] = std::string("x");
  two[Factor::model] = std::string("m");
  EXPECT_NE(one.key(), two.key());
  EXPECT_EQ(one.key(), "interconnect=x\\ model=m");
  one[Factor::interconnect] = std::string("x\\");
  two[Factor::interconnect] = std::string("x");
  EXPECT_EQ(one.key(), "interconnect=x\\\\");
  EXPECT_EQ(escaped_key_part("a|b c"), "a\\|b\\ c");
}

}  // namespace
}  // namespace gradmeter::core
