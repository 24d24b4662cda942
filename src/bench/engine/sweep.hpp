// SPDX-License-Identifier: Apache-2.0
// The sweep, which every experiment runs. Points come in groups; the points of a group are prepared and checked, take
// turns to be sampled, and are turned into rows. Rows of an earlier run are shown again, wrong rows are counted, and
// points share the remaining time.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/engine/rounds.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/gpus.hpp"

namespace gradmeter::bench {

/// Rows of earlier runs by Factors::key(); the same on every rank.
using FinishedRows = std::map<std::string, core::Point>;

/// The wall time that a launch may take, from the start of its process to its end. It includes everything before the
/// first point, preparation, checks and warm-up.
struct TimeBudget {
  core::Seconds all;
  double begin = runtime::host_clock();  ///< begin of the launch by the host clock [s]
  bool must_be_kept = false;             ///< true: a launch that cannot keep the budget is refused
};

/// Receives a sweep's rows. Called on rank 0 only.
struct RowListener {
  /// Called before the first point, with the number of new rows to come and the number of rows that are kept.
  std::function<void(std::size_t points, std::size_t kept)> planned = {};
  /// Called when a group has been measured, before its rows come. points: the number of the group's points that were
  /// measured. rest: the number of points of later groups that will be measured. Neither counts kept or refused points.
  std::function<void(std::size_t points, std::size_t rest)> group_measured = {};
  std::function<void(const core::Point&)> measured;  ///< called with each new row, which is to be stored
  std::function<void(const core::Point&)> kept;      ///< called with each row of an earlier run, which is only shown
  std::function<void(const std::string& now)> progress;  ///< called with what is measured now
  std::function<void(const std::string& line)> warning = {};
};

/// A point of a plan with its estimated needs, for --dry-run.
template <class Point>
struct Estimated {
  Point point;
  std::size_t bytes_per_rank = 0;
  double seconds_at_most = 0;
};

/// A point and its row. Points of one group stand together in the plan.
struct SweepPoint {
  /// Before the measurement: experiment and factors; a status other than ok means that the point is refused.
  core::Point row = {};
  std::size_t group = 0;  ///< points of one group take turns, and their rows go out together
  bool kept = false;      ///< an earlier run has its row
  bool cut = false;       ///< the point gets no row, since the run was interrupted before there were enough samples
  bool is_due() const { return !kept && row.status == core::Status::ok; }
};
template <class Points>
std::vector<SweepPoint*> pointers_to(Points& points) {
  std::vector<SweepPoint*> out;
  for (auto& p : points) out.push_back(&p);
  return out;
}

/// The rows of one sweep, and its time budget.
class SweepRows {
 public:
  SweepRows(const FinishedRows& finished, const RowListener& listener, const RoundPeers& peers,
            std::optional<TimeBudget> budget)
      : finished_(finished), listener_(listener), peers_(peers), budget_(budget) {}

  /// A point of the sweep; it is marked as kept if an earlier run has its row.
  SweepPoint point(std::string experiment, core::Factors, std::size_t group) const;
  /// points: the number of points that have no row yet and share the budget.
  void start(std::size_t points) { points_left_ = points, begin_ = runtime::host_clock(); }
  /// To be called when a group has been measured, with the numbers that RowListener::group_measured gets. Warns if the
  /// budget is used up before the last group, and says how long the run will take.
  void group_measured(std::size_t points, std::size_t rest);
  /// The row of an earlier run, or of this one; null: none.
  const core::Point* finished(const core::Factors&) const;
  /// Shows an earlier row without counting it.
  void show(const core::Point&) const;
  /// Passes a new row on to the listener, and keeps it for `finished`.
  void emit(core::Point);
  /// Tells the listener what is measured now.
  void progress(const std::string& now) const;
  /// The time for a point: an equal part of what is left of the budget; without a budget `usual`. All peers take the
  /// first peer's value, since clocks differ.
  core::Seconds time_for_point(core::Seconds usual) const;
  /// The rest of the budget by this rank's clock; there must be a budget.
  core::Seconds left() const;
  /// Warns if the launch cannot keep the budget, and warns again once the launch is predicted to take more than 1.5
  /// times as long as the last warning said. needed_time: the least time that the rest of the sweep will still take, as
  /// the first peer knows it. why: what takes so long, as text. Errors: UsageError on all peers in place of the
  /// warning, if the budget must be kept.
  void foresee(core::Seconds needed_time, const std::string& why);
  /// As `foresee`, but called on the first peer alone, while the others wait.
  void foresee_on_first_peer(core::Seconds needed_time, const std::string& why);
  /// The number of new rows with status wrong.
  std::size_t wrong() const { return wrong_; }

 private:
  /// The time of the whole launch if the rest of the sweep takes `needed_time`.
  core::Seconds predicted_launch_time(core::Seconds needed_time) const;
  bool needs_warning(core::Seconds launch_time) const {
    return announced_ ? launch_time.value > 1.5 * announced_->value : launch_time.value > budget_->all.value;
  }
  void refuse_budget(core::Seconds launch_time, const std::string& why);
  void warn(core::Seconds launch_time, const std::string& line);

  FinishedRows finished_;
  const RowListener& listener_;
  const RoundPeers& peers_;
  std::optional<TimeBudget> budget_;
  std::optional<core::Seconds> announced_;   ///< the launch's time as the last warning gave it; valid on the first peer
  std::size_t points_left_ = 0, wrong_ = 0;  ///< [points]
  double begin_ = 0;                         ///< begin of the first group by the host clock [s]
  std::size_t measured_ = 0;                 ///< [points] measured since `begin_`
};

/// The base of everything that is measured by a sweep. All calls are collective over the sweep's peers, which take the
/// same decisions.
class Experiment {
 public:
  virtual ~Experiment() = default;
  /// All points in the order of their rows; a point that cannot be measured has the reason in its row. Points live as
  /// long as the experiment.
  virtual std::vector<SweepPoint*> plan(const SweepRows&) = 0;
  /// Prepares and checks the points of a group that have to be measured (at least one), lets them take turns, and fills
  /// in their rows. A point whose check fails gets status wrong.
  virtual void measure(std::size_t group, SweepRows&) = 0;
  /// Adds what a row shows besides the measurement. It is called for kept rows too.
  virtual void complete(SweepPoint&) const {}
};

/// Takes one block of samples of a point, or of a limit that points are compared with. Returns true if there are enough
/// samples.
using Turn = std::function<bool()>;
/// Calls all turns in rotations until all have enough samples, so that a quiet or a noisy spell of the machine affects
/// all of them alike. The order is drawn for each rotation: in a fixed order, a turn would always find the caches as
/// the turn before it leaves them. seed: the same on all ranks (Session::run_seed). is_over: called after each
/// rotation, with whether all have enough samples; the turns end when it returns true. If is_over is empty, the turns
/// end when all have enough samples.
void take_turns(std::uint64_t seed, std::span<const Turn>, const std::function<bool(bool enough)>& is_over = {});

/// Measures and shows all points of the experiment. Returns the number of wrong points. Errors: Interrupted.
std::size_t run_sweep(Experiment&, const RoundPeers&, const FinishedRows&, const RowListener&,
                      std::optional<TimeBudget>);

/// The budget divided by the number of points; without a budget `usual`.
core::Seconds equal_share(const std::optional<TimeBudget>&, std::size_t points, core::Seconds usual);
void refuse(core::Point& row, core::Status, std::string why);
/// For a point that a single process measures: refuses it if it is unsupported or needs too much memory. unsupported:
/// the reason; empty: it is supported. needs, free: memory [bytes]; free is 0 where it is unknown.
void refuse_alone(const std::string& unsupported, std::size_t needs, std::size_t free, core::Point& row);
/// "needs 3 GiB of memory where 2 GiB are free". where: the words before the free memory, "where" or "on a node where".
std::string short_of_memory(std::size_t needs, std::size_t free, std::string_view where = "on a node where");

/// Runs work for one point, or for some that take turns; `points()` returns their names. A library's error that has
/// left the GPU unusable becomes a LostGpu that names the points; any other error is passed on.
template <class Text, class Work>
decltype(auto) for_points(Text points, Work work) {
  try {
    return work();
  } catch (const core::BackendError& e) {
    const std::string lost = runtime::lost_gpu();
    if (lost.empty()) throw;
    throw core::LostGpu(fmt::format("{}; {}; measuring {}", e.what(), lost, points()));
  }
}

// Functions for refusals that occur on some ranks only, but that all ranks must know.

/// Runs `work`; a library's refusal, or a lack of memory, becomes a text, since other ranks may have succeeded. The
/// error of a lost GPU is no refusal: it is passed on to `run_sweep`.
template <class Work>
std::string refusal_of(Work work) {
  try {
    work();
    return {};
  } catch (const core::BackendError& e) {
    if (!runtime::lost_gpu().empty()) throw;
    return e.what();
  } catch (const core::UsageError& e) {
    return e.what();
  } catch (const std::bad_alloc&) {
    return "memory ran out";
  }
}

/// Returns the refusal of the first rank that has one, on all ranks. Collective over `c`.
inline std::string refused_anywhere(const runtime::Communicator& c, const std::string& mine) {
  if (c.size() == 1) return mine;
  const auto first = runtime::first_report(c, mine);
  return first.text.empty() ? "" : fmt::format("rank {}: {}", first.rank, first.text);
}

}  // namespace gradmeter::bench
