// What the points say, in sentences made by rules. docs/using.md, "The sentences of a report", states the rules.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::analysis {

/// Of a side, its launches merged. The most important first: one for each experiment that has something to say, then
/// what has no figure. A difference is named only where 95 % intervals are disjoint. Cost: O(points²) within an
/// experiment's group at worst.
std::vector<std::string> findings(std::span<const core::Run>);

/// 0.66 is "two thirds"; shares that no simple fraction is near are "41 %".
std::string share_in_words(double share);

}  // namespace gradmeter::analysis
