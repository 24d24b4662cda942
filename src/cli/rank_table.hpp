// What each rank did, below the tables of a sweep (--per-rank).
#pragma once
#include <span>
#include <string>

#include "bench/scale/scale.hpp"

namespace gradmeter::cli {

/// One point's ranks: kernels here and under the control, and each rank's waits for others.
std::string rank_table(const core::Point&, std::span<const bench::RankTimes>);

}  // namespace gradmeter::cli
