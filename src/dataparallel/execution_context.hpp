// What a task on a rank computes with: its place among the ranks, computation that is timed, and a clock. A background
// task has this and its ports; a worker has a fabric (fabric.hpp), which adds communication.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "dataparallel/decorators/intervals.hpp"
#include "dataparallel/operation.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::dataparallel {

/// A set of ranks. Group 0 is all of them; others come from `Fabric::split`.
struct Group {
  int id = 0;
};
inline constexpr Group everybody{};

/// One computation of one rank, or a stretch of its own thread inside an exchange, which may contain computations and
/// waits. The label is what `submit` or `exchange` was given: a literal.
struct ComputeRecord {
  std::string_view label;
  Interval when;
  bool exchanges = false;
};
using ComputeLog = std::vector<ComputeRecord>;

/// Of one task, for its thread alone: also the queue of its computations.
class ExecutionContext : public runtime::Queue {
 public:
  virtual int rank(Group g = everybody) const = 0;
  virtual int size(Group g = everybody) const = 0;

  /// Work of this thread on messages: posting, taking, copying. A context that does not time it only runs it.
  virtual void exchange(std::string_view, const runtime::Work& work) { work(); }
  /// From now on the interval of every computation and exchange goes to `log`, by the backend's own clock, at the
  /// latest when `synchronise` returns. Null: no log.
  virtual void log_to(ComputeLog* log) = 0;
  virtual double now() const = 0;
};

using BackgroundProgram = std::function<void(ExecutionContext&)>;

}  // namespace gradmeter::dataparallel
