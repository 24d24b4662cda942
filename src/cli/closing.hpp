// What a command says below its tables: how many points there are, what they answer, and what to run next.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>

#include "analysis/findings.hpp"
#include "cli/command.hpp"
#include "core/result.hpp"

namespace gradmeter::cli {

/// Points by what became of them: one that is unsupported was not measured.
class PointCounts {
 public:
  void add(const core::Point& p) { ++of_[p.status]; }
  void keep() { ++kept_; }
  /// "3 points measured, 0 kept, 2 unsupported".
  std::string text() const;

 private:
  std::map<core::Status, std::size_t> of_;
  std::size_t kept_ = 0;
};

/// A line for each of up to three findings: what answers the command's question, the surest first, then what spoils the
/// figures; and "next: COMMAND", with this command's ranks. `answer`: where the command has a finding of its own.
/// file: the result file; empty: none.
std::string closing(std::span<const core::Point>, const Invocation&, const std::string& file,
                    std::optional<analysis::Finding> answer = {});

/// A command as it can be typed: started with as many ranks as this one, where it needs ranks and does not say.
std::string with_ranks(const std::string& command, const Invocation&);

}  // namespace gradmeter::cli
