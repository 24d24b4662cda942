// SPDX-License-Identifier: Apache-2.0
// What the tests of importers share: logs from files, readings and refusals.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "importers/importers.hpp"

namespace gradmeter::importers {

/// A file of tests/importers/logs.
inline std::string log_file(const std::string& name) {
  std::ifstream in(GRADMETER_TEST_LOGS "/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// All runs of a log as one, with the first one's info, and one by one.
struct Reading : Imported {
  core::Run run;
};
inline Reading read(std::string_view log, const UserFacts& user_facts = {}) {
  Reading out{import_log(log, "x.log", "auto", user_facts), {}};
  out.run.info = out.runs.front().info;
  for (const auto& r : out.runs) out.run.points.insert(out.run.points.end(), r.points.begin(), r.points.end());
  return out;
}
inline std::string refusal(std::string_view log, const UserFacts& user_facts = {}) {
  try {
    read(log, user_facts);
    return "";
  } catch (const core::UsageError& e) {
    return e.what();
  }
}
inline std::string text(const core::Point& p, core::Factor f) { return core::to_text(p.factors[f]); }
inline double number(const core::Point& p, core::Metric m) { return p.metrics.number(m); }

/// `log` with the first `from` changed to `to`.
inline std::string replaced(std::string_view log, std::string_view from, std::string_view to) {
  std::string out(log);
  const std::size_t at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? out : out.replace(at, from.size(), to);
}

/// As `iconv -t UTF-16` makes it of ASCII.
inline std::string utf16(std::string_view ascii, bool little) {
  std::string out = little ? "\xFF\xFE" : "\xFE\xFF";
  for (const char c : ascii) out += little ? std::string{c, '\0'} : std::string{'\0', c};
  return out;
}

}  // namespace gradmeter::importers
