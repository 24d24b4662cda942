// Rates over the mini-batch: precisions side by side.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// One table for each shape, pass and cache state among the points that have a batch: a line a batch, GFLOP/s and the
/// share of the roofline for each precision, and how many times the first precision's rate the others have. Empty where
/// no point has a batch.
std::string kernel_curves(std::span<const core::Point>, std::size_t width = core::any_width);

}  // namespace gradmeter::report
