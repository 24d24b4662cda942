// What is said on top of a page and of Markdown.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"

namespace gradmeter::report {

/// The first three findings of each kind and experiment of each side, and how many more there are, with its name before
/// them where there are several, and then what the comparisons count.
std::vector<std::string> sentences(std::span<const analysis::Side>, std::span<const analysis::Comparison>);

}  // namespace gradmeter::report
