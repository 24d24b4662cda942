// SPDX-License-Identifier: Apache-2.0
#include "model/data/sources.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "core/format.hpp"
#include "model/data/dataset.hpp"

namespace gradmeter::model {
namespace {

class Text : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static std::pair<std::vector<float>, std::vector<std::int32_t>> window(const Dataset& d, std::size_t i) {
    std::pair w{std::vector<float>(d.features()), std::vector<std::int32_t>(d.labels())};
    d.read(i, w.first, w.second);
    return w;
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("gradmeter-text-{}", getpid());
};

// a: 4, <eos>: 2, b: 2, c: 1, <unk>: 0, and so numbered.
constexpr const char* small = "a b  a\n a\tb c a\n";

TEST_F(Text, WordsAreNumberedByFrequencyAndWindowsFollowEachOther) {
  const auto train = write("x.train.txt", small);
  write("x.valid.txt", "b zebra a\n");
  const DataSplit split = make_data({.source = train + ":steps=3"});
  EXPECT_EQ(split.train->classes(), 5U);
  EXPECT_EQ(split.train->features(), 3U);
  EXPECT_EQ(split.train->labels(), 3U);
  ASSERT_EQ(split.train->size(), 2U);  // of 9 words, the first of which has none before it
  EXPECT_EQ(window(*split.train, 0), std::pair(std::vector<float>{0, 2, 0}, std::vector<std::int32_t>{2, 0, 1}));
  EXPECT_EQ(window(*split.train, 1), std::pair(std::vector<float>{1, 0, 2}, std::vector<std::int32_t>{0, 2, 3}));
  ASSERT_EQ(split.validation->size(), 1U);
  EXPECT_EQ(window(*split.validation, 0), std::pair(std::vector<float>{2, 4, 0}, std::vector<std::int32_t>{4, 0, 1}))
      << "zebra is <unk>";
}

TEST_F(Text, WithoutAnotherFileTheLastTenthValidates) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("w{} ", i);
  const DataSplit split = make_data({.source = write("corpus.txt", text + "\n") + ":steps=5"});
  EXPECT_EQ(split.train->size(), 18U);
  EXPECT_EQ(split.validation->size(), 2U);
  EXPECT_EQ(split.validation->classes(), split.train->classes());
  const auto first = window(*split.validation, 0), last = window(*split.train, 17);
  EXPECT_EQ(first.first[0], static_cast<float>(last.second[4]));
  EXPECT_EQ(make_data({.source = write("corpus.txt", text) + ":steps=5", .train_samples = 4}).train->size(), 4U);
}

TEST_F(Text, AWordOfTheTextThatIsCalledUnknownIsThatWord) {
  const auto train = write("u.train.txt", "<unk> a <unk> a <unk>\n");
  write("u.valid.txt", "b a\n");
  const DataSplit split = make_data({.source = train + ":steps=1"});
  EXPECT_EQ(split.train->classes(), 3U);
  EXPECT_EQ(window(*split.validation, 0).first, std::vector<float>{0});
}

TEST_F(Text, WhatIsTooShortOrNotThereIsRefusedInOneLine) {
  const auto refusal = [](const std::string& source) -> std::string {
    try {
      (void)read_text(source, 10, 10);
      return "";
    } catch (const core::UsageError& e) {
      return e.what();
    }
  };
  EXPECT_NE(refusal(write("short.txt", "a b\n") + ":steps=35").find("too few"), std::string::npos);
  EXPECT_NE(refusal(write("none.txt", "") + ":steps=1").find("too few"), std::string::npos);
  EXPECT_NE(refusal("/no/such/text.txt").find("cannot be read"), std::string::npos);
  EXPECT_NE(refusal(write("x.txt", small) + ":step=3").find("steps"), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::model
