#include "analysis/conditions.hpp"

#include <algorithm>
#include <set>

#include "core/format.hpp"
#include "core/quoting.hpp"

namespace gradmeter::analysis {
namespace {

/// A condition's values over the launches of a side.
using Conditions = std::map<std::string, std::set<std::string>>;

Conditions conditions_of(const Side& side) {
  Conditions out;
  for (const auto& run : side.runs) {
    const core::RunInfo& info = run.info;
    out["version"].insert(fmt::format("{} ({})", info.version, info.commit));
    out["hosts"].insert(fmt::format("{}", fmt::join(info.hosts, ",")));
    out["processor"].insert(info.cpu);
    out["MPI"].insert(info.mpi);
    out["binding"].insert(info.binding);
    out["GPUs"].insert(fmt::format("{}", fmt::join(info.gpus, ", ")));
    for (const auto& [name, version] : info.libraries) out["library " + name].insert(version);
    for (const auto& [name, value] : info.environment) out["environment " + name].insert(value);
  }
  return out;
}

std::string shown(const Conditions& of, const std::string& name) {
  const auto found = of.find(name);
  return found == of.end() ? "none" : fmt::format("{}", fmt::join(found->second, " and "));
}

std::pair<std::string, std::string> first_and_last(const Side& side) {
  const auto by_time = [](const core::Run& x, const core::Run& y) { return x.info.time < y.info.time; };
  const auto [first, last] = std::minmax_element(side.runs.begin(), side.runs.end(), by_time);
  return {first->info.time, last->info.time};
}

}  // namespace

std::vector<std::string> differing_conditions(const Side& a, const Side& b) {
  const Conditions of_a = conditions_of(a), of_b = conditions_of(b);
  std::set<std::string> names;
  for (const auto& [name, values] : of_a) names.insert(name);
  for (const auto& [name, values] : of_b) names.insert(name);
  std::vector<std::string> out;
  for (const auto& name : names) {
    const std::string before = shown(of_a, name), after = shown(of_b, name);
    if (before != after) out.push_back(fmt::format("{}: {} to {}", name, before, after));
  }
  return out;
}

bool launched_in_two_blocks(const Side& a, const Side& b) {
  if (a.runs.size() < 2 || b.runs.size() < 2) return false;
  const auto [a_first, a_last] = first_and_last(a);
  const auto [b_first, b_last] = first_and_last(b);
  return a_last < b_first || b_last < a_first;
}

std::string machine_of(const core::RunInfo& info) {
  std::string out = core::key_part(info.cpu);
  for (const auto& host : info.hosts) out += " " + core::key_part(host);
  for (const auto& gpu : info.gpus) out += "|" + core::key_part(gpu);
  return out;
}

std::string repeat_command(const core::RunInfo& info, std::int64_t launches) {
  const auto has = [&](std::string_view flag) { return info.command.find(flag) != std::string::npos; };
  if (!info.command.starts_with("gradmeter ") || has(" --force") || has(" --resume")) return "";
  const std::string ranks = info.ranks > 1 && !has("--thread-ranks") ? fmt::format("mpirun -np {} ", info.ranks) : "";
  return fmt::format("scripts/launches.sh {} -- {}{}", launches, ranks, info.command);
}

std::string origin_of(const core::RunInfo& info) {
  std::string out = fmt::format("{}|{}|{}", core::key_part(info.fingerprint), core::key_part(info.version),
                                core::key_part(info.commit));
  for (const auto& [name, version] : info.libraries)
    out += fmt::format("|{} {}", core::key_part(name), core::key_part(version));
  return out;
}

}  // namespace gradmeter::analysis
