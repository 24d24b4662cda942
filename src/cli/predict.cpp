// SPDX-License-Identifier: Apache-2.0
// gradmeter predict: the step of a training on GPUs that are not here, from data sheets and measured steps. One
// process.
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "bench/engine/flags.hpp"
#include "cli/commands.hpp"
#include "cli/predict_own.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/print.hpp"
#include "predict/score.hpp"
#include "report/cells.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

FlagList describe_predict() {
  FlagList d("Flags", 110);
  add_switch(d, "help,h", "this text");
  add_text(d, "calibrate", "", "tables of measured steps to which the machines are fitted, separated by commas");
  add_text(d, "score", "", "tables of measured steps that are predicted and compared with what was measured");
  add_text(
      d, "leave-out", "",
      "score the tables of --calibrate: each row by a fit to those that differ in these columns, such as model,tp");
  add_text(d, "rows", "", "tables whose steps are predicted, one line each; measured values are not needed");
  add_text(d, "model", "", "a network by name, such as llama3-70b, gpt3-175b or gpt; predicts it on --gpus");
  add_text(d, "layers", "", "its layers; --hidden, --heads and --vocab likewise, where the name does not say them");
  add_text(d, "hidden", "", "its hidden size");
  add_text(d, "heads", "", "its attention heads");
  add_text(d, "vocab", "", "its vocabulary");
  add_text(d, "seq", "4096", "tokens of a sequence");
  add_text(d, "gpu", "H100", "the device, such as A100, H100 or B200");
  add_text(d, "gpus", "8,64,512,4096", "how many, as a list");
  add_text(d, "gpus-per-node", "8", "GPUs of a node");
  add_text(d, "system", "", "the system of --calibrate whose fit is used");
  add_text(d, "batch", "4", "sequences a GPU and step; with --batch-global the batch does not grow with the GPUs");
  add_text(d, "batch-global", "", "sequences a step of all GPUs");
  add_text(d, "micro-batch", "1", "sequences of one pass of a replica");
  add_text(d, "mesh", "", "how a replica is split, such as tensor=8,pipeline=4,context=1");
  add_text(d, "zero", "1", "stage of ZeRO: 0, 1, 2, 3 (FSDP)");
  add_text(d, "precision", "bf16", "fp32, fp16, bf16, fp8");
  add_text(d, "recompute", "none", "none, selective, full");
  add_own_flags(d);
  add_wide_flag(d);
  add_switch(d, "json", "print one JSON object for each scored table, or predicted row");
  add_text(d, "outliers", "3", "number of the worst rows of each scored table that are named");
  add_text(d, "fail-above", "", "exit code 1 when the mean error of a scored table is above so many percent");
  return d;
}

std::string read_table(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw UsageError(fmt::format("cannot read '{}'; name an existing table", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> paths_of(const Flags& f, const std::string& flag) {
  return f.has(flag) ? split_list("--" + flag, f.text(flag)) : std::vector<std::string>();
}

core::Json percent(const std::optional<double>& value) {
  return value ? core::Json(std::round(*value * 100) / 100) : core::Json(nullptr);
}

core::Json to_json(const predict::Score& s) {
  return {{"file", s.file},
          {"rows", s.rows},
          {"unpredicted", s.unpredicted},
          {"mape", percent(s.mape)},
          {"mape_all", percent(s.mape_all)},
          {"median", percent(s.median)},
          {"p90", percent(s.p90)},
          {"bias", percent(s.bias)},
          {"coverage", percent(s.coverage)},
          {"half_width", percent(s.half_width)},
          {"constant_flops_mape", percent(s.constant_flops_mape)},
          {"linear_mape", percent(s.linear_mape)}};
}

std::string in_percent(const std::optional<double>& value) { return value ? fmt::format("{:.1f} %", *value) : "-"; }

void print_score(const predict::Score& s, std::size_t outliers) {
  core::print("{}: {}, {} unpredicted\n", core::printable(s.file), report::counted(s.rows, "row"), s.unpredicted);
  for (const auto& [why, count] : s.reasons) core::print("  {} because: {}\n", count, core::printable(why));
  if (!s.mape) return;
  core::print("  error {} in the mean, {} in the median, {} at the 90th percentile; bias {}\n", in_percent(s.mape),
              in_percent(s.median), in_percent(s.p90), in_percent(s.bias));
  core::print("  90 % intervals hold {} of the rows; their half width is {}\n", in_percent(s.coverage),
              in_percent(s.half_width));
  core::print("  naive: constant FLOP/s a GPU {}, linear scaling {}\n", in_percent(s.constant_flops_mape),
              in_percent(s.linear_mape));
  for (std::size_t i = 0; i < std::min(outliers, s.outliers.size()); ++i) {
    const auto& o = s.outliers[i];
    core::print("  {}: {:+.0f} %, mostly {}\n", core::printable(o.id), 100 * o.error, o.part);
  }
}

std::vector<predict::MeasuredStep> read_steps(const std::vector<std::string>& paths) {
  std::vector<predict::MeasuredStep> out;
  for (const auto& path : paths) {
    auto rows = predict::read_measured_steps(read_table(path), path);
    std::ranges::move(rows, std::back_inserter(out));
  }
  return out;
}

void print_rows(const predict::Calibration& calibration, const std::vector<std::string>& paths, bool as_json) {
  for (const auto& path : paths) {
    for (const auto& s : predict::read_measured_steps(read_table(path), path)) {
      const auto [p, reason] = calibration.predict(s);
      if (as_json) {
        core::Json line{{"id", s.id}, {"predicted", true}};
        if (p) {
          line.update({{"time_s", p->seconds}, {"ci90_low", p->low}, {"ci90_high", p->high}});
        } else {
          line["reason"] = reason;
        }
        core::print("{}\n", line.dump());
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

/// The text of a column by which rows may be left out together.
std::string cell(const predict::MeasuredStep& s, std::string_view column) {
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

std::vector<predict::Score> scores_of(const Flags& f) {
  std::vector<predict::Score> out;
  const auto known = paths_of(f, "calibrate");
  if (const auto scored = paths_of(f, "score"); !scored.empty()) {
    const predict::Calibration calibration(read_steps(known));
    for (const auto& path : scored)
      out.push_back(predict::score(calibration, predict::read_measured_steps(read_table(path), path), path));
  }
  if (const auto columns = paths_of(f, "leave-out"); !columns.empty()) {
    const auto group = [&](const predict::MeasuredStep& s) {
      std::vector<std::string> texts;
      for (const auto& c : columns) texts.push_back(cell(s, c));
      return fmt::format("{}", fmt::join(texts, "\n"));
    };
    for (const auto& path : known)
      out.push_back(predict::score_leaving_out(predict::read_measured_steps(read_table(path), path), path, group));
  }
  return out;
}

/// The answer: of one table its error, of several the worst, since an average over unlike tables says nothing of any.
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
  if (worst->constant_flops_mape)
    text += fmt::format("; constant FLOP/s a GPU would have {:.1f} %", *worst->constant_flops_mape);
  return text + ".\n";
}

/// The steps that flags describe, one for each number of GPUs.
std::vector<predict::MeasuredStep> described_steps(const Flags& f) {
  constexpr std::uint64_t most = 1u << 24, most_gpus = 65536;
  const auto count = [&](const std::string& flag) {
    return f.has(flag) ? static_cast<std::size_t>(parse_count("--" + flag, f.text(flag), 1, most)) : 0;
  };
  const auto mesh = core::parse_name("mesh:" + (f.has("mesh") ? f.text("mesh") : "tensor=1")).parameters;
  const auto degree = [&](const std::string& axis) {
    const auto at = mesh.find(axis);
    return at == mesh.end() ? std::size_t{1}
                            : static_cast<std::size_t>(parse_count("--mesh " + axis, at->second, 1, most));
  };
  for (const auto& [axis, text] : mesh)
    if (axis != "tensor" && axis != "pipeline" && axis != "context")
      throw UsageError(
          fmt::format("--mesh: no axis '{}'; the axes are tensor, pipeline, context", core::printable(axis)));
  if (!predict::find_device(f.text("gpu"))) {
    std::vector<std::string> names;
    for (const auto& d : predict::devices()) names.push_back(d.name);
    throw UsageError(fmt::format("--gpu: no data sheet of '{}' is known; there are {}", core::printable(f.text("gpu")),
                                 fmt::join(names, ", ")));
  }
  std::vector<predict::MeasuredStep> out;
  for (const std::uint64_t gpus : parse_counts("--gpus", f.text("gpus"), 1, most_gpus)) {
    predict::MeasuredStep s{
        .id = fmt::format("{} GPUs", gpus),
        .system = "",
        .gpu = f.text("gpu"),
        .model = f.text("model"),
        .precision = f.text("precision"),
        .recompute = f.text("recompute"),
        .strategy = "",
        .data = "",
        .note = "",
        .gpus_per_node = count("gpus-per-node"),
        .gpus = static_cast<std::size_t>(gpus),
        .layers = count("layers"),
        .hidden = count("hidden"),
        .heads = count("heads"),
        .sequence = count("seq"),
        .vocabulary = count("vocab"),
        .global_batch = f.has("batch-global") ? count("batch-global") : count("batch") * static_cast<std::size_t>(gpus),
        .micro_batch = count("micro-batch"),
        .tensor = degree("tensor"),
        .pipeline = degree("pipeline"),
        .context = degree("context"),
        .zero = static_cast<int>(parse_count("--zero", f.text("zero"), 0, 3))};
    if (s.tensor * s.pipeline * s.context > s.gpus || s.gpus % (s.tensor * s.pipeline * s.context) != 0)
      throw UsageError(
          fmt::format("--mesh: {} GPUs are no multiple of {}, which a replica takes; choose others for --gpus", gpus,
                      s.tensor * s.pipeline * s.context));
    out.push_back(std::move(s));
  }
  return out;
}

/// One row of the table: a step, and its prediction.
struct Predicted {
  predict::MeasuredStep step;
  predict::Prediction prediction;
  double tokens_per_s() const { return static_cast<double>(step.global_batch * step.sequence) / prediction.seconds; }
  double tokens_per_s_and_gpu() const { return tokens_per_s() / static_cast<double>(step.gpus); }
  double of_peak() const {
    const double peak = predict::find_device(step.gpu)->peak(step.precision);
    return prediction.flops / prediction.seconds / static_cast<double>(step.gpus) / peak;
  }
  double exchange() const {
    return (prediction.parts.tensor_exchange + prediction.parts.data_exchange + prediction.parts.pipeline_wait) /
           prediction.seconds;
  }
};

report::Columns<Predicted> columns() {
  using enum core::Align;
  const auto percent = [](double share) { return fmt::format("{:.0f}", 100 * share); };
  report::Columns<Predicted> c;
  c.add({"GPUs", "", right}, [](const Predicted& p) { return fmt::format("{}", p.step.gpus); });
  c.add({"batch", "of all", right, 3}, [](const Predicted& p) { return fmt::format("{}", p.step.global_batch); });
  c.add({"step", "s", right}, [](const Predicted& p) { return report::digits(p.prediction.seconds); });
  c.add({"90 %", "s", right}, [](const Predicted& p) {
    return fmt::format("{}–{}", report::digits(p.prediction.low), report::digits(p.prediction.high));
  });
  c.add({"tokens/s", "", right, 2}, [](const Predicted& p) { return report::digits(p.tokens_per_s()); });
  c.add({"tokens/s", "a GPU", right}, [](const Predicted& p) { return report::digits(p.tokens_per_s_and_gpu()); });
  c.add({"of peak", "%", right, 1}, [=](const Predicted& p) { return percent(p.of_peak()); });
  c.add({"exchange", "% of step", right}, [=](const Predicted& p) { return percent(p.exchange()); });
  c.add({"mostly", "", left, 4}, [](const Predicted& p) { return p.prediction.largest_part; });
  return c;
}

/// The system whose fit the steps take: --system, or the only one of the tables. Errors: UsageError.
std::string system_of(const Flags& f, std::span<const predict::MeasuredStep> known) {
  std::set<std::string> systems;
  for (const auto& s : known) systems.insert(s.system);
  std::string asked = f.has("system") ? f.text("system") : "";
  if (systems.contains(asked)) return asked;
  if (asked.empty() && systems.size() <= 1) return systems.empty() ? "" : *systems.begin();
  throw UsageError(fmt::format(
      "--system: name one of the systems of --calibrate: {}",
      systems.empty() ? "there is no table" : core::printable(fmt::format("{}", fmt::join(systems, ", ")))));
}

/// Prints a table, or an object a row, and the answer.
void print_described(const Flags& f) {
  auto known = read_steps(paths_of(f, "calibrate"));
  const std::string system = system_of(f, known);
  const predict::Calibration calibration(std::move(known));
  std::vector<Predicted> rows;
  for (auto& s : described_steps(f)) {
    s.system = system;
    if (const auto why = predict::TransformerStep::refusal(s); !why.empty())
      throw UsageError(
          fmt::format("{} cannot be predicted: {}; give --layers and --hidden", core::printable(s.model), why));
    auto [p, reason] = calibration.predict(s);
    if (!p) throw UsageError(fmt::format("{} cannot be predicted: {}", core::printable(s.model), reason));
    rows.push_back({std::move(s), std::move(*p)});
  }
  if (f.on("json")) {
    for (const Predicted& r : rows) {
      const auto& [step, p] = r;
      core::print("{}\n", core::Json{{"gpus", step.gpus},
                                     {"predicted", true},
                                     {"time_s", p.seconds},
                                     {"ci90_low", p.low},
                                     {"ci90_high", p.high},
                                     {"compute_s", p.parts.compute},
                                     {"tensor_exchange_s", p.parts.tensor_exchange},
                                     {"pipeline_wait_s", p.parts.pipeline_wait},
                                     {"data_exchange_s", p.parts.data_exchange},
                                     {"update_s", p.parts.update},
                                     {"fixed_s", p.parts.fixed},
                                     {"tokens_per_s", r.tokens_per_s()}}
                              .dump());
    }
    return;
  }
  const auto described = columns();
  auto table = described.table();
  for (const Predicted& r : rows) table.add_row(described.cells(r));
  core::print("{} in {} on {}, predicted{}\n{}\n", core::printable(f.text("model")),
              core::printable(f.text("precision")), predict::find_device(f.text("gpu"))->name,
              f.has("calibrate") ? "" : " from its data sheet alone", table.to_string(table_width(f)));
  const Predicted &first = rows.front(), &last = rows.back();
  const double kept = last.tokens_per_s_and_gpu() / first.tokens_per_s_and_gpu();
  core::print("{} GPUs take a step in {} ({} to {}) by prediction", last.step.gpus,
              core::to_text(core::Seconds{last.prediction.seconds}), core::to_text(core::Seconds{last.prediction.low}),
              core::to_text(core::Seconds{last.prediction.high}));
  if (rows.size() > 1) core::print("; each keeps {:.0f} % of its rate on {} GPUs", 100 * kept, first.step.gpus);
  core::print(".\n");
}

int run_predict(const Flags& f, const Invocation&) {
  const bool is_own = concerns_own_files(f);
  if (is_own && !f.has("score")) return predict_from_own(f);
  const auto asked = paths_of(f, "rows");
  const bool is_described = f.has("model");
  if (!f.has("score") && !f.has("leave-out") && asked.empty() && !is_described)
    throw UsageError(
        "predict: name a --model, tables to --score, or whose --rows to predict; see gradmeter predict --help");
  if (f.has("leave-out") && !f.has("calibrate"))
    throw UsageError("--leave-out scores the tables of --calibrate; name some");
  const auto outliers = parse_count("--outliers", f.text("outliers"), 0, 1000);
  constexpr double most_percent = 1e6;
  std::optional<double> most;
  if (f.has("fail-above")) most = parse_number("--fail-above", f.text("fail-above"), 0, most_percent);
  if (!asked.empty()) print_rows(predict::Calibration(read_steps(paths_of(f, "calibrate"))), asked, f.on("json"));
  if (is_described) print_described(f);
  const auto scores = is_own ? own_scores(f) : scores_of(f);
  bool is_above = false;
  for (const auto& s : scores) {
    if (f.on("json")) {
      core::print("{}\n", to_json(s).dump());
    } else {
      print_score(s, outliers);
    }
    is_above |= most && !(s.mape_all && *s.mape_all <= *most);
  }
  if (!scores.empty() && !f.on("json")) core::print("{}", verdict(scores));
  return static_cast<int>(is_above ? core::ExitCode::below_bar : core::ExitCode::done);
}

Usage predict_usage() {
  return {.flags = describe_predict(),
          .about =
              "gradmeter predict: steps of transformers and published networks on GPUs that are not here, with 90 %\n"
              "intervals, from data sheets and from measured steps of the same machine\n"
              "\n"
              "gradmeter predict --model llama3-70b --gpu H100 --gpus 64,512,4096 --mesh tensor=8,pipeline=4\n"
              "gradmeter predict --calibrate known.csv --score others.csv\n"
              "gradmeter predict --calibrate data/predict/vtrain_single.csv --leave-out hidden,tp,micro_batch\n"
              "gradmeter predict --calibrate mine.csv --rows planned.csv\n"
              "gradmeter predict --calibrate scale.jsonl --ranks 8,64,4096   our own result files: scale, allreduce\n"
              "gradmeter predict --calibrate two-hosts.jsonl --score four-hosts.jsonl"};
}

}  // namespace

const Command predict_command{.name = "predict",
                              .summary = "steps on GPUs that are not here, and how right such predictions were",
                              .with_ranks = false,
                              .usage = predict_usage,
                              .run = run_predict};

}  // namespace gradmeter::cli
