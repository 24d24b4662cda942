// SPDX-License-Identifier: Apache-2.0
// Measures a lower bound of a collective's time on one node: the time in which all ranks at once make the least memory
// traffic that the collective needs.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "bench/allreduce/call.hpp"
#include "bench/allreduce/plan.hpp"
#include "bench/allreduce/row.hpp"
#include "bench/engine/machine_state.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/engine/session.hpp"
#include "compression/crossover.hpp"

namespace gradmeter::bench {

/// The kind of memory traffic. copy: reads `count` elements and writes them to other memory. update: reads `count`
/// elements and writes them back to the same memory. An update may be faster than a copy, since for a copy a processor
/// may also load the cache lines that it overwrites. write: writes `count` elements. The collective also reads, but
/// only few elements, or the same ones on all ranks; these may come from a shared cache and do not count. reduce: reads
/// `count` elements and writes `count` / ranks.
enum class Traffic : std::uint8_t { none, copy, update, write, reduce };
/// The name that the metric `limit` has for it: "memcpy", "update", "write", "reduce".
std::string_view name(Traffic);

struct LeastTraffic {
  Traffic kind = Traffic::none;
  std::size_t count = 0;  ///< elements
  bool operator==(const LeastTraffic&) const = default;
};

/// The least traffic of one rank, for a collective on buffers of `count` elements:
///   all-reduce, send-receive   a copy: all inputs are read once, and each rank writes a result of `count` elements; in
///                              place an update, since a rank may write a result where it has just read the inputs
///   all-to-all                 a copy; in place an update of the blocks that move, without the rank's own
///   reduce-scatter             a reduction: reads `count` elements (its block of every rank), writes a block, if any
///   all-gather, broadcast      a write of `count` elements; in place an all-gather leaves out the rank's own block,
///                              and a broadcast's root writes nothing
/// A single rank in the world does nothing in place, and makes a copy out of place.
LeastTraffic least_traffic(allreduce::CollectiveKind, std::size_t count, std::size_t ranks, bool in_place,
                           bool is_root);

/// True if all ranks have the same least traffic, other than none.
bool have_equal_traffic(const CollectivePoint&, std::size_t ranks);

/// The limit "wire" of a point: its wire bound. A rank may return while others still wait for their data, so the bound
/// holds only for the slowest rank's time (RankReduction::max) and for the time from the first rank's begin to the last
/// rank's end (span). For every other RankReduction, CollectiveLimit::low is 0, so that the point's time is not
/// compared with the limit. It is also 0 for a broadcast: the rate of a port is measured while it sends and receives,
/// but in a broadcast a port does only one of the two, which may be faster.
CollectiveLimit wire_limit(const CollectivePoint&, const NodeMap&, const core::Machine&);

/// Causes the least traffic, with the call's buffers, type and operation. `out` then holds no useful result, but its
/// floats are normal numbers. A long copy is made by memcpy or by streaming stores, whichever was faster so far;
/// the rank's first calls try them in turn.
class LeastWork final : public allreduce::Collective {
 public:
  LeastWork(LeastTraffic t, std::size_t ranks) : traffic_(t), name_(bench::name(t.kind)), sources_(ranks) {}
  const std::string& name() const override { return name_; }
  void start(const allreduce::Call&) override;
  bool advance() override { return true; }

 private:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);

  LeastTraffic traffic_;
  std::string name_;
  std::array<double, 2> fastest_s_{};      ///< shortest long copy by memcpy, and by streaming stores; 0: not tried yet
  std::size_t long_copies_ = 0;            ///< number of long copies so far
  std::vector<const std::byte*> sources_;  ///< the blocks that a reduction reads, one for each rank
};

/// Measures the limit of one point on one node: the time of its least traffic (LeastWork), made by all ranks at once.
/// The rounds of this measurement take turns with those of the points. The point must outlive this object.
class LimitBenchmark {
 public:
  LimitBenchmark(Session&, CollectiveSetup&, runtime::SharedClock&, const CollectivePoint&, const RoundOptions&);
  void warm_up();
  /// Runs one block of iterations. Returns true if there are enough samples, or if the time is spent.
  bool round();
  core::Seconds least_time() const { return rounds_.least_time(); }
  /// Ends the measurement once all turns are over: computes the limit and the ranks' times without the blocks of
  /// disturbed turns. Collective.
  void finish(const MachineState&);
  const CollectiveLimit& limit() const { return limit_; }
  /// The ranks' own times of the work, in which no rank waits for another; on rank 0.
  std::span<const OwnTime> by_rank() const { return by_rank_; }

 private:
  CollectiveSetup& setup_;
  const CollectivePoint& point_;
  LeastTraffic most_traffic_;  ///< traffic of the rank with the most work
  std::unique_ptr<allreduce::Collective> work_;
  allreduce::Call call_;
  std::unique_ptr<CollectiveTask> task_;
  Rounds rounds_;
  BlockTurns turns_, own_turns_;  ///< turns in which the blocks of `rounds_` and of `own_times_` were taken
  core::Blocks own_times_;        ///< this rank's times, without waits for other ranks
  CollectiveLimit limit_;
  std::vector<OwnTime> by_rank_;
};

// Predicts where a codec pays on this machine, by the formula of compression/crossover.hpp, with codec and link speeds
// measured in this run.

/// True if the algorithm is a schedule in which the busiest rank sends as much as in a reduce-scatter and an
/// all-gather, and one rank finishes each sum. The formula holds only for such algorithms.
bool costs_as_scatter_and_gather(const allreduce::AlgorithmChoice&, allreduce::RankShape);

/// Estimates for single points where their codec pays. Collective over the session's world; each link and each codec is
/// measured once.
class CodecEstimator {
 public:
  CodecEstimator(Session& s, allreduce::RankShape shape) : session_(s), shape_(shape) {}
  /// The estimate for a point. Empty on one rank, without a transport, for collectives other than all-reduce, without a
  /// codec, for codecs that are not exchanged by a schedule (compression::Exchange), for buffers too short to be
  /// encoded, and for algorithms without the costs that the formula needs (`costs_as_scatter_and_gather`).
  std::optional<compression::CodecEstimate> of(const CollectivePoint&);

 private:
  void measure(const compression::CodecChoice&);

  Session& session_;
  allreduce::RankShape shape_;
  /// The rate at which a rank sends while all ranks send, by transport.
  std::map<runtime::TransportKind, core::Link> links_;
  /// The input of the formula: the rates of the codecs measured so far, and the link of the last estimate.
  core::Machine machine_;
};

}  // namespace gradmeter::bench
