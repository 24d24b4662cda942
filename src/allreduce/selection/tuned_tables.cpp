// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/tuned_tables.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "allreduce/test_data.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/statistics.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Json;
using core::UsageError;

constexpr std::string_view format_name = "gradmeter tuned tables";
constexpr double least_gain = 0.05;
constexpr std::uint64_t first_size = 256, last_size = std::uint64_t{1} << 40;

std::string hash_text(std::string_view text) {
  return fmt::format("{:016x}", hash_of(std::as_bytes(std::span(text.data(), text.size()))));
}

}  // namespace

std::string describe(const TableUse& u) {
  return fmt::format("{} {} over {}{}", name(u.collective_kind),
                     u.placement == Placement::in_place ? "in place" : "out of place", runtime::name(u.transport),
                     u.private_buffers ? " from private buffers" : "");
}

bool can_serve(const AlgorithmChoice& a, const TableUse& u) {
  const AlgorithmInfo& info = a.info();
  if (info.backend == Backend::selection || info.backend == Backend::device || info.on_device) return false;
  if (!a.refusal(u.shape, u.collective_kind).empty()) return false;
  if (info.backend == Backend::shared) return u.transport == runtime::TransportKind::shm;
  const bool peers_read = u.transport == runtime::TransportKind::shm || u.transport == runtime::TransportKind::hybrid;
  return !(a.has_schedule() && u.private_buffers && peers_read);
}

std::string TunedTable::hash() const { return hash_text(table).substr(0, 8); }

const TunedTable* TunedTables::find(const TableUse& use) const {
  const auto found = std::ranges::find(tables, use, &TunedTable::use);
  return found == tables.end() ? nullptr : &*found;
}

void TunedTables::put(TunedTable t) {
  std::erase_if(tables, [&](const TunedTable& other) { return other.use == t.use; });
  tables.push_back(std::move(t));
}

namespace {

constexpr std::array all_collectives{CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                     CollectiveKind::all_gather, CollectiveKind::broadcast,
                                     CollectiveKind::all_to_all, CollectiveKind::send_receive};

Json json_of(const TunedTables& t) {
  Json list = Json::array();
  for (const TunedTable& entry : t.tables) {
    list.push_back({{"collective", name(entry.use.collective_kind)},
                    {"transport", runtime::name(entry.use.transport)},
                    {"ranks", entry.use.shape.ranks},
                    {"ranks_per_node", entry.use.shape.ranks_per_node},
                    {"private_buffers", entry.use.private_buffers},
                    {"in_place", entry.use.placement == Placement::in_place},
                    {"least_bytes", entry.least_bytes},
                    {"most_bytes", entry.most_bytes},
                    {"seconds", entry.seconds},
                    {"missed", entry.missed},
                    {"table", entry.table}});
  }
  return {
      {"format", format_name}, {"version", tuned_tables_format}, {"made_for", t.made_for}, {"tables", std::move(list)}};
}

CollectiveKind collective_named(const std::string& text) {
  const auto* const found =
      std::ranges::find(all_collectives, std::string_view(text), [](CollectiveKind k) { return name(k); });
  if (found == all_collectives.end()) throw UsageError(fmt::format("'{}' is no collective", text));
  return *found;
}

runtime::TransportKind transport_named(const std::string& text) {
  for (const auto& t : runtime::transport_table())
    if (t.name == text) return t.kind;
  throw UsageError(fmt::format("'{}' is no transport", text));
}

TunedTable table_from(const Json& j) {
  const TableUse use{.shape = {.ranks = j.at("ranks").get<std::uint32_t>(),
                               .ranks_per_node = j.at("ranks_per_node").get<std::uint32_t>()},
                     .transport = transport_named(j.at("transport").get<std::string>()),
                     .collective_kind = collective_named(j.at("collective").get<std::string>()),
                     .private_buffers = j.at("private_buffers").get<bool>(),
                     .placement = j.at("in_place").get<bool>() ? Placement::in_place : Placement::out_of_place};
  return {.use = use,
          .table = j.at("table").get<std::string>(),
          .least_bytes = j.at("least_bytes").get<std::uint64_t>(),
          .most_bytes = j.at("most_bytes").get<std::uint64_t>(),
          .seconds = j.at("seconds").get<double>(),
          .missed = j.at("missed").get<std::uint64_t>()};
}

/// Throws where an algorithm of the table cannot serve here: machines with the same fingerprint may run programs that
/// were built with different libraries.
void check_serves(const TunedTable& t) {
  const SizeTable table(t.table);
  for (const AlgorithmPtr& a : table.candidates())
    if (!can_serve(*a, t.use)) throw UsageError(fmt::format("{} cannot serve {} here", a->name, describe(t.use)));
}

}  // namespace

std::string to_text(const TunedTables& t) {
  Json body = json_of(t);
  body["check"] = hash_text(core::json_text(body));
  return core::json_text(body, 1) + "\n";
}

TunedTables read_tuned_tables(std::string_view text) {
  try {
    const Json j = core::parse_json(text);
    if (j.at("format").get<std::string>() != format_name || j.at("version").get<int>() != tuned_tables_format)
      throw UsageError(fmt::format("it is no table of --tune-auto in format {}", tuned_tables_format));
    TunedTables out{.made_for = j.at("made_for").get<std::string>(), .tables = {}};
    for (const Json& entry : j.at("tables")) out.tables.push_back(table_from(entry));
    // The text may be JSON and still have been changed, such as one digit of a number.
    if (j.at("check").get<std::string>() != hash_text(core::json_text(json_of(out))))
      throw UsageError("its contents do not fit its check value");
    for (const TunedTable& entry : out.tables) check_serves(entry);
    return out;
  } catch (const Json::exception&) {
    throw UsageError("it is incomplete, or no JSON");
  }
}

std::vector<std::uint64_t> sizes_to_tune(std::uint64_t least, std::uint64_t most) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t size = first_size;; size *= 4) {
    const bool covers_least = least < 2 * size;
    if (covers_least) out.push_back(size);
    if (most < 2 * size || size >= last_size) return out;
  }
}

std::string faster_choice(const RoundTimes& times, const std::string& shipped) {
  const std::vector<double>& shipped_times = times.at(shipped);
  const auto interval = core::median_interval_indices(shipped_times.size());
  if (!interval) return shipped;
  std::string best = shipped;
  double least_median = core::median(shipped_times) * (1 - least_gain);
  for (const auto& [name, candidate_times] : times) {
    if (name == shipped || candidate_times.size() != shipped_times.size()) continue;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < candidate_times.size(); ++i) ratios.push_back(candidate_times[i] / shipped_times[i]);
    std::ranges::sort(ratios);
    if (ratios[interval->second] >= 1 || core::quantile(ratios, 0.5) > 1 - least_gain) continue;
    if (const double median = core::median(candidate_times); median <= least_median) best = name, least_median = median;
  }
  return best;
}

std::string tuned_table(std::string_view shipped, const std::map<std::uint64_t, std::string>& choices) {
  const SizeTable shipped_table(shipped);
  std::set<std::uint64_t> starts{0};
  for (const SizeRange& r : shipped_table.ranges()) starts.insert(r.first);
  for (const auto& [size, algorithm] : choices) {
    starts.insert(size == first_size ? 0 : size / 2);
    starts.insert(2 * size);
  }
  std::string text;
  for (auto at = starts.begin(); at != starts.end(); ++at) {
    const auto next = std::next(at);
    const auto chosen = std::ranges::find_if(choices, [&](const auto& choice) {
      return (choice.first == first_size || choice.first / 2 <= *at) && *at < 2 * choice.first;
    });
    const std::string& algorithm =
        chosen == choices.end() ? shipped_table.candidates()[shipped_table.choose(*at)]->name : chosen->second;
    text += fmt::format("{}{}-{}:{}", text.empty() ? "" : ",", *at,
                        next == starts.end() ? "" : fmt::format("{}", *next), algorithm);
  }
  return SizeTable(text).name();
}

}  // namespace gradmeter::allreduce
