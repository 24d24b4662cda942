// Which links and hosts are slower than the others of a run, and which links are faster one way than the other.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace gradmeter::analysis {

/// A link or a host that stands out among those of the same kind: links within a node and links between nodes are two
/// kinds, latency and bandwidth two measures of each.
struct LinkFinding {
  enum class What : std::uint8_t { host, link, asymmetry };
  What what = What::link;
  bool latency = false;    ///< else bandwidth
  bool both_ways = false;  ///< of a link: slow from `to` to `from` too
  /// Its time (half a round trip, a window) beyond the usual one, in robust standard deviations: 1.4826 times the
  /// median absolute deviation of links from what their ends explain, but at least 1 % of the usual time. Of an
  /// asymmetry of the two ways' ratio. Usual is the median of the hosts' medians; below four hosts of the links.
  double deviations = 0;
  double ratio = 1;                  ///< its time, divided by the usual one; of an asymmetry by the other way's
  int from = -1, to = -1;            ///< ranks; of a host its first rank and -1
  std::string name = {}, text = {};  ///< "host5", "host2 (1) > host5 (4)"; a sentence with its figures
};

/// What `link_findings` calls slow: a time that is so much longer than what its ends' medians lead to expect (of a
/// host: than the usual), by so many robust deviations, and whose 95 % interval lies above that too.
struct LinkBounds {
  double deviations = 5, window_ratio = 1.1, latency_ratio = 1.25;
};

/// Of points of `links` (pattern one-way), each size, transport and injection by itself. A host is judged by the median
/// of its links, each way by itself, where there are four hosts or more (within a node: ranks). Links of a slow host
/// are named only where they are slower than it explains: by the slower end's median; latencies of both ends add up.
/// The largest first, hosts before links. Cost: O(links log links).
std::vector<LinkFinding> link_findings(std::span<const core::Point>, const LinkBounds& = {});

/// The links whose bandwidth is below `share` of the usual one of its kind, or whose latency is above the usual
/// divided by it, by the whole 95 % interval.
std::vector<std::string> links_below(std::span<const core::Point>, double share);

}  // namespace gradmeter::analysis
