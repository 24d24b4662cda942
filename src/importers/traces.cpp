// SPDX-License-Identifier: Apache-2.0
#include "importers/traces.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/format.hpp"
#include "importers/collectives.hpp"
#include "importers/text.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using dataparallel::TracedParts;

/// Summarises a part of the time over the steps, since its mean would hide a slow step.
core::Value over_steps(const std::vector<TracedParts>& parts, double TracedParts::*part) {
  std::vector<double> seconds;
  for (const TracedParts& p : parts) seconds.push_back(p.*part);
  return summary_of_iterations(seconds);
}

core::Point step_point(const ImportedTrace& t, const UserFacts& user_facts) {
  core::Point p;
  p.experiment = "replay";
  p.factors[Factor::problem] = dataparallel::trace_text(t.trace);
  if (!t.trace.device.empty()) p.factors[Factor::device] = t.trace.device;
  const std::int64_t ranks = t.trace.ranks > 0 ? t.trace.ranks : user_facts.ranks;
  if (ranks > 0) p.factors[Factor::ranks] = ranks;
  if (!user_facts.interconnect.empty()) p.factors[Factor::interconnect] = user_facts.interconnect;
  std::vector<TracedParts> parts;
  for (const auto& s : t.trace.steps) parts.push_back(dataparallel::parts_of(s));
  const bool has_compute = std::ranges::any_of(parts, [](const TracedParts& s) { return s.compute > 0; });
  if (t.trace.timed || has_compute) p.metrics[Metric::compute_s] = over_steps(parts, &TracedParts::compute);
  if (!t.trace.timed) return p;
  p.metrics[Metric::time_s] = over_steps(parts, &TracedParts::step);
  p.metrics[Metric::comm_s] = over_steps(parts, &TracedParts::communication);
  p.metrics[Metric::exposed_union_s] = over_steps(parts, &TracedParts::exposed);
  p.metrics[Metric::overlap_s] = over_steps(parts, &TracedParts::overlap);
  for (const TracedParts& s : parts) p.raw_times_s.push_back(s.step);
  return p;
}

/// Makes a point for the calls of one kind, size, element type, group, operation and problem.
std::vector<core::Point> call_points(const ImportedTrace& t, const UserFacts& user_facts, Faults& faults) {
  std::map<std::tuple<std::string, std::uint64_t, core::Element, std::int64_t, std::string, std::string>,
           std::vector<double>>
      calls;
  for (const auto& s : t.trace.steps)
    for (const auto& c : s.calls)
      if (c.bytes > 0 && c.when.length() > 0) {
        calls[{c.collective, c.bytes, c.element, c.ranks, c.op, c.problem}].push_back(c.when.length());
      } else if (c.bytes > 0 && t.trace.timed) {
        ++faults.without_time;
      }
  std::vector<core::Point> out;
  // --ranks gives the job's ranks. If the trace has them too, --ranks adds nothing, and must not stand for those of a
  // call, whose group may be smaller.
  UserFacts known = user_facts;
  if (t.trace.ranks > 0) known.ranks = 0;
  for (auto& [key, seconds] : calls) {
    const auto& [collective, bytes, element, ranks, op, problem] = key;
    core::Point p = collective_point(collective, ranks, static_cast<std::int64_t>(bytes), known);
    if (t.has_element_types) p.factors[Factor::dtype] = std::string(core::info(element).name);
    if (!t.trace.device.empty()) p.factors[Factor::device] = t.trace.device;
    if (!op.empty()) p.factors[Factor::op] = op;
    if (!problem.empty()) add_problem(p, problem);
    const core::Summary of_calls = summary_of_iterations(seconds);
    set_time_and_rates(p, of_calls.median);
    p.metrics[Metric::time_s] = of_calls;
    p.raw_times_s = std::move(seconds);
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace

ImportedTrace read_trace(std::string_view bytes, std::int64_t ranks) {
  const std::string json = decoded_text(bytes);
  if (execution_trace_format.recognises(json)) return read_execution_trace(json);
  if (chakra_format.recognises(json)) return read_chakra_trace(json, ranks);
  return read_kineto_trace(json);
}

Imported trace_rows(const ImportedTrace& t, const UserFacts& user_facts) {
  Imported out;
  checked_ranks(t.trace.ranks, user_facts, 0);
  if (!t.host.empty()) out.run().info.hosts.push_back(t.host);
  out.run().points.push_back(step_point(t, user_facts));
  Faults faults;
  for (auto& p : call_points(t, user_facts, faults)) out.run().points.push_back(std::move(p));
  out.faults = faults.text();
  out.not_stated = "the model, the mini-batch, whether results were right";
  if (t.rank >= 0) out.not_stated += fmt::format("; it is of rank {} alone", t.rank);
  if (t.calls_of_other_backends > 0)
    out.not_stated +=
        fmt::format("; {} collectives that gloo or MPI note beside these are left out", t.calls_of_other_backends);
  return out;
}

}  // namespace gradmeter::importers
