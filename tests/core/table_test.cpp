#include "core/table.hpp"

#include <gtest/gtest.h>

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
