// Tables of a collective sweep for people: nccl-tests' columns, and what they leave out.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// One table for each collective, type, operation, buffers and cadence, in the order of their first point; rows by
/// size, each with its half out of place and its half in place, where there is such a point. Rows that were not
/// measured show why.
std::string collective_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns mean, for below the last table.
std::string collective_legend();

/// One line a point, every column with its unit in its name; null is empty. The first line names the columns.
std::string collective_csv_header();
std::string collective_csv_row(const core::Point&);

}  // namespace gradmeter::report
