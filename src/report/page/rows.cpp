#include "report/page/rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "analysis/conditions.hpp"
#include "analysis/launches.hpp"
#include "analysis/merged.hpp"
#include "analysis/words.hpp"
#include "core/disturbance.hpp"
#include "core/format.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Json;

/// Factors along which curves run: every chart names them by its axes or panels.
constexpr std::array along{Factor::ranks,     Factor::batch_per_rank, Factor::batch_global, Factor::size_bytes,
                           Factor::from_rank, Factor::to_rank,        Factor::interval};
/// Factors that usually follow from the number of ranks.
constexpr std::array layout{Factor::nodes, Factor::ranks_per_node, Factor::mapping, Factor::placement};
/// Factors that are chosen for an exchange or a computation; all others are conditions, which tell panels apart.
constexpr std::array choices{Factor::precision, Factor::update,    Factor::accumulate,  Factor::strategy,
                             Factor::mesh,      Factor::algorithm, Factor::codec,       Factor::bucket_bytes,
                             Factor::overlap,   Factor::transport, Factor::accum_dtype, Factor::op,
                             Factor::buffers,   Factor::in_place,  Factor::loss_scale,  Factor::gradients,
                             Factor::search,    Factor::cudagraph, Factor::outstanding};
/// Factors that are others on one rank than on several of the same curve.
constexpr std::array of_ranks{Factor::ranks,   Factor::nodes,   Factor::ranks_per_node, Factor::batch_global,
                              Factor::scaling, Factor::mapping, Factor::placement};
/// Factors that one rank, and ranks that exchange nothing, do not have.
constexpr std::array of_exchange{Factor::scaling,   Factor::strategy,    Factor::mesh,      Factor::algorithm,
                                 Factor::codec,     Factor::overlap,     Factor::transport, Factor::accum_dtype,
                                 Factor::gradients, Factor::op,          Factor::buffers,   Factor::mapping,
                                 Factor::placement, Factor::bucket_bytes};
/// Factors that usually are one with the link, where curves run over links.
constexpr std::array of_link{Factor::interconnect,   Factor::transport, Factor::nodes,
                             Factor::ranks_per_node, Factor::mapping,   Factor::placement};

bool is_in(std::span<const Factor> list, Factor f) { return std::ranges::find(list, f) != list.end(); }

double six_digits(double v) { return std::isfinite(v) ? std::stod(fmt::format("{:.6g}", v)) : v; }

void put(Json& row, const std::string& key, const core::Value& value) {
  struct Writer {
    Json& to;
    const std::string& key;
    void operator()(std::monostate) const {}
    void operator()(bool v) const { to[key] = v; }
    void operator()(std::int64_t v) const { to[key] = v; }
    void operator()(double v) const {
      if (std::isfinite(v)) to[key] = six_digits(v);
    }
    void operator()(const std::string& v) const { to[key] = v; }
    void operator()(const core::Summary& s) const {
      (*this)(s.median);
      const std::string low = key + "_ci95_low", high = key + "_ci95_high";
      Writer{to, low}(s.ci95_low);
      Writer{to, high}(s.ci95_high);
    }
    void operator()(const core::Spans& spans) const {
      Json list = Json::array();
      for (const core::Span& s : spans) {
        Json one{{"name", s.name}, {"begin_s", six_digits(s.begin_s)}, {"end_s", six_digits(s.end_s)}};
        if (s.ready_s) one["ready_s"] = six_digits(*s.ready_s);
        if (s.bytes) one["bytes"] = *s.bytes;
        list.push_back(std::move(one));
      }
      to[key] = std::move(list);
    }
  };
  std::visit(Writer{row, key}, value);
}

/// What an experiment's points say of one factor.
struct FactorUse {
  std::map<std::string, core::Value> values;               ///< by text; "" where a point lacks the factor
  std::map<std::int64_t, std::set<std::string>> by_ranks;  ///< the texts at each number of ranks
  std::map<std::string, std::string> words;                ///< of a value's text; empty until `find_words`
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
using Uses = std::map<std::string, std::array<FactorUse, core::factor_count>>;

/// A value that a point lacks is one too: with `gradients=bf16` and without are two curves. But one rank, and ranks
/// that exchange nothing, lack what belongs to an exchange, and are no curve of their own for that.
void add_values(std::array<FactorUse, core::factor_count>& to, const core::Factors& factors) {
  const std::int64_t ranks = integer(factors[Factor::ranks]);
  const bool exchanges = ranks != 1 && text(factors[Factor::strategy]) != "independent";
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const core::Value& value = factors[static_cast<Factor>(i)];
    if (!exchanges && core::is_null(value) && is_in(of_exchange, static_cast<Factor>(i))) continue;
    const std::string key = core::is_null(value) ? "" : core::to_text(value);
    to[i].values.try_emplace(key, value);
    to[i].by_ranks[ranks].insert(key);
    to[i].by_link[text(factors[Factor::interconnect])].insert(key);
    if (exchanges) to[i].exchanged.insert(key);
  }
}

/// "gemm:m=512,k=512" of a mini-batch's "gemm:m=512,n=16,k=512": the same problem at each mini-batch.
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

/// Of the points that were measured: one without figures makes no difference that a chart would have to tell.
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
      if (uses[i].varies()) find_words(uses[i], static_cast<Factor>(i));
  }
  return out;
}

/// "ring, 4-bit gradients": the point's values, in words, of all factors that vary and that `is_named` takes.
template <class IsNamed>
std::string words_of(const core::Point& point, const Uses& uses, const std::string& first, const IsNamed& is_named) {
  std::string out = first;
  const auto& of_experiment = uses.at(point.experiment);
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const FactorUse& use = of_experiment[i];
    if (!use.varies() || is_in(along, factor) || !is_named(factor)) continue;
    if (is_in(layout, factor) && use.follows_ranks()) continue;
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

/// On what a group of a side's runs was measured, in words; empty where all runs agree.
struct Origin {
  std::string machine, build;
};

void put_labels(Json& row, const core::Point& point, const Uses& uses, const std::string& source,
                const Origin& origin) {
  const std::string build =
      fmt::format("{}{}{}", source, source.empty() || origin.build.empty() ? "" : ", ", origin.build);
  // One rank of a strategy that is not named has no other choice to be told by.
  const core::Value& strategy = point.factors[Factor::strategy];
  const auto or_strategy = [&strategy](std::string words) {
    if (!words.empty()) return words;
    return core::is_null(strategy) ? "measured" : analysis::in_words(Factor::strategy, strategy);
  };
  row["series"] = or_strategy(words_of(point, uses, build, [](Factor f) { return is_in(choices, f); }));
  row["panel"] = words_of(point, uses, origin.machine, [](Factor f) { return !is_in(choices, f); });
  if (!row.contains("codec_gain")) return;
  const auto& of_experiment = uses.at(point.experiment);
  const auto is_link = [&of_experiment](Factor f) {
    return f == Factor::interconnect ||
           (is_in(of_link, f) && of_experiment[static_cast<std::size_t>(f)].follows_link());
  };
  row["series_over_links"] =
      or_strategy(words_of(point, uses, build, [&](Factor f) { return is_in(choices, f) && !is_link(f); }));
  row["panel_over_links"] =
      words_of(point, uses, origin.machine, [&](Factor f) { return !is_in(choices, f) && !is_link(f); });
}

/// Why a row's figure is not to be relied on; empty where nothing is known against it.
std::string doubt_of(const core::Point& point) {
  std::vector<std::string> doubts;
  const double efficiency = point.metrics.number(core::Metric::efficiency);
  const bool compared = std::isfinite(efficiency) && integer(point.factors[Factor::ranks]) > 1;
  if (point.status == core::Status::mistrusted) doubts.push_back(fmt::format("mistrusted: {}", point.reason));
  if (core::is_disturbed(point.metrics)) doubts.emplace_back("disturbed");
  if (oversubscribed(point)) doubts.emplace_back("more threads than cores");
  if (compared && efficiency >= 1.005) doubts.emplace_back("above 100 %");
  if (compared && !std::isfinite(point.metrics.number(core::Metric::efficiency_ci95_low)))
    doubts.emplace_back("no interval");
  return fmt::format("{}", fmt::join(doubts, "; "));
}

/// What stays along a curve over ranks: "batch 16", of strong scaling "batch 64 in all".
std::string batch_in_words(const core::Factors& factors) {
  const bool strong = text(factors[Factor::scaling]) == "strong";
  const core::Value& batch = factors[strong ? Factor::batch_global : Factor::batch_per_rank];
  return core::is_null(batch) ? "" : fmt::format("batch {}{}", core::to_text(batch), strong ? " in all" : "");
}

Json row_of(const core::Point& point, std::size_t source) {
  Json row;
  row["experiment"] = point.experiment;
  row["status"] = core::name(point.status);
  if (!point.reason.empty()) row["reason"] = point.reason;
  row["source"] = source;
  if (std::string batch = batch_in_words(point.factors); !batch.empty()) row["batch"] = std::move(batch);
  if (std::string doubt = doubt_of(point); !doubt.empty()) row["doubt"] = std::move(doubt);
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto f = static_cast<Factor>(i);
    put(row, std::string(core::name(f)), point.factors[f]);
  }
  for (std::size_t i = 0; i < core::metric_count; ++i) {
    const auto m = static_cast<core::Metric>(i);
    put(row, std::string(core::name(m)), point.metrics[m]);
  }
  return row;
}

/// Whether a curve of `row` may begin at `start`: it is the same but for ranks, the control's strategy, and what one
/// rank lacks since it exchanges nothing.
bool begins_at(const Json& row, const Json& start, const std::vector<std::string>& varying) {
  return std::ranges::all_of(varying, [&](const std::string& key) {
    const Factor factor = analysis::find_factor(key);
    if (is_in(of_ranks, factor) || (is_in(of_exchange, factor) && !start.contains(key))) return true;
    const bool is_control = factor == Factor::strategy && start.value(key, "") == "independent";
    return is_control || row.value(key, Json()) == start.value(key, Json());
  });
}

/// Two rows of one side, machine and build.
bool has_one_origin(const Json& a, const Json& b) {
  return std::ranges::all_of(std::array{"source", "machine", "build"},
                             [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); });
}

/// The batch of one rank that a curve begins at: strong scaling's is that of all ranks.
Json base_batch(const Json& row) {
  return row.value(row.value("scaling", "") == "strong" ? "batch_global" : "batch_per_rank", Json());
}

std::vector<Json> find_curve_starts(const RowTable& table) {
  std::vector<const Json*> starts, others;
  for (const Json& row : table.rows) {
    if (row.at("experiment") != "scale" || row.at("status") != "ok" || !row.contains("ranks")) continue;
    (row["ranks"] == 1 ? starts : others).push_back(&row);
  }
  std::vector<Json> out;
  std::set<std::array<std::string, 3>> done;
  for (const Json* row : others) {
    const std::string batch = row->value("batch", "");
    if (!done.insert({row->at("series"), row->at("panel"), batch}).second) continue;
    const auto start = std::find_if(starts.begin(), starts.end(), [&](const Json* s) {
      return has_one_origin(*s, *row) && base_batch(*s) == base_batch(*row) && begins_at(*row, *s, table.varying);
    });
    if (start == starts.end()) continue;
    const bool is_one_curve = std::ranges::all_of(std::array{"series", "panel", "batch"}, [&](const char* label) {
      return (*start)->value(label, "") == row->value(label, "");
    });
    if (is_one_curve) continue;
    out.push_back(**start);
    for (const char* label : {"series", "panel", "batch"})
      if (row->contains(label)) out.back()[label] = row->at(label);
  }
  return out;
}

/// Puts `fp32_speedup` into rows: their samples/s, divided by those of one rank in fp32 that has all else that a rank
/// alone can have in common with them.
void add_fp32_speedups(RowTable& table) {
  constexpr std::array formats{"precision", "update", "loss_scale", "gradients", "codec"};
  std::vector<std::string> held = table.varying;
  std::erase_if(held, [&](const std::string& key) { return std::ranges::find(formats, key) != formats.end(); });
  std::vector<const Json*> bases;
  for (const Json& row : table.rows) {
    if (row.at("experiment") == "scale" && row.at("status") == "ok" && row.value("ranks", 0) == 1 &&
        row.value("precision", "") == "fp32" && row.contains("samples_per_s"))
      bases.push_back(&row);
  }
  for (Json& row : table.rows) {
    if (row.at("experiment") != "scale" || !row.contains("samples_per_s")) continue;
    const auto base = std::ranges::find_if(bases, [&](const Json* b) {
      return has_one_origin(*b, row) && b->value("batch_per_rank", Json()) == row.value("batch_per_rank", Json()) &&
             (row.value("ranks", 0) == 1 ? begins_at(*b, row, held) : begins_at(row, *b, held));
    });
    if (base == bases.end() || (row.value("ranks", 0) == 1 && row.value("precision", "") == "fp32")) continue;
    const auto number = [](const Json& of, const char* key) {
      return of.contains(key) ? of.at(key).get<double>() : std::numeric_limits<double>::quiet_NaN();
    };
    const double speedup = number(row, "samples_per_s") / number(**base, "samples_per_s");
    const auto end = [&](const char* own, const char* other) {
      return speedup * number(row, "time_s") / number(row, own) * number(**base, other) / number(**base, "time_s");
    };
    put(row, "fp32_speedup", speedup);
    put(row, "fp32_speedup_ci95_low", end("time_s_ci95_high", "time_s_ci95_low"));
    put(row, "fp32_speedup_ci95_high", end("time_s_ci95_low", "time_s_ci95_high"));
  }
}

/// `rows` are those of the points.
void add_codec_gains(std::span<const analysis::MergedPoint> points, std::span<Json> rows) {
  std::vector<const core::Point*> all;
  std::map<const core::Point*, Json*> row_of_point;
  for (std::size_t i = 0; i < points.size(); ++i) {
    all.push_back(&points[i].point);
    row_of_point[all.back()] = &rows[i];
  }
  for (const CodecPair& pair : codec_pairs(all)) put(*row_of_point[pair.coded], "codec_gain", pair.gain());
}

std::vector<std::string> columns_of(const RowTable& table) {
  std::vector<std::string> out;
  std::set<std::string> known;
  for (const Json& row : table.rows) {
    for (const auto& [key, value] : row.items()) {
      if (known.insert(key).second) out.push_back(key);
    }
  }
  return out;
}

std::string csv_value(const Json& value) {
  return value.is_null() ? "" : value.is_string() ? csv_text(value.get<std::string>()) : csv_quoted(value.dump());
}

/// The side's points, launches merged or each for itself.
std::vector<analysis::MergedPoint> points_of(std::span<const core::Run> runs, Launches launches) {
  if (launches == Launches::merged) return analysis::merge_launches(runs);
  std::vector<analysis::MergedPoint> out;
  for (const auto& run : runs)
    for (const auto& point : run.points) out.push_back({.point = point, .launches = 1});
  return out;
}

struct RunGroup {
  std::vector<core::Run> runs;
  Origin origin;
};

/// Runs of one machine and build together: only these are launches of one point.
std::vector<RunGroup> groups_of(const std::vector<core::Run>& runs) {
  std::vector<RunGroup> out;
  std::set<std::string> fingerprints, processors, commits;
  for (const auto& run : runs) {
    fingerprints.insert(run.info.fingerprint);
    processors.insert(run.info.cpu);
    commits.insert(run.info.commit);
    const auto group = std::ranges::find(out, analysis::origin_of(run.info),
                                         [](const RunGroup& g) { return analysis::origin_of(g.runs.front().info); });
    if (group == out.end()) {
      out.push_back({.runs = {run}, .origin = {}});
    } else {
      group->runs.push_back(run);
    }
  }
  for (RunGroup& group : out) {
    const core::RunInfo& info = group.runs.front().info;
    // The hosts' names are words of a machine; where two machines share them and their processor, the fingerprint is.
    const bool by_processor = processors.size() == fingerprints.size();
    if (fingerprints.size() > 1)
      group.origin.machine = by_processor ? info.cpu : fmt::format("machine {:.6} ({})", info.fingerprint, info.cpu);
    if (commits.size() > 1) group.origin.build = fmt::format("commit {:.8}", info.commit);
    // Builds of one commit differ in their version or libraries.
    if (out.size() > std::max(fingerprints.size(), commits.size()))
      group.origin.build += fmt::format("{}build {}", group.origin.build.empty() ? "" : ", ", &group - out.data() + 1);
  }
  return out;
}

void add_rows(RowTable& table, const RunGroup& group, std::size_t source, const std::string& name, const Uses& uses,
              Launches launches) {
  const auto points = points_of(group.runs, launches);
  for (const auto& merged : points) {
    Json row = row_of(merged.point, source);
    row["launches"] = merged.launches;
    if (!name.empty()) row["side"] = name;
    if (!group.origin.machine.empty()) row["machine"] = group.origin.machine;
    if (!group.origin.build.empty()) row["build"] = group.origin.build;
    table.rows.push_back(std::move(row));
  }
  const auto rows = std::span(table.rows).last(points.size());
  add_codec_gains(points, rows);
  for (std::size_t i = 0; i < points.size(); ++i) put_labels(rows[i], points[i].point, uses, name, group.origin);
}

}  // namespace

RowTable make_rows(std::span<const analysis::Side> sides, Launches launches) {
  const Uses uses = uses_of(sides);
  RowTable out;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    const std::string name = sides.size() > 1 ? sides[s].name : std::string();
    for (const RunGroup& group : groups_of(sides[s].runs)) add_rows(out, group, s, name, uses, launches);
  }
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const bool differs = std::ranges::any_of(uses, [i](const auto& of) { return of.second[i].varies(); });
    if (differs) out.varying.emplace_back(core::name(static_cast<Factor>(i)));
  }
  add_fp32_speedups(out);
  if (launches == Launches::merged) out.curve_starts = find_curve_starts(out);
  return out;
}

void name_by_label(std::span<analysis::Side> sides) {
  std::map<std::string, std::size_t> uses;
  const auto label = [](const std::string& path) { return std::filesystem::path(path).stem().string(); };
  for (const auto& side : sides) ++uses[label(side.name)];
  for (auto& side : sides) {
    const std::filesystem::path path = side.name;
    const std::string own = label(side.name);
    if (own.empty()) continue;
    side.name = uses[own] < 2 ? own : (path.parent_path().filename() / own).string();
  }
}

void add_comparison(RowTable& table, const analysis::Comparison& comparison) {
  for (const auto& p : comparison.points) {
    Json row{{"experiment", "compare"},
             {"status", "ok"},
             {"series", "measured"},
             {"panel", fmt::format("{} against {}", comparison.b_name, comparison.a_name)}};
    row["point"] = comparison_label(comparison, p);
    row["verdict"] = analysis::name(p.verdict);
    if (!p.reason.empty()) row["reason"] = p.reason;
    put(row, "ratio", p.ratio.ratio);
    put(row, "ratio_ci95_low", p.ratio.ci95_low);
    put(row, "ratio_ci95_high", p.ratio.ci95_high);
    put(row, "q_value", p.q_value);
    table.rows.push_back(std::move(row));
  }
}

Json compact(const RowTable& table) {
  const auto columns = columns_of(table);
  const auto cells_of = [&columns](const std::vector<Json>& rows) {
    Json out = Json::array();
    for (const Json& row : rows) {
      Json cells = Json::array();
      for (const auto& column : columns) cells.push_back(row.contains(column) ? row[column] : Json());
      out.push_back(std::move(cells));
    }
    return out;
  };
  return {{"columns", columns}, {"rows", cells_of(table.rows)}, {"curve_starts", cells_of(table.curve_starts)}};
}

std::string column_words(std::string_view key) {
  struct Words {
    std::string_view key, words;
  };
  static constexpr std::array known{Words{"batch_per_rank", "mini-batch of a rank"},
                                    Words{"batch_global", "mini-batch of all ranks"},
                                    Words{"ranks_per_node", "ranks a node"},
                                    Words{"size_bytes", "buffer of a rank [B]"},
                                    Words{"bucket_bytes", "size of buckets [B]"},
                                    Words{"accumulate", "micro-batches"},
                                    Words{"dtype", "element type"},
                                    Words{"accum_dtype", "element type of sums"},
                                    Words{"op", "operation"},
                                    Words{"reduction", "time over ranks"},
                                    Words{"time_s", "time [s]"},
                                    Words{"busbw_bytes_per_s", "bus bandwidth [B/s]"},
                                    Words{"flops_per_s", "rate [FLOP/s]"},
                                    Words{"error", "relative error"},
                                    Words{"wire_bits", "bits an element"}};
  const auto found = std::ranges::find(known, key, &Words::key);
  std::string words(found == known.end() ? key : found->words);
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string rows_csv(const RowTable& table) {
  auto columns = columns_of(table);
  const auto has_spans = [&](const std::string& column) {
    return std::ranges::any_of(table.rows, [&](const Json& r) { return r.contains(column) && r[column].is_array(); });
  };
  std::erase_if(columns, has_spans);
  std::string out = fmt::format("{}\n", fmt::join(columns, ","));
  for (const Json& row : table.rows) {
    std::string_view comma;
    for (const auto& column : columns) {
      out += fmt::format("{}{}", comma, csv_value(row.contains(column) ? row[column] : Json()));
      comma = ",";
    }
    out += '\n';
  }
  return out;
}

}  // namespace gradmeter::report
