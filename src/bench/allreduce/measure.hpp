// SPDX-License-Identifier: Apache-2.0
// The measurement of one point of a collective sweep, which takes turns with the other points of its group.
#pragma once
#include <memory>
#include <optional>

#include "bench/allreduce/call.hpp"
#include "bench/allreduce/row.hpp"
#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {

struct BenchmarkOptions {
  RoundOptions rounds;
  /// The longest time that a point may take in all, not only for its samples; empty: there is no limit.
  std::optional<core::Seconds> point_time = {};
  bool check = true;           ///< results are checked before, during and after timing
  std::uint64_t seed = 1;      ///< seed of the data that is checked
  std::uint64_t run_seed = 0;  ///< selects the calls that are checked while timing; the same on every rank
};

/// The times of encoding and decoding in a call: one mean for each block, over the calls whose time is a sample. Calls
/// of the warm-up, discarded calls and extra checked calls are left out. The result is a median over blocks, which a
/// disturbed block changes as little as it changes the median time of a call.
class CodingTimes {
 public:
  /// Adds timed calls to the block under way. `before` and `after`: the collective's counters around these calls.
  void add(const allreduce::CodingTime& before, const allreduce::CodingTime& after);
  /// Ends the block.
  void end_block();
  /// The medians over the blocks of undisturbed turns; empty where no call was added.
  std::optional<allreduce::CodingTime> of_a_call(const MachineState&) const;

 private:
  allreduce::CodingTime block_;       ///< the sums over the block's calls so far
  core::Blocks encode_s_, decode_s_;  ///< one mean for each block
  BlockTurns turns_;                  ///< the turns of these blocks
};

/// The times of the exchange alone and of the matrix product alone, when their overlap is measured. Their medians leave
/// out the blocks of disturbed turns, as the median time of both at once does. So all three come from the same turns
/// and can be subtracted.
class OverlapPartTimes {
 public:
  /// Adds the times of a turn, which may have none.
  void add(const PartTimes&);
  /// The medians over the undisturbed turns; empty where no times were added.
  std::optional<OverlapTimes> medians(const MachineState&) const;

 private:
  core::Blocks exchange_s_, compute_s_;
  BlockTurns turns_;  ///< the turns of these blocks
};

/// Measures a point and fills its row; the point must outlive this object. Collective over all ranks of the setup's
/// world. Errors: Interrupted.
class CollectiveBenchmark {
 public:
  CollectiveBenchmark(Session&, CollectiveSetup&, const NodeMap&, runtime::SharedClock&, CollectivePoint&,
                      const BenchmarkOptions&);

  /// Counts the bytes of a first call, then checks two calls before anything is timed: on `exact` and on `random` data,
  /// or with a codec on gradients and, if the codec keeps them, on signs. A point that is wrong is not timed.
  void prepare();
  void warm_up();
  /// Makes a block of timed calls, one of which is checked, at a random place; a wrong result ends the point. Timed
  /// calls have known data, which differ from call to call (on a device from block to block). Two kinds of timed calls
  /// cannot be checked: those with a codec, and those in place that change the data. For these, an extra call on other
  /// data is checked, which is made like a timed call but is no sample. Returns whether the point has enough samples;
  /// `round` may still be called after it has returned true.
  bool round();
  /// True where there is nothing to time, because the point is refused or wrong.
  bool done() const { return done_; }
  /// An estimate of the time that the fewest blocks of a complete measurement take (`core::fewest_blocks_of`); known
  /// after the warm-up.
  core::Seconds least_time() const { return done_ || !rounds_ ? core::Seconds{0} : rounds_->least_time(); }
  /// The key of the point's factors.
  std::string key() const { return row_.factors.key(); }
  /// Makes the last check and fills the row. The blocks of disturbed turns are left out, unless the number of samples
  /// is given exactly.
  void finish(const MachineState&);
  /// The ranks' own times of calls; after `finish`, on rank 0. Empty where nothing was timed.
  std::span<const OwnTime> by_rank() const { return by_rank_; }
  /// The algorithm that serves the calls: for `auto`, the one that it chooses.
  const allreduce::AlgorithmChoice& serving() const { return *serving_; }

 private:
  const allreduce::Collective& serving_collective() const { return bound_.collective->serving(point_.bytes()); }
  bool make_first_call();
  bool timed_data_are_known() const;
  allreduce::KnownCollective timed_data() const;
  void move_buffers();
  void fill();
  void prepare_inputs();
  void restamp();
  void note_result();
  void check_noted_result(const allreduce::KnownCollective&);
  void add(CheckOfAllRanks);
  void check(allreduce::Pattern, std::uint64_t seed, std::size_t calls = 1);
  void check_codec(std::uint64_t seed, CodedData);
  void check_all();
  void check_extra_call();
  RunBlock refilled_blocks();
  RunBlock checked_blocks();
  void call_once();
  void count_bytes(const std::optional<runtime::Traffic>& before, std::uint64_t required_before);
  std::optional<SentBytes> sent_bytes() const;
  std::optional<allreduce::CodingTime> coding_of_a_call(const MachineState&) const;
  bool is_oversubscribed() const;
  std::string path_through_the_host() const;
  std::string implementation(bool overlaps) const;
  void end(core::Status, std::string reason);

  Session& session_;
  CollectiveSetup& setup_;
  const NodeMap& map_;
  const CollectivePoint& point_;
  BenchmarkOptions options_;
  core::Point& row_;
  BoundCollective& bound_;
  allreduce::AlgorithmPtr serving_;
  CollectiveBuffers buffers_;
  allreduce::Call call_;  ///< the call on `buffers_`
  Pace pace_;
  FirstElements first_elements_;
  CollectiveCaller caller_;
  std::unique_ptr<CollectiveTask> task_;
  std::optional<Rounds> rounds_;
  BlockTurns turns_, own_turns_;  ///< turns in which the blocks of `rounds_` and of `own_times_` were taken
  core::Blocks own_times_;        ///< this rank's times
  NoiseSampler noise_{session_.gpu_gauge()};
  CheckOfAllRanks findings_;  ///< the worst of all checks so far
  std::vector<OwnTime> by_rank_;
  /// Seed of the data, from the point's `data_hash` (measure.cpp). Data of a point with another hash fail a check.
  std::uint64_t data_seed_;
  core::Random checked_call_draw_,
      first_page_draw_;       ///< draw a block's checked call, and the pages where its buffers begin
  std::uint64_t blocks_ = 0;  ///< number of blocks so far, by which a block's data and its checked call are drawn
  std::uint64_t stamp_ = 0;   ///< stamp (KnownData) of the last iteration's data; the next iteration gets another one
  /// Inputs made in advance. Each iteration copies the next one, cyclically, over the start of its input: a first
  /// element, or for short known data the whole input. Empty: data are not made in advance.
  std::vector<std::vector<std::byte>> prepared_inputs_;
  std::uint64_t first_stamp_ = 0;  ///< the stamp of the data in `prepared_inputs_[0]`
  std::size_t inputs_taken_ = 0;   ///< number of times that data were taken from `prepared_inputs_`
  bool filled_ = false;            ///< true: the buffers hold this block's data
  bool notes_results_ = false;     ///< true: after a block's last call `note_result` is called
  std::uint64_t result_hash_ = 0;  ///< hash of a call's result, taken when the call returned
  /// The bytes that one call sends, counted in the point's first call; empty: not known, as for a vendor's algorithm.
  std::optional<SentBytes> bytes_of_a_call_;
  CodingTimes coding_;  ///< this rank's times of encoding and decoding
  OverlapPartTimes parts_;
  bool done_ = false;
};

}  // namespace gradmeter::bench
