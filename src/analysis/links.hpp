// SPDX-License-Identifier: Apache-2.0
// Findings from rows of `links` and of a soak: links and hosts that are slower than the others, links that are faster
// one way than the other, and changes over hours of windows between the same ranks.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace gradmeter::analysis {

/// A link or a host that stands out among others of its kind. Links within a node and links between nodes are two
/// kinds, and latency and bandwidth are judged separately.
struct LinkFinding {
  int from = -1, to = -1;   ///< ranks of a link; a host has its first rank and -1
  bool latency = false;     ///< true: the finding is about latency; false: about bandwidth
  bool both_ways = false;   ///< for a link: the way from `to` to `from` is slow too
  bool asymmetric = false;  ///< for a link: slower than the other way, though not slow among all links
  /// The excess of its time (half a round trip, or a window) over the usual time, in robust standard deviations; for an
  /// asymmetry, the excess of the ratio of the two ways. A robust deviation is 1.4826 times the median absolute
  /// deviation of links from their expected times (see `link_findings`), but at least 1 % of the usual time. The usual
  /// time is the median of the hosts' medians, or with fewer than four hosts, of the links.
  double deviations = 0;
  double ratio = 1;  ///< its time divided by the usual time; for an asymmetry, by the time of the other way
  std::string name = {}, text = {};  ///< name: "host5", "host2 (1) > host5 (4)"; text: a sentence with its figures
  bool is_host() const { return to < 0; }
};

/// Judges points of `links` (pattern one-way) separately by size, transport and injection. With four hosts or more
/// (within a node: ranks), each host is judged by the median of its links, separately for each direction. The expected
/// time of a host is the usual time. That of a link follows from its two hosts: the longer of their medians, or for
/// latencies the sum of both, so that a slow host does not make its links slow. A time is slow if it is 5 robust
/// deviations and 10 % (latencies of links: 25 %) longer than expected, and its 95 % interval lies above the expected
/// time too. Hosts come before links, each sorted from the largest excess. Cost: O(links log links).
std::vector<LinkFinding> link_findings(std::span<const core::Point>);

/// Links whose bandwidth is below `share` times the usual bandwidth of their kind, or whose latency is above the usual
/// latency divided by `share`. The whole 95 % interval must lie there.
std::vector<std::string> links_below(std::span<const core::Point>, double share);

/// A time of a soak in which a rank's windows took longer than its usual ones.
struct SoakDisturbance {
  int rank = -1;  ///< -1: most ranks at the same time
  std::string host = {};
  double from_s = 0, to_s = 0;  ///< the middles of its first and last interval, counted from the begin of the soak
  /// Median of its worst interval (or the one window of an outlier), divided by the rank's usual median.
  double ratio = 1;
  /// excess in robust deviations of the rank's intervals (at least 2 % of the median)
  double deviations = 0;
};

/// The trend of the medians over the whole soak.
struct SoakDrift {
  int rank = -1;  ///< -1: of all ranks together
  std::string host = {};
  double share = 0;   ///< growth of times from begin to end: 0.1 is 10 %
  double sigmas = 0;  ///< the test statistic of Mann-Kendall's trend test
};

struct SoakFindings {
  std::size_t intervals = 0;
  double seconds = 0;                         ///< time of the last interval's middle
  std::vector<SoakDisturbance> disturbances;  ///< disturbed intervals, in the order of time
  std::vector<SoakDrift> drifts;              ///< the drift of all ranks together comes first, if there is one
  /// the longest single windows that took over ten times the usual one, at most five
  std::vector<SoakDisturbance> outliers;
};

/// Judges rows of one soak, in any order. A rank's usual median is the median of its intervals; an interval is
/// disturbed when it takes 5 robust deviations and 10 % longer. With four ranks or more, a slow host does not change
/// the medians of the others, since each meets it in only one of ranks - 1 windows. A drift is reported beyond 3 sigmas
/// and 2 %.
/// Cost: O(ranks · intervals²). Source: Sen, JASA 63, 1968 (slope); Mann 1945, Kendall 1975 (test of a trend).
SoakFindings soak_findings(std::span<const core::Point>);

/// Says each disturbance, drift and outlier in a sentence.
std::vector<std::string> soak_sentences(const SoakFindings&);

}  // namespace gradmeter::analysis
