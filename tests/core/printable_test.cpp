// SPDX-License-Identifier: Apache-2.0
#include "core/print.hpp"

#include <gtest/gtest.h>

#include "core/result_file.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

TEST(Printable, KeepsWordsOfEveryLanguage) {
  for (const std::string text : {"node-1.rack_2", "größer → 25 µs", "計算機 7", "\U0001F680 done", ""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, HasNothingThatCommandsATerminal) {
  EXPECT_EQ(printable("a\x1b[31mred\x07"), "a\uFFFD[31mred\uFFFD");
  EXPECT_EQ(printable("two\nlines\tand\rmore"), "two lines and more");
  EXPECT_EQ(printable("C1 \u009b2J"), "C1 \uFFFD2J") << "the same command in one character";
  EXPECT_EQ(printable("\u202Egnp.exe"), "\uFFFDgnp.exe") << "reads exe.png";
  EXPECT_EQ(printable("\u2066a\u2069\u200F\uFFFE\uFFFF\x7f"), "\uFFFDa\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("torn \xe2\x80 \x9b"), "torn \uFFFD\uFFFD \uFFFD")
      << "no UTF-8; the last is a command where a terminal has one byte a character";
  EXPECT_EQ(printable("\xc1\x81 \xe0\x80\x8a \xed\xa0\x80 \xf4\x90\x80\x80 \xf8\x88\x80\x80"),
            "\uFFFD\uFFFD \uFFFD\uFFFD\uFFFD \uFFFD\uFFFD\uFFFD \uFFFD\uFFFD\uFFFD\uFFFD \uFFFD\uFFFD\uFFFD\uFFFD")
      << "longer forms of A and of a line end, half a pair, beyond the last code, a byte that begins none";
}

TEST(Printable, KeepsTheLinesOfAText) {
  EXPECT_EQ(printable_lines("one\ttwo\n\x1b[31mthree\u202e\r\n"), "one\ttwo\n\uFFFD[31mthree\uFFFD \n");
}

TEST(Printable, IsEveryTextOfAResultFile) {
  RunInfo info = sample_run();
  info.hosts = {"host\x1b]0;owned\x07"};
  info.command = "gradmeter\u202E";
  Point point = sample_point();
  point.reason = "line\nbreak";
  point.factors[Factor::interconnect] = std::string("ib\x1b[2J");
  const ResultFile file = parse_results(to_json_line(info) + "\n" + to_json_line(point, info.run_id) + "\n", "file");
  EXPECT_EQ(file.runs.at(0).info.hosts.at(0), "host\uFFFD]0;owned\uFFFD");
  EXPECT_EQ(file.runs.at(0).info.command, "gradmeter\uFFFD");
  EXPECT_EQ(file.runs.at(0).points.at(0).reason, "line break");
  EXPECT_EQ(to_text(file.runs.at(0).points.at(0).factors[Factor::interconnect]), "ib\uFFFD[2J");
}

}  // namespace
}  // namespace gradmeter::core
