// One self-contained HTML page: findings, charts, a table to sort and filter, what was skipped and why, and on what it
// ran.
#pragma once
#include <iosfwd>
#include <span>
#include <string_view>

#include "report/page/rows.hpp"
#include "report/page/sentences.hpp"

namespace gradmeter::report {

/// The library that draws charts, embedded at configure time; empty in a build without it, whose pages have tables
/// only.
std::string_view chart_library();

/// Works from disk without a network. Names and texts of result files are shown as text, whatever is in them.
void write_html_page(const RowTable&, const Said&, std::span<const analysis::Side>, std::ostream&);

}  // namespace gradmeter::report
