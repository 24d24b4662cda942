// One self-contained HTML page: findings, charts, a table to sort and filter, what was skipped and why, and on what it
// ran.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "report/page/rows.hpp"

namespace gradmeter::report {

/// The library that draws charts, embedded at configure time; empty in a build without it, whose pages have tables
/// only.
std::string_view chart_library();

/// Works from disk without a network. Names and texts of result files are shown as text, whatever is in them.
/// `comparisons`: of the files with the first; their points have a chart and rows of their own.
std::string html_page(std::span<const analysis::Side>, std::span<const analysis::Comparison> comparisons = {});

}  // namespace gradmeter::report
