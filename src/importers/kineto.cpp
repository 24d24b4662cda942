// SPDX-License-Identifier: Apache-2.0
// Traces of PyTorch's profiler: events with times; some mark steps, some are computation and some are collectives.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/lines.hpp"
#include "importers/text.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Json;
using core::UsageError;
using dataparallel::Interval;
using dataparallel::TracedCall;

/// The interval of a complete event in seconds since `origin` [us], the begin of the first event: seconds since 1970
/// would have too many digits.
Interval interval_of(const Json& event, std::optional<double>& origin) {
  const auto begin = event.find("ts"), length = event.find("dur");
  if (begin == event.end() || length == event.end() || !begin->is_number() || !length->is_number())
    throw UsageError(fmt::format("event '{}' has no times", text_of(event, "name")));
  const double us = begin->get<double>(), dur = length->get<double>();
  if (!std::isfinite(us) || !(dur >= 0) || !(dur < 1e15) || !(std::abs(us) < 1e18))
    throw UsageError(fmt::format("event '{}' has times that are none", text_of(event, "name")));
  if (!origin) origin = us;
  const double begin_s = (us - *origin) * 1e-6;
  return {begin_s, begin_s + dur * 1e-6};
}

/// The number of elements of all tensors whose shapes are in "Input Dims", such as [[267786]] or [[[2, 3], [4]]]; an
/// empty shape has one element.
std::uint64_t elements_in(const Json& dims, int depth = 0) {
  constexpr int deepest = 4;
  if (!dims.is_array() || depth > deepest) return 0;
  const bool is_shape = depth > 0 && std::ranges::all_of(dims, [](const Json& d) { return d.is_number_unsigned(); });
  std::uint64_t n = is_shape ? 1 : 0;
  for (const Json& d : dims) n = is_shape ? checked_product(n, d.get<std::uint64_t>()) : n + elements_in(d, depth + 1);
  return n;
}

/// The operation in the name of a kernel that reduces: ncclDevKernel_AllReduce_Sum_f32_RING_LL,
/// ncclKernel_AllReduce_RING_LL_Sum_float. MinMax may be a minimum or a maximum; it and NCCL's operations for averages
/// keep their names.
std::string operation_in(std::string kernel) {
  std::ranges::replace(kernel, '_', ' ');
  std::ranges::replace(kernel, '(', ' ');
  for (const std::string& word : words_of(kernel))
    for (const std::string_view op : {"Sum", "Prod", "Max", "Min", "MinMax", "PreMulSum", "SumPostDiv"})
      if (word == op) return core::lower(word);
  return {};
}

/// Reads PyTorch's notes about NCCL's kernels.
void fill_from_metadata(const Json& args, const std::string& kernel, TracedCall& call) {
  const std::string name = text_of(args, "Collective name");
  call.collective = collective_of(name).value_or(name);
  call.ranks = std::max<std::int64_t>(0, whole_of(args, "Group size"));
  const std::string& c = call.collective;
  if (c == "allreduce" || c == "reduce" || c == "reduce_scatter") call.op = operation_in(kernel);
  // The rank that PyTorch notes is the root, if the collective has one.
  const bool has_root = c == "broadcast" || c == "reduce" || c == "gather" || c == "scatter";
  if (const std::int64_t root = whole_of(args, "Rank"); has_root && root > 0)
    call.problem = fmt::format("root={}", root);
  const auto element = element_of(text_of(args, "dtype"));
  const std::int64_t n = std::max(whole_of(args, "In msg nelems"), whole_of(args, "Out msg nelems"));
  if (!element || n <= 0) return;
  call.element = *element;
  call.bytes = checked_product(static_cast<std::uint64_t>(n), core::size_of(*element));
}

/// Reads gloo's notes: "gloo:all_reduce" with its inputs' shapes and types, if shapes were recorded.
void fill_from_inputs(const Json& event, std::int64_t ranks, TracedCall& call) {
  const std::string name = text_of(event, "name"), plain = name.substr(name.find(':') + 1);
  call.collective = collective_of(plain).value_or(plain);
  call.ranks = ranks;
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object()) return;
  const auto dims = args->find("Input Dims"), types = args->find("Input type");
  if (dims == args->end() || types == args->end() || !types->is_array() || types->empty() || !(*types)[0].is_string())
    return;
  const auto element = element_of((*types)[0].get<std::string>());
  if (!element) return;
  call.element = *element;
  call.bytes = checked_product(elements_in(*dims), core::size_of(*element));
  // The input of these collectives is one rank's part.
  if (call.collective == "all_gather" || call.collective == "gather")
    call.bytes = checked_product(call.bytes, static_cast<std::uint64_t>(ranks));
}

/// A call's process group in the trace: its name, its description and its ranks.
using ProcessGroup = std::array<std::string, 3>;

ProcessGroup process_group_in(const Json& args) {
  return {text_of(args, "Process Group Name"), text_of(args, "Process Group Description"),
          text_of(args, "Process Group Ranks")};
}

/// The first `parts` of a group's description as one word, "1" or "1/mesh_tp/0+2". It has no commas, which separate the
/// properties in a row's problem.
std::string group_label(const ProcessGroup& group, std::size_t parts) {
  std::string out;
  for (const std::string& part : std::span(group).first(parts)) {
    if (!out.empty() && !part.empty()) out += '/';
    for (const char c : part)
      if (c == ',') {
        out += '+';
      } else if (c != '[' && c != ']' && c != ' ') {
        out += c;
      }
  }
  return out;
}

/// Labels with the fewest parts that tell the groups apart.
std::map<ProcessGroup, std::string> group_labels(const std::set<ProcessGroup>& groups) {
  std::map<ProcessGroup, std::string> out;
  for (std::size_t parts = 1; parts <= ProcessGroup().size(); ++parts) {
    std::set<std::string> labels;
    for (const ProcessGroup& g : groups) labels.insert(out[g] = group_label(g, parts));
    if (labels.size() == groups.size()) break;
  }
  return out;
}

struct KinetoEvents {
  std::vector<Interval> cpu_steps, operators, kernels;
  /// The steps on the GPU, by their names. The trace has an annotation for each stream of each device on which a step
  /// ran, from that stream's first kernel to its last; together they are the step.
  std::map<std::string, Interval> gpu_steps;
  std::vector<TracedCall> noted, launched;  ///< noted by threads of a CPU; launched as NCCL's kernels
  std::vector<ProcessGroup> groups;         ///< groups of the calls in `launched`

  void add(const Json& event, std::int64_t ranks);
  /// Adds the group to the problem of a call if another group has as many ranks; other groups differ in their ranks.
  void tell_groups_apart();

 private:
  Interval when(const Json& event) { return interval_of(event, origin_); }
  std::optional<double> origin_;  // the origin of times [us]
};

void KinetoEvents::add(const Json& event, std::int64_t ranks) {
  if (!event.is_object() || text_of(event, "ph") != "X") return;
  const std::string category = text_of(event, "cat"), name = text_of(event, "name");
  const bool is_annotation = category == "user_annotation", is_kernel = category == "kernel";
  if (name.starts_with("ProfilerStep#")) {
    if (is_annotation) cpu_steps.push_back(when(event));
    if (category == "gpu_user_annotation") {
      const Interval on_stream = when(event);
      Interval& step = gpu_steps.try_emplace(name, on_stream).first->second;
      step = {std::min(step.begin, on_stream.begin), std::max(step.end, on_stream.end)};
    }
  } else if (is_kernel && name.starts_with("nccl")) {
    TracedCall call{.collective = {}, .when = when(event)};
    const auto args = event.find("args");
    const bool has_metadata = args != event.end() && args->is_object();
    if (has_metadata) fill_from_metadata(*args, name, call);
    groups.push_back(has_metadata ? process_group_in(*args) : ProcessGroup());
    launched.push_back(std::move(call));
  } else if (is_kernel || category == "gpu_memcpy" || category == "gpu_memset") {
    kernels.push_back(when(event));
  } else if (is_annotation && (name.starts_with("gloo:") || name.starts_with("mpi:"))) {
    TracedCall call{.collective = {}, .when = when(event)};
    fill_from_inputs(event, ranks, call);
    noted.push_back(std::move(call));
  } else if (category == "cpu_op" && !name.starts_with("c10d::")) {
    operators.push_back(when(event));
  }
}

void KinetoEvents::tell_groups_apart() {
  std::map<std::int64_t, std::set<ProcessGroup>> of_size;
  for (std::size_t i = 0; i < launched.size(); ++i) of_size[launched[i].ranks].insert(groups[i]);
  std::map<std::int64_t, std::map<ProcessGroup, std::string>> labels;
  for (const auto& [size, all] : of_size)
    if (all.size() > 1) labels[size] = group_labels(all);
  for (std::size_t i = 0; i < launched.size(); ++i) {
    TracedCall& call = launched[i];
    const auto found = labels.find(call.ranks);
    if (found == labels.end() || found->second[groups[i]].empty()) continue;
    call.problem += fmt::format("{}group={}", call.problem.empty() ? "" : ",", found->second[groups[i]]);
  }
}

/// A step ends where the next begins; the last one ends with its own event.
std::vector<Interval> step_windows(std::vector<Interval> steps) {
  std::ranges::sort(steps, {}, &Interval::begin);
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) steps[i].end = steps[i + 1].begin;
  std::erase_if(steps, [](const Interval& s) { return s.length() == 0; });
  return steps;
}

/// The computation and the calls within one window; both lists ascend in time. Cost: a binary search, and the contents.
dataparallel::TracedStep step_in(const Interval& window, const std::vector<Interval>& compute,
                                 const std::vector<TracedCall>& calls) {
  dataparallel::TracedStep step{.seconds = window.length(), .compute = {}, .calls = {}};
  const auto first = std::ranges::upper_bound(compute, window.begin, {}, &Interval::end);
  for (auto i = first; i != compute.end() && i->begin < window.end; ++i) {
    step.compute.push_back(
        {std::max(i->begin, window.begin) - window.begin, std::min(i->end, window.end) - window.begin});
  }
  const auto begin_of = [](const TracedCall& c) { return c.when.begin; };
  auto c = std::ranges::lower_bound(calls, window.begin, {}, begin_of);
  for (; c != calls.end() && c->when.begin < window.end; ++c) {
    step.calls.push_back(*c);
    step.calls.back().when = {c->when.begin - window.begin, c->when.end - window.begin};
  }
  return step;
}

/// A number in "distributedInfo", which describes the job; -1: there is none.
std::int64_t job_number(const Json& trace, const char* key) {
  const auto job = trace.find("distributedInfo");
  return job != trace.end() && job->is_object() ? whole_of(*job, key) : -1;
}

/// The ranks of a gloo call, whose group the trace does not give: the job's, unless the job has groups of another size.
/// 0: unknown.
std::int64_t ranks_of_any_group(const Json& trace) {
  const std::int64_t job_ranks = std::max<std::int64_t>(0, job_number(trace, "world_size"));
  const auto info = trace.find("distributedInfo");
  if (job_ranks == 0) return 0;
  const auto groups = info->find("pg_config");
  const bool lists_groups = groups != info->end() && groups->is_array();
  if (!lists_groups) return whole_of(*info, "pg_count") > 1 ? 0 : job_ranks;
  const auto has_other_size = [&](const Json& g) {
    return whole_of(g, "pg_size") >= 0 && whole_of(g, "pg_size") != job_ranks;
  };
  return std::ranges::any_of(*groups, has_other_size) ? 0 : job_ranks;
}

}  // namespace

ImportedTrace read_kineto_trace(std::string_view text) {
  const Json json = parse_json(text);
  const Json* events = json.is_array() ? &json : nullptr;
  if (const auto named = json.find("traceEvents"); named != json.end()) events = &*named;
  if (!events || !events->is_array()) throw UsageError("it has no 'traceEvents'");
  ImportedTrace out;
  out.rank = job_number(json, "rank");
  out.trace.ranks = std::max<std::int64_t>(0, job_number(json, "world_size"));
  out.host = text_of(json, "host_name");
  KinetoEvents trace_events;
  const std::int64_t ranks = ranks_of_any_group(json);
  for (const Json& e : *events) trace_events.add(e, ranks);
  trace_events.tell_groups_apart();
  const bool on_gpu = !trace_events.kernels.empty() || !trace_events.launched.empty();
  out.trace.device = on_gpu ? "cuda" : "cpu";
  auto& calls = on_gpu ? trace_events.launched : trace_events.noted;
  std::ranges::stable_sort(calls, {}, [](const TracedCall& c) { return c.when.begin; });
  const auto compute = dataparallel::unite(on_gpu ? trace_events.kernels : trace_events.operators);
  std::vector<Interval> steps = trace_events.cpu_steps;
  if (on_gpu && !trace_events.gpu_steps.empty()) {
    steps.clear();
    for (const auto& [name, step] : trace_events.gpu_steps) steps.push_back(step);
  }
  const auto windows = step_windows(std::move(steps));
  if (windows.empty())
    throw UsageError("it has no ProfilerStep#: the program must call step() of a profiler with a schedule");
  for (const Interval& w : windows) {
    out.trace.steps.push_back(step_in(w, compute, calls));
    for (const TracedCall& c : out.trace.steps.back().calls) out.calls_without_size += c.bytes == 0;
    if (on_gpu)
      out.calls_of_other_backends += static_cast<std::size_t>(std::ranges::count_if(
          trace_events.noted, [&](const TracedCall& c) { return c.when.begin >= w.begin && c.when.begin < w.end; }));
  }
  return out;
}

namespace {

bool is_kineto(std::string_view log) {
  return (begins_with(log, '{') && log.find("\"traceEvents\"") != std::string_view::npos) ||
         (begins_with(log, '[') && log.find("\"ProfilerStep#") != std::string_view::npos);  // a file of events alone
}

Imported read_kineto(std::string_view log, const UserFacts& user_facts) {
  const ImportedTrace k = read_kineto_trace(log);
  Imported out = trace_rows(k, user_facts);
  out.run().info.version = "PyTorch profiler";
  out.not_stated += "; how long of a call its rank waited for others";
  if (k.calls_without_size > 0) {
    out.not_stated += fmt::format(
        "; {} collectives are of unknown size and count as communication only (record_shapes=True "
        "says it of gloo, PyTorch 2.2 of NCCL)",
        k.calls_without_size);
  }
  return out;
}

}  // namespace

const Format kineto_format{.name = "kineto",
                           .about = "traces of PyTorch's profiler: steps with their parts, and collectives",
                           .source = "pytorch/kineto, libkineto/src/output_json.cpp, schemaVersion 1",
                           .recognises = is_kineto,
                           .read = read_kineto};

}  // namespace gradmeter::importers
