// SPDX-License-Identifier: Apache-2.0
// Traces of PyTorch's profiler, execution traces of PyTorch and traces of Chakra, drawn at random with what they say:
// process groups, element types, rows of the host and of the device, old and new forms, inf and NaN, encodings, gzip,
// and ends that are lost. A trace that is whole is read whole. One that is torn is refused.
#define ZLIB_CONST  // input is not changed
#include <zlib.h>

#include <array>
#include <map>
#include <set>
#include <utility>

#include "core/format.hpp"
#include "core/statistics.hpp"
#include "importers/generated.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;

struct DrawnType {
  const char *theirs, *ours;  ///< ours is empty where there is none
  std::uint64_t bytes;
};
/// As NCCL's metadata names them, and as C++ does.
constexpr std::array types_of_nccl{DrawnType{"Float", "fp32", 4}, DrawnType{"BFloat16", "bf16", 2},
                                   DrawnType{"Half", "fp16", 2},  DrawnType{"Double", "fp64", 8},
                                   DrawnType{"Int", "int32", 4},  DrawnType{"Long", "int64", 8},
                                   DrawnType{"Char", "int8", 1},  DrawnType{"Float8_e4m3fn", "fp8-e4m3", 1},
                                   DrawnType{"Byte", "", 1}};
constexpr std::array types_of_tensors{DrawnType{"float", "fp32", 4},       DrawnType{"c10::BFloat16", "bf16", 2},
                                      DrawnType{"c10::Half", "fp16", 2},   DrawnType{"double", "fp64", 8},
                                      DrawnType{"int", "int32", 4},        DrawnType{"long int", "int64", 8},
                                      DrawnType{"signed char", "int8", 1}, DrawnType{"bool", "", 1}};
constexpr std::array calls_of_nccl{Named{"allreduce", "allreduce"},
                                   Named{"_allgather_base", "all_gather"},
                                   Named{"all_gather", "all_gather"},
                                   Named{"_reduce_scatter_base", "reduce_scatter"},
                                   Named{"broadcast", "broadcast"},
                                   Named{"reduce", "reduce"},
                                   Named{"all_to_all", "all_to_all"},
                                   Named{"all_to_allv", "all_to_allv"},
                                   Named{"gather", "gather"},
                                   Named{"scatter", "scatter"},
                                   Named{"send", "send"},
                                   Named{"recv", "recv"},
                                   Named{"allreduce_coalesced", "allreduce_coalesced"}};
constexpr std::array calls_of_gloo{Named{"all_reduce", "allreduce"},  Named{"broadcast", "broadcast"},
                                   Named{"all_gather", "all_gather"}, Named{"reduce_scatter", "reduce_scatter"},
                                   Named{"gather", "gather"},         Named{"scatter", "scatter"},
                                   Named{"all_to_all", "all_to_all"}, Named{"reduce", "reduce"}};

bool has_a_root(const std::string& kind) {
  return kind == "broadcast" || kind == "reduce" || kind == "gather" || kind == "scatter";
}

struct DrawnGroup {
  std::int64_t size;
  std::string name, description, ranks;
};
/// The whole job's group and up to three others, of which some have equally many ranks.
std::vector<DrawnGroup> draw_groups(Chance& chance, std::int64_t world) {
  std::vector<DrawnGroup> out;
  constexpr std::array descriptions{"mesh_tp", "mesh_dp", "undefined"};
  for (std::size_t i = 0, n = 1 + chance.below(4); i < n; ++i) {
    const std::int64_t size =
        i == 0 || chance.one_in(4) ? world : std::min(world, 2 + static_cast<std::int64_t>(chance.below(3)));
    std::vector<std::size_t> ranks;
    for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) ranks.push_back(i + r);
    out.push_back({.size = size,
                   .name = std::to_string(i),
                   .description = i == 0 ? "default_pg" : chance.of(descriptions),
                   .ranks = fmt::format("[{}]", fmt::join(ranks, ", "))});
  }
  return out;
}

struct DrawnCall {
  std::string collective = {}, dtype = {}, op = {}, problem = {};
  std::uint64_t bytes = 0;  ///< 0: unknown
  std::int64_t ranks = 0;
  double us = 0;
};

struct DrawnTrace {
  std::string text = {};
  std::vector<DrawnCall> calls = {};
  std::size_t steps = 0, beside = 0;  ///< beside: calls of gloo in a trace of NCCL's
  std::string device = {};
  std::int64_t ranks_hint = 0, ranks = 0;  ///< for --ranks; of the row of the steps
  std::map<Metric, double> step = {};      ///< what is known of that row
  bool has_no_time = false;                ///< that row
  bool has_rows = true;                    ///< of its calls, whose times it says
  std::size_t shortest = 0;                ///< what a torn trace has left at least

  /// Of calls of one kind, size, type, group, operation and problem.
  std::vector<TrueRow> call_rows() const;
  core::Factors step_factors() const;
};

std::vector<TrueRow> DrawnTrace::call_rows() const {
  std::map<std::string, std::pair<core::Factors, std::vector<double>>> by_key;
  for (const DrawnCall& c : calls) {
    if (c.bytes == 0 || !(c.us > 0)) continue;
    core::Factors f = true_factors(c.collective, c.ranks, static_cast<std::int64_t>(c.bytes));
    if (!c.dtype.empty()) f[Factor::dtype] = c.dtype;
    if (!c.op.empty()) f[Factor::op] = c.op;
    if (!c.problem.empty()) f[Factor::problem] = c.problem;
    if (!device.empty()) f[Factor::device] = device;
    auto& [factors, seconds] = by_key[f.key()];
    factors = f;
    seconds.push_back(c.us * 1e-6);
  }
  std::vector<TrueRow> out;
  for (const auto& [key, row] : by_key) out.push_back({.factors = row.first, .seconds = core::median(row.second)});
  return out;
}

core::Factors DrawnTrace::step_factors() const {
  std::uint64_t bytes = 0;
  for (const DrawnCall& c : calls) bytes += c.bytes;
  core::Factors f;
  f[Factor::problem] = fmt::format("trace:steps={},calls={},bytes={}", steps, calls.size(), bytes);
  if (!device.empty()) f[Factor::device] = device;
  if (ranks > 0) f[Factor::ranks] = ranks;
  return f;
}

void shuffle_lines(Chance& chance, std::vector<std::string>& lines) {
  for (std::size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[chance.below(i)]);
}

// --- PyTorch's profiler. Times are whole microseconds, so that a step is cells in which something goes on.

std::string complete_event(std::int64_t base, const char* end_of_number, std::size_t at, std::size_t us,
                           std::string_view category, std::string_view name, std::string_view args) {
  return fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 0, "tid": 7, "ts": {}{}, "dur": {}{}{}}})",
                     category, name, base + static_cast<std::int64_t>(at), end_of_number, us, end_of_number,
                     args.empty() ? "" : fmt::format(", \"args\": {{{}}}", args));
}

struct Occupied {
  std::size_t begin, length;
};
/// Up to five stretches of a window, one after another.
std::vector<Occupied> draw_stretches(Chance& chance, std::size_t window) {
  std::vector<Occupied> out;
  std::size_t at = chance.below(500);
  for (std::size_t n = chance.below(6); n > 0; --n) {
    const std::size_t length = 1 + chance.below(chance.one_in(2) ? 20 : 2000);
    if (at + length > window) break;
    out.push_back({at, length});
    at += length + 1 + chance.below(800);
  }
  return out;
}

class KinetoDraw {
 public:
  explicit KinetoDraw(Chance& chance)
      : chance_(chance),
        on_gpu_(chance.one_in(2)),
        is_list_(chance.one_in(5)),
        world_(2 + static_cast<std::int64_t>(chance.below(15))),
        groups_(draw_groups(chance, world_)),
        says_names_(chance.one_in(2)),
        says_ranks_(chance.one_in(2)) {}
  DrawnTrace draw();

 private:
  void draw_step(std::size_t begin, std::size_t window);
  void draw_call_of_nccl(std::size_t begin, std::size_t us);
  void draw_call_of_gloo(std::size_t begin, std::size_t us);
  void draw_what_counts_nowhere(std::size_t begin);
  void label_groups();
  void finish();
  void add(std::size_t at, std::size_t us, std::string_view category, std::string_view name, std::string_view args) {
    events_.push_back(complete_event(base_, end_of_number_, at, us, category, name, args));
  }

  Chance& chance_;
  bool on_gpu_, is_list_;
  std::int64_t world_;
  std::vector<DrawnGroup> groups_;
  bool says_names_, says_ranks_;
  // Since the machine's boot, since a base of three months, and since 1970.
  std::int64_t base_ =
      std::array{std::int64_t{0}, std::int64_t{4842993000000}, std::int64_t{1700000000123456}}[chance_.below(3)];
  const char* end_of_number_ = chance_.one_in(2) ? ".000" : "";
  std::vector<std::string> events_;
  std::vector<std::pair<std::size_t, std::size_t>> groups_of_calls_;  // of NCCL's calls: a call's place, its group's
  std::map<Metric, std::vector<double>> parts_;
  std::size_t spilled_ = 0;
  DrawnTrace out_;
};

void KinetoDraw::draw_call_of_nccl(std::size_t begin, std::size_t us) {
  const auto& name = chance_.of(calls_of_nccl);
  const auto& type = chance_.of(types_of_nccl);
  const std::size_t group = chance_.below(groups_.size());
  const DrawnGroup& g = groups_[group];
  const std::string kind = name.ours;
  const std::uint64_t part = std::uint64_t{1} << chance_.below(12), size = static_cast<std::uint64_t>(g.size);
  DrawnCall call{.collective = kind, .dtype = type.ours, .us = static_cast<double>(us)};
  call.ranks = g.size;
  const bool reduces = kind == "allreduce" || kind == "reduce" || kind == "reduce_scatter";
  constexpr std::array ops{Named{"Sum", "sum"}, Named{"Max", "max"}, Named{"MinMax", "minmax"},
                           Named{"PreMulSum", "premulsum"}};
  const auto& op = chance_.of(ops);
  std::string kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
  if (reduces && chance_.one_in(8)) {
    kernel = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)";  // does not say the operation
  } else if (reduces) {
    kernel = chance_.one_in(2)
                 ? fmt::format("ncclDevKernel_X_{}_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", op.theirs)
                 : fmt::format("ncclKernel_X_RING_LL_{}_float(ncclWorkElem)", op.theirs);
    call.op = op.ours;
  }
  std::uint64_t in = part * size, whole = part * size, outgoing = part * size;
  if (kind == "all_gather" || kind == "gather") in = part;
  if (kind == "reduce_scatter" || kind == "scatter") outgoing = part;
  if (kind == "send" || kind == "recv" || kind == "broadcast") in = outgoing = whole = part;
  call.bytes = call.dtype.empty() ? 0 : whole * type.bytes;
  std::string args = fmt::format(
      R"("External id": 5, "blocks per SM": {}, "Collective name": "{}", "In msg nelems": {}, "Out msg nelems": {}, )"
      R"("Group size": {}, "dtype": "{}", "In split size": "[]", "Out split size": "[]")",
      chance_.one_in(9) ? "inf" : "0.25", name.theirs, in, outgoing, g.size, type.theirs);
  if (says_names_)
    args += fmt::format(R"(, "Process Group Name": "{}", "Process Group Description": "{}")", g.name, g.description);
  if (says_ranks_) args += fmt::format(R"(, "Process Group Ranks": "{}")", g.ranks);
  if (has_a_root(kind)) {
    const std::size_t root = chance_.below(2);
    args += fmt::format(R"(, "Rank": {})", root);
    if (root > 0) call.problem = "root=1";
  }
  if (chance_.one_in(15)) {  // an old PyTorch, or a capture without metadata
    args = R"("stream": 20, "occupancy": NaN)";
    call = {.us = static_cast<double>(us)};
  } else {
    groups_of_calls_.emplace_back(out_.calls.size(), group);
  }
  add(begin, us, "kernel", kernel, args);
  if (chance_.one_in(2)) add(begin, us, "gpu_user_annotation", fmt::format("nccl:{}", name.theirs), "");
  out_.calls.push_back(std::move(call));
}

void KinetoDraw::draw_call_of_gloo(std::size_t begin, std::size_t us) {
  const auto& name = chance_.of(calls_of_gloo);
  const auto& type = chance_.of(types_of_tensors);
  const std::string kind = name.ours;
  // A group of another size could be the call's, which gloo does not say.
  const bool one_size = std::ranges::all_of(groups_, [&](const DrawnGroup& g) { return g.size == world_; });
  const std::int64_t ranks = !is_list_ && one_size ? world_ : 0;
  const std::size_t rows = 1 + chance_.below(64), columns = 1 + chance_.below(64);
  std::uint64_t n = rows * columns;
  std::string dims = fmt::format("[{}, {}]", rows, columns);
  if (chance_.one_in(6)) {  // a number
    dims = "[]";
    n = 1;
  } else if (chance_.one_in(6)) {  // two tensors
    dims = fmt::format("[{}], [{}, 3]", rows, columns);
    n = rows + columns * 3;
  }
  const bool has_shapes = !chance_.one_in(6);
  DrawnCall call{.collective = kind, .dtype = type.ours, .us = static_cast<double>(us)};
  call.ranks = ranks;
  call.bytes = has_shapes && !call.dtype.empty() ? n * type.bytes : 0;
  if (kind == "all_gather" || kind == "gather") call.bytes *= static_cast<std::uint64_t>(ranks);
  const std::string args =
      has_shapes
          ? fmt::format(R"("Concrete Inputs": [""], "Input type": ["{}"], "Input Dims": [{}])", type.theirs, dims)
          : R"("Ev Idx": 3)";
  add(begin, us, "user_annotation", fmt::format("gloo:{}", name.theirs), args);
  if (on_gpu_) {
    ++out_.beside;
  } else {
    out_.calls.push_back(std::move(call));
  }
}

/// What is neither a step nor computation nor a collective.
void KinetoDraw::draw_what_counts_nowhere(std::size_t begin) {
  if (chance_.one_in(2)) add(begin, 5, "cuda_runtime", "cudaLaunchKernel", R"("cbid": 211, "correlation": 77)");
  if (chance_.one_in(3)) add(begin, 900, "python_function", R"(train.py(7): \"inf\" {step})", R"("Python id": 3)");
  // Paths are the bytes that the system has for them.
  if (chance_.one_in(60)) add(begin, 900, "python_function", "caf\xe9/train.py(7): a\tb", "");
  if (chance_.one_in(3)) add(begin, 40, "user_annotation", "Optimizer.step#SGD.step", "");
  if (chance_.one_in(3)) add(begin, 40, "cpu_op", "c10d::allreduce_", R"("Input Dims": [[[3]]])");
  if (chance_.one_in(3)) add(begin, 0, "overhead", "CUPTI Resource", "");
  if (on_gpu_ && chance_.one_in(2)) add(begin, 70, "cpu_op", "aten::mm", R"("Input Dims": [[3, 4], [4, 5]])");
  if (chance_.one_in(3))
    events_.push_back(
        fmt::format(R"({{"ph": "s", "id": 7, "pid": 0, "tid": 7, "ts": {}, "cat": "ac2g", "name": "ac2g"}})", begin));
  if (chance_.one_in(3))
    events_.push_back(
        R"({"name": "process_name", "ph": "M", "ts": 0, "pid": 0, "tid": 0, "args": {"name": "caf\u00e9"}})");
}

void KinetoDraw::draw_step(std::size_t begin, std::size_t window) {
  std::vector<bool> computes(window), communicates(window);
  const auto mark = [](std::vector<bool>& cells, const Occupied& o) {
    for (std::size_t i = o.begin; i < std::min(cells.size(), o.begin + o.length); ++i) cells[i] = true;
  };
  const auto draw_call = [&](const Occupied& o) {
    mark(communicates, o);
    on_gpu_ ? draw_call_of_nccl(begin + o.begin, o.length) : draw_call_of_gloo(begin + o.begin, o.length);
  };
  // What the step before computes beyond its end, and what this one does. A call is the step's in which it begins.
  mark(computes, {0, std::exchange(spilled_, 0)});
  if (chance_.one_in(6)) {
    spilled_ = 1 + chance_.below(60);
    mark(computes, {window - 5, 5});
    add(begin + window - 5, 5 + spilled_, on_gpu_ ? "kernel" : "cpu_op", "sgemm", "");
  }
  if (chance_.one_in(6)) draw_call({window - 3, 3 + chance_.below(60)});
  for (const Occupied& o : draw_stretches(chance_, window)) {
    constexpr std::array categories{"kernel", "kernel", "gpu_memcpy", "gpu_memset"};
    mark(computes, o);
    add(begin + o.begin, o.length, on_gpu_ ? chance_.of(categories) : "cpu_op", "sgemm", "");
  }
  for (const Occupied& o : draw_stretches(chance_, window)) {
    draw_call(o);
    draw_what_counts_nowhere(begin + o.begin);
  }
  // Of another stream, at the same time.
  if (chance_.one_in(3))
    for (const Occupied& o : draw_stretches(chance_, window)) draw_call(o);
  if (on_gpu_ && chance_.one_in(6)) draw_call_of_gloo(begin + 10, 20);
  std::size_t computed = 0, exchanged = 0, exposed = 0;
  for (std::size_t i = 0; i < window; ++i) {
    if (computes[i]) ++computed;
    if (communicates[i]) ++exchanged;
    if (communicates[i] && !computes[i]) ++exposed;
  }
  const auto seconds = [](std::size_t us) { return static_cast<double>(us) * 1e-6; };
  parts_[Metric::time_s].push_back(seconds(window));
  parts_[Metric::compute_s].push_back(seconds(computed));
  parts_[Metric::comm_s].push_back(seconds(exchanged));
  parts_[Metric::exposed_union_s].push_back(seconds(exposed));
  parts_[Metric::overlap_s].push_back(seconds(exchanged - exposed));
}

/// Groups of equally many ranks are told apart by what the trace says of them.
void KinetoDraw::label_groups() {
  if (!says_names_ && !says_ranks_) return;
  std::map<std::int64_t, std::set<std::size_t>> of_size;
  for (const auto& [call, group] : groups_of_calls_) of_size[groups_[group].size].insert(group);
  for (const auto& [call, group] : groups_of_calls_) {
    if (of_size[groups_[group].size].size() < 2) continue;
    std::string label = says_names_ ? groups_[group].name : groups_[group].ranks;
    if (!says_names_) {
      label = label.substr(1, label.size() - 2);
      for (std::size_t at = label.find(", "); at != std::string::npos; at = label.find(", ")) label.replace(at, 2, "+");
    }
    std::string& problem = out_.calls[call].problem;
    problem += fmt::format("{}group={}", problem.empty() ? "" : ",", label);
  }
}

void KinetoDraw::finish() {
  if (chance_.one_in(3)) shuffle_lines(chance_, events_);
  const std::string events = fmt::format("{}", fmt::join(events_, ",\n  "));
  std::vector<std::string> configured;
  for (const DrawnGroup& g : groups_)
    configured.push_back(
        fmt::format(R"({{"pg_name": "{}", "pg_desc": "{}", "backend_config": "x", "pg_size": {}, "ranks": {}}})",
                    g.name, g.description, g.size, g.ranks));
  std::vector<std::string> parts{
      R"("schemaVersion": 1)", R"("deviceProperties": [{"id": 0, "name": "NVIDIA H100"}])",
      fmt::format(
          R"("distributedInfo": {{"backend": "x", "rank": 1, "world_size": {}, "pg_count": {}, "pg_config": [{}]}})",
          world_, groups_.size(), fmt::join(configured, ", ")),
      fmt::format("\"traceEvents\": [\n  {}\n]", events), R"("traceName": "x.json")"};
  shuffle_lines(chance_, parts);
  out_.text = is_list_ ? fmt::format("[\n  {}\n]\n", events) : fmt::format("{{\n{}\n}}\n", fmt::join(parts, ",\n"));
  out_.device = on_gpu_ ? "cuda" : "cpu";
  if (chance_.one_in(3)) out_.ranks_hint = world_;
  out_.ranks = is_list_ ? out_.ranks_hint : world_;
  if (is_list_)
    for (DrawnCall& c : out_.calls) c.ranks = c.ranks > 0 ? c.ranks : out_.ranks_hint;
  for (const auto& [part, seconds] : parts_) out_.step[part] = core::median(seconds);
}

DrawnTrace KinetoDraw::draw() {
  std::size_t at = 1000;
  const bool has_gpu_steps = on_gpu_ && chance_.one_in(2);
  // Something of the device, so that the trace is known to be of one.
  if (on_gpu_) add(5, 10, "kernel", "fill", "");
  out_.steps = 1 + chance_.below(4);
  for (std::size_t s = 0; s < out_.steps; ++s) {
    const bool is_last = s + 1 == out_.steps;
    const std::size_t pitch = 6000 + chance_.below(4000), length = pitch - chance_.below(50);
    const std::string name = fmt::format("ProfilerStep#{}", 4 + s);
    // Where both are there, the device's steps count.
    add(has_gpu_steps ? at - 900 : at, length, "user_annotation", name, R"("Ev Idx": 0)");
    if (has_gpu_steps) add(at, length, "gpu_user_annotation", name, "");
    draw_step(at, is_last ? length : pitch);
    at += pitch;
  }
  label_groups();
  finish();
  return std::move(out_);
}

DrawnTrace draw_kineto(Chance& chance) { return KinetoDraw(chance).draw(); }

// --- PyTorch's execution traces

class ExecutionDraw {
 public:
  explicit ExecutionDraw(Chance& chance)
      : chance_(chance),
        version_(chance.below(3)),
        of_gloo_(chance.one_in(3)),
        world_(2 + static_cast<std::int64_t>(chance.below(15))),
        groups_(draw_groups(chance, world_)),
        says_groups_(version_ == 2 || chance.one_in(2)) {}
  DrawnTrace draw();

 private:
  void add(const std::string& name, const std::string& values, const std::string& types, const std::string& outputs,
           const std::string& attributes);
  void draw_call();
  void draw_call_of_gloo(bool is_beside);
  std::string tensor(std::uint64_t elements, std::uint64_t bytes, std::string_view device) {
    id_ += 2;
    return fmt::format(R"([{}, {}, 0, {}, {}, "{}"])", id_ - 2, id_ - 1, elements, bytes, device);
  }

  Chance& chance_;
  std::size_t version_;  // 0: schema 1.0.1, 1: 1.0.2, 2: 1.1.1
  bool of_gloo_;
  std::int64_t world_;
  std::vector<DrawnGroup> groups_;
  bool says_groups_;
  std::size_t id_ = 2, sequence_ = 100;
  std::vector<std::string> nodes_;
  std::vector<std::string> open_;  // sequences without their wait
  bool in_step_ = false, has_calls_ = false;
  DrawnTrace out_;
};

void ExecutionDraw::add(const std::string& name, const std::string& values, const std::string& types,
                        const std::string& outputs, const std::string& attributes) {
  const std::size_t id = id_++;
  if (version_ == 0) {
    nodes_.push_back(fmt::format(R"({{"id": {}, "name": "{}", "parent": 1, "fw_parent": 0, "seq_id": -1, "scope": 7, )"
                                 R"("inputs": [{}], "input_shapes": [], "input_types": [{}], "outputs": [{}]}})",
                                 id, name, values, types, outputs));
    return;
  }
  nodes_.push_back(fmt::format(
      R"({{"id": {}, "name": "{}", "ctrl_deps": 1, "inputs": {{"values": [{}], "shapes": [], "types": [{}]}}, )"
      R"("outputs": {{"values": [{}], "shapes": [], "types": []}}, )"
      R"("attrs": [{{"name": "rf_id", "type": "uint64", "value": 7}}, {{"name": "fw_parent", "type": "uint64", "value": 0}}{}]}})",
      id, name, values, types, outputs, attributes));
}

void ExecutionDraw::draw_call() {
  const auto& name = chance_.of(calls_of_nccl);
  // Before attributes a type is the tensor's.
  const auto& type = version_ == 2 ? chance_.of(types_of_nccl) : chance_.of(types_of_tensors);
  const DrawnGroup& g = chance_.of(groups_);
  const std::string kind = name.ours;
  const auto size = static_cast<std::uint64_t>(g.size);
  const std::uint64_t part = std::uint64_t{1} << chance_.below(12);
  std::uint64_t in = part * size, outgoing = part * size;
  if (kind == "all_gather" || kind == "gather") in = part;
  if (kind == "reduce_scatter" || kind == "scatter") outgoing = part;
  const std::string device = chance_.one_in(10) ? "cpu" : "cuda:3";
  const std::string inputs = fmt::format("[{}]", tensor(in, type.bytes, device));
  std::string outputs = fmt::format("[[{}]]", tensor(outgoing, type.bytes, device));
  if (kind == "all_gather" && chance_.one_in(2)) {  // a list of a tensor for each rank
    std::vector<std::string> each;
    for (std::uint64_t r = 0; r < size; ++r) each.push_back(tensor(part, type.bytes, device));
    outputs = fmt::format("[[{}]]", fmt::join(each, ", "));
  }
  const std::string sequence = version_ == 2 ? fmt::format("[{}, false]", ++sequence_) : std::to_string(++sequence_);
  const std::string about = fmt::format(
      R"({}, {}, 3, "{}", [], [], {})", sequence,
      version_ == 2 ? fmt::format(R"(["{}", "{}"])", g.name, g.description) : "82149104", name.theirs, g.size);
  const std::string attributes =
      version_ < 2 ? ""
                   : fmt::format(R"(, {{"name": "collective_name", "type": "string", "value": "{}"}}, )"
                                 R"({{"name": "dtype", "type": "string", "value": "{}"}}, )"
                                 R"({{"name": "in_msg_nelems", "type": "uint64", "value": {}}}, )"
                                 R"({{"name": "out_msg_nelems", "type": "uint64", "value": {}}}, )"
                                 R"({{"name": "pg_name", "type": "string", "value": "{}"}}, )"
                                 R"({{"name": "pg_size", "type": "uint64", "value": {}}})",
                                 name.theirs, type.theirs, in, outgoing, g.name, g.size);
  add("record_param_comms", fmt::format("{}, {}", inputs, about),
      fmt::format(R"("GenericList[Tensor({})]", "Int")", version_ == 2 ? "float" : type.theirs), outputs, attributes);
  open_.push_back(sequence);
  out_.ranks = std::max(out_.ranks, g.size);
  if (out_.device != "cuda") out_.device = device == "cpu" ? "cpu" : "cuda";
  has_calls_ = true;
  if (!in_step_) return;
  DrawnCall call{.collective = kind, .dtype = *type.ours == 0 ? "int8" : type.ours};
  call.bytes = std::max(in, outgoing) * type.bytes;  // of a type that is none of ours too, by its tensors
  call.ranks = g.size;
  out_.calls.push_back(std::move(call));
}

void ExecutionDraw::draw_call_of_gloo(bool is_beside) {
  const auto& name = chance_.of(calls_of_gloo);
  const auto& type = chance_.of(types_of_tensors);
  const std::string kind = name.ours;
  const std::uint64_t n = 1 + chance_.below(5000);
  add(fmt::format("gloo:{}", name.theirs), tensor(n, type.bytes, "cpu"), fmt::format(R"x("Tensor({})")x", type.theirs),
      "", "");
  if (!is_beside) out_.device = "cpu";
  if (!in_step_) return;
  if (is_beside) return void(++out_.beside);
  const bool one_size =
      says_groups_ && std::ranges::all_of(groups_, [&](const DrawnGroup& g) { return g.size == world_; });
  DrawnCall call{.collective = kind, .dtype = *type.ours == 0 ? "int8" : type.ours};
  call.ranks = one_size ? world_ : 0;
  call.bytes = n * type.bytes;
  if (kind == "all_gather" || kind == "gather") call.bytes *= static_cast<std::uint64_t>(call.ranks);
  out_.calls.push_back(std::move(call));
}

DrawnTrace ExecutionDraw::draw() {
  id_ = 2;
  add("[pytorch|profiler|execution_trace|thread]", "", "", "", "");
  if (says_groups_) {
    std::vector<std::string> groups;
    for (const DrawnGroup& g : groups_)
      groups.push_back(fmt::format(R"({{\"pg_name\": \"{}\", \"pg_desc\": \"{}\", \"ranks\": [], \"group_size\": {}}})",
                                   g.name, g.description, g.size));
    add("## process_group:init ##", fmt::format("\"[{}]\"", fmt::join(groups, ", ")), "\"String\"", "", "");
    out_.ranks = world_;
  }
  const bool has_steps = !chance_.one_in(4), is_mixed = !of_gloo_ && chance_.one_in(3);
  in_step_ = !has_steps;
  const auto draw_part = [&] {
    for (std::size_t n = chance_.below(6); n > 0; --n) {
      if (chance_.one_in(3)) add("aten::clamp", "inf, -inf, nan, 1", R"("Double", "Double", "Double", "Int")", "", "");
      of_gloo_ ? draw_call_of_gloo(false) : draw_call();
      if (is_mixed && has_calls_ && chance_.one_in(4)) draw_call_of_gloo(true);
      if (of_gloo_ && chance_.one_in(4)) add("gloo:barrier", "", "", "", "");
      if (open_.empty() || chance_.one_in(2)) continue;
      add("record_param_comms", fmt::format(R"({}, 82149104, 3, "wait", [], [], {})", open_.back(), world_), "\"Int\"",
          "", version_ < 2 ? "" : R"(, {"name": "collective_name", "type": "string", "value": "wait"})");
      open_.pop_back();
      out_.ranks = std::max(out_.ranks, world_);
    }
  };
  if (has_steps && chance_.one_in(2)) draw_part();  // before the first step
  out_.steps = has_steps ? 1 + chance_.below(4) : 1;
  for (std::size_t s = 0; s < out_.steps; ++s) {
    in_step_ = true;
    if (has_steps) add(fmt::format("ProfilerStep#{}", 4 + s), "", "", "", "");
    open_.clear();
    draw_part();
  }
  if (chance_.one_in(3)) shuffle_lines(chance_, nodes_);  // the order is that of the ids
  constexpr std::array schemas{"1.0.1", "1.0.2-chakra.0.0.4", "1.1.1-chakra.0.0.4"};
  out_.text = fmt::format(
      "{{\n  \"schema\": \"{}\", \"pid\": 4242, \"time\": \"2026-11-26 12:00:00\", \"start_ts\": 7,\n"
      "  \"nodes\": [\n{}\n  ],\n  \"finish_ts\": 9\n}}\n",
      schemas.at(version_), fmt::join(nodes_, ",\n"));
  out_.has_rows = false;
  out_.has_no_time = true;
  return std::move(out_);
}

DrawnTrace draw_execution(Chance& chance) { return ExecutionDraw(chance).draw(); }

// --- Chakra

constexpr std::array chakra_types{Named{"ALL_REDUCE", "allreduce"},
                                  Named{"REDUCE", "reduce"},
                                  Named{"ALL_GATHER", "all_gather"},
                                  Named{"GATHER", "gather"},
                                  Named{"SCATTER", "scatter"},
                                  Named{"BROADCAST", "broadcast"},
                                  Named{"ALL_TO_ALL", "all_to_all"},
                                  Named{"REDUCE_SCATTER", "reduce_scatter"},
                                  Named{"REDUCE_SCATTER_BLOCK", "reduce_scatter"},
                                  Named{"BARRIER", ""}};
constexpr std::array chakra_nodes{"INVALID_NODE", "METADATA_NODE",  "MEM_LOAD_NODE",  "MEM_STORE_NODE",
                                  "COMP_NODE",    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"};

class ChakraDraw {
 public:
  explicit ChakraDraw(Chance& chance)
      : chance_(chance),
        is_chain_(chance.one_in(2)),
        has_zero_(chance.one_in(4)),
        groups_(chance.one_in(2) ? 0 : 1 + chance.below(3)) {}
  DrawnTrace draw();

 private:
  std::string whole(std::uint64_t n) { return chance_.one_in(3) ? std::to_string(n) : fmt::format("\"{}\"", n); }
  std::string attribute(std::string_view name, std::uint64_t n) {
    constexpr std::array keys{"int64Val", "uint64Val", "sint64Val", "int32Val", "uint32Val"};
    return fmt::format(R"(, {{"name": "{}", "{}": {}}})", name, chance_.of(keys), whole(n));
  }
  std::string draw_call(std::size_t us);

  Chance& chance_;
  bool is_chain_, has_zero_;
  std::size_t groups_;
  std::set<std::string> seen_groups_;
  DrawnTrace out_;
  std::vector<std::string> group_of_call_;
};

/// Attributes of a collective; a call of the truth, unless it is a barrier.
std::string ChakraDraw::draw_call(std::size_t us) {
  const std::size_t type = chance_.below(chakra_types.size());
  const std::string kind = chakra_types[type].ours, theirs = chakra_types[type].theirs;
  const std::uint64_t bytes = chance_.one_in(10) ? 0 : (1 + chance_.below(5000)) * (chance_.one_in(2) ? 4 : 1);
  std::string out = chance_.one_in(3) ? fmt::format(R"(, {{"name": "comm_type", "stringVal": "{}"}})", theirs)
                                      : attribute("comm_type", type);
  if (bytes > 0 || chance_.one_in(2)) out += attribute("comm_size", bytes);
  std::string group;
  if (groups_ > 0 && !chance_.one_in(6)) {
    group = std::to_string(chance_.below(groups_));
    out += chance_.one_in(2) ? fmt::format(R"(, {{"name": "pg_name", "stringVal": "{}"}})", group)
                             : attribute("pg_name", std::stoull(group));
  }
  DrawnCall call{.collective = kind, .dtype = {}, .us = static_cast<double>(us)};
  call.bytes = bytes;
  if (theirs == "REDUCE_SCATTER_BLOCK") call.problem = "block";
  if (has_a_root(kind) && chance_.one_in(2)) {
    const std::size_t root = chance_.below(2);
    out += attribute(chance_.one_in(2) ? "root_rank" : "root", root);
    if (root > 0) call.problem = "root=1";
  }
  if (kind.empty()) return out;  // a barrier moves nothing
  seen_groups_.insert(group);
  group_of_call_.push_back(group);
  out_.calls.push_back(std::move(call));
  return out;
}

DrawnTrace ChakraDraw::draw() {
  const std::int64_t ranks = chance_.one_in(2) ? 2 + static_cast<std::int64_t>(chance_.below(15)) : 0;
  const std::size_t count = 2 + chance_.below(12);
  std::vector<std::string> nodes;
  double total = 0, computed = 0;
  bool is_known = true, has_compute = false;
  for (std::size_t id = 0; id < count; ++id) {
    // One at least by which the format is known.
    const std::size_t type = id == 0 ? 4 + chance_.below(4) : 1 + chance_.below(7);
    const bool is_call = type >= 5, computes = type >= 2 && type <= 4;
    const std::size_t us = has_zero_ && chance_.one_in(3) ? 0 : 1 + chance_.below(5000);
    std::string attributes =
        fmt::format(R"({{"name": "is_cpu_op", "boolVal": {}}}, {{"name": "x", "doubleVal": {}}})", chance_.one_in(2),
                    chance_.one_in(20)  ? "NaN"
                    : chance_.one_in(2) ? "\"Infinity\""
                                        : "0.5");
    const std::size_t calls = out_.calls.size();
    if (type == 7) attributes += draw_call(us);
    if (type == 5 || type == 6) {
      const std::uint64_t bytes = 1 + chance_.below(5000);
      attributes += attribute("comm_size", bytes);
      DrawnCall call{.collective = type == 5 ? "send" : "recv", .dtype = {}, .us = static_cast<double>(us)};
      call.bytes = bytes;
      seen_groups_.insert("");
      group_of_call_.emplace_back();
      out_.calls.push_back(std::move(call));
    }
    if (is_call && out_.calls.size() > calls && us == 0) is_known = false;
    total += static_cast<double>(us) * 1e-6;
    if (computes) computed += static_cast<double>(us) * 1e-6;
    has_compute |= computes && us > 0;
    std::vector<std::string> needs;
    if (is_chain_ && id > 0) needs.push_back(whole(id - 1));
    for (std::size_t n = is_chain_ || id == 0 ? 0 : chance_.below(3); n > 0; --n)
      needs.push_back(whole(chance_.below(id)));
    std::string node = id == 0 ? "" : fmt::format("\"id\": {}, ", whole(id));  // zeros are absent
    node += fmt::format(R"("name": "n{}", "type": "{}")", id, chakra_nodes.at(type));
    if (!needs.empty())
      node += fmt::format(R"(, "{}": [{}])", chance_.one_in(3) ? "ctrlDeps" : "dataDeps", fmt::join(needs, ", "));
    if (us > 0) node += fmt::format(", \"durationMicros\": {}", whole(us));
    nodes.push_back(fmt::format("{{{}, \"attr\": [{}]}}", node, attributes));
  }
  if (chance_.one_in(3)) shuffle_lines(chance_, nodes);
  const std::string between = chance_.one_in(2) ? "\n" : "";
  out_.text = fmt::format("{{\"version\": \"0.0.4\"}}{}{}", between, fmt::join(nodes, between));
  out_.shortest = out_.text.size() - nodes.back().size() + 1;
  const bool one_group = seen_groups_.size() < 2;
  out_.ranks_hint = ranks;
  out_.ranks = one_group ? ranks : 0;
  for (std::size_t i = 0; i < out_.calls.size(); ++i) {
    DrawnCall& c = out_.calls[i];
    // Whose number --ranks is, nobody knows where there are several groups.
    c.ranks = out_.ranks;
    if (c.collective == "all_gather" || c.collective == "gather" || c.collective == "scatter")
      c.bytes *= static_cast<std::uint64_t>(c.ranks);
    if (!one_group && !group_of_call_[i].empty())
      c.problem += fmt::format("{}group={}", c.problem.empty() ? "" : ",", group_of_call_[i]);
  }
  out_.steps = 1;
  if (is_chain_ && is_known) out_.step[Metric::time_s] = total;
  if (is_chain_ && (is_known || has_compute)) out_.step[Metric::compute_s] = computed;
  out_.has_no_time = !is_known;
  return std::move(out_);
}

DrawnTrace draw_chakra(Chance& chance) { return ChakraDraw(chance).draw(); }

// --- What happens to traces

std::string gzipped(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// As it lies on a disk.
std::string stored(Chance& chance, std::string text) {
  if (chance.one_in(5)) text = "\n" + text;
  if (chance.one_in(8)) {
    std::string with_returns;
    for (const char c : text) with_returns += c == '\n' ? std::string("\r\n") : std::string(1, c);
    text = std::move(with_returns);
  }
  if (chance.one_in(4)) {
    text = utf16(text, chance.one_in(2));
    if (chance.one_in(3)) text.erase(0, 2);  // without its mark
  } else if (chance.one_in(6)) {
    text = "\xEF\xBB\xBF" + text;
  }
  return chance.one_in(3) ? gzipped(text) : text;
}

/// Collective, bytes and type of each call, sorted. What has no size has no type either.
std::vector<std::string> calls_of(const DrawnTrace& trace) {
  std::vector<std::string> out;
  for (const DrawnCall& c : trace.calls)
    out.push_back(fmt::format("{} {} {}", c.collective, c.bytes, c.bytes == 0 ? "" : c.dtype));
  std::ranges::sort(out);
  return out;
}
std::vector<std::string> calls_of(const ImportedTrace& trace) {
  std::vector<std::string> out;
  for (const auto& step : trace.trace.steps)
    for (const auto& c : step.calls)
      out.push_back(fmt::format("{} {} {}", c.collective, c.bytes,
                                c.bytes == 0 || !trace.has_element_types ? "" : core::info(c.element).name));
  std::ranges::sort(out);
  return out;
}

void expect_step(const DrawnTrace& trace, const core::Point& p) {
  constexpr double rounding = 1e-11;  // [s]
  EXPECT_EQ(p.experiment, "replay");
  EXPECT_EQ(p.factors.key(), trace.step_factors().key());
  for (const auto& [part, seconds] : trace.step) EXPECT_NEAR(number(p, part), seconds, rounding) << core::name(part);
  if (trace.has_no_time) {
    EXPECT_TRUE(core::is_null(p.metrics[Metric::time_s]));
  }
}

class GeneratedTrace : public ::testing::TestWithParam<std::pair<const char*, DrawnTrace (*)(Chance&)>> {};

TEST_P(GeneratedTrace, AWholeOneIsReadAsItIsAndATornOneIsRefused) {
  int whole = 0, complete = 0;
  for (int n = 0; n < logs_of_a_tool && !HasFailure(); ++n) {
    Chance chance(static_cast<std::uint64_t>(n));
    const DrawnTrace trace = GetParam().second(chance);
    const bool is_torn = chance.one_in(6);
    std::string text = trace.text;
    if (is_torn) {
      const std::size_t most = text.find_last_of("}]"), least = std::max(trace.shortest, most / 2);
      text.resize(least + chance.below(most - least + 1));
    }
    SCOPED_TRACE(fmt::format("trace {}, --ranks {}:\n{}", n, trace.ranks_hint, text));
    const std::string file = stored(chance, text);
    const UserFacts user_facts{.ranks = trace.ranks_hint, .collective = {}, .interconnect = {}};
    const std::string why = refusal(file, user_facts);
    EXPECT_EQ(!why.empty(), is_torn) << why;
    whole += !is_torn;
    if (!why.empty()) continue;
    auto log = read(file, user_facts);
    ASSERT_FALSE(log.run.points.empty());
    expect_step(trace, log.run.points.front());
    log.run.points.erase(log.run.points.begin());
    const std::vector<TrueRow> truth = trace.has_rows ? trace.call_rows() : std::vector<TrueRow>(),
                               found = rows_of(log);
    EXPECT_EQ(untrue_row(truth, found), "");
    EXPECT_EQ(untrue_row(found, truth), "") << "is not read";
    EXPECT_EQ(calls_of(read_trace(file, trace.ranks)), calls_of(trace));
    const std::string beside = fmt::format("{} collectives that gloo or MPI note beside these", trace.beside);
    EXPECT_EQ(log.not_stated.find(beside) != std::string::npos, trace.beside > 0) << log.not_stated;
    complete += found.size() == truth.size();
  }
  EXPECT_GE(complete, 0.98 * whole) << complete << " of " << whole << " traces are read with every row";
  RecordProperty("complete", fmt::format("{} of {}", complete, whole));
}

INSTANTIATE_TEST_SUITE_P(Tools, GeneratedTrace,
                         ::testing::Values(std::pair{"kineto", &draw_kineto}, std::pair{"execution", &draw_execution},
                                           std::pair{"chakra", &draw_chakra}),
                         [](const auto& i) { return std::string(i.param.first); });

}  // namespace
}  // namespace gradmeter::importers
