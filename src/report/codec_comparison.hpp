// Where encoding a collective's messages won and where it lost, compared with the formula.
#pragma once
#include <span>
#include <string>

#include "core/result.hpp"
#include "core/table.hpp"

namespace gradmeter::report {

/// Each point with a codec and the one without at otherwise equal factors; empty when there is no such pair.
std::string codec_comparison(std::span<const core::Point>, std::size_t width = core::any_width);
std::string codec_comparison_legend();

}  // namespace gradmeter::report
