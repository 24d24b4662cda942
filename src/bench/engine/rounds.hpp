// SPDX-License-Identifier: Apache-2.0
// The rounds of one measurement, of any kind of work: warm-up, blocks of iterations, the stopping rule.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "core/result.hpp"
#include "core/statistics.hpp"
#include "core/stopping_rule.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

struct RoundOptions {
  core::StoppingRule rule = {};
  std::size_t warmup_min = 5;  ///< [iterations], never zero
  core::Seconds warmup_budget{1};
  std::size_t exact_samples = 0;                 ///< not 0: the exact number of samples, whatever rule and budget say
  std::optional<std::size_t> exact_warmup = {};  ///< exact number of iterations of warm-up; empty: as `warm_up` says
  /// The least number of iterations that are discarded at the start of a block, since other points have used the caches
  /// in between. If an iteration takes over 50 ms, a single iteration refills the caches, so only one is discarded; if
  /// it takes over 1 s, none is discarded.
  std::size_t discarded = 2;
  /// The discarded iterations of a block together take at least this long, so that the blocks of short calls are spread
  /// over time, and the caches come into their usual state.
  core::Seconds settling{0};
  /// The least time that a block takes, unless `most_block_iterations` ends it earlier. A block has an odd number of
  /// iterations if that limit allows. Where half of the budget is too short for `rule.min_blocks` such blocks, blocks
  /// are shorter, but not below 2 ms.
  core::Seconds block{0.1};
  std::size_t most_block_iterations = 100;  ///< [iterations]
};

/// Runs iterations on all ranks and returns their times [s], the same on every rank. Iterations that some rank did not
/// begin on time are left out, so fewer times than iterations may come back. keep: true if the times will be samples,
/// false for warm-up and discarded iterations.
using RunBlock = std::function<std::vector<double>(std::size_t iterations, bool keep)>;

/// The functions by which the ranks that measure together agree.
struct RoundPeers {
  std::function<std::size_t(std::size_t)> agree;  ///< returns rank 0's value on all peers
  std::function<void()> stop_if_interrupted;      ///< throws Interrupted
  /// Throws Interrupted, also at a scheduler's warning; empty: `stop_if_interrupted` is called instead.
  std::function<void()> stop_between_points = {};
  bool is_first = true;                     ///< whether this rank reports for all
  double (*clock)() = runtime::host_clock;  ///< [s]; tests pass a clock of their own, which no other program can delay
};
/// The returned functions are collective over `c`; session and `c` must outlive them.
RoundPeers peers_of(Session&, const runtime::Communicator& c);
/// Peers for a process that measures alone.
RoundPeers no_peers(const runtime::SignalWatch&);

/// Measures in rounds, so that several measurements can take turns: a temporary state of the machine then affects all
/// of them.
/// Collective over the peers. Errors: Interrupted when any rank has seen a signal.
class Rounds {
 public:
  Rounds(RoundPeers peers, const RoundOptions& o, RunBlock run)
      : peers_(std::move(peers)), options_(o), run_(std::move(run)) {
    options_.block = fitting_block(o);
  }
  Rounds(Session& session, const runtime::Communicator& c, const RoundOptions& o, RunBlock run)
      : Rounds(peers_of(session, c), o, std::move(run)) {}

  /// Warms up until at least `warmup_min` iterations were made and two groups of iterations in a row have medians
  /// within 5 %, or until the warm-up's budget ends; with `exact_warmup`, for that number of iterations.
  void warm_up();
  /// Makes the discarded iterations and then a block. Returns Stop::none if the measurement needs another round, else
  /// the reason why it needs none. After such a reason, round() may still be called while other measurements need
  /// rounds; each call decides anew.
  core::Stop round();

  std::span<const double> times() const { return blocks_.samples(); }
  const core::Blocks& blocks() const { return blocks_; }
  core::Stop stop() const { return stop_; }
  /// The median time [s] of the last block that had times; before the first such block, of the end of the warm-up;
  /// before the warm-up 0.
  double last_median() const { return last_median_; }
  /// An estimate of the time that the fewest blocks to measure (core::fewest_blocks_of) will take, from the time of an
  /// iteration as measured so far.
  core::Seconds least_time() const;
  /// The time of the warm-up, which has first-use costs (connections, page faults) and is kept out of the samples.
  double warmup_s() const { return warmup_s_; }
  std::size_t warmup_iterations() const { return warmup_iterations_; }

 private:
  static core::Seconds fitting_block(const RoundOptions&);
  /// An odd number of iterations that take as long as a block should, or the most that a block may have.
  std::size_t wanted_length() const;
  std::size_t block_length() const;  ///< [iterations] of the next block, the same on all peers
  /// The time of one iteration [s], including the time between samples, which can be long: where ranks have fewer free
  /// cores than they need, each barrier before a call of 1 us takes some milliseconds.
  double iteration_s() const { return std::max(last_median_, iteration_with_gaps_s_); }
  std::size_t discarded() const;  ///< [iterations] to discard at the start of the next block
  core::Stop decide() const;

  RoundPeers peers_;
  RoundOptions options_;
  RunBlock run_;
  core::Blocks blocks_;
  core::Stop stop_ = core::Stop::none;
  double last_median_ = 0, measured_s_ = 0, warmup_s_ = 0;  ///< measured_s_: time of all rounds so far
  /// Time of one iteration in the last block, including the time between its samples.
  double iteration_with_gaps_s_ = 0;
  double first_begin_ = 0;  ///< begin of the first round, by this host's clock
  std::size_t warmup_iterations_ = 0, rounds_ = 0;
};

// Builds the measured object again in other memory, between blocks.

/// The pages and addresses of a point's memory change its time (by about 1 % of a step of 100 us; results/truth.md,
/// "Equal work, again"). A point that keeps its memory for a whole launch sees only one random case of this effect, so
/// its 95 % interval does not cover the effect. With other memory for every block, the interval covers it. A point that
/// takes long to build gets other memory in fewer blocks, or in none.
class Rebuilder {
 public:
  /// Runs `make` and notes its time. Buffers that `make` allocates in the host's memory begin at random pages
  /// (runtime/host/random_pages).
  void build(const std::function<void()>& make);
  /// Says that the blocks begin; the time spent on building is counted from now on. points: the number of points that
  /// take turns. Each may spend a fifth of the time, divided by `points`, on building.
  void start(std::size_t points = 1);
  /// True where there is time to build the point again. Collective; rank 0 decides, since the ranks' clocks differ.
  bool has_time(const runtime::Communicator&) const;

 private:
  /// begin_: when the blocks began, by the host clock. last_s_, spent_s_: the time of the last build, and of all builds
  /// since then. share_: the share of the time since then that building may take.
  double begin_ = 0, last_s_ = 0, spent_s_ = 0, share_ = 0;
};

// The times of calls on each rank, and the slowest rank.

/// The median of one rank's own times, and its 95 % interval from `low` to `high` [s]. Without enough samples, `low` is
/// 0 and `high` is infinite; without any, the median is NaN.
struct OwnTime {
  double median = 0, low = 0, high = 0;
};
/// Gathers the OwnTime of every rank on rank 0, by rank; on other ranks the result is empty. Collective over `c`;
/// `mine` may be empty on some ranks. Cost: 24 bytes a rank.
std::vector<OwnTime> own_times_by_rank(const runtime::Communicator& c, const core::Blocks& mine);

/// The blocks of the rank with the longest median, on every rank; on rank 0 `medians` gets each rank's median. All
/// ranks have blocks of the same lengths. Collective over `c`.
core::Blocks slowest_blocks(const runtime::Communicator& c, const core::Blocks& mine, std::vector<double>& medians);

/// The rank with the longest median, if that is more than 10 % longer than the median of all ranks' medians (the lower
/// one of the middle two).
std::optional<int> straggler(std::span<const double> medians);
/// Returns the same as the other `straggler`, but the slowest rank's interval must also lie above that of the rank with
/// the median. Where a rank has no times, none is named.
std::optional<int> straggler(std::span<const OwnTime>);
/// Fills in how the ranks' medians differ: their spread, and a rank that stands out. Fills in nothing without medians.
void fill_medians(std::span<const double> medians, const std::function<std::string(int rank)>& host_of, core::Metrics&);
/// Fills in the name of a rank that stands out.
void fill_slowest(int rank, const std::string& host, core::Metrics&);

}  // namespace gradmeter::bench
