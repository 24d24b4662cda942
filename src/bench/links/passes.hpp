// Every link of the ranks in turn: passes of the tournament, of which each link gets a block of samples.
#pragma once
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/links/messages.hpp"
#include "bench/links/plan.hpp"
#include "core/statistics.hpp"

namespace gradmeter::bench {

/// What a rank measured of its link to a peer.
struct OwnLink {
  core::Blocks windows, latencies;  ///< [s] of a window; of half a round trip
  core::Stop stop = core::Stop::none;
  std::size_t wrong = 0;  ///< messages from the peer to this rank
};

struct LinkPassesOptions {
  LinkPattern pattern = LinkPattern::one_way;  ///< or both_ways
  std::size_t size_bytes = 0, outstanding = 1;
  int pairs_at_once = 0;  ///< 0: all of a round
  core::StoppingRule rule;
};

/// A pass visits every pair in rounds of disjoint pairs. All ranks begin a round together, so that no pair shares a
/// rank, nor a link of its node more than a round's pairs do. Passes follow each other until each link has what the
/// rule asks for: a temporary state of the machine affects a block of each link, not all blocks of one.
class LinkPasses {
 public:
  /// All must outlive it. Collective over `c`, as are its calls.
  LinkPasses(Session&, const runtime::Communicator& c, LinkMessages&, const LinkPassesOptions&);
  /// Connections and page faults: a pass that gives no samples. Errors: Interrupted.
  void warm_up();
  /// Errors: Interrupted.
  void run();
  /// One pass. Errors: Interrupted.
  void pass(bool keep);

  const std::vector<OwnLink>& links() const { return links_; }  ///< by peer
  double warmup_s() const { return warmup_s_; }
  static constexpr std::size_t warmup_windows = 3;

 private:
  struct Counts {
    std::uint32_t latencies, windows, discarded;
  };
  void turn(int peer, bool keep);
  void initiate(int peer, bool keep);
  void respond(int peer);
  void both(int peer, bool keep);
  Counts counts_for(int peer, bool keep) const;
  std::vector<double> windows(const Window&, const Counts&);
  void add(int peer, bool keep, const std::vector<double>& latencies, const std::vector<double>& windows);
  bool is_enough(double begin);

  Session& session_;
  const runtime::Communicator& c_;
  LinkMessages& messages_;
  LinkPassesOptions options_;
  double share_;  ///< of a usual block
  std::vector<OwnLink> links_;
  std::vector<double> last_latency_, last_window_;  ///< by peer [s]
  double warmup_s_ = 0;
};

}  // namespace gradmeter::bench
