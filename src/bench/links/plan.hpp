// From factors to the points of `gradmeter links`.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/node_map.hpp"
#include "core/injection.hpp"
#include "core/result.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {

/// Which ranks send to which at the same time.
///   one-way           every pair by itself, first one way, then the other: latency and bandwidth of each link
///   both-ways         every pair, both ways at once (OSU's osu_bibw)
///   multi-pair        1, 2, 4 … ranks of the first half to as many of the second (osu_mbw_mr)
///   bisection         all ranks of the first half with those of the second, both ways at once
///   bisection-random  the same with halves and pairs drawn anew for every window
///                     (Hoefler, Schneider & Lumsdaine, CLUSTER 2008)
///   groups            rings of groups of ranks, which halve: finds slow ranks where pairs are too many (group_search)
enum class LinkPattern : std::uint8_t { one_way, both_ways, multi_pair, bisection, bisection_random, groups };
std::string_view name(LinkPattern);
std::vector<LinkPattern> link_patterns();

struct LinkFactors {
  std::vector<LinkPattern> patterns{LinkPattern::one_way, LinkPattern::bisection};
  std::vector<std::size_t> sizes{std::size_t{128} << 10};  ///< of a message [bytes]
  std::size_t outstanding = 16;                            ///< messages of a window
  int pairs_at_once = 0;                                   ///< of a tournament's round; 0: all
  runtime::TransportKind transport = runtime::TransportKind::mpi;
  std::string interconnect;
  core::Injection injection;
};

/// What is measured in turn: all links of one pattern and size, or all numbers of pairs.
struct LinkGroup {
  LinkPattern pattern;
  std::size_t size_bytes;
};
std::vector<LinkGroup> link_groups(const LinkFactors&);

struct LinkPoint {
  LinkPattern pattern;
  std::size_t size_bytes;
  int from = -1, to = -1;  ///< of one link; both-ways: from < to
  int pairs = 1;           ///< at the same time; groups: 0
};
/// The points of one group on so many ranks. Cost: O(ranks²) for links.
std::vector<LinkPoint> plan_links(const LinkFactors&, const LinkGroup&, int ranks);

core::Factors to_factors(const LinkFactors&, const LinkPoint&, const NodeMap&);

}  // namespace gradmeter::bench
