#include "importers/importers.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
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
    if (out.runs.empty())
      throw UsageError(out.faults.empty() ? "it has no row; a log that broke off before its first has nothing to import"
                                          : fmt::format("it has no row to import; {}", out.faults));
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
