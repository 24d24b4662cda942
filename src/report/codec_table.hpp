// Tables of a codec sweep for people.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// One table for each size, distribution and problem, in the order of their first point. Rows that were not measured
/// show why.
std::string codec_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns mean, for below the last table.
std::string codec_legend();

/// One line a point, every column with its unit in its name; null is empty. The first line names the columns.
std::string codec_csv_header();
std::string codec_csv_row(const core::Point&);

}  // namespace gradmeter::report
