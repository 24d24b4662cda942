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
  /// A block of timed calls, of which one at a random place is checked; a wrong one ends the point. Timed calls have
  /// known data, which differ from call to call. Where calls change them (in place), and with a codec, calls with data
  /// of their own are checked instead, made like the timed ones and no samples. Returns whether the point has enough
  /// samples; it may continue.
  bool round();
  /// There is nothing to time: refused, or wrong.
  bool done() const { return done_; }
  /// Checks again and fills the row. Blocks of disturbed turns are left out, unless the number of samples is exact.
  void finish(const MachineState&);
  /// Of calls; after `finish`, on rank 0. Empty where nothing was timed.
  std::span<const OwnTime> by_rank() const { return by_rank_; }

 private:
  bool first_call();
  bool times_known_data() const;
  allreduce::KnownCollective timed_data() const;
  void move_buffers();
  void fill();
  void prepare_stamps();
  void restamp();
  void note_result();
  void judge(const allreduce::KnownCollective&);
  void add(CheckFinding);
  void check(allreduce::Pattern, std::uint64_t seed, std::size_t calls = 1);
  void check_codec(std::uint64_t seed, CodedData);
  void check_all();
  void check_apart();
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
  allreduce::Call call_;  ///< on them
  Pace pace_;
  FirstElements firsts_;
  CollectiveCaller caller_;
  std::unique_ptr<CollectiveTask> task_;
  std::optional<Rounds> rounds_;
  Turns turns_, own_turns_;
  core::Blocks own_times_;
  NoiseSampler noise_{session_.gpu_gauge()};
  CheckFinding found_;
  std::vector<OwnTime> by_rank_;
  std::uint64_t data_seed_;  ///< a point after another must not find the data of that one's last call
  core::Random checked_calls_, first_pages_;
  std::uint64_t blocks_ = 0;  ///< selects the data of a block and its call that is checked
  std::uint64_t stamp_ = 0;   ///< of the last timed call's data
  std::vector<std::vector<std::byte>>
      stamps_;                       ///< what the input begins with in the next calls, in turn; empty: made anew
  std::uint64_t first_in_turn_ = 0;  ///< the stamp of the first of these
  std::size_t turn_ = 0;
  bool filled_ = false;  ///< do the buffers hold this block's data?
  bool notes_result_ = false;
  std::uint64_t result_ = 0;           ///< hash of what the noted call had left when it returned
  std::optional<SentBytes> one_call_;  ///< empty: a vendor's
  allreduce::CodingTime coding_before_;
  bool done_ = false;
};

}  // namespace gradmeter::bench
