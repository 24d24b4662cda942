// SPDX-License-Identifier: Apache-2.0
// Makes the rows of a page, and their names, which say in words by which factors a series differs from others.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "analysis/launches.hpp"
#include "analysis/words.hpp"
#include "core/format.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"
#include "report/comparison_table.hpp"
#include "report/page/rows.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;

/// Factors along which curves run: every chart names them by its axes or panels.
constexpr std::array axis_factors{Factor::ranks,     Factor::batch_per_rank, Factor::batch_global, Factor::size_bytes,
                                  Factor::from_rank, Factor::to_rank,        Factor::interval};
/// Factors that usually follow from the number of ranks.
constexpr std::array layout_factors{Factor::nodes, Factor::ranks_per_node, Factor::mapping, Factor::placement};
/// Factors that are chosen for an exchange or a computation; all others are conditions, which tell panels apart.
constexpr std::array choice_factors{Factor::precision,  Factor::update,    Factor::accumulate,  Factor::strategy,
                                    Factor::mesh,       Factor::algorithm, Factor::codec,       Factor::bucket_bytes,
                                    Factor::overlap,    Factor::transport, Factor::accum_dtype, Factor::op,
                                    Factor::buffers,    Factor::in_place,  Factor::loss_scale,  Factor::gradients,
                                    Factor::search,     Factor::cudagraph, Factor::outstanding, Factor::repeat,
                                    Factor::tuned_table};
/// Factors whose values on one rank differ from those on several ranks of the same curve.
constexpr std::array rank_factors{Factor::ranks,   Factor::nodes,   Factor::ranks_per_node, Factor::batch_global,
                                  Factor::scaling, Factor::mapping, Factor::placement};
/// Factors that say nothing, or are missing, where nothing is exchanged: on one rank, or by independent ranks.
constexpr std::array exchange_factors{Factor::scaling,   Factor::strategy,     Factor::mesh,       Factor::algorithm,
                                      Factor::codec,     Factor::overlap,      Factor::transport,  Factor::accum_dtype,
                                      Factor::gradients, Factor::op,           Factor::buffers,    Factor::mapping,
                                      Factor::placement, Factor::bucket_bytes, Factor::tuned_table};
/// Factors that usually change together with the link, where curves run over links.
constexpr std::array link_factors{Factor::interconnect,   Factor::transport, Factor::nodes,
                                  Factor::ranks_per_node, Factor::mapping,   Factor::placement};

bool is_in(std::span<const Factor> list, Factor f) { return std::ranges::find(list, f) != list.end(); }

/// Puts a number and its interval under columns that are not the point's own.
void put_interval(PageRow& row, std::string_view column, std::string_view low, std::string_view high,
                  const analysis::Estimate& estimate) {
  row.put_number(column, estimate.value);
  row.put_number(low, estimate.low);
  row.put_number(high, estimate.high);
}

/// The facts about one factor in an experiment's points.
struct FactorUse {
  std::map<std::string, core::Value> values;               ///< by text; "" where a point lacks the factor
  std::map<std::int64_t, std::set<std::string>> by_ranks;  ///< the texts at each number of ranks
  std::map<std::string, std::string> words;                ///< by a value's text: its words; empty until `find_words`
  std::map<std::string, std::set<std::string>> by_link;    ///< the texts at each interconnect
  std::set<std::string> exchanged;                         ///< the texts of points that exchange something
  bool varies() const { return values.size() > 1; }
  bool follows_ranks() const { return has_one_each(by_ranks); }
  bool follows_link() const { return has_one_each(by_link); }

 private:
  template <class Texts>
  static bool has_one_each(const Texts& texts) {
    return std::ranges::all_of(texts, [](const auto& at) { return at.second.size() < 2; });
  }
};
struct ExperimentUse {
  std::array<FactorUse, core::factor_count> factors;
  /// By number of ranks, link, and whether the point exchanges: the factors of the last such point. A value equal to
  /// its value is known already.
  std::map<std::tuple<std::int64_t, std::string, bool>, core::Factors> last;
};
using Uses = std::map<std::string, ExperimentUse>;

/// Adds the values of a point. A missing value counts as a value: points with `gradients=bf16` and points without are
/// two curves. It does not count if the point lacks a factor of an exchange because it exchanges nothing (one rank,
/// independent ranks).
void add_values(ExperimentUse& to, const core::Factors& factors) {
  const std::int64_t ranks = integer(factors[Factor::ranks]);
  const bool exchanges = ranks != 1 && text(factors[Factor::strategy]) != "independent";
  const std::string link = text(factors[Factor::interconnect]);
  const auto [last, is_first] = to.last.try_emplace({ranks, link, exchanges});
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const core::Value& value = factors[static_cast<Factor>(i)];
    if (!is_first && value == std::as_const(last->second)[static_cast<Factor>(i)]) continue;
    if (!exchanges && core::is_null(value) && is_in(exchange_factors, static_cast<Factor>(i))) continue;
    const std::string key = core::is_null(value) ? "" : core::to_text(value);
    FactorUse& use = to.factors[i];
    use.values.try_emplace(key, value);
    use.by_ranks[ranks].insert(key);
    use.by_link[link].insert(key);
    if (exchanges) use.exchanged.insert(key);
  }
  last->second = factors;
}

/// The problem without its mini-batch, and thus the same for all mini-batches: "gemm:m=512,k=512" of
/// "gemm:m=512,n=16,k=512".
std::string without_batch(const std::string& problem, const core::Value& batch) {
  std::string out = problem;
  for (const char* key : {"n=", "batch="}) {
    const std::string part = fmt::format("{}{}", key, core::to_text(batch));
    for (std::size_t at = out.find(part); at != std::string::npos; at = out.find(part, at + 1)) {
      const std::size_t end = at + part.size();
      const bool whole = at > 0 && (out[at - 1] == ':' || out[at - 1] == ',') && (end == out.size() || out[end] == ',');
      if (!whole) continue;
      out.erase(at, part.size() + (end == out.size() ? 0 : 1));
      if (out.ends_with(',')) out.pop_back();
      return out;
    }
  }
  return out;
}

void find_words(FactorUse& use, Factor factor) {
  std::vector<core::Value> beside;
  for (const auto& [key, value] : use.values) beside.push_back(value);
  for (const auto& [key, value] : use.values) use.words[key] = analysis::in_words(factor, value, beside);
}

/// Collects the values of points with figures; other points are in no chart, so charts need not tell them apart.
Uses uses_of(std::span<const analysis::Side> sides) {
  Uses out;
  for (const auto& side : sides) {
    for (const auto& run : side.runs) {
      for (const auto& point : run.points) {
        auto& uses = out[point.experiment];
        const bool is_measured = point.status == core::Status::ok || point.status == core::Status::mistrusted;
        if (is_measured) add_values(uses, point.factors);
      }
    }
  }
  for (auto& [experiment, uses] : out) {
    for (std::size_t i = 0; i < core::factor_count; ++i)
      if (uses.factors[i].varies()) find_words(uses.factors[i], static_cast<Factor>(i));
  }
  return out;
}

/// "ring, 4-bit gradients": the point's values, in words, of all factors that vary and that `is_named` accepts, after
/// the words `first`.
template <class IsNamed>
std::string words_of(const core::Point& point, const Uses& uses, const std::string& first, const IsNamed& is_named) {
  std::string out = first;
  const auto& of_experiment = uses.at(point.experiment).factors;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const FactorUse& use = of_experiment[i];
    if (!use.varies() || is_in(axis_factors, factor) || !is_named(factor)) continue;
    if (is_in(layout_factors, factor) && use.follows_ranks()) continue;
    const core::Value &value = point.factors[factor], &batch = point.factors[Factor::batch_per_rank];
    if (core::is_null(value)) continue;
    // A strategy is one of several only where ranks exchange: beside the control, "no exchange", it needs no name.
    const bool is_only_strategy =
        factor == Factor::strategy && use.exchanged.size() < 2 && text(value) != "independent";
    if (is_only_strategy) continue;
    const auto known = use.words.find(core::to_text(value));
    std::string words = known == use.words.end() ? analysis::in_words(factor, value) : known->second;
    if (factor == Factor::problem && !core::is_null(batch)) words = without_batch(words, batch);
    out += fmt::format("{}{}", out.empty() ? "" : ", ", words);
  }
  return out;
}

/// Runs of one side and origin (`analysis::origins_of`): only these are launches of one point. Machine and build are in
/// words, and empty where all runs of the side agree.
struct RunGroup {
  std::vector<const core::Run*> runs;
  std::string machine, build;
};

void put_labels(PageRow& row, const Uses& uses, const std::string& side_name, const RunGroup& group) {
  const core::Point& point = row.point;
  const std::string series_prefix =
      fmt::format("{}{}{}", side_name, side_name.empty() || group.build.empty() ? "" : ", ", group.build);
  // A series without words is named by its strategy, or "measured" if it has none.
  const core::Value& strategy = point.factors[Factor::strategy];
  const auto or_strategy = [&strategy](std::string words) {
    if (!words.empty()) return words;
    return core::is_null(strategy) ? "measured" : analysis::in_words(Factor::strategy, strategy);
  };
  row.put("series",
          or_strategy(words_of(point, uses, series_prefix, [](Factor f) { return is_in(choice_factors, f); })));
  row.put("panel", words_of(point, uses, group.machine, [](Factor f) { return !is_in(choice_factors, f); }));
  if (!row.has("codec_gain")) return;
  const auto& of_experiment = uses.at(point.experiment).factors;
  const auto is_link = [&of_experiment](Factor f) {
    return f == Factor::interconnect ||
           (is_in(link_factors, f) && of_experiment[static_cast<std::size_t>(f)].follows_link());
  };
  row.put("series_over_links", or_strategy(words_of(point, uses, series_prefix, [&](Factor f) {
            return is_in(choice_factors, f) && !is_link(f);
          })));
  row.put("panel_over_links",
          words_of(point, uses, group.machine, [&](Factor f) { return !is_in(choice_factors, f) && !is_link(f); }));
}

/// The reason why a row's figure is not to be relied on; empty where nothing is known against it.
std::string doubt_of(const core::Point& point) {
  std::vector<std::string> doubts;
  const double efficiency = point.metrics.number(core::Metric::efficiency);
  const bool has_baseline = std::isfinite(efficiency) && integer(point.factors[Factor::ranks]) > 1;
  if (point.status == core::Status::mistrusted) doubts.push_back(fmt::format("mistrusted: {}", point.reason));
  if (core::is_disturbed(point.metrics)) doubts.emplace_back("disturbed");
  if (oversubscribed(point)) doubts.emplace_back("more threads than cores");
  if (has_baseline && efficiency >= 1.005) doubts.emplace_back("above 100 %");
  if (has_baseline && !std::isfinite(point.metrics.number(core::Metric::efficiency_ci95_low)))
    doubts.emplace_back("no interval");
  return fmt::format("{}", fmt::join(doubts, "; "));
}

/// The batch that stays the same along a curve over ranks: "batch 16"; for strong scaling "batch 64 in all".
std::string batch_in_words(const core::Factors& factors) {
  const bool strong = text(factors[Factor::scaling]) == "strong";
  const core::Value& batch = factors[strong ? Factor::batch_global : Factor::batch_per_rank];
  return core::is_null(batch) ? "" : fmt::format("batch {}{}", core::to_text(batch), strong ? " in all" : "");
}

PageRow row_of(core::Point point, std::size_t source) {
  PageRow row(std::move(point));
  row.put_first("source", static_cast<std::int64_t>(source));
  if (std::string batch = batch_in_words(row.point.factors); !batch.empty()) row.put_first("batch", std::move(batch));
  if (std::string doubt = doubt_of(row.point); !doubt.empty()) row.put_first("doubt", std::move(doubt));
  return row;
}

/// True if the curve of `row` may begin at `start`, a row of one rank: both agree in all varying factors, except those
/// of the ranks, those of an exchange that `start` lacks, and the strategy if `start` is the control.
bool begins_at(const PageRow& row, const PageRow& start, const std::vector<Factor>& varying) {
  const core::Factors &of_row = row.point.factors, &of_start = start.point.factors;
  return std::ranges::all_of(varying, [&](Factor factor) {
    const core::Value& own = of_start[factor];
    if (is_in(rank_factors, factor) || (is_in(exchange_factors, factor) && own.is_null())) return true;
    const bool is_control = factor == Factor::strategy && text(own) == "independent";
    return is_control || of_row[factor] == own;
  });
}

/// An index of rows of one rank, by what a row must share with the start of its curve: side, machine, build, batch and
/// conditions. It spares comparing every row with every row of one rank.
class CurveBaselines {
 public:
  using BatchFunction = core::Value (*)(const PageRow&);
  CurveBaselines(BatchFunction batch, std::vector<Factor> varying) : batch_(batch), varying_(std::move(varying)) {}
  void add(const PageRow& start) { by_key_[key_of(start)].push_back(&start); }
  /// Finds the first start that `fits`; null where there is none.
  template <class Fits>
  const PageRow* find(const PageRow& row, const Fits& fits) const {
    const auto found = by_key_.find(key_of(row));
    if (found == by_key_.end()) return nullptr;
    const auto start = std::ranges::find_if(found->second, [&](const PageRow* s) { return fits(*s, varying_); });
    return start == found->second.end() ? nullptr : *start;
  }

 private:
  std::string key_of(const PageRow& row) const {
    const auto key_text = [](const core::Value& v) { return v.is_null() ? "" : core::to_text(v); };
    std::string out = key_text(batch_(row));
    for (const char* column : {"source", "machine", "build"}) out += "|" + key_text(row.at(column));
    for (const Factor f : varying_)
      if (!is_in(rank_factors, f) && !is_in(exchange_factors, f)) out += "|" + key_text(row.point.factors[f]);
    return out;
  }
  BatchFunction batch_;
  std::vector<Factor> varying_;
  std::map<std::string, std::vector<const PageRow*>> by_key_;
};

/// The batch that one rank has where the curve of the row begins: for strong scaling the batch of all ranks.
core::Value base_batch(const PageRow& row) {
  const core::Factors& factors = row.point.factors;
  return factors[text(factors[Factor::scaling]) == "strong" ? Factor::batch_global : Factor::batch_per_rank];
}

/// Finds PageTable::curve_starts: for each curve the row of one rank at which it begins, if its own row has other
/// labels.
std::vector<PageRow> find_curve_starts(const PageTable& table) {
  CurveBaselines starts(base_batch, table.varying);
  std::vector<const PageRow*> others;
  for (const PageRow& row : table.rows) {
    const core::Value& ranks = row.point.factors[Factor::ranks];
    if (row.point.experiment != "scale" || row.point.status != core::Status::ok || ranks.is_null()) continue;
    if (integer(ranks) == 1) {
      starts.add(row);
    } else {
      others.push_back(&row);
    }
  }
  std::vector<PageRow> out;
  std::set<std::array<std::string, 3>> known_labels;
  constexpr std::array labels{"series", "panel", "batch"};
  for (const PageRow* row : others) {
    if (!known_labels.insert({row->text("series"), row->text("panel"), row->text("batch")}).second) continue;
    const PageRow* start = starts.find(
        *row, [&](const PageRow& s, const std::vector<Factor>& varying) { return begins_at(*row, s, varying); });
    if (!start) continue;
    const bool is_one_curve =
        std::ranges::all_of(labels, [&](const char* label) { return start->text(label) == row->text(label); });
    if (is_one_curve) continue;
    out.push_back(*start);
    for (const char* label : labels)
      if (row->has(label)) out.back().put(label, row->at(label));
  }
  return out;
}

/// Sets the column `fp32_speedup`: samples/s, divided by those of one rank in fp32 that agrees in all other factors
/// that one rank can have.
void add_fp32_speedups(PageTable& table) {
  constexpr std::array format_factors{Factor::precision, Factor::update, Factor::loss_scale, Factor::gradients,
                                      Factor::codec};
  std::vector<Factor> common_factors = table.varying;
  std::erase_if(common_factors, [&](Factor f) { return is_in(format_factors, f); });
  CurveBaselines bases([](const PageRow& row) { return core::Value(row.point.factors[Factor::batch_per_rank]); },
                       common_factors);
  const auto is_timed = [](const PageRow& row) {
    return row.point.experiment == "scale" && std::isfinite(row.point.metrics.number(core::Metric::samples_per_s));
  };
  const auto is_one_rank = [](const PageRow& row) { return integer(row.point.factors[Factor::ranks]) == 1; };
  const auto is_fp32 = [](const PageRow& row) { return text(row.point.factors[Factor::precision]) == "fp32"; };
  for (const PageRow& row : table.rows)
    if (is_timed(row) && row.point.status == core::Status::ok && is_one_rank(row) && is_fp32(row)) bases.add(row);
  for (PageRow& row : table.rows) {
    if (!is_timed(row) || (is_one_rank(row) && is_fp32(row))) continue;
    const PageRow* base = bases.find(row, [&](const PageRow& b, const std::vector<Factor>& varying) {
      return is_one_rank(row) ? begins_at(b, row, varying) : begins_at(row, b, varying);
    });
    if (!base) continue;
    const double speedup = row.number("samples_per_s") / base->number("samples_per_s");
    const auto end = [&](const char* own, const char* other) {
      return speedup * row.number("time_s") / row.number(own) * base->number(other) / base->number("time_s");
    };
    put_interval(row, "fp32_speedup", "fp32_speedup_ci95_low", "fp32_speedup_ci95_high",
                 {.value = speedup,
                  .low = end("time_s_ci95_high", "time_s_ci95_low"),
                  .high = end("time_s_ci95_low", "time_s_ci95_high")});
  }
}

void add_codec_gains(std::span<PageRow> rows) {
  std::vector<const core::Point*> points;
  std::unordered_map<const core::Point*, PageRow*> row_of_point;
  for (PageRow& row : rows) {
    points.push_back(&row.point);
    row_of_point[points.back()] = &row;
  }
  for (const CodecPair& pair : codec_pairs(points))
    put_interval(*row_of_point[pair.coded], "codec_gain", "codec_gain_ci95_low", "codec_gain_ci95_high", pair.gain());
}

/// The machine in words: its processor, or else what the log of another tool says of it.
std::string machine_words(const core::RunInfo& info) {
  if (!info.cpu.empty()) return info.cpu;
  if (!info.gpus.empty()) return info.gpus.front();
  return info.hosts.empty() ? info.command : info.hosts.front();
}

std::vector<RunGroup> groups_of(const std::vector<core::Run>& runs) {
  std::vector<RunGroup> out;
  std::set<std::string> fingerprints, machines, commits, builds;
  const std::vector<std::size_t> origins = analysis::origins_of(runs);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const core::RunInfo& info = runs[r].info;
    fingerprints.insert(info.fingerprint);
    machines.insert(machine_words(info));
    commits.insert(info.commit);
    builds.insert(analysis::origin_of(info));
    if (origins[r] == out.size()) out.emplace_back();
    out[origins[r]].runs.push_back(&runs[r]);
  }
  for (RunGroup& group : out) {
    const core::RunInfo& info = group.runs.front()->info;
    // A machine is named by its words; by its fingerprint too if several machines have the same words.
    const bool by_words = machines.size() == fingerprints.size();
    if (fingerprints.size() > 1)
      group.machine =
          by_words ? machine_words(info) : fmt::format("machine {:.6} ({})", info.fingerprint, machine_words(info));
    if (commits.size() > 1) group.build = fmt::format("commit {:.8}", info.commit);
    // Builds of one commit differ in their version or libraries, runs of one build in environment or binding.
    if (out.size() > std::max(fingerprints.size(), commits.size()))
      group.build += fmt::format("{}{} {}", group.build.empty() ? "" : ", ",
                                 out.size() > builds.size() ? "conditions" : "build", &group - out.data() + 1);
  }
  return out;
}

void add_rows(PageTable& table, const RunGroup& group, std::size_t source, const std::string& name, const Uses& uses,
              std::vector<analysis::MergedPoint> points) {
  const std::size_t before = table.rows.size();
  for (auto& merged : points) {
    merged.point.raw_times_s = {};
    PageRow row = row_of(std::move(merged.point), source);
    row.put("launches", static_cast<std::int64_t>(merged.launches));
    if (!name.empty()) row.put("side", name);
    if (!group.machine.empty()) row.put("machine", group.machine);
    if (!group.build.empty()) row.put("build", group.build);
    table.rows.push_back(std::move(row));
  }
  const auto rows = std::span(table.rows).subspan(before);
  add_codec_gains(rows);
  for (PageRow& row : rows) put_labels(row, uses, name, group);
}

/// Takes each point of each run for itself.
std::vector<analysis::MergedPoint> separate_points(std::span<const core::Run* const> runs) {
  std::vector<analysis::MergedPoint> out;
  for (const core::Run* run : runs)
    for (const auto& point : run->points) out.push_back({.point = point, .launches = 1});
  return out;
}

/// `points_of` makes the points of the runs of a RunGroup.
template <class PointsOf>
PageTable rows_of(std::span<const analysis::Side> sides, const PointsOf& points_of) {
  const Uses uses = uses_of(sides);
  PageTable out;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    const std::string name = sides.size() > 1 ? sides[s].name : std::string();
    for (const RunGroup& group : groups_of(sides[s].runs)) add_rows(out, group, s, name, uses, points_of(group.runs));
  }
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const bool differs = std::ranges::any_of(uses, [i](const auto& of) { return of.second.factors[i].varies(); });
    if (differs) out.varying.push_back(static_cast<Factor>(i));
  }
  add_fp32_speedups(out);
  return out;
}

}  // namespace

PageTable make_rows(std::span<const analysis::Side> sides) {
  PageTable out = rows_of(sides, [](std::span<const core::Run* const> runs) { return analysis::merge_launches(runs); });
  out.curve_starts = find_curve_starts(out);
  return out;
}

PageTable make_separate_rows(std::span<const analysis::Side> sides) { return rows_of(sides, separate_points); }

void name_by_file(std::span<analysis::Side> sides) {
  std::map<std::string, std::size_t> counts;
  const auto stem_of = [](const std::string& path) { return std::filesystem::path(path).stem().string(); };
  for (const auto& side : sides) ++counts[stem_of(side.name)];
  for (auto& side : sides) {
    const std::filesystem::path path = side.name;
    const std::string stem = stem_of(side.name);
    if (stem.empty()) continue;
    side.name = counts[stem] < 2 ? stem : (path.parent_path().filename() / stem).string();
  }
}

void add_comparison(PageTable& table, const analysis::Comparison& comparison) {
  for (const auto& p : comparison.points) {
    PageRow row;
    row.point.experiment = compare_experiment;
    row.put("series", "measured");
    row.put("panel", fmt::format("{} against {}", comparison.b_name, comparison.a_name));
    row.put("point", comparison_label(comparison, p));
    row.put("verdict", std::string(analysis::name(p.verdict)));
    if (!p.reason.empty()) row.put("reason", p.reason);
    put_interval(row, "ratio", "ratio_ci95_low", "ratio_ci95_high", p.ratio);
    row.put_number("q_value", p.q_value);
    table.rows.push_back(std::move(row));
  }
}

}  // namespace gradmeter::report
