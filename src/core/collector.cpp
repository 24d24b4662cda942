#include "core/detail/collector.hpp"

#include <algorithm>

#include "core/detail/quote.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::core::detail {

void Collector::add(RunInfo info) {
  if (info.run_id.empty()) throw UsageError("the run_id is empty; each run needs its own");
  if (find(info.run_id)) throw UsageError(fmt::format("run {} is in the file twice; keep one", quote(info.run_id)));
  file_.runs.push_back({std::move(info), {}});
}

void Collector::add(PointLine line) { run_of(line.run_id, "a point").points.push_back(std::move(line.point)); }

void Collector::add(const PlanLine& line) {
  Run& run = run_of(line.run_id, "a plan");
  if (!run.plan) run.plan.emplace();
  run.plan->points += line.plan.points;
  run.plan->kept += line.plan.kept;
}

void Collector::add(EndLine line) { run_of(line.run_id, "an end").end = std::move(line.end); }

Run* Collector::find(const std::string& run_id) {
  // Lines mostly follow their own run, so the search goes backwards.
  const auto found =
      std::find_if(file_.runs.rbegin(), file_.runs.rend(), [&](const Run& run) { return run.info.run_id == run_id; });
  return found == file_.runs.rend() ? nullptr : &*found;
}

Run& Collector::run_of(const std::string& run_id, const char* what) {
  Run* run = find(run_id);
  if (run) return *run;
  throw UsageError(
      fmt::format("{} of run {} stands before its run; the run's own line should come first", what, quote(run_id)));
}

}  // namespace gradmeter::core::detail
