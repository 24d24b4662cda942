// Tables of a scaling sweep for people: one a curve.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// Points of one sweep; curves in the order of their first point. A curve is the points of one model and one batch;
/// each gets a heading that names its baseline, and columns that line up and carry units. Rows that were not measured
/// show why.
std::string scale_tables(std::span<const core::Point>, std::size_t width = core::any_width);

/// What the columns mean, for below the last table.
std::string scale_legend(std::span<const core::Point>);

}  // namespace gradmeter::report
