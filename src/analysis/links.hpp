// SPDX-License-Identifier: Apache-2.0
// Findings from rows of `links`: links and hosts that are slower than the others, and links that are faster one way
// than the other. Findings from rows of a soak, which times windows of messages between the same ranks for hours: how
// these times change.
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
  /// How far the time of the link or host (half a round trip, or a window) exceeds the usual time, in robust
  /// deviations. The usual time is the median of the hosts' medians, or with fewer than four hosts, the median of all
  /// links' times. A robust deviation is 1.4826 times the median, over all links, of |a link's time − the time expected
  /// from its two hosts|, but at least 1 % of the usual time. Here the expected time allows for all hosts as
  /// `link_findings` does for slow ones.
  /// For an asymmetry: the logarithm of the ratio of the two ways' times, each divided by its expected time (see
  /// `link_findings`), in robust deviations of this logarithm over all links.
  double deviations = 0;
  /// The time divided by the usual time; for an asymmetry, the ratio whose logarithm is in `deviations`.
  double ratio = 1;
  /// For a link, its time divided by the time expected from its two hosts; otherwise the same as `ratio`.
  double unexplained = 1;
  std::string name = {}, text = {};  ///< name: "host5", "host2 (1) > host5 (4)"; text: a sentence with its figures
  bool is_host() const { return to < 0; }
};

/// Judges points of `links` (pattern one-way) separately by size, transport and injection. For links within a node,
/// ranks take the place of hosts. With four hosts or more, each host is judged by the median time of its links,
/// separately for each direction; the expected time of a host is the usual time. The expected time of a link allows for
/// those of its two hosts that were found slow, so that a slow host does not make its links slow: it is the longest of
/// the usual time and the slow hosts' medians, or for latencies the usual time plus the excess of each slow host. A
/// time is slow if it is 5 robust deviations and 10 % (latencies: 25 %) longer than expected; for a link, the 95 %
/// interval must lie above the expected time too. The findings are sorted by `unexplained`, from the largest, so that a
/// single broken link stands before the slower host that it belongs to. Cost: O(links log links).
std::vector<LinkFinding> link_findings(std::span<const core::Point>);

/// Links whose bandwidth is below `share` times the usual bandwidth of their kind, or whose latency is above the usual
/// latency divided by `share`. The whole 95 % interval must lie there.
std::vector<std::string> links_below(std::span<const core::Point>, double share);

/// A period of a soak in which a rank's windows took longer than usual.
struct SoakDisturbance {
  int rank = -1;  ///< -1: most ranks at the same time
  std::string host = {};
  /// The middles of the period's first and last interval [s], counted from the start of the soak.
  double from_s = 0, to_s = 0;
  /// The median of the period's worst interval (for an outlier: its one window), divided by the rank's usual median.
  double ratio = 1;
  /// How far the worst interval's median exceeds the rank's usual median, in robust deviations of the rank's medians
  /// (one deviation counts as at least 2 % of the usual median); 0 for an outlier.
  double deviations = 0;
};

/// The trend of the medians over the whole soak.
struct SoakDrift {
  int rank = -1;  ///< -1: the drift of all ranks together
  std::string host = {};
  double share = 0;   ///< growth of times from begin to end: 0.1 is 10 %
  double sigmas = 0;  ///< the test statistic of Mann-Kendall's trend test
};

struct SoakFindings {
  std::size_t intervals = 0;
  double seconds = 0;  ///< time of the last interval's middle, counted from the start of the soak
  std::vector<SoakDisturbance> disturbances;  ///< in the order of time; neighbouring disturbed intervals are one
  std::vector<SoakDrift> drifts;              ///< the drift of all ranks together comes first, if there is one
  /// The longest single windows, at most five, of those that took at least ten times the rank's usual median.
  std::vector<SoakDisturbance> outliers;
};

/// Judges rows of one soak, in any order. A row has the windows of one rank in one interval (a stretch of the soak). A
/// rank's usual median is the median of its intervals' medians; an interval is disturbed if its median is longer than
/// the usual median by 5 robust deviations and by 10 %. With four ranks or more, a slow host does not change the
/// medians of the other ranks, since each of them meets it in only one of ranks - 1 windows. A drift is reported beyond
/// 3 sigmas and 2 %.
/// Cost: O(ranks · intervals²). Source: Sen, JASA 63, 1968 (slope); Mann 1945, Kendall 1975 (test of a trend).
SoakFindings soak_findings(std::span<const core::Point>);

/// Says each disturbance, drift and outlier in a sentence.
std::vector<std::string> soak_sentences(const SoakFindings&);

}  // namespace gradmeter::analysis
