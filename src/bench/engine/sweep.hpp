// What every sweep does with its rows: those of an earlier run are shown, new ones go out as they are done, wrong ones
// are counted, and points share the time that is left.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.hpp"
#include "core/units.hpp"

namespace gradmeter::bench {

/// Rows of earlier runs by Factors::key(); the same on every rank.
using FinishedRows = std::map<std::string, core::Point>;

/// Receives a sweep's rows. Called on rank 0 only.
struct RowListener {
  std::function<void(const core::Point&)> measured;      ///< to keep: a new row
  std::function<void(const core::Point&)> kept;          ///< from an earlier run: shown, not written again
  std::function<void(const std::string& now)> progress;  ///< what is measured now
};

class SweepRows {
 public:
  /// root: this rank tells the listener.
  SweepRows(const FinishedRows& finished, const RowListener& listener, bool root)
      : finished_(finished), listener_(listener), root_(root) {}

  /// From now on the time budget runs. points: of which no row is finished.
  void start(std::size_t points, std::optional<core::Seconds> budget);
  /// The row of an earlier run; null: none.
  const core::Point* finished(const core::Factors&) const;
  /// Shows an earlier row, which is counted nowhere.
  void show(const core::Point&) const;
  void emit(const core::Point&);
  void progress(const std::string& now) const;
  /// A point's time: an equal part of what is left of the budget; `usual` where there is none. Clocks differ: rank 0's
  /// is what all must take.
  core::Seconds share(core::Seconds usual) const;
  /// Of the budget, which there must be.
  core::Seconds left() const;
  /// New rows with status wrong.
  std::size_t wrong() const { return wrong_; }

 private:
  const FinishedRows& finished_;
  const RowListener& listener_;
  bool root_;
  std::optional<core::Seconds> budget_ = {};
  double begin_ = 0;
  std::size_t left_ = 0, wrong_ = 0;
};

void refuse(core::Point& row, core::Status, std::string why);
/// "needs 3 GiB of memory where 2 GiB are free". where: "where", "on a node where".
std::string short_of_memory(std::size_t needs, std::size_t free, std::string_view where = "on a node where");

}  // namespace gradmeter::bench
