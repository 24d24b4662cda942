// SPDX-License-Identifier: Apache-2.0
#include "core/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace gradmeter::core {
namespace {

TEST(Table, ColumnsLineUpUnderHeaderAndUnit) {
  Table table({{.header = "algorithm", .unit = "", .align = Align::left},
               {.header = "time", .unit = "µs"},
               {.header = "note", .unit = "", .align = Align::left}});
  table.add_row({"ring", "12.3", "ok"});
  table.add_row({"doublé", "1234567", ""});
  EXPECT_EQ(table.to_string(),
            "algorithm     time  note\n"
            "                µs\n"
            "────────────────────────\n"
            "ring          12.3  ok\n"
            "doublé     1234567\n");
  EXPECT_EQ(table.rows(), 2u);
}

TEST(Table, WithoutUnitsThereIsNoUnitRow) {
  Table table(std::vector<Column>{{.header = "a", .unit = ""}});
  table.add_row({"10"});
  EXPECT_EQ(table.to_string(), " a\n──\n10\n");
}

TEST(Table, AColumnIsAsWideAsItsWidestCellOnTheTerminal) {
  Table table({{.header = "a", .unit = ""}, {.header = "b", .unit = ""}});
  table.add_row({"µµ", "1"});
  EXPECT_EQ(table.to_string(), " a  b\n─────\nµµ  1\n");
}

TEST(Table, ACellCannotBreakItsRow) {
  Table table(std::vector<Column>{{.header = "a", .unit = "", .align = Align::left}});
  table.add_row({"x\ny\tz"});
  EXPECT_EQ(table.to_string(), "a\n─────\nx y z\n");
}

TEST(Table, ARowOfAnotherLengthIsAMistakeOfTheProgram) {
  Table table(std::vector<Column>{{.header = "a", .unit = ""}});
  EXPECT_THROW(table.add_row({"1", "2"}), std::logic_error);
}

/// Every line with the terminal cells that it takes.
std::size_t longest_line(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    longest = std::max(longest, display_width(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  return longest;
}

Table wide_table() {
  Table table({{.header = "name", .unit = "", .align = Align::left},
               {.header = "p99", .unit = "µs", .expendable = 2},
               {.header = "time", .unit = "µs"},
               {.header = "max", .unit = "µs", .expendable = 2},
               {.header = "count", .unit = "", .expendable = 1}});
  table.add_row({"ring", "13.1", "12.3", "15.0", "1024"});
  return table;
}

TEST(Table, TheMostExpendableColumnsGoTogetherAndAreNamed) {
  EXPECT_EQ(wide_table().to_string(29), wide_table().to_string()) << "29 cells are just enough";
  EXPECT_EQ(wide_table().to_string(28),
            "name  time  count\n"
            "        µs\n"
            "─────────────────\n"
            "ring  12.3   1024\n"
            "left out: p99, max; --wide\n"
            "shows all\n");
}

TEST(Table, ColumnsThatStayAreShownHoweverNarrowTheTerminal) {
  const std::string text = wide_table().to_string(5);
  EXPECT_NE(text.find("ring  12.3\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("1024"), std::string::npos) << text;
}

TEST(Table, AColumnLeftOutTwiceIsNamedOnce) {
  Table table({{.header = "a", .unit = ""},
               {.header = "95 %", .unit = "", .expendable = 1},
               {.header = "95 %", .unit = "", .expendable = 1}});
  table.add_row({"1", "2", "3"});
  EXPECT_NE(table.to_string(4).find("95 %; --wide"), std::string::npos) << table.to_string(4);
}

TEST(Table, ANoteStandsBehindItsRowOrBelowIt) {
  Table table({{.header = "a", .unit = "", .align = Align::left}, {.header = "b", .unit = ""}});
  table.add_row({"ring", "-"}, "skipped: too few ranks");
  table.add_row({"mpi", "10"}, "");
  EXPECT_EQ(table.to_string(),
            "a      b\n"
            "────────\n"
            "ring   -  skipped: too few ranks\n"
            "mpi   10\n");
  EXPECT_EQ(table.to_string(26),
            "a      b\n"
            "────────\n"
            "ring   -\n"
            "    skipped: too few ranks\n"
            "mpi   10\n");
}

TEST(Table, ProseTakesSeveralLines) {
  Table table({{.header = "name", .unit = "", .align = Align::left},
               {.header = "about", .unit = "", .align = Align::left, .wraps = true},
               {.header = "n", .unit = ""}});
  table.add_row({"ring", "β of both halves, then a word", "7"});
  EXPECT_EQ(table.to_string(29),
            "name  about                 n\n"
            "─────────────────────────────\n"
            "ring  β of both halves,     7\n"
            "      then a word\n");
  EXPECT_EQ(longest_line(table.to_string(29)), 29u);
}

TEST(Table, AListIsCutBehindItsCommas) {
  Table table(std::vector<Column>{{.header = "a", .unit = "", .align = Align::left, .wraps = true}});
  table.add_row({"bucket=512,levels=7,min=1024"});
  EXPECT_EQ(table.to_string(18), "a\n──────────────────\nbucket=512,\nlevels=7,min=1024\n");
}

TEST(Table, AWordLongerThanItsLineIsCutBetweenCharacters) {
  Table table(std::vector<Column>{{.header = "a", .unit = "", .align = Align::left, .wraps = true}});
  table.add_row({"日本日本日本日本日本"});
  EXPECT_EQ(table.to_string(17), "a\n─────────────────\n日本日本日本日本\n日本\n");
}

TEST(Table, AWordOfTheHeadIsNotCut) {
  Table table(
      {{.header = "a", .unit = ""},
       {.header = "strategy of the exchange", .unit = "parameter-servers", .align = Align::left, .wraps = true}});
  table.add_row({"1", "sharded over all ranks, with momentum"});
  const std::string text = table.to_string(12);
  EXPECT_NE(text.find("parameter-servers"), std::string::npos) << text;
}

TEST(Table, NamesTakeSeveralLinesWhereNothingElseCanGive) {
  Table table({{.header = "size", .unit = ""}, {.header = "algorithm", .unit = "", .align = Align::left}});
  table.add_row({"1024", "ring shm qsgd4"});
  EXPECT_EQ(table.to_string(16), "size  algorithm\n────────────────\n1024  ring shm\n      qsgd4\n");
}

TEST(Table, FiguresThatCannotFitAreLeftOutFromTheRight) {
  Table table({{.header = "batch", .unit = ""},
               {.header = "fp32", .unit = ""},
               {.header = "bf16", .unit = ""},
               {.header = "int8", .unit = ""}});
  table.add_row({"1", "100000", "200000", "300000"});
  EXPECT_EQ(table.to_string(24),
            "batch    fp32    bf16\n─────────────────────\n    1  100000  200000\nleft out: int8; --wide\nshows all\n");
}

TEST(Table, WidthCountsTerminalCellsNotBytes) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs ≥ …"), 6u);
  EXPECT_EQ(display_width("e\xCC\x81"), 1u) << "a combining accent takes no cell";
  EXPECT_EQ(display_width("日本"), 4u);
  EXPECT_EQ(display_width("\xff\xfe"), 2u) << "bytes that are not UTF-8";
  EXPECT_EQ(display_width("\xE6\x97"), 2u) << "a character cut off";
}

}  // namespace
}  // namespace gradmeter::core
