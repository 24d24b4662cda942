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

/// Cells of one row by column.
class Cells {
 public:
  explicit Cells(const core::CsvRow& row) : row_(row) {}

  std::string text(const char* column) const { return row_.text(column); }
  /// 0 where the cell is empty, or no number of at least 0: then `problem` says so.
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

/// Every metric as the time of a step [s].
void set_time(Cells& cells, MeasuredStep& step) {
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
  std::vector<MeasuredStep> out;
  bool has_head = false;
  const auto check_head = [&](const std::vector<std::string>& names) {
    has_head = true;
    for (const char* needed : {"system", "gpu", "gpus", "model", "global_batch", "metric", "value", "unit"})
      if (std::ranges::find(names, needed) == names.end())
        throw core::CsvFault{1, fmt::format("column {} is missing; docs/predict.md lists the columns", needed)};
  };
  const auto faults = core::read_csv(text, file, check_head, [&](const core::CsvRow& row, std::size_t line) {
    Cells c(row);
    MeasuredStep s{.id = c.text("id"),
                   .system = c.text("system"),
                   .gpu = c.text("gpu"),
                   .model = c.text("model"),
                   .precision = c.text("precision"),
                   .recompute = c.text("activation_recompute"),
                   .strategy = c.text("algorithm_or_strategy"),
                   .data = c.text("data"),
                   .note = c.text("note"),
                   .gpus_per_node = c.count("gpus_per_node"),
                   .nodes = c.count("nodes"),
                   .gpus = c.count("gpus"),
                   .layers = c.count("layers"),
                   .hidden = c.count("hidden"),
                   .heads = c.count("heads"),
                   .sequence = c.count("seq_len"),
                   .vocabulary = c.count("vocab"),
                   .parameters = c.number("params"),
                   .global_batch = c.count("global_batch"),
                   .micro_batch = c.count("micro_batch"),
                   .data_parallel = std::max<std::size_t>(1, c.count("dp")),
                   .tensor = std::max<std::size_t>(1, c.count("tp")),
                   .pipeline = std::max<std::size_t>(1, c.count("pp")),
                   .context = std::max<std::size_t>(1, c.count("cp")),
                   .expert = std::max<std::size_t>(1, c.count("ep")),
                   .virtual_stages = std::max<std::size_t>(1, c.count("vp")),
                   .zero = zero_of(c.text("zero_stage"))};
    if (s.id.empty()) s.id = fmt::format("{}:{}", file, line);
    set_time(c, s);
    if (s.gpus == 0) s.problem = "the number of GPUs is not stated";
    if (!c.problem().empty()) s.problem = c.problem();
    if (!s.problem.empty()) s.step_s = 0;
    out.push_back(std::move(s));
  });
  if (!has_head) throw core::UsageError(fmt::format("{}:1: an empty table; its first line names the columns", file));
  if (!faults.empty()) throw core::UsageError(faults.front());
  return out;
}

std::string plain_name(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    if (std::isalnum(c)) out += static_cast<char>(std::tolower(c));
  return out;
}

}  // namespace gradmeter::predict
