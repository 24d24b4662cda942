// One point of a collective sweep while it takes its turns with the others of its group.
#pragma once
#include <memory>
#include <optional>

#include "bench/collective_row.hpp"
#include "bench/collective_task.hpp"
#include "bench/noise_tally.hpp"
#include "bench/rounds.hpp"

namespace gradmeter::bench {

struct ContestantOptions {
  RoundOptions rounds;
  bool check = true;
  int damage_rank = -1;  ///< test hook: this rank's results get an error
  std::uint64_t seed = 1;
};

/// Collective over the stage's world, all of it. Errors: Interrupted.
class CollectiveContestant {
 public:
  CollectiveContestant(Session&, CollectiveStage&, const NodeMap&, runtime::SharedClock&, const CollectivePoint&,
                       const ContestantOptions&, core::Point& row);

  /// Correctness before time: one call with exact data, one with random data. A wrong one is not timed.
  void prepare();
  void warm_up();
  void round();
  bool done() const { return done_; }
  /// Checks again and fills the row.
  void finish();

 private:
  bool first_call();
  void check(allreduce::Pattern);
  void check_codec();
  void check_all();
  void fill();
  RunBlock blocks();
  void call_once();
  void count_bytes(const std::optional<runtime::Traffic>& before, std::uint64_t due_before);
  std::optional<SentBytes> sent_bytes() const;
  std::optional<allreduce::CodingTime> coding_of_a_call() const;
  bool crowded() const;
  void end(core::Status, std::string reason);

  Session& session_;
  CollectiveStage& stage_;
  const NodeMap& map_;
  const CollectivePoint& point_;
  ContestantOptions options_;
  core::Point& row_;
  BoundCollective& bound_;
  CollectiveBuffers buffers_;
  Pace pace_;
  CollectiveCaller caller_;
  std::unique_ptr<CollectiveTask> task_;
  std::optional<Rounds> rounds_;
  NoiseTally tally_;
  CheckFinding found_;
  std::optional<SentBytes> one_call_;  ///< empty: a vendor's
  allreduce::CodingTime coding_before_;
  bool done_ = false;
};

/// The same rounds for a plain copy of the buffer by all ranks at once: the limit of one node.
class CopyContestant {
 public:
  CopyContestant(Session&, CollectiveStage&, runtime::SharedClock&, const CollectivePoint&, const RoundOptions&);
  void warm_up() { rounds_.warm_up(); }
  void round() { done_ = rounds_.round() != core::Stop::none; }
  bool done() const { return done_; }
  double median() const { return rounds_.times().empty() ? 0 : core::median(rounds_.times()); }

 private:
  ConcurrentCopy copy_;
  std::unique_ptr<CollectiveTask> task_;
  Rounds rounds_;
  bool done_ = false;
};

}  // namespace gradmeter::bench
