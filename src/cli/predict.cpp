// SPDX-License-Identifier: Apache-2.0
// gradmeter predict: predicts training steps on GPUs that are not at hand, from data sheets and from measured steps.
// One process.
#include "cli/predict.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "cli/result_input.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/print.hpp"
#include "predict/choose.hpp"
#include "predict/score.hpp"
#include "report/cells.hpp"
#include "runtime/host/host.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

FlagList describe_predict() {
  FlagList flags("Flags", 110);
  add_switch(flags, "help,h", "this text");
  add_text(flags, "calibrate", "",
           "tables of measured steps, or result files of scale and allreduce, to which the machines are fitted");
  add_text(flags, "score", "", "tables or result files whose rows are predicted and compared with what was measured");
  add_text(flags, "leave-out", "",
           "score the tables of --calibrate: rows that agree in these columns, such as model,tp, are a group, and are "
           "predicted by a fit to all others");
  add_text(flags, "rows", "",
           "tables of steps to predict, one step a row and one line for each; measured values are not needed");
  add_text(flags, "calibrate-rows", "all",
           "use only this many rows of each system in --calibrate: those most informative for the fit");
  add_text(flags, "choose-rows", "",
           "list this many rows of --rows that are most worth measuring next, the best first; without --rows: those of "
           "--calibrate, as if none were measured");
  add_text(flags, "output", "",
           "write the calibrated machine with its residuals to this file, for --machine (rows go to --out)");
  add_network_flags(flags);
  add_own_flags(flags);
  add_result_file_flags(flags);
  add_wide_flag(flags);
  add_switch(flags, "json", "print one JSON object for each scored table, or predicted row");
  add_text(flags, "outliers", "3", "number of the worst rows of each scored table that are named");
  add_text(flags, "fail-above", "",
           "exit code 1 when the mean error of a scored table is above this many percent; rows that are not "
           "predicted, except those with experts, count as 100 %");
  return flags;
}

std::string read_table(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("cannot read '{}'; name an existing table", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> paths_of(const Flags& flags, const std::string& flag) {
  return flags.has(flag) ? split_paths(flags.text(flag)) : std::vector<std::string>();
}

/// The percentage as JSON, rounded to two decimals.
core::Json percent_json(const std::optional<double>& value) {
  return value ? core::Json(std::round(*value * 100) / 100) : core::Json(nullptr);
}

std::string percent_text(const std::optional<double>& value) { return value ? fmt::format("{:.1f} %", *value) : "-"; }

/// The error of a naive prediction, with that of the prediction over the same rows.
std::string naive_text(const std::optional<double>& mape, std::size_t rows, const std::optional<double>& beside) {
  if (!mape) return "-";
  return fmt::format("{} of the {} that it applies to, where the prediction has {}", percent_text(mape),
                     report::counted(rows, "row"), percent_text(beside));
}

void print_score(const predict::Score& s, std::size_t outliers) {
  core::print("{}: {}, {} unpredicted\n", core::printable(s.file), report::counted(s.rows, "row"), s.unpredicted);
  for (const auto& [why, count] : s.reasons) core::print("  {} because: {}\n", count, core::printable(why));
  if (!s.mape) return;
  core::print("  error {} in the mean, {} in the median, {} at the 90th percentile; bias {}\n", percent_text(s.mape),
              percent_text(s.median), percent_text(s.p90), percent_text(s.bias));
  core::print("  90 % intervals hold {} of the rows; their half width is {}\n", percent_text(s.coverage),
              percent_text(s.half_width));
  core::print("  naive: constant FLOP/s a GPU {}, linear scaling {}\n",
              naive_text(s.constant_flops_mape, s.constant_flops_rows, s.mape_where_constant_flops),
              naive_text(s.linear_mape, s.linear_rows, s.mape_where_linear));
  for (std::size_t i = 0; i < std::min(outliers, s.outliers.size()); ++i) {
    const auto& o = s.outliers[i];
    core::print("  {}: {:+.0f} %, mostly {}\n", core::printable(o.id), 100 * o.error, o.part);
  }
}

std::vector<predict::TrainingStep> read_steps(const std::vector<std::string>& paths) {
  std::vector<predict::TrainingStep> out;
  for (const auto& path : paths) {
    auto rows = predict::read_measured_steps(read_table(path), path);
    std::ranges::move(rows, std::back_inserter(out));
  }
  return out;
}

std::vector<std::string> systems_of(std::span<const predict::TrainingStep> known) {
  std::set<std::string> systems;
  for (const auto& s : known) systems.insert(s.system);
  return {systems.begin(), systems.end()};
}

void print_rows(const predict::Calibration& calibration, const std::vector<std::string>& paths, bool as_json) {
  for (const auto& path : paths) {
    for (const auto& s : predict::read_measured_steps(read_table(path), path)) {
      const auto [p, reason] = calibration.predict(s);
      if (as_json) {
        core::Json line{{"id", s.id}, {"predicted", p.has_value()}};
        if (p) {
          line.update({{"time_s", p->seconds}, {"ci90_low", p->low}, {"ci90_high", p->high}});
        } else {
          line["reason"] = reason;
        }
        core::print("{}\n", core::json_text(line));
      } else if (p) {
        core::print("{}: {} a step ({} to {}), mostly {}\n", core::printable(s.id),
                    core::to_text(core::Seconds{p->seconds}), core::to_text(core::Seconds{p->low}),
                    core::to_text(core::Seconds{p->high}), p->largest_part);
      } else {
        core::print("{}: not predicted: {}\n", core::printable(s.id), core::printable(reason));
      }
    }
  }
}

/// The text of a step in one of the columns that --leave-out may name.
std::string cell(const predict::TrainingStep& s, std::string_view column) {
  const std::map<std::string_view, std::string> cells{{"system", s.system},
                                                      {"gpu", s.gpu},
                                                      {"gpus", fmt::format("{}", s.gpus)},
                                                      {"model", s.model},
                                                      {"layers", fmt::format("{}", s.layers)},
                                                      {"hidden", fmt::format("{}", s.hidden)},
                                                      {"seq_len", fmt::format("{}", s.sequence)},
                                                      {"global_batch", fmt::format("{}", s.global_batch)},
                                                      {"micro_batch", fmt::format("{}", s.micro_batch)},
                                                      {"tp", fmt::format("{}", s.tensor)},
                                                      {"pp", fmt::format("{}", s.pipeline)},
                                                      {"precision", s.precision},
                                                      {"activation_recompute", s.recompute},
                                                      {"algorithm_or_strategy", s.strategy},
                                                      {"note", s.note}};
  const auto at = cells.find(column);
  if (at != cells.end()) return at->second;
  std::vector<std::string_view> names;
  for (const auto& [name, text] : cells) names.push_back(name);
  throw UsageError(
      fmt::format("--leave-out: no column '{}'; it may name {}", core::printable(column), fmt::join(names, ", ")));
}

std::vector<predict::Score> scores_of(const Flags& flags, const predict::Calibration& calibration) {
  std::vector<predict::Score> out;
  const auto known = paths_of(flags, "calibrate");
  for (const auto& path : paths_of(flags, "score"))
    out.push_back(predict::score(calibration, predict::read_measured_steps(read_table(path), path), path));
  if (const auto columns =
          flags.has("leave-out") ? split_list("--leave-out", flags.text("leave-out")) : std::vector<std::string>();
      !columns.empty()) {
    const auto group = [&](const predict::TrainingStep& s) {
      std::vector<std::string> texts;
      for (const auto& c : columns) texts.push_back(cell(s, c));
      return fmt::format("{}", fmt::join(texts, "\n"));
    };
    for (const auto& path : known)
      out.push_back(predict::score_leaving_out(predict::read_measured_steps(read_table(path), path), path, group));
  }
  return out;
}

/// The answer in a sentence: the mean error of the only table, or of the worst of several tables, since an average over
/// unlike tables describes none of them.
std::string verdict(const std::vector<predict::Score>& scores) {
  const predict::Score* worst = nullptr;
  for (const auto& s : scores)
    if (s.mape && (!worst || *s.mape > *worst->mape)) worst = &s;
  if (!worst) return "No step could be predicted; the reasons stand above.\n";
  const std::string where =
      scores.size() == 1 ? ""
                         : fmt::format(" in {}, the worst of {} tables", core::printable(worst->file), scores.size());
  std::string text = fmt::format("{} predicted with a mean error of {:.1f} %{}",
                                 report::counted(worst->rows - worst->unpredicted, "step"), *worst->mape, where);
  if (worst->constant_flops_mape && worst->constant_flops_rows == worst->rows - worst->unpredicted) {
    text += fmt::format("; constant FLOP/s a GPU would have {:.1f} %", *worst->constant_flops_mape);
  } else if (worst->constant_flops_mape) {
    text += fmt::format(
        "; on the {} that constant FLOP/s a GPU applies to it would have {:.1f} %, where the "
        "prediction has {:.1f} %",
        report::counted(worst->constant_flops_rows, "row"), *worst->constant_flops_mape,
        *worst->mape_where_constant_flops);
  }
  return text + ".\n";
}

/// Why a table misses the bar of --fail-above.
std::string above_text(const predict::Score& s, double bar) {
  if (!s.mape_all) return fmt::format("above the bar of {} %, since no row was predicted", bar);
  return fmt::format(
      "above the bar of {} %: the mean error is {:.1f} %{}", bar, *s.mape_all,
      s.unpredicted > 0 ? " with 100 % for each row that was not predicted, except those with experts" : "");
}

/// Prints the rows that are most worth measuring next, the best first.
void print_choices(const Flags& flags, const std::vector<predict::TrainingStep>& known) {
  constexpr std::uint64_t most = 1000;
  const auto count = parse_count("--choose-rows", flags.text("choose-rows"), 1, most);
  const bool has_candidates = flags.has("rows");
  const auto candidates = has_candidates ? read_steps(paths_of(flags, "rows")) : known;
  const auto choices = predict::choose_rows(
      candidates, has_candidates ? std::span(known) : std::span<const predict::TrainingStep>(), count);
  if (choices.rows.empty())
    throw UsageError("--choose-rows: no row can be predicted by terms; give rows with layers, hidden and seq_len");
  const auto percent = [](double log_deviation) { return 100 * (std::exp(log_deviation) - 1); };
  if (flags.on("json")) {
    for (const auto& c : choices.rows)
      core::print("{}\n", core::json_text({{"id", candidates[c.row].id},
                                           {"uncertainty", percent(c.uncertainty)},
                                           {"settles", c.settles_term}}));
    return;
  }
  core::print("Before any of them a step is known to {:.0f} % (one standard deviation).\n",
              percent(choices.uncertainty));
  for (const auto& c : choices.rows)
    core::print("{}: then to {:.0f} %; it settles {} most\n", core::printable(candidates[c.row].id),
                percent(c.uncertainty), c.settles_term);
}

/// Writes the machine of --system, or of the only system of --calibrate. Errors: UsageError.
void write_machine(const Flags& flags, const predict::Calibration& calibration,
                   const std::vector<predict::TrainingStep>& known) {
  const std::string path = flags.text("output");
  const auto systems = systems_of(known);
  const std::string system = flags.has("system") ? flags.text("system") : systems.size() == 1 ? systems.front() : "";
  const auto row = std::ranges::find_if(known, [&](const auto& s) {
    return s.system == system && s.step_s > 0 && predict::is_usual_step(s) &&
           predict::TransformerStep::refusal(s).empty() && predict::machine_of(s).machine;
  });
  if (row == known.end())
    throw UsageError(fmt::format("--output: name the --system to write; those of --calibrate are {}",
                                 core::printable(fmt::format("{}", fmt::join(systems, ", ")))));
  if (std::filesystem::exists(path) && !flags.on("force"))
    throw UsageError(fmt::format("--output {}: the file exists; --force replaces it", core::printable(path)));
  const core::Machine& m = calibration.machine(*row);
  std::ofstream out(path, std::ios::binary);
  out << core::to_json(m, 2) << '\n';
  out.close();
  if (!out) throw UsageError(fmt::format("--output {}: cannot be written; check its folder", core::printable(path)));
  if (!flags.on("json"))
    core::print("{}: {} from {}, whose rows left out lie within {:.0f} % for 9 of 10\n", core::printable(path),
                core::printable(system), report::counted(m.fit->rows, "row"), 100 * (std::exp(m.fit->spread) - 1));
}

/// The rows of --calibrate, as many as --calibrate-rows says.
std::vector<predict::TrainingStep> known_steps(const Flags& flags) {
  auto rows = read_steps(paths_of(flags, "calibrate"));
  if (flags.text("calibrate-rows") == "all") return rows;
  constexpr std::uint64_t most = 1u << 20;
  return predict::most_informative_rows(std::move(rows),
                                        parse_count("--calibrate-rows", flags.text("calibrate-rows"), 1, most));
}

/// Errors: UsageError for a given flag that would have no effect. `uses_own_files`: see `concerns_own_files`.
void refuse_unread(const Flags& flags, bool uses_own_files) {
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    if (flags.given(std::string(flag))) throw UsageError(fmt::format("--{} {}", flag, why));
  };
  FlagList network_flags;
  add_network_flags(network_flags);
  for (const auto& flag : network_flags.flags) {
    const bool is_read =
        uses_own_files ? flag.name == "ranks" && !flags.has("score") : flags.has("model") || flag.name == "system";
    if (is_read) continue;
    refuse(flag.name,
           uses_own_files
               ? "is not used with result files or tables of collectives, which say what was run; leave it out"
               : "is of the network that --model names; name one");
  }
  if (uses_own_files)
    for (const char* flag : {"leave-out", "rows", "choose-rows", "calibrate-rows", "output"})
      refuse(flag, "takes tables of steps, and --calibrate or --score names result files or collectives; leave it out");
  if (!flags.has("score") && !flags.has("leave-out"))
    for (const char* flag : {"fail-above", "outliers"}) refuse(flag, "is about scores; add --score or --leave-out");
  if (!flags.has("model") && (!uses_own_files || flags.has("score")))
    refuse("out", "takes predicted rows; name a --model, or result files");
}

int run_predict(const Flags& flags, const Invocation& invocation) {
  const bool uses_own_files = concerns_own_files(flags);
  refuse_unread(flags, uses_own_files);
  if (uses_own_files && !flags.has("score")) return predict_from_own(flags, invocation);
  const auto row_tables = paths_of(flags, "rows");
  const bool has_network = flags.has("model"), chooses = flags.has("choose-rows");
  if (!flags.has("score") && !flags.has("leave-out") && row_tables.empty() && !has_network && !chooses &&
      !flags.has("output"))
    throw UsageError(
        "predict: name a --model, tables to --score, or whose --rows to predict; see gradmeter predict --help");
  for (const char* flag : {"leave-out", "output"})
    if (flags.has(flag) && !flags.has("calibrate"))
      throw UsageError(fmt::format("--{} takes the tables of --calibrate; name some", flag));
  if (chooses && row_tables.empty() && !flags.has("calibrate"))
    throw UsageError("--choose-rows chooses among the tables of --rows, or of --calibrate; name some");
  const auto outliers = parse_count("--outliers", flags.text("outliers"), 0, 1000);
  constexpr double most_percent = 1e6;
  std::optional<double> fail_above;
  if (flags.has("fail-above")) fail_above = parse_number("--fail-above", flags.text("fail-above"), 0, most_percent);
  const auto known = uses_own_files ? std::vector<predict::TrainingStep>() : known_steps(flags);
  const predict::Calibration calibration(known);
  if (flags.has("output")) write_machine(flags, calibration, known);
  if (chooses) {
    print_choices(flags, known);
  } else if (!row_tables.empty()) {
    print_rows(calibration, row_tables, flags.on("json"));
  }
  if (has_network) predict_network(flags, invocation, calibration, systems_of(known));
  const auto scores = uses_own_files ? own_scores(flags) : scores_of(flags, calibration);
  bool is_above = false;
  for (const auto& s : scores) {
    if (flags.on("json")) {
      core::print("{}\n", core::json_text(score_json(s)));
    } else {
      print_score(s, outliers);
    }
    if (!fail_above || (s.mape_all && *s.mape_all <= *fail_above)) continue;
    is_above = true;
    if (!flags.on("json")) core::print("  {}\n", above_text(s, *fail_above));
  }
  if (!scores.empty() && !flags.on("json")) core::print("{}", verdict(scores));
  return static_cast<int>(is_above ? core::ExitCode::missed_target : core::ExitCode::done);
}

Usage predict_usage() {
  return {
      .flags = describe_predict(),
      .about =
          "gradmeter predict: steps of transformers and published networks on GPUs that are not here, with 90 %\n"
          "intervals, from data sheets and from measured steps of the same machine\n"
          "\n"
          "gradmeter predict --model llama3-70b --machine H100 --link 8xNDR --ranks 64,512,4096 --mesh "
          "tensor=8,pipeline=4\n"
          "gradmeter predict --model resnet50 --machine P100 --batch 64 --precision fp32 --ranks 1..256 --link 25GbE\n"
          "    --what-if link=100GbE --what-if codec=none,qsgd4\n"
          "gradmeter predict --calibrate known.csv --score others.csv\n"
          "gradmeter predict --calibrate data/predict/vtrain_single.csv --leave-out hidden,tp,micro_batch\n"
          "gradmeter predict --calibrate mine.csv --rows planned.csv\n"
          "gradmeter predict --calibrate scale.jsonl --ranks 8,64,4096   # result files of scale, allreduce\n"
          "gradmeter predict --calibrate two-hosts.jsonl --score four-hosts.jsonl"};
}

}  // namespace

core::Json score_json(const predict::Score& s) {
  return {{"file", s.file},
          {"rows", s.rows},
          {"unpredicted", s.unpredicted},
          {"mape", percent_json(s.mape)},
          {"mape_all", percent_json(s.mape_all)},
          {"median", percent_json(s.median)},
          {"p90", percent_json(s.p90)},
          {"bias", percent_json(s.bias)},
          {"coverage", percent_json(s.coverage)},
          {"half_width", percent_json(s.half_width)},
          {"constant_flops_mape", percent_json(s.constant_flops_mape)},
          {"linear_mape", percent_json(s.linear_mape)}};
}

std::vector<std::uint64_t> parse_ranks(const std::string& text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return parse_counts("--ranks", text, 1, most_ranks);
  const std::uint64_t first = parse_count("--ranks", text.substr(0, dots), 1, most_ranks),
                      last = parse_count("--ranks", text.substr(dots + 2), first, most_ranks);
  std::vector<std::uint64_t> out;
  for (std::uint64_t n = 1; n <= last; n *= 2)
    if (n >= first) out.push_back(n);
  if (out.empty())
    throw UsageError(fmt::format("--ranks {}: has no power of two; write a list", core::printable(text)));
  return out;
}

core::Point predicted_point(const predict::PredictionOrReason& p) {
  using core::Metric;
  core::Point out;
  out.experiment = "predict";
  auto& m = out.metrics;
  m[Metric::predicted] = true;
  if (p.prediction) {
    m[Metric::predicted_time_s] = p.prediction->seconds;
    m[Metric::ci90_low] = p.prediction->low;
    m[Metric::ci90_high] = p.prediction->high;
  } else {
    out.status = core::Status::unsupported;
    out.reason = p.reason;
  }
  return out;
}

void write_predictions(const std::vector<core::Point>& points, const OutputFlags& output,
                       const Invocation& invocation) {
  if (output.path.empty()) return;
  const core::RunInfo info = describe_process(runtime::read_host(), invocation.command_line);
  check_output(output, info, "predict");
  const auto writer = open_output(output, info);
  for (const auto& p : points) writer->append(p);
  writer->finish();
}

extern const Command predict_command{
    .name = "predict",
    .summary = "steps on machines or rank counts that are not here, and how right such predictions were",
    .with_ranks = false,
    .usage = predict_usage,
    .run = run_predict};

}  // namespace gradmeter::cli
