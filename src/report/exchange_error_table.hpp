// The error of encoded sums against the ranks, as a table for people.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// A row for each codec and exchange, a column for each number of ranks; refused points have their reason below.
std::string exchange_error_tables(std::span<const core::Point>, std::size_t width = core::any_width);

}  // namespace gradmeter::report
