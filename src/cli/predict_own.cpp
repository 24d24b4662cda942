// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cli/predict.hpp"
#include "cli/result_input.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result_file.hpp"
#include "core/statistics.hpp"
#include "core/units.hpp"
#include "predict/collective_fit.hpp"
#include "predict/own_steps.hpp"
#include "report/cells.hpp"

namespace gradmeter::cli {

using core::UsageError;

namespace {

std::vector<std::string> own_paths(const Flags& f, const std::string& flag) {
  return f.has(flag) ? split_paths(f.text(flag)) : std::vector<std::string>();
}
bool is_result_file(const std::string& path) { return path.ends_with(".jsonl"); }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("cannot read '{}'; name an existing file", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The measurements of one file.
struct FileMeasurements {
  std::string path;
  std::vector<predict::MeasuredCollective> collectives;
  std::vector<predict::OwnStep> steps;
};

FileMeasurements read_own(const std::string& path) {
  if (!is_result_file(path)) return {path, predict::read_collectives(read_file(path), path), {}};
  const auto runs = core::read_results(path, core::Reading::strict, core::RawTimes::left_out).runs;
  FileMeasurements out{path, predict::collectives_of(runs, path), predict::steps_of(runs, path)};
  if (out.collectives.empty() && out.steps.empty())
    throw UsageError(fmt::format(
        "{}: no measured point of allreduce or scale, and predictions are fitted to these; name a file that has some",
        path));
  return out;
}

/// The measurements of all files of a flag together.
FileMeasurements read_all(const Flags& f, const std::string& flag) {
  FileMeasurements merged;
  for (const auto& path : own_paths(f, flag)) {
    FileMeasurements file = read_own(path);
    std::ranges::move(file.collectives, std::back_inserter(merged.collectives));
    std::ranges::move(file.steps, std::back_inserter(merged.steps));
  }
  return merged;
}

predict::OwnStepOptions options_of(const Flags& f) {
  constexpr std::uint64_t most_cores = 1u << 20;
  if (!f.has("shared-cores")) return {};
  return {.shared_cores =
              static_cast<std::int64_t>(parse_count("--shared-cores", f.text("shared-cores"), 1, most_cores))};
}

template <class Row, class RanksOf>
std::int64_t largest_ranks(const std::vector<Row>& rows, const RanksOf& ranks_of) {
  std::int64_t most = 0;
  for (const Row& r : rows) most = std::max(most, ranks_of(r));
  return most;
}

/// The score of the steps on the most ranks, predicted by a fit to all other measurements; empty if there are none to
/// fit to.
std::optional<predict::Score> held_out_steps(const FileMeasurements& known, const predict::OwnStepOptions& options) {
  std::vector<predict::OwnStep> steps = known.steps;
  std::erase_if(steps, [](const auto& s) { return !s.refusal().empty(); });
  const std::int64_t most = largest_ranks(steps, [](const auto& s) { return s.ranks; });
  if (most < 2) return std::nullopt;
  std::vector<predict::OwnStep> kept, held_out;
  for (const auto& s : steps) (s.ranks == most ? held_out : kept).push_back(s);
  std::vector<predict::MeasuredCollective> kept_collectives;
  for (const auto& c : known.collectives)
    if (c.shape.ranks < most) kept_collectives.push_back(c);
  if (std::ranges::none_of(kept, [](const auto& s) { return s.ranks > 1; }) && kept_collectives.empty())
    return std::nullopt;
  const predict::OwnStepCalibration calibration(std::move(kept), std::move(kept_collectives), options);
  return predict::score(calibration, held_out, fmt::format("steps on {} ranks, held out", most));
}

std::optional<predict::Score> held_out_collectives(const FileMeasurements& known) {
  const std::int64_t most = largest_ranks(known.collectives, [](const auto& c) { return std::int64_t{c.shape.ranks}; });
  std::vector<predict::MeasuredCollective> kept, held_out;
  for (const auto& c : known.collectives) (c.shape.ranks == most ? held_out : kept).push_back(c);
  if (kept.empty() || held_out.empty()) return std::nullopt;
  return predict::score(predict::CollectiveCalibration(std::move(kept)), held_out,
                        fmt::format("collectives on {} ranks, held out", most));
}

void print_held_out(const std::optional<predict::Score>& s, bool as_json) {
  if (!s) return;
  if (as_json) return core::print("{}\n", core::json_text(score_json(*s)));
  if (!s->mape) {
    for (const auto& [why, count] : s->reasons) core::print("{}: not predicted: {}\n", s->file, core::printable(why));
    return;
  }
  core::print("{}: {} of {} predicted with a mean error of {:.1f} %, median {:.1f} %; 90 % intervals hold {:.0f} %\n",
              s->file, s->rows - s->unpredicted, report::counted(s->rows, "row"), *s->mape, *s->median, *s->coverage);
}

/// One line of a curve.
struct CurveRow {
  predict::OwnStep step;
  predict::OwnPrediction prediction;
  double measured_s = 0;  ///< 0: there is no measurement on so many ranks

  double samples() const {
    const auto* global_batch = step.factors[core::Factor::batch_global].as<std::int64_t>();
    return static_cast<double>(global_batch ? *global_batch : step.ranks * step.batch_per_rank);
  }
  /// The average samples/s of a rank, divided by those of one rank that computes alone. Ranks that only serve
  /// parameters count too, but take no samples.
  double efficiency() const {
    return samples() / static_cast<double>(step.ranks * step.batch_per_rank) * prediction.compute_s /
           prediction.step.seconds;
  }
};

core::Json to_json(const CurveRow& r, const std::string& curve) {
  const predict::Prediction& p = r.prediction.step;
  return {{"curve", curve},
          {"ranks", r.step.ranks},
          {"predicted", true},
          {"measured_time_s", r.measured_s > 0 ? core::Json(r.measured_s) : core::Json(nullptr)},
          {"time_s", p.seconds},
          {"ci90_low", p.low},
          {"ci90_high", p.high},
          {"samples_per_s", r.samples() / p.seconds},
          {"efficiency", r.efficiency()},
          {"compute_s", r.prediction.compute_s},
          {"contention_s", r.prediction.contention_s},
          {"wire_s", r.prediction.exposed_s},
          {"bound_by", p.largest_part}};
}

core::Point to_point(const CurveRow& r) {
  using core::Metric;
  core::Point out = predicted_point({r.prediction.step, {}});
  out.factors = r.step.factors;
  auto& m = out.metrics;
  if (r.measured_s > 0) m[Metric::measured_time_s] = r.measured_s;
  m[Metric::samples_per_s] = r.samples() / r.prediction.step.seconds;
  m[Metric::efficiency] = r.efficiency();
  m[Metric::compute_s] = r.prediction.compute_s;
  m[Metric::contention_s] = r.prediction.contention_s;
  m[Metric::wire_s] = r.prediction.exposed_s;
  m[Metric::bound_by] = r.prediction.step.largest_part;
  return out;
}

report::Columns<CurveRow> curve_columns() {
  using enum core::Align;
  report::Columns<CurveRow> c;
  const auto ms = [](double s) { return report::digits(1e3 * s); };
  c.add({"ranks", "", right}, [](const CurveRow& r) { return fmt::format("{}", r.step.ranks); });
  c.add({"measured", "ms", right, 2}, [=](const CurveRow& r) { return r.measured_s > 0 ? ms(r.measured_s) : "-"; });
  c.add({"step", "ms", right}, [=](const CurveRow& r) { return ms(r.prediction.step.seconds); });
  c.add({"90 %", "ms", right},
        [=](const CurveRow& r) { return ms(r.prediction.step.low) + "–" + ms(r.prediction.step.high); });
  c.add({"efficiency", "%", right}, [](const CurveRow& r) { return fmt::format("{:.0f}", 100 * r.efficiency()); });
  c.add({"compute", "ms", right, 1}, [=](const CurveRow& r) { return ms(r.prediction.compute_s); });
  c.add({"contention", "ms", right, 3}, [=](const CurveRow& r) { return ms(r.prediction.contention_s); });
  c.add({"wire", "ms", right, 1}, [=](const CurveRow& r) { return ms(r.prediction.exposed_s); });
  c.add({"bound by", "", left, 4}, [](const CurveRow& r) { return r.prediction.step.largest_part; });
  return c;
}

/// The factors that the name of each curve has.
constexpr std::array named_factors{core::Factor::model,        core::Factor::batch_per_rank, core::Factor::strategy,
                                   core::Factor::interconnect, core::Factor::algorithm,      core::Factor::codec};
/// The factors by which points of one curve may differ, and those that follow from a named one.
constexpr std::array factors_in_a_curve{core::Factor::ranks,   core::Factor::nodes,        core::Factor::ranks_per_node,
                                        core::Factor::mapping, core::Factor::batch_global, core::Factor::placement};

/// The name of a curve. differing: other factors by which the curves of the output differ.
std::string curve_name(const predict::OwnStep& s, const std::vector<core::Factor>& differing) {
  const auto text = [&](core::Factor f) { return predict::text_of(s.factors[f]); };
  const bool is_strong = text(core::Factor::scaling) == "strong";
  std::string name = fmt::format(
      "{}, batch {}, {}", s.model,
      is_strong ? text(core::Factor::batch_global) + " of all ranks" : fmt::format("{}", s.batch_per_rank), s.strategy);
  if (const std::string link = text(core::Factor::interconnect); !link.empty()) name = link + ": " + name;
  if (!s.algorithm.empty()) name += ", " + s.algorithm;
  if (!s.codec.empty()) name += ", " + s.codec;
  for (const core::Factor f : differing)
    if (const std::string value = text(f); !value.empty()) name += fmt::format(", {} {}", core::name(f), value);
  return name;
}

/// The measured steps of a curve, by the number of ranks; each launch has one.
using MeasuredCurve = std::map<std::int64_t, std::vector<const predict::OwnStep*>>;

/// The curves over ranks of the steps that exchange gradients, by OwnStep::curve(). One rank exchanges nothing: there
/// each curve has the control, the steps of the strategy `independent`.
std::map<std::string, MeasuredCurve> curves_of(const std::vector<predict::OwnStep>& rows) {
  std::map<std::string, MeasuredCurve> out;
  for (const auto& s : rows)
    if (s.ranks > 1 && s.strategy != "independent") out[s.curve()][s.ranks].push_back(&s);
  for (auto& [key, curve] : out) {
    const predict::OwnStep alone = predict::on_ranks(*curve.rbegin()->second.front(), 1);
    for (const auto& s : rows)
      if (s.ranks == 1 && s.strategy == "independent" && s.computation() == alone.computation() &&
          s.batch_per_rank == alone.batch_per_rank)
        curve[1].push_back(&s);
  }
  return out;
}

/// The factors that names of curves lack and by which these curves differ.
std::vector<core::Factor> differing_factors(const std::map<std::string, MeasuredCurve>& curves) {
  std::vector<core::Factor> out;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto f = static_cast<core::Factor>(i);
    if (std::ranges::find(named_factors, f) != named_factors.end() ||
        std::ranges::find(factors_in_a_curve, f) != factors_in_a_curve.end())
      continue;
    std::set<std::string> values;
    for (const auto& [key, curve] : curves) values.insert(predict::text_of(curve.rbegin()->second.front()->factors[f]));
    if (values.size() > 1) out.push_back(f);
  }
  return out;
}

/// The median over launches [s].
double measured_seconds(const std::vector<const predict::OwnStep*>& launches) {
  std::vector<double> seconds;
  for (const auto* s : launches) seconds.push_back(s->step_s);
  return core::median(seconds);
}

}  // namespace

void add_own_flags(FlagList& flags) {
  add_text(flags, "shared-cores", "",
           "with result files: number of cores that all hosts share, where they are virtual hosts on one machine");
}

bool concerns_own_files(const Flags& f) {
  std::size_t own = 0, total = 0;
  for (const char* flag : {"calibrate", "score"})
    for (const auto& path : own_paths(f, flag)) {
      ++total;
      own += is_result_file(path) || predict::is_collective_table(read_file(path)) ? 1 : 0;
    }
  if (own > 0 && own < total)
    throw UsageError(
        "predict: result files and tables of collectives are not fitted together with tables of steps; name one kind");
  return own > 0;
}

std::vector<predict::Score> own_scores(const Flags& f) {
  FileMeasurements known = read_all(f, "calibrate");
  if (known.collectives.empty() && known.steps.empty())
    throw UsageError(
        "--score: predictions of such files need measurements of the same machine; name some with --calibrate");
  std::vector<predict::Score> out;
  const predict::CollectiveCalibration collectives(known.collectives);
  std::optional<predict::OwnStepCalibration> steps;
  for (const auto& path : own_paths(f, "score")) {
    const FileMeasurements file = read_own(path);
    if (!file.collectives.empty()) out.push_back(predict::score(collectives, file.collectives, path));
    if (file.steps.empty()) continue;
    if (!steps) steps.emplace(known.steps, known.collectives, options_of(f));
    out.push_back(predict::score(*steps, file.steps, path));
  }
  return out;
}

int predict_from_own(const Flags& f, const Invocation& invocation) {
  const OutputFlags output = read_output_flags(f);
  const FileMeasurements known = read_all(f, "calibrate");
  const auto options = options_of(f);
  const auto ranks = parse_ranks(f.has("ranks") ? f.text("ranks") : "8,16,32,64,128,256,1024,4096,16384,65536");
  if (known.steps.empty() && !output.path.empty())
    throw UsageError("--out: predicted rows are of steps, and --calibrate names none; name a file of scale too");
  const bool as_json = f.on("json");
  print_held_out(held_out_collectives(known), as_json);
  print_held_out(held_out_steps(known, options), as_json);
  if (!as_json) core::print("{}", core::printable_lines(predict::CollectiveCalibration(known.collectives).text()));
  if (known.steps.empty()) return static_cast<int>(core::ExitCode::done);
  const predict::OwnStepCalibration calibration(known.steps, known.collectives, options);
  const auto described = curve_columns();
  std::vector<core::Point> points;
  std::string text, answer;
  const auto curves = curves_of(known.steps);
  const auto differing = differing_factors(curves);
  for (const auto& [key, measured] : curves) {
    const predict::OwnStep& largest = *measured.rbegin()->second.front();
    std::set<std::int64_t> rank_counts(ranks.begin(), ranks.end());
    for (const auto& [n, launches] : measured) rank_counts.insert(n);
    const std::string name = curve_name(largest, differing);
    auto table = described.table();
    std::string reason;
    for (const std::int64_t n : rank_counts) {
      const auto at = measured.find(n);
      const bool is_measured = at != measured.end();
      const predict::OwnStep step = is_measured && n > 1 ? *at->second.front() : predict::on_ranks(largest, n);
      const auto [p, why] = calibration.predict(step);
      if (!p) {
        reason = why;
        if (as_json)
          core::print("{}\n", core::json_text(
                                  core::Json{{"curve", name}, {"ranks", n}, {"predicted", false}, {"reason", why}}));
        continue;
      }
      const CurveRow row{step, *p, is_measured ? measured_seconds(at->second) : 0};
      if (as_json) core::print("{}\n", core::json_text(to_json(row, name)));
      table.add_row(described.cells(row));
      points.push_back(to_point(row));
      answer = fmt::format("{} take a step of {} in {} ({} to {}) by prediction, bound by {}.\n",
                           report::counted(static_cast<std::size_t>(n), "rank"), core::printable(name),
                           core::to_text(core::Seconds{p->step.seconds}), core::to_text(core::Seconds{p->step.low}),
                           core::to_text(core::Seconds{p->step.high}), p->step.largest_part);
    }
    text += fmt::format("{}\n{}\n", core::printable(name), table.to_string(table_width(f)));
    if (!reason.empty()) text += fmt::format("not predicted on some ranks: {}\n", core::printable(reason));
  }
  write_predictions(points, output, invocation);
  if (!as_json) core::print("{}{}", text, answer);
  return static_cast<int>(core::ExitCode::done);
}

}  // namespace gradmeter::cli
