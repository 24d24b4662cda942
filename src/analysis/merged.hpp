// Launches of one point as one point: what is said of a side, and drawn of it, is about all its launches.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "core/result_file.hpp"

namespace gradmeter::analysis {

/// A point by its places: `runs[run].points[point]`.
struct SourceRow {
  std::size_t run = 0, point = 0;
  auto operator<=>(const SourceRow&) const = default;
};

struct MergedPoint {
  core::Point point;
  std::size_t launches;
  std::vector<SourceRow> sources = {};  ///< one for each launch
};

/// Points of equal experiment, status, factors, step and epoch, measured on machines of one fingerprint by one build
/// (conditions.hpp, `origin_of`), become one, in order of first appearance: each number and each statistic its median
/// over launches; the 95 % interval of a summary, and of a metric whose ends are metrics of their own
/// (efficiency_ci95_low), that over launches, and none where a value is not positive; a truth of any launch; the
/// verdict by the mean of the launches' candidates; the slowest rank where two thirds name it; other whole numbers and
/// texts of the last. A point of one launch stays as it is, without its samples. Cost: O(n log n).
std::vector<MergedPoint> merge_launches(std::span<const core::Run* const>);
std::vector<MergedPoint> merge_launches(std::span<const core::Run>);

}  // namespace gradmeter::analysis
