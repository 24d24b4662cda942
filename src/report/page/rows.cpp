#include "report/page/rows.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

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

double six_digits(double v) {
  if (!std::isfinite(v)) return v;
  std::array<char, 32> text{};
  const auto end = fmt::format_to(text.data(), "{:.6g}", v);
  double out = v;
  std::from_chars(text.data(), end, out);
  return out;
}

/// Null of a number that is not finite.
core::Value shown(double v) { return std::isfinite(v) ? core::Value(v) : core::Value(); }

/// The ends of a column's name and what they stand for in a summary.
struct IntervalEnd {
  std::string_view ending;
  double core::Summary::*value;
};
constexpr std::array interval_ends{IntervalEnd{"_ci95_low", &core::Summary::ci95_low},
                                   IntervalEnd{"_ci95_high", &core::Summary::ci95_high}};

/// The columns of a metric's interval.
const std::array<std::string, interval_ends.size()>& interval_columns(core::Metric metric) {
  static const auto all = [] {
    std::array<std::array<std::string, interval_ends.size()>, core::metric_count> out;
    for (std::size_t m = 0; m < out.size(); ++m)
      for (std::size_t i = 0; i < interval_ends.size(); ++i)
        out[m][i] = fmt::format("{}{}", core::name(static_cast<core::Metric>(m)), interval_ends[i].ending);
    return out;
  }();
  return all[static_cast<std::size_t>(metric)];
}

using VisitCell = std::function<void(std::string_view, const core::Value&)>;

void show_number(std::string_view column, double v, const VisitCell& visit) {
  if (std::isfinite(v)) visit(column, v);
}

void show(std::string_view column, const core::Value& value, const VisitCell& visit) {
  const auto* real = value.as<double>();
  if (!real || std::isfinite(*real)) visit(column, value);
}

void show_metric(core::Metric metric, const core::Value& value, const VisitCell& visit) {
  const auto* summary = value.as<core::Summary>();
  if (!summary) {
    show(core::name(metric), value, visit);
    return;
  }
  show_number(core::name(metric), summary->median, visit);
  const auto& columns = interval_columns(metric);
  for (std::size_t i = 0; i < columns.size(); ++i) show_number(columns[i], summary->*interval_ends[i].value, visit);
}

/// As JSON, with six digits.
void append_number(std::string& to, double v) {
  std::array<char, 32> text{};
  const char* end = fmt::format_to(text.data(), "{:.6g}", v);
  const std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  if (digits.find("e+") != std::string_view::npos) {
    to += Json(six_digits(v)).dump();  // which has no exponent below 1e15
    return;
  }
  to += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) to += ".0";
}

/// As JSON within a script element: no "<". Bytes that are not UTF-8 are replaced.
void append_text(std::string& to, std::string_view text) {
  const bool is_plain =
      std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\' && c != '<'; });
  if (is_plain) {
    to += '"';
    to += text;
    to += '"';
    return;
  }
  for (const char c : Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<') {
      to += "\\u003c";
    } else {
      to += c;
    }
  }
}

void append_spans(std::string& to, const core::Spans& spans) {
  const auto add = [&to](std::string_view key, double seconds) {
    to += key;
    append_number(to, seconds);
  };
  char before = '[';
  for (const core::Span& s : spans) {
    to += before;
    to += "{\"name\":";
    append_text(to, s.name);
    add(",\"begin_s\":", s.begin_s);
    add(",\"end_s\":", s.end_s);
    if (s.ready_s) add(",\"ready_s\":", *s.ready_s);
    if (s.bytes) to += fmt::format(",\"bytes\":{}", *s.bytes);
    to += '}';
    before = ',';
  }
  to += spans.empty() ? "[]" : "]";
}

void append(std::string& to, const core::Value& value) {
  if (const auto* real = value.as<double>()) {
    append_number(to, *real);
  } else if (const auto* text = value.as<std::string>()) {
    append_text(to, *text);
  } else if (const auto* spans = value.as<core::Spans>()) {
    append_spans(to, *spans);
  } else {
    to += core::to_text(value);
  }
}

/// Of a point, by a factor's or a metric's key.
const core::Value* value_of(const core::Point& point, std::string_view key) {
  static const auto known = [] {
    std::unordered_map<std::string_view, std::variant<Factor, core::Metric>> out;
    for (std::size_t i = 0; i < core::factor_count; ++i)
      out.emplace(name(static_cast<Factor>(i)), static_cast<Factor>(i));
    for (std::size_t i = 0; i < core::metric_count; ++i)
      out.emplace(name(static_cast<core::Metric>(i)), static_cast<core::Metric>(i));
    return out;
  }();
  const auto found = known.find(key);
  if (found == known.end()) return nullptr;
  if (const auto* factor = std::get_if<Factor>(&found->second)) return &point.factors[*factor];
  return &point.metrics[std::get<core::Metric>(found->second)];
}

/// Under columns that are not the point's own.
void put_interval(Row& row, std::string_view column, std::string_view low, std::string_view high,
                  const core::Summary& s) {
  row.put(column, shown(s.median));
  row.put(low, shown(s.ci95_low));
  row.put(high, shown(s.ci95_high));
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
struct ExperimentUse {
  std::array<FactorUse, core::factor_count> factors;
  /// The last point's of each number of ranks, link and whether it exchanges: what is as it was says nothing new.
  std::map<std::tuple<std::int64_t, std::string, bool>, core::Factors> last;
};
using Uses = std::map<std::string, ExperimentUse>;

/// A value that a point lacks is one too: with `gradients=bf16` and without are two curves. But one rank, and ranks
/// that exchange nothing, lack what belongs to an exchange, and are no curve of their own for that.
void add_values(ExperimentUse& to, const core::Factors& factors) {
  const std::int64_t ranks = integer(factors[Factor::ranks]);
  const bool exchanges = ranks != 1 && text(factors[Factor::strategy]) != "independent";
  const std::string link = text(factors[Factor::interconnect]);
  const auto [last, is_first] = to.last.try_emplace({ranks, link, exchanges});
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const core::Value& value = factors[static_cast<Factor>(i)];
    if (!is_first && value == std::as_const(last->second)[static_cast<Factor>(i)]) continue;
    if (!exchanges && core::is_null(value) && is_in(of_exchange, static_cast<Factor>(i))) continue;
    const std::string key = core::is_null(value) ? "" : core::to_text(value);
    FactorUse& use = to.factors[i];
    use.values.try_emplace(key, value);
    use.by_ranks[ranks].insert(key);
    use.by_link[link].insert(key);
    if (exchanges) use.exchanged.insert(key);
  }
  last->second = factors;
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
      if (uses.factors[i].varies()) find_words(uses.factors[i], static_cast<Factor>(i));
  }
  return out;
}

/// "ring, 4-bit gradients": the point's values, in words, of all factors that vary and that `is_named` takes.
template <class IsNamed>
std::string words_of(const core::Point& point, const Uses& uses, const std::string& first, const IsNamed& is_named) {
  std::string out = first;
  const auto& of_experiment = uses.at(point.experiment).factors;
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

void put_labels(Row& row, const Uses& uses, const std::string& source, const Origin& origin) {
  const core::Point& point = row.point;
  const std::string build =
      fmt::format("{}{}{}", source, source.empty() || origin.build.empty() ? "" : ", ", origin.build);
  // One rank of a strategy that is not named has no other choice to be told by.
  const core::Value& strategy = point.factors[Factor::strategy];
  const auto or_strategy = [&strategy](std::string words) {
    if (!words.empty()) return words;
    return core::is_null(strategy) ? "measured" : analysis::in_words(Factor::strategy, strategy);
  };
  row.put("series", or_strategy(words_of(point, uses, build, [](Factor f) { return is_in(choices, f); })));
  row.put("panel", words_of(point, uses, origin.machine, [](Factor f) { return !is_in(choices, f); }));
  if (!row.has("codec_gain")) return;
  const auto& of_experiment = uses.at(point.experiment).factors;
  const auto is_link = [&of_experiment](Factor f) {
    return f == Factor::interconnect ||
           (is_in(of_link, f) && of_experiment[static_cast<std::size_t>(f)].follows_link());
  };
  row.put("series_over_links",
          or_strategy(words_of(point, uses, build, [&](Factor f) { return is_in(choices, f) && !is_link(f); })));
  row.put("panel_over_links",
          words_of(point, uses, origin.machine, [&](Factor f) { return !is_in(choices, f) && !is_link(f); }));
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

Row row_of(core::Point point, std::size_t source) {
  Row row(std::move(point));
  row.put_first("source", static_cast<std::int64_t>(source));
  if (std::string batch = batch_in_words(row.point.factors); !batch.empty()) row.put_first("batch", std::move(batch));
  if (std::string doubt = doubt_of(row.point); !doubt.empty()) row.put_first("doubt", std::move(doubt));
  return row;
}

/// Whether a curve of `row` may begin at `start`: it is the same but for ranks, the control's strategy, and what one
/// rank lacks since it exchanges nothing.
bool begins_at(const Row& row, const Row& start, const std::vector<Factor>& varying) {
  const core::Factors &of_row = row.point.factors, &of_start = start.point.factors;
  return std::ranges::all_of(varying, [&](Factor factor) {
    const core::Value& own = of_start[factor];
    if (is_in(of_ranks, factor) || (is_in(of_exchange, factor) && own.is_null())) return true;
    const bool is_control = factor == Factor::strategy && text(own) == "independent";
    return is_control || of_row[factor] == own;
  });
}

/// Rows of one rank by all that rows which `begins_at` them have in common with them for sure: the side, machine and
/// build, a batch, and the conditions. Without it every row would be held against every one of one rank.
class Starts {
 public:
  using Batch = core::Value (*)(const Row&);
  Starts(Batch batch, std::vector<Factor> varying) : batch_(batch), varying_(std::move(varying)) {}
  void add(const Row& start) { by_key_[key_of(start)].push_back(&start); }
  /// The first that `fits`; null where there is none.
  template <class Fits>
  const Row* find(const Row& row, const Fits& fits) const {
    const auto found = by_key_.find(key_of(row));
    if (found == by_key_.end()) return nullptr;
    const auto start = std::ranges::find_if(found->second, [&](const Row* s) { return fits(*s, varying_); });
    return start == found->second.end() ? nullptr : *start;
  }

 private:
  std::string key_of(const Row& row) const {
    const auto one = [](const core::Value& v) { return v.is_null() ? "" : core::to_text(v); };
    std::string out = one(batch_(row));
    for (const char* column : {"source", "machine", "build"}) out += "|" + one(row.at(column));
    for (const Factor f : varying_)
      if (!is_in(of_ranks, f) && !is_in(of_exchange, f)) out += "|" + one(row.point.factors[f]);
    return out;
  }
  Batch batch_;
  std::vector<Factor> varying_;
  std::map<std::string, std::vector<const Row*>> by_key_;
};

/// The batch of one rank that a curve begins at: strong scaling's is that of all ranks.
core::Value base_batch(const Row& row) {
  const core::Factors& factors = row.point.factors;
  return factors[text(factors[Factor::scaling]) == "strong" ? Factor::batch_global : Factor::batch_per_rank];
}

std::vector<Row> find_curve_starts(const RowTable& table) {
  Starts starts(base_batch, table.varying);
  std::vector<const Row*> others;
  for (const Row& row : table.rows) {
    const core::Value& ranks = row.point.factors[Factor::ranks];
    if (row.point.experiment != "scale" || row.point.status != core::Status::ok || ranks.is_null()) continue;
    if (integer(ranks) == 1) {
      starts.add(row);
    } else {
      others.push_back(&row);
    }
  }
  std::vector<Row> out;
  std::set<std::array<std::string, 3>> done;
  constexpr std::array labels{"series", "panel", "batch"};
  for (const Row* row : others) {
    if (!done.insert({row->text("series"), row->text("panel"), row->text("batch")}).second) continue;
    const Row* start = starts.find(
        *row, [&](const Row& s, const std::vector<Factor>& varying) { return begins_at(*row, s, varying); });
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

/// Puts `fp32_speedup` into rows: their samples/s, divided by those of one rank in fp32 that has all else that a rank
/// alone can have in common with them.
void add_fp32_speedups(RowTable& table) {
  constexpr std::array formats{Factor::precision, Factor::update, Factor::loss_scale, Factor::gradients, Factor::codec};
  std::vector<Factor> held = table.varying;
  std::erase_if(held, [&](Factor f) { return is_in(formats, f); });
  Starts bases([](const Row& row) { return core::Value(row.point.factors[Factor::batch_per_rank]); }, held);
  const auto is_timed = [](const Row& row) {
    return row.point.experiment == "scale" && std::isfinite(row.point.metrics.number(core::Metric::samples_per_s));
  };
  const auto is_one_rank = [](const Row& row) { return integer(row.point.factors[Factor::ranks]) == 1; };
  const auto is_fp32 = [](const Row& row) { return text(row.point.factors[Factor::precision]) == "fp32"; };
  for (const Row& row : table.rows)
    if (is_timed(row) && row.point.status == core::Status::ok && is_one_rank(row) && is_fp32(row)) bases.add(row);
  for (Row& row : table.rows) {
    if (!is_timed(row) || (is_one_rank(row) && is_fp32(row))) continue;
    const Row* base = bases.find(row, [&](const Row& b, const std::vector<Factor>& varying) {
      return is_one_rank(row) ? begins_at(b, row, varying) : begins_at(row, b, varying);
    });
    if (!base) continue;
    const double speedup = row.number("samples_per_s") / base->number("samples_per_s");
    const auto end = [&](const char* own, const char* other) {
      return speedup * row.number("time_s") / row.number(own) * base->number(other) / base->number("time_s");
    };
    put_interval(row, "fp32_speedup", "fp32_speedup_ci95_low", "fp32_speedup_ci95_high",
                 {.median = speedup,
                  .ci95_low = end("time_s_ci95_high", "time_s_ci95_low"),
                  .ci95_high = end("time_s_ci95_low", "time_s_ci95_high")});
  }
}

void add_codec_gains(std::span<Row> rows) {
  std::vector<const core::Point*> all;
  std::unordered_map<const core::Point*, Row*> row_of_point;
  for (Row& row : rows) {
    all.push_back(&row.point);
    row_of_point[all.back()] = &row;
  }
  for (const CodecPair& pair : codec_pairs(all))
    put_interval(*row_of_point[pair.coded], "codec_gain", "codec_gain_ci95_low", "codec_gain_ci95_high", pair.gain());
}

/// The columns that rows of a table have, by their name, in the order in which they have them.
class TableColumns {
 public:
  explicit TableColumns(std::span<const Row> rows) {
    for (const Row& row : rows) {
      row.each([this](std::string_view column, const core::Value& value) {
        auto found = places_.find(column);
        if (found == places_.end()) {
          found = places_.emplace(column, names_.size()).first;
          names_.emplace_back(column);
          has_spans_.push_back(false);
        }
        if (value.as<core::Spans>()) has_spans_[found->second] = true;
      });
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  bool has_spans(std::size_t place) const { return has_spans_[place]; }
  /// visit(place, value) for each that the row has. A start of a curve may have columns that no row has.
  template <class Visit>
  void each(const Row& row, const Visit& visit) const {
    row.each([&](std::string_view column, const core::Value& value) {
      if (const auto found = places_.find(column); found != places_.end()) visit(found->second, value);
    });
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<std::string> names_;
  std::vector<bool> has_spans_;
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> places_;
};

std::string csv_value(const core::Value& value) {
  const auto* text = value.as<std::string>();
  return text ? csv_text(*text) : csv_quoted(to_json(value).dump());
}

/// The points of some runs, launches merged or each for itself.
std::vector<analysis::MergedPoint> points_of(std::span<const core::Run* const> runs, Launches launches) {
  if (launches == Launches::merged) return analysis::merge_launches(runs);
  std::vector<analysis::MergedPoint> out;
  for (const core::Run* run : runs)
    for (const auto& point : run->points) out.push_back({.point = point, .launches = 1});
  return out;
}

struct RunGroup {
  std::vector<const core::Run*> runs;
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
                                         [](const RunGroup& g) { return analysis::origin_of(g.runs.front()->info); });
    if (group == out.end()) {
      out.push_back({.runs = {&run}, .origin = {}});
    } else {
      group->runs.push_back(&run);
    }
  }
  for (RunGroup& group : out) {
    const core::RunInfo& info = group.runs.front()->info;
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
  const std::size_t before = table.rows.size();
  for (auto& merged : points_of(group.runs, launches)) {
    merged.point.raw_times_s = {};
    Row row = row_of(std::move(merged.point), source);
    row.put("launches", static_cast<std::int64_t>(merged.launches));
    if (!name.empty()) row.put("side", name);
    if (!group.origin.machine.empty()) row.put("machine", group.origin.machine);
    if (!group.origin.build.empty()) row.put("build", group.origin.build);
    table.rows.push_back(std::move(row));
  }
  const auto rows = std::span(table.rows).subspan(before);
  add_codec_gains(rows);
  for (Row& row : rows) put_labels(row, uses, name, group.origin);
}

}  // namespace

void Row::put(std::string_view column, core::Value value) {
  if (value.is_null()) return;
  for (auto* cells : {&first_, &last_}) {
    for (Cell& cell : *cells) {
      if (cell.column != column) continue;
      cell.value = std::move(value);
      return;
    }
  }
  last_.push_back({column, std::move(value)});
}

void Row::put_first(std::string_view column, core::Value value) { first_.push_back({column, std::move(value)}); }

const core::Value* Row::find(std::string_view column) const {
  for (const auto* cells : {&last_, &first_})
    for (const Cell& cell : *cells)
      if (cell.column == column) return &cell.value;
  return value_of(point, column);
}

core::Value Row::at(std::string_view column) const {
  if (column == "experiment") return point.experiment;
  if (column == "status") return std::string(core::name(point.status));
  const core::Value* found = find(column);
  if (column == "reason" && !found) return point.reason.empty() ? core::Value() : core::Value(point.reason);
  for (const auto& [ending, end] : interval_ends) {
    if (!column.ends_with(ending) || (found && !found->is_null())) continue;
    const core::Value* whole = value_of(point, column.substr(0, column.size() - ending.size()));
    const auto* summary = whole ? whole->as<core::Summary>() : nullptr;
    return summary ? shown(summary->*end) : core::Value();
  }
  if (!found) return {};
  if (const auto* summary = found->as<core::Summary>()) return shown(summary->median);
  const auto* real = found->as<double>();
  return real ? shown(*real) : *found;
}

bool Row::has(std::string_view column) const {
  const core::Value* found = find(column);
  if (!found) return !at(column).is_null();
  if (const auto* summary = found->as<core::Summary>()) return std::isfinite(summary->median);
  const auto* real = found->as<double>();
  return real ? std::isfinite(*real) : !found->is_null() || !at(column).is_null();
}

std::string Row::text(std::string_view column) const {
  const core::Value* found = find(column);
  const core::Value other = found ? core::Value() : at(column);
  const auto* text = (found ? *found : other).as<std::string>();
  return text ? *text : std::string();
}

double Row::number(std::string_view column) const {
  const core::Value value = at(column);
  if (const auto* whole = value.as<std::int64_t>()) return static_cast<double>(*whole);
  const auto* real = value.as<double>();
  return real ? six_digits(*real) : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t Row::whole(std::string_view column) const { return integer(at(column)); }

void Row::each(const std::function<void(std::string_view, const core::Value&)>& visit) const {
  visit("experiment", point.experiment);
  visit("status", std::string(core::name(point.status)));
  if (!point.reason.empty()) visit("reason", point.reason);
  for (const Cell& cell : first_) visit(cell.column, cell.value);
  point.factors.each([&](Factor f, const core::Value& value) { show(core::name(f), value, visit); });
  point.metrics.each([&](core::Metric m, const core::Value& value) { show_metric(m, value, visit); });
  for (const Cell& cell : last_) visit(cell.column, cell.value);
}

Json to_json(const core::Value& value) {
  if (const auto* truth = value.as<bool>()) return *truth;
  if (const auto* whole = value.as<std::int64_t>()) return *whole;
  if (const auto* real = value.as<double>()) return six_digits(*real);
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* summary = value.as<core::Summary>()) return six_digits(summary->median);
  const auto* spans = value.as<core::Spans>();
  if (!spans) return nullptr;
  Json list = Json::array();
  for (const core::Span& s : *spans) {
    Json one{{"name", s.name}, {"begin_s", six_digits(s.begin_s)}, {"end_s", six_digits(s.end_s)}};
    if (s.ready_s) one["ready_s"] = six_digits(*s.ready_s);
    if (s.bytes) one["bytes"] = *s.bytes;
    list.push_back(std::move(one));
  }
  return list;
}

Json to_json(const Row& row) {
  Json out = Json::object();
  row.each([&out](std::string_view column, const core::Value& value) { out[std::string(column)] = to_json(value); });
  return out;
}

RowTable make_rows(std::span<const analysis::Side> sides, Launches launches) {
  const Uses uses = uses_of(sides);
  RowTable out;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    const std::string name = sides.size() > 1 ? sides[s].name : std::string();
    for (const RunGroup& group : groups_of(sides[s].runs)) add_rows(out, group, s, name, uses, launches);
  }
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const bool differs = std::ranges::any_of(uses, [i](const auto& of) { return of.second.factors[i].varies(); });
    if (differs) out.varying.push_back(static_cast<Factor>(i));
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
    Row row;
    row.point.experiment = compared;
    row.put("series", "measured");
    row.put("panel", fmt::format("{} against {}", comparison.b_name, comparison.a_name));
    row.put("point", comparison_label(comparison, p));
    row.put("verdict", std::string(analysis::name(p.verdict)));
    if (!p.reason.empty()) row.put("reason", p.reason);
    put_interval(row, "ratio", "ratio_ci95_low", "ratio_ci95_high",
                 {.median = p.ratio.ratio, .ci95_low = p.ratio.ci95_low, .ci95_high = p.ratio.ci95_high});
    row.put("q_value", shown(p.q_value));
    table.rows.push_back(std::move(row));
  }
}

void write_compact(const RowTable& table, std::ostream& to) {
  const TableColumns columns(table.rows);
  std::string out = "{\"columns\":";
  char before = '[';
  for (const std::string& name : columns.names()) {
    out += before;
    append_text(out, name);
    before = ',';
  }
  out += columns.names().empty() ? "[]" : "]";
  std::vector<std::string> cells(columns.names().size());
  const auto add_rows = [&](const std::vector<Row>& rows) {
    char before_row = '[';
    for (const Row& row : rows) {
      for (std::string& cell : cells) cell = "null";
      columns.each(row, [&cells](std::size_t place, const core::Value& value) {
        cells[place].clear();
        append(cells[place], value);
      });
      out += before_row;
      out += '[';
      for (const std::string& cell : cells) {
        out += cell;
        out += ',';
      }
      out.back() = ']';
      before_row = ',';
      to << out;
      out.clear();
    }
    out += rows.empty() ? "[]" : "]";
  };
  out += ",\"rows\":";
  add_rows(table.rows);
  out += ",\"curve_starts\":";
  add_rows(table.curve_starts);
  to << out << '}';
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
  const TableColumns columns(table.rows);
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string_view comma;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (columns.has_spans(i)) continue;
      out += comma;
      out += cells[i];
      comma = ",";
    }
    out += '\n';
  };
  add_line(columns.names());
  std::vector<std::string> cells(columns.names().size());
  for (const Row& row : table.rows) {
    for (std::string& cell : cells) cell.clear();
    columns.each(row, [&](std::size_t i, const core::Value& value) {
      if (!columns.has_spans(i)) cells[i] = csv_value(value);
    });
    add_line(cells);
  }
  return out;
}

}  // namespace gradmeter::report
