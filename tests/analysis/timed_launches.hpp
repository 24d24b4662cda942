// SPDX-License-Identifier: Apache-2.0
// Launches with one time for each point, for tests that need no file.
#pragma once
#include <string>
#include <vector>

#include "analysis/launches.hpp"

namespace gradmeter::analysis {

/// A point of all-reduce whose size tells points apart.
inline core::Point timed_point(std::int64_t size, double seconds) {
  core::Point p;
  p.experiment = "allreduce";
  p.factors[core::Factor::ranks] = std::int64_t{4};
  p.factors[core::Factor::size_bytes] = size;
  core::Summary time;
  time.median = seconds;
  p.metrics[core::Metric::time_s] = time;
  return p;
}

/// `times[launch][point]`.
inline Side timed_side(const std::string& name, const std::vector<std::vector<double>>& times) {
  Side side{.name = name, .runs = {}};
  for (const auto& launch : times) {
    core::Run run;
    run.info.run_id = name + std::to_string(side.runs.size());
    run.info.time = "2026-01-01T00:00:0" + std::to_string(side.runs.size()) + "Z";
    for (std::size_t i = 0; i < launch.size(); ++i) {
      run.points.push_back(timed_point(static_cast<std::int64_t>(i + 1), launch[i]));
    }
    side.runs.push_back(std::move(run));
  }
  return side;
}

}  // namespace gradmeter::analysis
