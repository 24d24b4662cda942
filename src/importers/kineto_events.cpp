#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/lines.hpp"
#include "importers/trace_json.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Json;
using core::UsageError;
using dataparallel::Interval;
using dataparallel::TracedCall;

/// Of a complete event, microseconds as seconds.
Interval interval_of(const Json& event) {
  const auto begin = event.find("ts"), length = event.find("dur");
  if (begin == event.end() || length == event.end() || !begin->is_number() || !length->is_number())
    throw UsageError(fmt::format("event '{}' has no times", text_of(event, "name")));
  const double us = begin->get<double>(), dur = length->get<double>();
  if (!std::isfinite(us) || !(dur >= 0) || !(dur < 1e15) || !(std::abs(us) < 1e18))
    throw UsageError(fmt::format("event '{}' has times that are none", text_of(event, "name")));
  return {us * 1e-6, (us + dur) * 1e-6};
}

/// The numbers in "Input Dims": [[267786]], [[[2, 3], [4]]]; an empty list is the shape of one number.
std::uint64_t elements_in(const Json& dims, int depth = 0) {
  constexpr int deepest = 4;
  if (!dims.is_array() || depth > deepest) return 0;
  const bool is_shape = depth > 0 && std::ranges::all_of(dims, [](const Json& d) { return d.is_number_unsigned(); });
  std::uint64_t n = is_shape ? 1 : 0;
  for (const Json& d : dims) n = is_shape ? times(n, d.get<std::uint64_t>()) : n + elements_in(d, depth + 1);
  return n;
}

/// The operation in the name of a kernel that reduces: ncclDevKernel_AllReduce_Sum_f32_RING_LL,
/// ncclKernel_AllReduce_RING_LL_Sum_float. MinMax is either of two; what NCCL makes of an average keeps its name.
std::string operation_in(std::string kernel) {
  std::ranges::replace(kernel, '_', ' ');
  std::ranges::replace(kernel, '(', ' ');
  for (const std::string& word : words_of(kernel))
    for (const std::string_view op : {"Sum", "Prod", "Max", "Min", "MinMax", "PreMulSum", "SumPostDiv"})
      if (word == op) return core::lower(word);
  return {};
}

/// Of NCCL's kernels, as PyTorch notes it.
void fill_from_metadata(const Json& args, const std::string& kernel, TracedCall& call) {
  const std::string name = text_of(args, "Collective name");
  call.collective = collective_of(name).value_or(name);
  call.ranks = std::max<std::int64_t>(0, whole_of(args, "Group size"));
  const std::string& c = call.collective;
  if (c == "allreduce" || c == "reduce" || c == "reduce_scatter") call.op = operation_in(kernel);
  // The rank that PyTorch notes is the root, where there is one.
  const bool has_root = c == "broadcast" || c == "reduce" || c == "gather" || c == "scatter";
  if (const std::int64_t root = whole_of(args, "Rank"); has_root && root > 0)
    call.problem = fmt::format("root={}", root);
  const auto element = element_of(text_of(args, "dtype"));
  const std::int64_t n = std::max(whole_of(args, "In msg nelems"), whole_of(args, "Out msg nelems"));
  if (!element || n <= 0) return;
  call.element = *element;
  call.bytes = times(static_cast<std::uint64_t>(n), core::size_of(*element));
}

/// Of what gloo notes: "gloo:all_reduce" with its inputs' shapes and types, where shapes were recorded.
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
  call.bytes = times(elements_in(*dims), core::size_of(*element));
  // Its input is one rank's part.
  if (call.collective == "all_gather") call.bytes = times(call.bytes, static_cast<std::uint64_t>(ranks));
}

struct KinetoEvents {
  std::vector<Interval> cpu_steps, gpu_steps, operators, kernels;
  std::vector<TracedCall> noted, launched;  ///< by threads of a CPU; NCCL's kernels

  void add(const Json& event, std::int64_t ranks);
};

void KinetoEvents::add(const Json& event, std::int64_t ranks) {
  if (!event.is_object() || text_of(event, "ph") != "X") return;
  const std::string category = text_of(event, "cat"), name = text_of(event, "name");
  const bool is_annotation = category == "user_annotation", is_kernel = category == "kernel";
  if (name.starts_with("ProfilerStep#")) {
    if (is_annotation) cpu_steps.push_back(interval_of(event));
    if (category == "gpu_user_annotation") gpu_steps.push_back(interval_of(event));
  } else if (is_kernel && name.starts_with("nccl")) {
    TracedCall call{.collective = {}, .when = interval_of(event)};
    const auto args = event.find("args");
    if (args != event.end() && args->is_object()) fill_from_metadata(*args, name, call);
    launched.push_back(std::move(call));
  } else if (is_kernel || category == "gpu_memcpy" || category == "gpu_memset") {
    kernels.push_back(interval_of(event));
  } else if (is_annotation && (name.starts_with("gloo:") || name.starts_with("mpi:"))) {
    TracedCall call{.collective = {}, .when = interval_of(event)};
    fill_from_inputs(event, ranks, call);
    noted.push_back(std::move(call));
  } else if (category == "cpu_op" && !name.starts_with("c10d::")) {
    operators.push_back(interval_of(event));
  }
}

/// A step ends where the next begins; the last lasts as long as it was noted.
std::vector<Interval> step_windows(std::vector<Interval> steps) {
  std::ranges::sort(steps, {}, &Interval::begin);
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) steps[i].end = steps[i + 1].begin;
  std::erase_if(steps, [](const Interval& s) { return s.length() == 0; });
  return steps;
}

/// What lies in one window; both ascending. Cost: linear over all windows, since these do not overlap.
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

std::int64_t said_of_job(const Json& trace, const char* key) {
  const auto job = trace.find("distributedInfo");
  return job != trace.end() && job->is_object() ? whole_of(*job, key) : -1;
}

}  // namespace

ReadTrace read_kineto_trace(std::string_view text) {
  const Json json = parsed_trace(text);
  const Json* events = json.is_array() ? &json : nullptr;
  if (const auto named = json.find("traceEvents"); named != json.end()) events = &*named;
  if (!events || !events->is_array()) throw UsageError("it has no 'traceEvents'");
  ReadTrace out;
  out.rank = said_of_job(json, "rank");
  out.trace.ranks = std::max<std::int64_t>(0, said_of_job(json, "world_size"));
  out.host = text_of(json, "host_name");
  KinetoEvents all;
  for (const Json& e : *events) all.add(e, out.trace.ranks);
  const bool on_gpu = !all.kernels.empty() || !all.launched.empty();
  out.trace.device = on_gpu ? "cuda" : "cpu";
  auto& calls = on_gpu ? all.launched : all.noted;
  std::ranges::stable_sort(calls, {}, [](const TracedCall& c) { return c.when.begin; });
  const auto compute = dataparallel::unite(on_gpu ? all.kernels : all.operators);
  const auto windows = step_windows(on_gpu && !all.gpu_steps.empty() ? all.gpu_steps : all.cpu_steps);
  if (windows.empty())
    throw UsageError("it has no ProfilerStep#: the program must call step() of a profiler with a schedule");
  for (const Interval& w : windows) {
    out.trace.steps.push_back(step_in(w, compute, calls));
    for (const TracedCall& c : out.trace.steps.back().calls) out.calls_of_no_size += c.bytes == 0;
  }
  return out;
}

}  // namespace gradmeter::importers
