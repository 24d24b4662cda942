// What a soak's rows show: drift over hours, disturbances with their time and host, the longest windows.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace gradmeter::analysis {

/// Intervals in a row in which a rank's windows took longer than its own usual ones.
struct SoakDisturbance {
  int rank = -1;  ///< -1: most ranks at once
  std::string host = {};
  double from_s = 0, to_s = 0;  ///< the middles of its first and its last interval, from the soak's begin
  double ratio = 1;             ///< of its worst interval's median to the rank's usual median
  double deviations = 0;        ///< beyond it, in robust deviations of the rank's intervals (at least 2 % of it)
};

/// The trend of the medians over the whole soak.
struct SoakDrift {
  int rank = -1;  ///< -1: of all ranks together
  std::string host = {};
  double share = 0;   ///< by which times grew from begin to end: 0.1 is 10 %
  double sigmas = 0;  ///< Mann-Kendall's statistic
};

/// A window that took far longer than its rank's usual ones.
struct SoakOutlier {
  int rank = -1;
  std::string host = {};
  double elapsed_s = 0, ratio = 1;
};

struct SoakFindings {
  std::size_t intervals = 0, ranks = 0;
  double seconds = 0;                         ///< the middle of the last interval
  double usual_s = 0;                         ///< median window over ranks and intervals
  std::vector<SoakDisturbance> disturbances;  ///< in the order of time
  std::vector<SoakDrift> drifts;              ///< all ranks first, where there is one
  std::vector<SoakOutlier> outliers;          ///< the longest windows, at most five, over ten times the usual
};

/// Of rows of one soak, in any order. A rank's usual median is that of its intervals; an interval is disturbed when it
/// takes 5 robust deviations and 10 % longer. A host that is slow lengthens one in ranks - 1 windows of the others,
/// which their medians do not see where there are four or more. A drift is named beyond 3 sigmas and 2 %. Cost: O(ranks
/// · intervals²). Source: Sen, JASA 63, 1968 (slope); Mann 1945, Kendall 1975 (test of a trend).
SoakFindings soak_findings(std::span<const core::Point>);

/// A sentence each.
std::vector<std::string> soak_sentences(const SoakFindings&);

}  // namespace gradmeter::analysis
