// SPDX-License-Identifier: Apache-2.0
#include "importers/importers.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/collectives.hpp"
#include "importers/lines.hpp"
#include "importers/text.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::importers {
namespace {

using core::UsageError;

constexpr std::array<const Format*, 10> table{&nccl_tests_format, &nccl_tests_json_format, &osu_format,
                                              &imb_format,        &deepbench_format,       &param_format,
                                              &inspector_format,  &kineto_format,          &execution_trace_format,
                                              &chakra_format};

const Format& format_of(std::string_view log, const std::string& name) {
  std::vector<std::string> names;
  for (const Format* f : table) {
    if (name == f->name || (name == "auto" && f->recognises(log))) return *f;
    names.emplace_back(f->name);
  }
  if (name != "auto") core::refuse_unknown("format", name, names);
  throw UsageError(fmt::format("no known log; --format names one of {}", fmt::join(names, ", ")));
}

/// Refuses a --collective that contradicts a row's collective, whatever the format.
void check_collective(const std::vector<core::Run>& runs, const UserFacts& user_facts) {
  if (user_facts.collective.empty()) return;
  bool has_collective = false;
  for (const core::Run& run : runs)
    for (const core::Point& p : run.points) {
      const std::string in_row = core::to_text(p.factors[core::Factor::collective]);
      if (in_row == "null") continue;
      has_collective = true;
      checked_collective(in_row, user_facts, 0);
    }
  if (!has_collective) throw UsageError("it has no collective; leave --collective out");
}

/// The reason why nothing was read.
std::string why_empty(std::string_view log, const std::string& faults) {
  if (!faults.empty()) return fmt::format("it has no row to import; {}", faults);
  const bool is_json = log.find_first_not_of(" \t\r\n") == log.find_first_of("{[");
  if (const std::string line = is_json ? "" : first_plain_line(log); !line.empty())
    return fmt::format("it has no row to import; the first line that is no comment and no row is {}", line);
  return "it has no row; a log that broke off before its first has nothing to import";
}

/// Splits a run before each point whose factors an earlier point of the run has; runs without points are left out.
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

/// See `import_log`. `log_id`: equal for all runs of one log, and for no run of another.
std::string fingerprint_of(const core::RunInfo& info, const UserFacts& user_facts, const std::string& log_id) {
  if (!user_facts.machine.empty()) return runtime::fingerprint_of(fmt::format("label\n{}", user_facts.machine));
  std::set<std::string> facts;  // without the numbers of nodes and GPUs, so that curves over ranks are of one machine
  for (const std::string& host : info.hosts)
    if (const std::string stem = runtime::host_stem(host); !stem.empty()) facts.insert(fmt::format("host {}", stem));
  for (const std::string& gpu : info.gpus) facts.insert(fmt::format("GPU {}", gpu));
  return runtime::fingerprint_of(facts.empty() ? log_id : fmt::format("{}", fmt::join(facts, "\n")));
}

/// Sets the ranks and nodes of a run that its points tell.
void fill_ranks(core::Run& run) {
  core::RunInfo& info = run.info;
  for (const core::Point& p : run.points) {
    if (const auto* ranks = p.factors[core::Factor::ranks].as<std::int64_t>())
      info.ranks = std::max(info.ranks, *ranks);
    if (const auto* nodes = p.factors[core::Factor::nodes].as<std::int64_t>())
      info.nodes = std::max(info.nodes, *nodes);
  }
  if (info.ranks == 1) info.nodes = 1;
}

}  // namespace

std::span<const Format* const> formats() { return table; }

Imported import_log(std::string_view bytes, const std::string& label, const std::string& format,
                    const UserFacts& user_facts) {
  try {
    const std::string log = decoded_text(bytes);
    const Format& f = format_of(log, format);
    Imported out = f.read(log, user_facts);
    const core::RunInfo first = out.runs.front().info;
    out.runs = without_repeats(std::move(out.runs));
    if (out.runs.empty() && !out.has_only_unknown_kinds) throw UsageError(why_empty(log, out.faults));
    if (out.runs.empty()) {
      out.runs.push_back({.info = first, .points = {}});
      out.not_stated = "anything of a kind of gradmeter's";
    } else if (&f != &nccl_tests_format) {
      // In a log of several programs, --collective applies to those that do not name theirs.
      check_collective(out.runs, user_facts);
    }
    const std::string id = fmt::format("{}:{}:{:x}", f.name, label, std::hash<std::string_view>{}(bytes));
    for (std::size_t i = 0; i < out.runs.size(); ++i) {
      core::RunInfo& info = out.runs[i].info;
      info.run_id = i == 0 ? id : fmt::format("{}#{}", id, i + 1);
      info.command = fmt::format("imported from {}", label);
      if (info.version.empty()) info.version = std::string(f.name);
      fill_ranks(out.runs[i]);
      info.fingerprint = fingerprint_of(info, user_facts, id);
    }
    return out;
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", label, e.what()));
  }
}

}  // namespace gradmeter::importers
