// The measurement of one point of a collective sweep, in turn with the others of its group.
#pragma once
#include <memory>
#include <optional>

#include "bench/collectives/row.hpp"
#include "bench/collectives/task.hpp"
#include "bench/engine/machine_monitor.hpp"
#include "bench/engine/noise_sampler.hpp"
#include "bench/engine/own_times.hpp"
#include "bench/engine/rounds.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {

struct BenchmarkOptions {
  RoundOptions rounds;
  bool check = true;
  std::uint64_t seed = 1;      ///< of the data that is checked
  std::uint64_t run_seed = 0;  ///< selects the calls that are checked while timing; the same on every rank
};

/// Collective over the stage's world, all of it. Errors: Interrupted.
class CollectiveBenchmark {
 public:
  CollectiveBenchmark(Session&, CollectiveStage&, const NodeMap&, runtime::SharedClock&, const CollectivePoint&,
                      const BenchmarkOptions&, core::Point& row);

  /// Checks before anything is timed: one call with exact data, one with random data. A wrong point is not timed.
  void prepare();
  void warm_up();
  /// A block of timed calls. One more call, at a random place in it, gets known data and is checked; it is no sample,
  /// and ends the point if it is wrong.
  /// Returns whether the point has enough samples; it may continue.
  bool round();
  /// There is nothing to time: refused, or wrong.
  bool done() const { return done_; }
  /// Checks again and fills the row. Blocks of disturbed turns are left out, unless the number of samples is exact.
  void finish(const MachineState&);
  /// Of calls; after `finish`, on rank 0. Empty where nothing was timed.
  std::span<const OwnTime> by_rank() const { return by_rank_; }

 private:
  bool first_call();
  void check(allreduce::Pattern, std::uint64_t seed);
  void check_codec(std::uint64_t seed, CodedData);
  void check_all();
  void check_within_block();
  void fill();
  RunBlock refilled_blocks();
  RunBlock blocks();
  void call_once();
  void count_bytes(const std::optional<runtime::Traffic>& before, std::uint64_t due_before);
  std::optional<SentBytes> sent_bytes() const;
  std::optional<allreduce::CodingTime> coding_of_a_call() const;
  bool crowded() const;
  std::string way_through_the_host() const;
  std::string implementation(bool overlaps) const;
  void end(core::Status, std::string reason);

  Session& session_;
  CollectiveStage& stage_;
  const NodeMap& map_;
  const CollectivePoint& point_;
  BenchmarkOptions options_;
  core::Point& row_;
  BoundCollective& bound_;
  CollectiveBuffers buffers_;
  Pace pace_;
  CollectiveCaller caller_;
  std::unique_ptr<CollectiveTask> task_;
  std::optional<Rounds> rounds_;
  Turns turns_, own_turns_;
  core::Blocks own_times_;
  NoiseSampler noise_{session_.gpu_gauge()};
  CheckFinding found_;
  std::vector<OwnTime> by_rank_;
  core::Random checked_calls_;
  std::uint64_t blocks_ = 0;           ///< that had a call checked
  std::optional<SentBytes> one_call_;  ///< empty: a vendor's
  allreduce::CodingTime coding_before_;
  bool done_ = false;
};

}  // namespace gradmeter::bench
