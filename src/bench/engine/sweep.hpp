// SPDX-License-Identifier: Apache-2.0
// The sweep of every experiment: its points in groups, each group made ready and checked, sampled in turns, and turned
// into rows. Rows of an earlier run are shown, wrong ones counted, and points share the time that is left.
#pragma once
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

namespace gradmeter::bench {

/// Rows of earlier runs by Factors::key(); the same on every rank.
using FinishedRows = std::map<std::string, core::Point>;

/// The wall time that a launch may take, from the start of its process to its end: what comes before the first point,
/// preparation, checks and warm-up count.
struct TimeBudget {
  core::Seconds all;
  double begin = runtime::host_clock();  ///< of the launch
  bool must_be_kept = false;             ///< a launch that cannot keep it is refused
};

/// Receives a sweep's rows. Called on rank 0 only.
struct RowListener {
  std::function<void(std::size_t points, std::size_t kept)> planned =
      {};                                                ///< before the first: rows to come, and rows that are kept
  std::function<void(const core::Point&)> measured;      ///< to keep: a new row
  std::function<void(const core::Point&)> kept;          ///< from an earlier run: shown, not written again
  std::function<void(const std::string& now)> progress;  ///< what is measured now
  std::function<void(const std::string& line)> warning = {};
};

/// A point of a plan with what it needs, for --dry-run.
template <class Point>
struct Estimated {
  Point point;
  std::size_t bytes_per_rank = 0;
  double seconds_at_most = 0;
};

/// A point and its row. Points of one group stand together in the plan.
struct SweepPoint {
  core::Point row = {};   ///< experiment and factors; a status other than ok: refused
  std::size_t group = 0;  ///< they take turns, and their rows go out together
  bool kept = false;      ///< its row is there already
  bool cut = false;       ///< the run was interrupted before it had enough samples: no row
  bool is_due() const { return !kept && row.status == core::Status::ok; }
};
template <class Points>
std::vector<SweepPoint*> pointers_to(Points& points) {
  std::vector<SweepPoint*> out;
  for (auto& p : points) out.push_back(&p);
  return out;
}

/// The rows of one sweep, and its time.
class SweepRows {
 public:
  SweepRows(const FinishedRows& finished, const RowListener& listener, const RoundPeers& peers,
            std::optional<TimeBudget> budget)
      : finished_(finished), listener_(listener), peers_(peers), budget_(budget) {}

  SweepPoint point(std::string experiment, core::Factors, std::size_t group) const;
  /// points: those without a row, which share the time.
  void start(std::size_t points) { left_ = points; }
  /// The row of an earlier run, or of this one; null: none.
  const core::Point* finished(const core::Factors&) const;
  /// Shows an earlier row, which is counted nowhere.
  void show(const core::Point&) const;
  void emit(core::Point);
  void progress(const std::string& now) const;
  /// A point's time: an equal part of what is left of the budget; `usual` where there is none. Clocks differ: all
  /// peers take the first one's.
  core::Seconds share(core::Seconds usual) const;
  /// Of the budget, which there must be, by this rank's clock.
  core::Seconds left() const;
  /// Warns, once, that the budget cannot be kept. needs: the least that the rest of the sweep takes from now on, as
  /// known on the first peer; why: what takes it. Errors: UsageError on all peers, where the budget must be kept.
  void foresee(core::Seconds needs, const std::string& why);
  /// The same on the first peer alone, while the others wait.
  void foresee_here(core::Seconds needs, const std::string& why);
  /// New rows with status wrong.
  std::size_t wrong() const { return wrong_; }

 private:
  /// The time of the whole launch if the rest takes `needs`.
  core::Seconds whole(core::Seconds needs) const;
  bool is_news(core::Seconds whole) const { return !warned_ && whole.value > budget_->all.value; }
  void refuse_budget(core::Seconds whole, const std::string& why);

  FinishedRows finished_;
  const RowListener& listener_;
  const RoundPeers& peers_;
  std::optional<TimeBudget> budget_;
  bool warned_ = false;  ///< on the first peer
  std::size_t left_ = 0, wrong_ = 0;
};

/// What a sweep measures. All calls are collective over the sweep's peers, and go the same way on all of them.
class Experiment {
 public:
  virtual ~Experiment() = default;
  /// All points in the order of their rows, those that cannot be had with the reason. They live as long as the
  /// experiment.
  virtual std::vector<SweepPoint*> plan(const SweepRows&) = 0;
  /// Of a group, the points that are due (at least one): prepares and checks them, lets them take turns and fills their
  /// rows. What is wrong gets its status.
  virtual void measure(std::size_t group, SweepRows&) = 0;
  /// What a row shows besides, a kept one too.
  virtual void complete(SweepPoint&) const {}
};

/// A block of samples of a point, or of what is measured beside the points. Gives whether it has enough.
using Turn = std::function<bool()>;
/// All stay until the last has enough: a quiet spell must not be compared with a noisy one. is_over: asked after each
/// rotation, in which all had enough or not; empty: that decides.
void take_turns(std::span<const Turn>, const std::function<bool(bool enough)>& is_over = {});

/// Gives the number of wrong points. Errors: Interrupted.
std::size_t run_sweep(Experiment&, const RoundPeers&, const FinishedRows&, const RowListener&,
                      std::optional<TimeBudget>);

/// An equal part of the budget for each of so many points; `usual` without a budget.
core::Seconds equal_share(const std::optional<TimeBudget>&, std::size_t points, core::Seconds usual);
void refuse(core::Point& row, core::Status, std::string why);
/// Of one process. unsupported: why the point cannot be had; empty: it can. free: 0 where it is unknown.
void refuse_alone(const std::string& unsupported, std::size_t needs, std::size_t free, core::Point& row);
/// "needs 3 GiB of memory where 2 GiB are free". where: "where", "on a node where".
std::string short_of_memory(std::size_t needs, std::size_t free, std::string_view where = "on a node where");

// What only some ranks may refuse, on all of them.

/// Runs `work`; a refusal by a library or of memory becomes a text, since other ranks may have succeeded.
template <class Work>
std::string refusal_of(Work work) {
  try {
    work();
    return {};
  } catch (const core::BackendError& e) {
    return e.what();
  } catch (const core::UsageError& e) {
    return e.what();
  } catch (const std::bad_alloc&) {
    return "memory ran out";
  }
}

/// Collective over `c`: the refusal of the first rank that has one, on all.
inline std::string refused_anywhere(const runtime::Communicator& c, const std::string& mine) {
  if (c.size() == 1) return mine;
  const auto first = runtime::first_report(c, mine);
  return first.text.empty() ? "" : fmt::format("rank {}: {}", first.rank, first.text);
}

}  // namespace gradmeter::bench
