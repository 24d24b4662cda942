// SPDX-License-Identifier: Apache-2.0
#include "core/csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradmeter::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Read {
  std::vector<std::string> names, texts, faults;
};
/// The texts of column `b` of each row.
Read read(const std::string& text) {
  Read out;
  out.faults = read_csv(
      text, "t.csv", [&](const auto& names) { out.names = names; },
      [&](const CsvRow& row, std::size_t) { out.texts.push_back(row.text("b")); });
  return out;
}

TEST(Csv, QuotesHoldCommasAndQuotes) {
  EXPECT_THAT(read("a,b\n1,\"x, \"\"y\"\"\"\n2,\"\"\n3,\"\"\"\"\r\n").texts, ElementsAre("x, \"y\"", "", "\""));
}

TEST(Csv, CommentsEmptyLinesAndAByteOrderMarkAreSkipped) {
  const Read r = read("\xef\xbb\xbf# of a machine\n\na,b\n# none\n1,2\n");
  EXPECT_THAT(r.names, ElementsAre("a", "b"));
  EXPECT_THAT(r.texts, ElementsAre("2"));
}

TEST(Csv, FaultsHaveLineAndColumnAndLeaveOneRowOut) {
  const Read r = read("a,b\n1\n1,2,3\n1,\"x\n1,\"x\"y\n1,2\n");
  EXPECT_THAT(r.texts, ElementsAre("2"));
  EXPECT_THAT(r.faults,
              ElementsAre(HasSubstr("t.csv:2:2: 1 values, not 2: 'b' is missing"),
                          HasSubstr("t.csv:3:5: more than 2 values"), HasSubstr("t.csv:4:3: a quote that does not end"),
                          HasSubstr("t.csv:5:6: text behind a quoted value")));
}

}  // namespace
}  // namespace gradmeter::core
