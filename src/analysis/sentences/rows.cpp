// SPDX-License-Identifier: Apache-2.0
#include "analysis/sentences/rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "analysis/launches.hpp"
#include "analysis/words.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis::detail {
namespace {

using core::Factor;
using core::Metric;

/// Factors in the order in which they name a row; those that follow from earlier ones are left out. Factors not listed
/// come before the last four, which follow from others in most files.
constexpr std::array first_named{Factor::model,     Factor::problem, Factor::collective,   Factor::size_bytes,
                                 Factor::precision, Factor::ranks,   Factor::strategy,     Factor::batch_per_rank,
                                 Factor::algorithm, Factor::codec,   Factor::interconnect, Factor::in_place,
                                 Factor::transport};
constexpr std::array last_named{Factor::nodes, Factor::ranks_per_node, Factor::batch_global, Factor::mapping};
/// Factors that are named even if all rows agree in them.
constexpr std::array always_named{Factor::model, Factor::problem,        Factor::collective,  Factor::size_bytes,
                                  Factor::ranks, Factor::batch_per_rank, Factor::interconnect};

bool is_in(std::span<const Factor> list, Factor f) { return std::ranges::find(list, f) != list.end(); }

const Axes& naming_order() {
  static const Axes order = [] {
    Axes out(first_named.begin(), first_named.end());
    for (std::size_t i = 0; i < core::factor_count; ++i) {
      const auto f = static_cast<Factor>(i);
      if (!is_in(first_named, f) && !is_in(last_named, f)) out.push_back(f);
    }
    out.insert(out.end(), last_named.begin(), last_named.end());
    return out;
  }();
  return order;
}

std::string value_text(const core::Value& v) { return core::is_null(v) ? "" : core::to_text(v); }

/// The factors that distinguish the rows of an experiment: each splits some rows that agree in all factors before it.
Axes find_distinguishing_factors(const std::vector<const MergedRow*>& rows) {
  Axes out;
  std::vector<std::size_t> group_of(rows.size(), 0);  // groups of rows that agree in the distinguishing factors so far
  std::size_t groups = 1;
  for (const Factor f : naming_order()) {
    std::vector<const core::Value*> value_of(groups, nullptr);
    bool is_distinguishing = false;
    for (std::size_t i = 0; i < rows.size() && !is_distinguishing; ++i) {
      const core::Value& value = rows[i]->point.factors[f];
      const core::Value*& first = value_of[group_of[i]];
      if (!first) first = &value;
      is_distinguishing = !(*first == value) && value_text(*first) != value_text(value);
    }
    if (!is_distinguishing) continue;
    out.push_back(f);
    std::map<std::pair<std::size_t, std::string>, std::size_t> numbers;
    for (std::size_t i = 0; i < rows.size(); ++i)
      group_of[i] = numbers.try_emplace({group_of[i], rows[i]->text(f)}, numbers.size()).first->second;
    groups = numbers.size();
  }
  return out;
}

/// The words between a subject and a factor's value: " on 2 ranks", ", in place".
std::string_view before_words(Factor f) {
  switch (f) {
    case Factor::ranks:
    case Factor::device:
      return " on ";
    case Factor::batch_per_rank:
    case Factor::batch_global:
      return " at ";
    case Factor::precision:
      return " in ";
    case Factor::interconnect:
    case Factor::transport:
      return " over ";
    case Factor::algorithm:
      return " by ";
    case Factor::codec:
      return " with ";
    default:
      return ", ";
  }
}

}  // namespace

std::string as_sentence(std::string text, bool has_name) {
  if (!has_name && !text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  text += '.';
  return text;
}

std::string MergedRow::text(Factor f) const { return value_text(point.factors[f]); }
std::string MergedRow::text(Metric m) const { return value_text(point.metrics[m]); }
std::int64_t MergedRow::whole(Factor f) const {
  const auto* v = point.factors[f].as<std::int64_t>();
  return v ? *v : 0;
}
bool MergedRow::is_true(Metric m) const {
  const auto* v = point.metrics[m].as<bool>();
  return v && *v;
}

Estimate time_of(const MergedRow& row) {
  Estimate out{.value = row.number(Metric::time_s)};
  if (const auto* s = row.point.metrics[Metric::time_s].as<core::Summary>()) {
    out.low = s->ci95_low;
    out.high = s->ci95_high;
  }
  return out;
}
Estimate efficiency_of(const MergedRow& row) {
  return {row.number(Metric::efficiency), row.number(Metric::efficiency_ci95_low),
          row.number(Metric::efficiency_ci95_high)};
}

Relation compare(const Estimate& a, const Estimate& b) {
  if (!a.has_interval() || !b.has_interval()) return Relation::unknown;
  if (a.high < b.low) return Relation::less;
  return a.low > b.high ? Relation::greater : Relation::not_shown;
}

Estimate ratio(const Estimate& a, const Estimate& b) { return {a.value / b.value, a.low / b.high, a.high / b.low}; }

bool is_implausible(const MergedRow& row) {
  constexpr double with_interval = 1.05, without = 1.1;
  const Estimate e = efficiency_of(row);
  return std::isfinite(e.low) ? e.low > with_interval : e.value > without;
}
bool has_efficiency(const MergedRow& row) {
  const Estimate e = efficiency_of(row);
  return std::isfinite(e.value) && e.has_interval() && !is_implausible(row);
}
MergedRows::MergedRows(std::span<const core::Run> runs) : runs_(runs), origin_of_run_(origins_of(runs)) {
  label_origins();
  for (auto& merged : merge_launches(runs)) {
    const std::size_t origin = origin_of_run_[merged.sources.front().run];
    rows_.push_back({std::move(merged.point), std::move(merged.sources), origin});
  }
  for (const auto& experiment : experiments()) number_values(experiment);
}

void MergedRows::number_values(const std::string& experiment) {
  std::vector<MergedRow*> own_rows;
  for (MergedRow& row : rows_)
    if (row.is_ok() && row.point.experiment == experiment) own_rows.push_back(&row);
  distinguishing_factors_[experiment] = find_distinguishing_factors({own_rows.begin(), own_rows.end()});
  Axes& differing = differing_[experiment];
  for (const Factor f : naming_order()) {
    struct Alike {
      std::uint32_t number = 0;
      std::vector<core::Value> values = {};
    };
    auto& values = values_[{experiment, f}];
    std::unordered_map<std::string, Alike> by_text;  // by the text of a value: values with this text
    std::vector<std::uint32_t> numbers;
    const core::Value* previous = nullptr;
    for (const MergedRow* row : own_rows) {
      const core::Value& value = row->point.factors[f];
      if (previous && *previous == value) {
        numbers.push_back(numbers.back());
        continue;
      }
      previous = &value;
      auto& alike =
          by_text.try_emplace(value_text(value), Alike{static_cast<std::uint32_t>(by_text.size())}).first->second;
      numbers.push_back(alike.number);
      if (std::ranges::find(alike.values, value) != alike.values.end()) continue;
      alike.values.push_back(value);
      values.push_back(value);
    }
    if (by_text.size() < 2) continue;
    differing.push_back(f);
    for (std::size_t i = 0; i < own_rows.size(); ++i) own_rows[i]->values.push_back(numbers[i]);
  }
}

void MergedRows::label_origins() {
  using Facts = std::vector<std::string>;
  std::vector<Facts> facts(origin_of_run_.empty() ? 0 : 1 + *std::ranges::max_element(origin_of_run_));
  std::set<std::string> conditions;
  for (const auto& run : runs_)
    for (const auto& [name, value] : core::conditions_of(run.info)) conditions.insert(name);
  for (const char* const said_otherwise : {"machine", "version", "commit"}) conditions.erase(said_otherwise);
  std::erase_if(conditions, [](const std::string& name) { return name.starts_with("library "); });
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    const core::RunInfo& info = runs_[r].info;
    auto& origin_facts = facts[origin_of_run_[r]];
    if (!origin_facts.empty()) continue;
    origin_facts = {info.hosts.empty() ? "" : info.hosts.front(), info.cpu, "machine " + info.fingerprint,
                    "version " + info.version, "commit " + info.commit};
    std::string libraries;
    for (const auto& [name, version] : info.libraries)
      libraries += fmt::format("{}{} {}", libraries.empty() ? "" : " ", name, version);
    origin_facts.push_back(libraries);
    const core::Conditions own = core::conditions_of(info);
    for (const std::string& name : conditions) {
      const auto found = own.find(name);
      origin_facts.push_back(fmt::format("{} {}", name, found == own.end() ? "not set" : found->second));
    }
  }
  for (const Facts& own : facts) {
    std::string label;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const bool differs = std::ranges::any_of(facts, [&](const Facts& o) { return o[i] != own[i]; });
      if (differs && !own[i].empty()) label += fmt::format("{}{}", label.empty() ? "" : ", ", own[i]);
    }
    origin_labels_.push_back(label);
  }
}

std::vector<std::string> MergedRows::experiments() const {
  std::vector<std::string> out;
  for (const MergedRow& row : rows_)
    if (std::ranges::find(out, row.point.experiment) == out.end()) out.push_back(row.point.experiment);
  return out;
}

std::vector<Group> MergedRows::groups(std::string_view experiment, const Axes& axes,
                                      const std::function<bool(const MergedRow&)>& wanted) const {
  const auto differing = differing_.find(experiment);
  if (differing == differing_.end()) return {};
  std::vector<std::size_t> compared;  // places in MergedRow::values
  for (std::size_t i = 0; i < differing->second.size(); ++i)
    if (!is_in(axes, differing->second[i])) compared.push_back(i);
  std::map<std::vector<std::size_t>, std::size_t> places;
  std::vector<Group> out;
  for (const MergedRow& row : rows_) {
    if (!row.is_ok() || row.point.experiment != experiment || !wanted(row)) continue;
    std::vector<std::size_t> key{row.origin};
    for (const std::size_t i : compared) key.push_back(row.values[i]);
    const auto [place, is_new] = places.try_emplace(std::move(key), out.size());
    if (is_new) out.emplace_back();
    out[place->second].push_back(&row);
  }
  return out;
}

std::string MergedRows::command_to_repeat(const MergedRow& row) const {
  constexpr std::int64_t launches = 5;
  return repeat_command(runs_[row.sources.front().run].info, launches);
}

const Axes& MergedRows::distinguishing_factors(const std::string& experiment) const {
  return distinguishing_factors_.at(experiment);
}

std::string MergedRows::words(const MergedRow& row, Factor f) const {
  return in_words(f, row.point.factors[f], values_.at({row.point.experiment, f}));
}

std::string MergedRows::algorithm(const MergedRow& row) const {
  const std::string transport = row.text(Factor::transport), tuned = row.text(Factor::tuned_table);
  return words(row, Factor::algorithm) + (transport.empty() ? "" : "/" + transport) +
         (tuned.empty() ? "" : " tuned " + tuned);
}

MergedRows::Description MergedRows::describe(const Group& group, const Axes& over) const {
  const MergedRow& row = *group.front();
  const Axes& distinguishing = distinguishing_factors(row.point.experiment);
  const auto is_named = [&](Factor f) {
    return (is_in(distinguishing, f) || is_in(always_named, f)) && !is_in(over, f) &&
           !core::is_null(row.point.factors[f]);
  };
  Description out;
  Axes remaining;
  for (const Factor f : naming_order())
    if (is_named(f)) remaining.push_back(f);
  const auto take = [&](Factor f) {
    const auto at = std::ranges::find(remaining, f);
    if (at == remaining.end()) return std::string();
    remaining.erase(at);
    return words(row, f);
  };
  // A codec's problem is the exchange that its cost is compared with; what is encoded are gradients.
  const bool is_codec = row.point.experiment == "codecs";
  const std::string compared_with = is_codec ? take(Factor::problem) : "";
  if (is_codec) out.subject = "gradients";
  for (const Factor f : {Factor::collective, Factor::model, Factor::problem}) {
    const std::string named = take(f);
    if (!named.empty()) out.subject += (out.subject.empty() ? "" : " ") + named;
  }
  if (out.subject.empty()) out.subject = row.point.experiment;
  if (const std::string size = take(Factor::size_bytes); !size.empty()) out.subject += " of " + size;
  if (!compared_with.empty()) out.rest = fmt::format(" ({})", compared_with);
  // Prepositions come first: words after a comma would otherwise stand between them.
  for (const bool with_comma : {false, true}) {
    for (const Factor f : remaining) {
      const auto before = before_words(f);
      if ((before == ", ") == with_comma) out.rest += fmt::format("{}{}", before, words(row, f));
    }
  }
  if (origins() > 1) out.rest += fmt::format(" ({})", origin_label(row.origin));
  return out;
}

namespace {

/// Causes that spoil a group's figures, as " (disturbed)"; empty: none.
std::string caveats(const Group& group) {
  const auto any = [&](const std::function<bool(const MergedRow&)>& test) {
    return std::ranges::any_of(group, [&](const MergedRow* row) { return test(*row); });
  };
  std::vector<std::string> out;
  if (any([](const MergedRow& r) { return r.is_true(Metric::oversubscribed); }))
    out.emplace_back("more busy threads than cores: a test of the program, not a measurement");
  if (any([](const MergedRow& r) { return r.is_true(Metric::emulated); }))
    out.emplace_back("emulated: not a measurement");
  if (any([](const MergedRow& r) { return core::is_disturbed(r.point.metrics); }))
    out.emplace_back("the machine was disturbed meanwhile");
  if (any([](const MergedRow& r) { return r.number(Metric::efficiency) > 1 && r.whole(Factor::ranks) > 1; }))
    out.emplace_back("efficiency above 100 % within its interval");
  return out.empty() ? "" : fmt::format(" ({})", fmt::join(out, "; "));
}

}  // namespace

Finding MergedRows::finding(FindingKind kind, const Group& group, const Axes& over, const std::string& sentence) const {
  Finding out{.kind = kind, .experiment = group.front()->point.experiment, .over = over};
  for (const Factor f : naming_order()) {
    if (is_in(over, f)) continue;
    const core::Value& value = group.front()->point.factors[f];
    if (core::is_null(value)) continue;
    const bool shared = std::all_of(group.begin() + 1, group.end(),
                                    [&](const MergedRow* row) { return row->point.factors[f] == value; });
    if (shared) out.factors[f] = value;
  }
  for (const MergedRow* row : group) out.rows.insert(out.rows.end(), row->sources.begin(), row->sources.end());
  std::ranges::sort(out.rows);
  out.sentence = as_sentence(sentence + caveats(group), !core::is_null(group.front()->point.factors[Factor::model]));
  return out;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string percent(const Estimate& f) {
  if (!f.has_interval()) return percent(f.value) + " (no interval)";
  return fmt::format("{:.0f} % ({:.0f}–{:.0f} %)", 100 * f.value, 100 * f.low, 100 * f.high);
}
std::string seconds(const Estimate& f) {
  const auto shown = [](double s) { return core::to_text(core::Seconds{s}); };
  if (!f.has_interval()) return shown(f.value) + " (no interval)";
  return fmt::format("{} ({}–{})", shown(f.value), shown(f.low), shown(f.high));
}
std::string times(const Estimate& f) {
  if (!f.has_interval()) return fmt::format("× {:.2f} (no interval)", f.value);
  return fmt::format("× {:.2f} ({:.2f}–{:.2f})", f.value, f.low, f.high);
}

}  // namespace gradmeter::analysis::detail
