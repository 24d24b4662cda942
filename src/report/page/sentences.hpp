// What is said on top of a page and of Markdown.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"
#include "analysis/findings.hpp"

namespace gradmeter::report {

/// What findings and comparisons say, for a person.
struct Said {
  /// The first three findings of each kind and experiment of each side, and how many more there are, with its name
  /// before them where there are several, and then what the comparisons count.
  std::vector<std::string> sentences;
  std::string next;  ///< the command that the first finding with one advises; empty: none
};
/// `findings`: of each side.
Said say(std::span<const analysis::Side>, std::span<const std::vector<analysis::Finding>> findings,
         std::span<const analysis::Comparison>);

}  // namespace gradmeter::report
