#include "importers/kineto.hpp"

#include <map>
#include <tuple>

#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using dataparallel::TracedParts;

/// The mean over steps would hide a slow one; each part is summarised over steps.
core::Value over_steps(const std::vector<TracedParts>& parts, double TracedParts::*part) {
  std::vector<double> seconds;
  for (const TracedParts& p : parts) seconds.push_back(p.*part);
  return core::summarise(seconds);
}

core::Point step_point(const KinetoTrace& k, const Hints& hints) {
  core::Point p;
  p.experiment = "replay";
  p.factors[Factor::problem] = dataparallel::trace_text(k.trace);
  p.factors[Factor::device] = k.trace.device;
  const std::int64_t ranks = k.trace.ranks > 0 ? k.trace.ranks : hints.ranks;
  if (ranks > 0) p.factors[Factor::ranks] = ranks;
  if (!hints.interconnect.empty()) p.factors[Factor::interconnect] = hints.interconnect;
  std::vector<TracedParts> parts;
  for (const auto& s : k.trace.steps) parts.push_back(dataparallel::parts_of(s));
  p.metrics[Metric::time_s] = over_steps(parts, &TracedParts::step);
  p.metrics[Metric::compute_s] = over_steps(parts, &TracedParts::compute);
  p.metrics[Metric::comm_s] = over_steps(parts, &TracedParts::communication);
  p.metrics[Metric::exposed_union_s] = over_steps(parts, &TracedParts::exposed);
  p.metrics[Metric::overlap_s] = over_steps(parts, &TracedParts::overlap);
  for (const TracedParts& s : parts) p.raw_times_s.push_back(s.step);
  return p;
}

/// A point for the calls of one kind, size, element type and group.
std::vector<core::Point> call_points(const KinetoTrace& k, const Hints& hints) {
  std::map<std::tuple<std::string, std::uint64_t, core::Element, std::int64_t>, std::vector<double>> calls;
  for (const auto& s : k.trace.steps)
    for (const auto& c : s.calls)
      if (c.bytes > 0 && c.when.length() > 0)
        calls[{c.collective, c.bytes, c.element, c.ranks}].push_back(c.when.length());
  std::vector<core::Point> out;
  for (auto& [key, seconds] : calls) {
    const auto& [collective, bytes, element, ranks] = key;
    core::Point p = collective_point(collective, ranks, static_cast<std::int64_t>(bytes), hints);
    p.factors[Factor::dtype] = std::string(core::info(element).name);
    p.factors[Factor::device] = k.trace.device;
    const core::Summary times = core::summarise(seconds);
    set_time(p, times.median);
    p.metrics[Metric::time_s] = times;
    p.raw_times_s = std::move(seconds);
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace

bool is_kineto(std::string_view log) {
  return log.starts_with('{') && log.find("\"traceEvents\"") != std::string_view::npos;
}

Imported read_kineto(std::string_view log, const Hints& hints) {
  const KinetoTrace k = read_kineto_trace(log);
  Imported out;
  out.run.info.version = "PyTorch profiler";
  if (!k.host.empty()) out.run.info.hosts.push_back(k.host);
  out.run.points.push_back(step_point(k, hints));
  for (auto& p : call_points(k, hints)) out.run.points.push_back(std::move(p));
  out.silent = "the model, the mini-batch, whether results were right, how long of a call its rank waited for others";
  if (k.rank >= 0) out.silent += fmt::format("; it is of rank {} alone", k.rank);
  if (k.calls_of_no_size > 0) {
    out.silent += fmt::format(
        "; {} collectives are of unknown size and count as communication only (record_shapes=True "
        "says it of gloo, PyTorch 2.2 of NCCL)",
        k.calls_of_no_size);
  }
  return out;
}

}  // namespace gradmeter::importers
