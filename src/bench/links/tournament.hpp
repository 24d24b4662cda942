// SPDX-License-Identifier: Apache-2.0
// A round-robin tournament (circle method) of ranks: every pair meets once, in rounds of disjoint pairs.
#pragma once
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/links/links.hpp"
#include "bench/links/messages.hpp"
#include "core/statistics.hpp"
#include "core/stopping_rule.hpp"

namespace gradmeter::bench {

/// The number of rounds in which each rank meets every other once: `ranks` - 1 if `ranks` is even, else `ranks`.
int tournament_rounds(int ranks);

/// The rank that `rank` meets in a round; -1 if it meets none, which happens only if `ranks` is odd. Partners are
/// mutual, and over all rounds every rank meets every other once. Cost: O(1).
/// Source: Kirkman 1847; de Werra, "Scheduling in sports", 1981.
int tournament_partner(int ranks, int round, int rank);

/// The number of a rank's pair among the pairs of a round, from 0; equal for both ranks of the pair.
int tournament_pair(int ranks, int round, int rank);

// Measures every link of the ranks in turn: in each pass of the tournament each link gets a block of samples.

/// A rank's measurements of its link to one peer.
struct OwnLink {
  core::Blocks windows, latencies;  ///< times of a window [s]; times of half a round trip [s]
  core::Stop stop = core::Stop::none;
  std::size_t wrong = 0;  ///< number of wrong messages from the peer to this rank
};

struct LinkPassesOptions {
  LinkPattern pattern = LinkPattern::one_way;  ///< one_way or both_ways
  std::size_t size_bytes = 0, outstanding = 1;
  int pairs_at_once = 0;  ///< the most pairs of a round that exchange at once; by convention 0: all
  core::StoppingRule rule;
};

/// A pass visits every pair in rounds of disjoint pairs. All ranks begin a round together, so that pairs of different
/// rounds never use a rank or a node's link at once. Passes follow each other until each link has as many blocks as the
/// rule asks for, so that a temporary state of the machine affects one block of each link, not all blocks of one link.
class LinkPasses {
 public:
  /// All arguments must outlive this object. Collective over `c`, as are all functions that measure.
  LinkPasses(Session&, const runtime::Communicator& c, LinkMessages&, const LinkPassesOptions&);
  /// Makes a pass without samples, so that samples do not include connections and page faults. Errors: Interrupted.
  void warm_up();
  /// Makes passes until the rule ends them. Errors: Interrupted.
  void run();
  /// Makes one pass. keep: whether its times are samples. Errors: Interrupted.
  void pass(bool keep);

  const std::vector<OwnLink>& links() const { return links_; }  ///< by peer
  double warmup_s() const { return warmup_s_; }
  static constexpr std::size_t warmup_windows = 3;

 private:
  /// The numbers of round trips and of windows that a turn measures, and of windows that it discards first.
  struct Counts {
    std::uint32_t latencies, windows, discarded;
  };
  /// Measures the link of this rank and its peer, in both directions.
  void turn(int peer, bool keep);
  /// Measures the direction from this rank to the peer, which must `respond` meanwhile.
  void initiate(int peer, bool keep);
  void respond(int peer);
  /// Measures windows that both ranks send at the same time.
  void measure_both_ways(int peer, bool keep);
  Counts counts_for(int peer, bool keep) const;
  std::vector<double> windows(const Window&, const Counts&);
  void add(int peer, bool keep, const std::vector<double>& latencies, const std::vector<double>& windows);
  bool is_enough(double begin);

  Session& session_;
  const runtime::Communicator& communicator_;
  LinkMessages& messages_;
  LinkPassesOptions options_;
  double block_scale_;  ///< the factor by which a small budget shortens blocks, at most 1
  std::vector<OwnLink> links_;
  std::vector<double> last_latency_, last_window_;  ///< by peer: medians of the last turn [s]; 0: none yet
  double warmup_s_ = 0;
};

}  // namespace gradmeter::bench
