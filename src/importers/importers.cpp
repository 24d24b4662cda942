#include "importers/importers.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/lines.hpp"
#include "importers/text.hpp"

namespace gradmeter::importers {
namespace {

using core::UsageError;

constexpr std::array table{
    Format{"nccl-tests", "the table that all_reduce_perf and its like print", "NVIDIA/nccl-tests, src/util.cu",
           is_nccl_tests, read_nccl_tests},
    Format{"nccl-tests-json", "what they write with -J", "NVIDIA/nccl-tests, src/util.cu, versions 1 and 2",
           is_nccl_tests_json, read_nccl_tests_json},
    Format{"osu", "latency and bandwidth of the OSU micro-benchmarks", "OSU Micro-Benchmarks 5 to 7", is_osu, read_osu},
    Format{"imb", "the tables of Intel's MPI benchmarks", "IMB-MPI1 2019 to 2021", is_imb, read_imb},
    Format{"deepbench", "its tables of products, convolutions, recurrent layers, sparse products and all-reduces",
           "baidu-research/DeepBench, code/{nvidia,amd,arm,baidu_allreduce}", is_deepbench, read_deepbench},
    Format{"param", "the tables of collectives that PARAM's comms.py prints",
           "facebookresearch/param, train/comms/pt/comms.py", is_param, read_param},
    Format{"nccl-inspector", "the JSON lines of NCCL's profiler plugin, a line for each call of each rank",
           "NVIDIA/nccl, plugins/profiler/inspector, format v4.0", is_inspector, read_inspector},
    Format{"kineto", "traces of PyTorch's profiler: steps with their parts, and collectives",
           "pytorch/kineto, libkineto/src/output_json.cpp, schemaVersion 1", is_kineto, read_kineto},
    Format{"execution-trace",
           "PyTorch's execution traces, which PARAM replays: collectives of steps in order, no times",
           "pytorch/pytorch, torch/csrc/profiler/standalone/execution_trace_observer.cpp, schemas 1.0 and 1.1",
           is_execution_trace, read_execution},
    Format{"chakra", "Chakra's traces as JSON: a step by its dependencies, and collectives",
           "mlcommons/chakra, schema/protobuf/et_def.proto, src/jsonizer", is_chakra, read_chakra}};

const Format& format_of(std::string_view log, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& f : table) {
    if (name == f.name || (name == "auto" && f.recognises(log))) return f;
    names.emplace_back(f.name);
  }
  if (name != "auto") core::refuse_unknown("format", name, names);
  throw UsageError(fmt::format("no known log; --format names one of {}", fmt::join(names, ", ")));
}

/// What the user says of the log against a row's collective is refused, whatever the format.
void check_collective(const std::vector<core::Run>& runs, const Hints& hints) {
  if (hints.collective.empty()) return;
  bool has_collective = false;
  for (const core::Run& run : runs)
    for (const core::Point& p : run.points) {
      const std::string said = core::to_text(p.factors[core::Factor::collective]);
      if (said == "null") continue;
      has_collective = true;
      kind_of(said, hints, 0);
    }
  if (!has_collective) throw UsageError("it has no collective; leave --collective out");
}

/// Why nothing was read.
std::string why_empty(std::string_view log, const std::string& faults) {
  if (!faults.empty()) return fmt::format("it has no row to import; {}", faults);
  const bool is_json = log.find_first_not_of(" \t\r\n") == log.find_first_of("{[");
  if (const std::string line = is_json ? "" : first_plain_line(log); !line.empty())
    return fmt::format("it has no row to import; the first line that is no comment and no row is {}", line);
  return "it has no row; a log that broke off before its first has nothing to import";
}

/// Runs with points, none with two of the same factors.
std::vector<core::Run> without_repeats(std::vector<core::Run> runs) {
  std::vector<core::Run> out;
  for (core::Run& run : runs) {
    std::set<std::string> known;
    for (core::Point& p : run.points) {
      std::string key = fmt::format("{} {}", p.experiment, p.factors.key());
      if (known.empty() || known.contains(key)) {
        known.clear();
        out.push_back({.info = run.info, .points = {}});
      }
      known.insert(std::move(key));
      out.back().points.push_back(std::move(p));
    }
  }
  return out;
}

}  // namespace

std::span<const Format> formats() { return table; }

Imported import_log(std::string_view bytes, const std::string& label, const std::string& format, const Hints& hints) {
  try {
    const std::string log = plain_text(bytes);
    const Format& f = format_of(log, format);
    Imported out = f.read(log, hints);
    out.runs = without_repeats(std::move(out.runs));
    if (out.runs.empty()) throw UsageError(why_empty(log, out.faults));
    // Of several programs' logs, --collective is of those that do not name theirs.
    if (f.read != read_nccl_tests) check_collective(out.runs, hints);
    const std::string id = fmt::format("{}:{}:{:x}", f.name, label, std::hash<std::string_view>{}(bytes));
    for (std::size_t i = 0; i < out.runs.size(); ++i) {
      core::RunInfo& info = out.runs[i].info;
      info.run_id = i == 0 ? id : fmt::format("{}#{}", id, i + 1);
      info.command = fmt::format("imported from {}", label);
      if (info.version.empty()) info.version = std::string(f.name);
      for (const auto& p : out.runs[i].points)
        if (const auto* ranks = p.factors[core::Factor::ranks].as<std::int64_t>())
          info.ranks = std::max(info.ranks, *ranks);
    }
    return out;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", label, e.what()));
  }
}

}  // namespace gradmeter::importers
