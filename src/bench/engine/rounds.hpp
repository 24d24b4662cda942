// The rounds of one measurement: warm-up, blocks of iterations, the stopping rule. It handles times, whatever they are
// of.
#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bench/engine/session.hpp"
#include "core/statistics.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {

struct RoundOptions {
  core::StoppingRule rule = {};
  std::size_t warmup_min = 5;  ///< iterations, never zero
  core::Seconds warmup_budget{1};
  std::size_t exact_samples = 0;                 ///< not 0: so many samples, whatever rule and budget say
  std::optional<std::size_t> exact_warmup = {};  ///< so many iterations of warm-up
  std::size_t discarded = 2;  ///< at least, at the start of a block: others have used the caches. One of over 50 ms,
                              ///< which brings everything back; none of over 1 s
  core::Seconds settling{0};  ///< of what is discarded; spreads blocks of short calls over time
  core::Seconds block{0.1};  ///< its length; a small budget, which has to hold the blocks of an interval, makes it less
  std::size_t longest_block = 100;  ///< iterations
};

/// Runs iterations on all ranks and returns the times of those that count [s], equal on all ranks. `keep`: they are
/// samples.
using RunBlock = std::function<std::vector<double>(std::size_t iterations, bool keep)>;

/// How the ranks that measure together agree.
struct RoundPeers {
  std::function<std::size_t(std::size_t)> agree;   ///< rank 0's value, on all of them
  std::function<void()> stop_if_interrupted;       ///< throws Interrupted
  std::function<void()> stop_between_points = {};  ///< the same, for a warning too; empty: as within a point
  bool is_first = true;                            ///< this rank speaks for all
  double (*clock)() = runtime::host_clock;         ///< [s]; tests have their own, which no other program delays
};
/// Collective over `c`; both must outlive the returned value.
RoundPeers peers_of(Session&, const runtime::Communicator& c);
/// For a process that measures alone.
RoundPeers no_peers(const runtime::SignalWatch&);

/// Measures in rounds, so that several measurements can take turns: a temporary state of the machine then affects all.
/// Collective over the peers. Errors: Interrupted when any rank has seen a signal.
class Rounds {
 public:
  Rounds(RoundPeers peers, const RoundOptions& o, RunBlock run)
      : peers_(std::move(peers)), options_(o), run_(std::move(run)) {
    options_.block = fitting_block(o);
  }
  Rounds(Session& session, const runtime::Communicator& c, const RoundOptions& o, RunBlock run)
      : Rounds(peers_of(session, c), o, std::move(run)) {}

  /// Until two groups of iterations in a row have medians within 5 %, or the warm-up's budget ends.
  void warm_up();
  /// Discarded iterations, then a block. Stop::none: another round is wanted. It may be called after that: a
  /// measurement with enough samples continues with those that lack some, and `stop` is decided again each time.
  core::Stop round();

  std::span<const double> times() const { return blocks_.samples(); }
  const core::Blocks& blocks() const { return blocks_; }
  core::Stop stop() const { return stop_; }
  /// Of the last block that had times, or of the warm-up [s]; 0 before.
  double last_median() const { return last_median_; }
  /// First-use costs: connections, page faults; kept out of the samples.
  double warmup_s() const { return warmup_s_; }
  std::size_t warmup_iterations() const { return warmup_iterations_; }

 private:
  static core::Seconds fitting_block(const RoundOptions&);
  std::size_t block_length() const;
  /// Of one iteration [s]. Where ranks outnumber the cores that others leave them, each barrier before a call of 1 us
  /// takes some milliseconds.
  double iteration_s() const { return std::max(last_median_, paced_s_); }
  std::size_t discarded() const;
  core::Stop decide() const;

  RoundPeers peers_;
  RoundOptions options_;
  RunBlock run_;
  core::Blocks blocks_;
  core::Stop stop_ = core::Stop::none;
  double last_median_ = 0, measured_s_ = 0, warmup_s_ = 0;
  double paced_s_ = 0;      ///< of one iteration in the last block, with what is between its samples
  double first_begin_ = 0;  ///< of the first round, by this host's clock
  std::size_t warmup_iterations_ = 0, rounds_ = 0;
};

}  // namespace gradmeter::bench
