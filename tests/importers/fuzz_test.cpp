// SPDX-License-Identifier: Apache-2.0
// Every log of tests/importers/logs, changed by chance from a fixed seed: points or a UsageError of one line, whatever
// the bytes.
#include <array>
#include <filesystem>

#include "core/random.hpp"
#include "importers/support.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::importers {
namespace {

constexpr std::array<std::string_view, 16> tokens{
    "0", "-1", "1e999", "nan",  "18446744073709551616", "9223372036854775807", "{", "]", "\"", "\n",
    " ", "#",  "null",  "\xff", "Not Supported",        "COMMS-RES-"};

class Changes {
 public:
  explicit Changes(std::uint64_t stream) : random_(20261126, stream) {}
  std::string of(std::string text) {
    for (std::size_t left = 1 + below(3); left > 0; --left) {
      const std::size_t at = below(text.size() + 1), length = std::min(below(12), text.size() - at);
      const std::string_view token = tokens[below(tokens.size())];
      if (const std::size_t kind = below(5); kind == 0) {
        text.erase(at, length);
      } else if (kind == 1) {
        text.resize(at);
      } else if (kind == 2) {
        text.insert(at, token);
      } else if (const std::size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
        text.replace(digit, text.find_first_not_of("0123456789.", digit) - digit, token);  // a whole number
      }
    }
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.below(next_++, n)); }
  core::Random random_;
  std::uint64_t next_ = 0;
};

TEST(Fuzz, ChangedLogsAreReadOrRefused) {
  std::uint64_t stream = 0;
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GRADMETER_TEST_LOGS)) {
    const std::string log = log_file(entry.path().filename().string());
    Changes changes(++stream);
    UserFacts user_facts;
    if (!refusal(log).empty()) user_facts.ranks = 2;
    std::size_t taken = 0, refused = 0;
    for (int round = 0; round < (test::sanitized ? 100 : 300); ++round) {
      const std::string why = refusal(changes.of(log), user_facts);
      (why.empty() ? taken : refused) += 1;
      EXPECT_EQ(why.find('\n'), std::string::npos) << why;
    }
    EXPECT_GT(taken, 10u) << entry.path();
    EXPECT_GT(refused, 10u) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 15u);
}

}  // namespace
}  // namespace gradmeter::importers
