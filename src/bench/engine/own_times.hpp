// How long calls take on each rank, and which rank is the slowest.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "core/statistics.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// Median of one rank's own times and its 95 % interval [s]; without samples enough for one, from 0 to infinity.
struct OwnTime {
  double median = 0, low = 0, high = 0;
};
/// By rank, on rank 0; elsewhere none. Collective over `c`; `mine` may be none on some. Cost: 24 bytes a rank.
std::vector<OwnTime> own_times_by_rank(const runtime::Communicator& c, const core::Blocks& mine);

/// The blocks of the rank with the longest median, on every rank; `medians` gets each rank's, on rank 0. All ranks have
/// blocks of the same lengths. Collective over `c`.
core::Blocks slowest_blocks(const runtime::Communicator& c, const core::Blocks& mine, std::vector<double>& medians);

/// The rank with the longest median, where it is more than 10 % longer than the median rank's (of two in the middle the
/// shorter).
std::optional<int> straggler(std::span<const double> medians);
/// The same, only where its interval is above the median rank's as well.
std::optional<int> straggler(std::span<const OwnTime>);
/// How the ranks' medians differ: their spread, and one that stands out. Nothing where they are not known.
void fill_medians(std::span<const double> medians, const std::function<std::string(int rank)>& host_of, core::Metrics&);
/// Names a rank that stands out in a row.
void fill_slowest(int rank, const std::string& host, core::Metrics&);

}  // namespace gradmeter::bench
