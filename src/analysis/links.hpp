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
  bool is_latency = false;  ///< true: the finding is about latency; false: about bandwidth
  bool both_ways = false;   ///< for a link: the way from `to` to `from` is slow too
  bool asymmetric = false;  ///< for a link: slower than the other way, though not slow among all links
  /// The time of the link or host (half a round trip, or a window) minus the usual time, divided by a robust deviation.
  /// The usual time is the median of the medians of all hosts (as senders and as receivers), or with fewer than four
  /// hosts the median of all links' times. The robust deviation is 1.4826 times the median of |a link's time − its
  /// expected time| over all links, but at least 1 % of the usual time. Here a link's expected time comes from the
  /// medians of both its hosts, slow or not; `link_findings` judges links by the medians of slow hosts only.
  /// For an asymmetry: the logarithm of `ratio`, divided by the robust deviation of this logarithm over all links that
  /// were measured both ways.
  double deviations = 0;
  /// The time divided by the usual time. For an asymmetry: the ratio of the two ways' times, each divided by its
  /// expected time.
  double ratio = 1;
  /// For a link, its time divided by the time expected from its two hosts; for hosts and asymmetries the same as
  /// `ratio`.
  double ratio_to_expected = 1;
  std::string name = {}, text = {};  ///< name: "host5", "host2 (1) > host5 (4)"; text: a sentence with its figures
  bool is_host() const { return to < 0; }
};

/// Judges points of `links` (pattern one-way) separately by size, transport and injection. For links within a node,
/// ranks take the place of hosts. With four hosts or more, each host is judged by the median time of its links,
/// separately for each direction; the expected time of a host is the usual time. For bandwidths the expected time of a
/// link is the longest of the usual time and the medians of those of its hosts that were found slow; for latencies it
/// is the usual time plus what each slow host takes beyond it. So the links of a slow host are not slow for that reason
/// alone. A time is slow if it is 5 robust deviations and 10 % (latencies: 25 %) longer than expected; for a link, the
/// 95 % interval must lie above the expected time too, so that a link without an interval is not judged. A host all of
/// whose links failed one way is judged by the other way. The findings are sorted by `ratio_to_expected`, from the
/// largest, so that a single broken link stands before a host that is only a little slow. Cost: O(links log links).
std::vector<LinkFinding> link_findings(std::span<const core::Point>);

/// Links whose bandwidth is below `share` times the usual bandwidth of their kind, or whose latency is above the usual
/// latency divided by `share`. The whole 95 % interval must lie beyond this bound. Links without an interval are
/// undecided; a last line counts them.
std::vector<std::string> links_below(std::span<const core::Point>, double share);

/// A period of a soak in which a rank's windows took longer than usual.
struct SoakDisturbance {
  int rank = -1;  ///< -1: most ranks at the same time
  std::string host = {};
  /// The middles of the period's first and last interval [s], counted from the start of the soak.
  double from_s = 0, to_s = 0;
  /// The median of the period's worst interval (an outlier: its longest window), divided by the rank's usual median.
  double ratio = 1;
  /// The distance of the worst interval's median above the rank's usual median, in robust deviations of the rank's
  /// medians (one deviation counts as at least 2 % of the usual median); 0 for an outlier.
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
  double seconds = 0;  ///< the end of the last interval, counted from the start of the soak
  /// In the order of time. Disturbed intervals of a rank that follow each other, or with one other between them, are
  /// one disturbance.
  std::vector<SoakDisturbance> disturbances;
  std::vector<SoakDrift> drifts;  ///< the drift of all ranks together comes first, if there is one
  /// The longest single windows, at most five, of those that took at least ten times the rank's usual median.
  std::vector<SoakDisturbance> outliers;
};

/// Judges rows of one soak, in any order. A row has the windows of one rank in one interval (a stretch of the soak). A
/// rank's usual median is the median of its intervals' medians; an interval is disturbed if its median is longer than
/// the usual median by 5 robust deviations and by 10 %. With four ranks or more, a single slow rank does not change the
/// medians of the others, since they exchange only one in (ranks - 1) windows with the slow rank. A drift is reported
/// beyond 3 sigmas and 2 %.
/// Cost: O(ranks · intervals²). Source: Sen, JASA 63, 1968 (slope); Mann 1945, Kendall 1975 (test of a trend).
SoakFindings soak_findings(std::span<const core::Point>);

/// Says each disturbance, drift and outlier in a sentence.
std::vector<std::string> soak_sentences(const SoakFindings&);

}  // namespace gradmeter::analysis
