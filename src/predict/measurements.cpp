// SPDX-License-Identifier: Apache-2.0
#include "predict/measurements.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::predict {
namespace {

/// The cells of one row, by column.
class Cells {
 public:
  explicit Cells(const core::CsvRow& row) : row_(row) {}

  std::string text(const char* column) const { return row_.text(column); }
  /// Gives 0 for an empty cell, and for one that is no number of at least 0, which `problem` then reports.
  double number(const char* column) {
    try {
      const double value = row_.number(column).value_or(0);
      if (value < 0)
        throw core::CsvFault{row_.column(column), fmt::format("'{}' is below 0 for {}", text(column), column)};
      return value;
    } catch (const core::CsvFault& fault) {
      if (problem_.empty()) problem_ = fault.what;
      return 0;
    }
  }
  std::size_t count(const char* column) {
    const double value = number(column);
    constexpr double most = 1e15;
    if (value == std::floor(value) && value <= most) return static_cast<std::size_t>(value);
    if (problem_.empty()) problem_ = fmt::format("'{}' is no whole number for {}", text(column), column);
    return 0;
  }
  /// The reason why the first unreadable cell could not be read; empty: all could be.
  const std::string& problem() const { return problem_; }

 private:
  const core::CsvRow& row_;
  std::string problem_;
};

/// The stage of ZeRO from "3", "1", "fsdp 64"; 0 where it is not stated.
int zero_of(const std::string& text) {
  if (text.starts_with("fsdp") || text.starts_with("3")) return 3;
  if (text.starts_with("2")) return 2;
  return text.starts_with("1") ? 1 : 0;
}

/// Sets the step's time from the row's metric, whatever that is; sets `problem` if the metric gives no time.
void set_time_and_rates(Cells& cells, MeasuredStep& step) {
  const std::string metric = cells.text("metric"), unit = cells.text("unit");
  const double value = cells.number("value");
  const auto samples = static_cast<double>(step.global_batch), gpus = static_cast<double>(step.gpus);
  if (!(value > 0)) {
    step.problem = "no measured value";
  } else if (metric == "iteration time" || metric.starts_with("step time")) {
    if (unit != "ms" && unit != "s" && unit != "us") {
      step.problem = fmt::format("unit '{}' of a time is not known: s, ms or us", core::printable(unit));
      return;
    }
    step.step_s = unit == "ms" ? value * 1e-3 : unit == "us" ? value * 1e-6 : value;
    if (const auto p = metric.rfind(" p"); p != std::string::npos) step.quantile = metric.substr(p + 1);
  } else if (metric != "throughput") {
    step.problem = fmt::format("metric '{}' is no time of a step", core::printable(metric));
  } else if (!(samples > 0)) {
    step.problem = "a throughput without the global batch";
  } else if (unit.starts_with("tokens/s")) {
    if (step.sequence == 0) {
      step.problem = "tokens a second without the length of a sequence";
    } else {
      step.step_s = samples * static_cast<double>(step.sequence) / (unit == "tokens/s/GPU" ? value * gpus : value);
    }
  } else if (unit == "images/s" || unit == "sequences/s" || unit == "samples/s") {
    step.step_s = samples / value;
  } else if (unit == "images/s/GPU" || unit == "sequences/s/GPU" || unit == "samples/s/GPU") {
    step.step_s = samples / (value * gpus);
  } else {
    step.problem = fmt::format("unit '{}' of a throughput is not known", core::printable(unit));
  }
}

}  // namespace

std::vector<MeasuredStep> read_measured_steps(std::string_view text, const std::string& file) {
  std::vector<MeasuredStep> steps;
  bool has_head = false;
  const auto check_head = [&](const std::vector<std::string>& names) {
    has_head = true;
    for (const char* needed : {"system", "gpu", "gpus", "model", "global_batch", "metric", "value", "unit"})
      if (std::ranges::find(names, needed) == names.end())
        throw core::CsvFault{1, fmt::format("column {} is missing; docs/predict.md lists the columns", needed)};
  };
  const auto faults = core::read_csv(text, file, check_head, [&](const core::CsvRow& row, std::size_t line) {
    Cells cells(row);
    MeasuredStep step{.id = cells.text("id"),
                      .system = cells.text("system"),
                      .gpu = cells.text("gpu"),
                      .model = cells.text("model"),
                      .precision = cells.text("precision"),
                      .recompute = cells.text("activation_recompute"),
                      .strategy = cells.text("algorithm_or_strategy"),
                      .data = cells.text("data"),
                      .note = cells.text("note"),
                      .gpus_per_node = cells.count("gpus_per_node"),
                      .nodes = cells.count("nodes"),
                      .gpus = cells.count("gpus"),
                      .layers = cells.count("layers"),
                      .hidden = cells.count("hidden"),
                      .heads = cells.count("heads"),
                      .sequence = cells.count("seq_len"),
                      .vocabulary = cells.count("vocab"),
                      .parameters = cells.number("params"),
                      .global_batch = cells.count("global_batch"),
                      .micro_batch = cells.count("micro_batch"),
                      .data_parallel = std::max<std::size_t>(1, cells.count("dp")),
                      .tensor = std::max<std::size_t>(1, cells.count("tp")),
                      .pipeline = std::max<std::size_t>(1, cells.count("pp")),
                      .context = std::max<std::size_t>(1, cells.count("cp")),
                      .expert = std::max<std::size_t>(1, cells.count("ep")),
                      .virtual_stages = std::max<std::size_t>(1, cells.count("vp")),
                      .zero = zero_of(cells.text("zero_stage"))};
    if (step.id.empty()) step.id = fmt::format("{}:{}", file, line);
    set_time_and_rates(cells, step);
    if (step.gpus == 0) step.problem = "the number of GPUs is not stated";
    if (!cells.problem().empty()) step.problem = cells.problem();
    if (!step.problem.empty()) step.step_s = 0;
    steps.push_back(std::move(step));
  });
  if (!has_head) throw core::UsageError(fmt::format("{}:1: an empty table; its first line names the columns", file));
  if (!faults.empty()) throw core::UsageError(faults.front());
  return steps;
}

std::string plain_name(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    if (std::isalnum(c)) out += static_cast<char>(std::tolower(c));
  return out;
}

}  // namespace gradmeter::predict
