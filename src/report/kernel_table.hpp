// Tables of the kernel sweep for people.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// One table for each operation, pass, precision and cache state, in order of appearance; after them the curves over
/// the mini-batch, where points have one.
std::string kernel_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// What the columns and marks mean.
std::string kernel_legend();
std::string kernel_csv_header();
std::string kernel_csv_row(const core::Point&);

}  // namespace gradmeter::report
