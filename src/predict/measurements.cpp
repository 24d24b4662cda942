// SPDX-License-Identifier: Apache-2.0
#include "predict/measurements.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "predict/machines.hpp"

namespace gradmeter::predict {
namespace {

/// The most GPUs of a row. They are far from the most that 32 bits hold, with which exchanges count.
constexpr double most_gpus = 1 << 24;

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
        throw core::CsvFault{row_.begin_byte(column), fmt::format("'{}' is below 0 for {}", text(column), column)};
      return value;
    } catch (const core::CsvFault& fault) {
      if (problem_.empty()) problem_ = fault.what;
      return 0;
    }
  }
  std::size_t count(const char* column, double most = 1e15) {
    const double value = number(column);
    if (value == std::floor(value) && value <= most) return static_cast<std::size_t>(value);
    set_problem(
        fmt::format("'{}' is no whole number up to {:.0f} for {}", core::printable(text(column)), most, column));
    return 0;
  }
  /// Sets the reason why the row cannot be used, unless there is one already.
  void set_problem(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  /// The cell in lower case.
  std::string lower_case(const char* column) const {
    std::string out = text(column);
    std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
  }
  /// The reason why the first unreadable cell could not be read; empty: all could be.
  const std::string& problem() const { return problem_; }

 private:
  const core::CsvRow& row_;
  std::string problem_;
};

/// The stage of ZeRO from "3", "1.0", "ZeRO-3", "fsdp 64"; 0 where it is not stated.
int zero_of(Cells& cells) {
  const std::string text = cells.text("zero_stage");
  std::string_view plain = text;
  if (plain.ends_with(".0")) plain.remove_suffix(2);
  std::string word = plain_name(plain);
  if (word.starts_with("fsdp")) return 3;
  for (const std::string_view prefix : {"zero", "stage"})
    if (word.starts_with(prefix)) word.erase(0, prefix.size());
  if (word.size() == 1 && word.front() >= '0' && word.front() <= '3') return word.front() - '0';
  if (!text.empty())
    cells.set_problem(fmt::format("'{}' is no stage of ZeRO for zero_stage: 0 to 3, or FSDP", core::printable(text)));
  return 0;
}

/// The precision in lower case. A precision that is not known must not count as bf16, which an empty cell stands for.
std::string precision_of(Cells& cells) {
  std::string text = cells.lower_case("precision");
  constexpr std::array<std::string_view, 7> known{"fp32", "tf32", "fp16", "bf16", "amp", "fp8", "fp4"};
  const auto is_in_text = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (!text.empty() && std::ranges::none_of(known, is_in_text))
    cells.set_problem(fmt::format("'{}' is no known precision: {}", core::printable(text), fmt::join(known, ", ")));
  return text;
}

struct ThroughputUnit {
  bool counts_tokens = false;  ///< else samples
  bool is_of_one_gpu = false;  ///< else of all GPUs
};
/// Reads a unit such as "tokens/s/GPU"; empty: the unit is not known.
std::optional<ThroughputUnit> throughput_unit_of(std::string_view text) {
  std::string unit(text);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view counted : {"tokens", "images", "sequences", "samples"})
    for (const std::string_view of : {"", "/gpu"})
      if (unit == fmt::format("{}/s{}", counted, of)) return ThroughputUnit{counted == "tokens", !of.empty()};
  return std::nullopt;
}

/// Sets the step's time from the row's metric, whatever that is; sets `problem` if the metric gives no time.
void set_step_time(Cells& cells, TrainingStep& step) {
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
  } else if (const auto of = throughput_unit_of(unit); !of) {
    step.problem = fmt::format(
        "unit '{}' of a throughput is not known: tokens/s, sequences/s, samples/s or images/s, or these "
        "with /GPU",
        core::printable(unit));
  } else if (of->counts_tokens && step.sequence == 0) {
    step.problem = "tokens a second without the length of a sequence";
  } else {
    const double counted = of->counts_tokens ? samples * static_cast<double>(step.sequence) : samples;
    step.step_s = counted / (of->is_of_one_gpu ? value * gpus : value);
  }
}

}  // namespace

bool is_same_device(std::string_view a, std::string_view b) {
  if (a == b) return true;
  const ListedDevice *first = find_device(a), *second = find_device(b);
  return first || second ? first == second : plain_name(a) == plain_name(b);
}

bool is_usual_step(const TrainingStep& s) { return s.quantile.empty() || s.quantile == "p50"; }

double batch_per_gpu(const TrainingStep& s) {
  return static_cast<double>(s.global_batch) / static_cast<double>(s.gpus);
}

std::size_t replica_gpus(const TrainingStep& s) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  std::size_t product = 1;
  for (const std::size_t degree : {s.tensor, s.pipeline, s.context})
    product = degree > most / product ? most : product * degree;
  return product;
}

std::vector<TrainingStep> read_measured_steps(std::string_view text, const std::string& file) {
  std::vector<TrainingStep> steps;
  bool has_head = false;
  const auto check_head = [&](const std::vector<std::string>& names) {
    has_head = true;
    for (const char* needed : {"system", "gpu", "gpus", "model", "global_batch", "metric", "value", "unit"})
      if (std::ranges::find(names, needed) == names.end())
        throw core::CsvFault{1, fmt::format("column {} is missing; docs/predict.md lists the columns", needed)};
  };
  const auto faults = core::read_csv(text, file, check_head, [&](const core::CsvRow& row, std::size_t line) {
    Cells cells(row);
    TrainingStep step{.id = cells.text("id"),
                      .system = cells.text("system"),
                      .gpu = cells.text("gpu"),
                      .model = cells.text("model"),
                      .precision = precision_of(cells),
                      .recompute = cells.lower_case("activation_recompute"),
                      .strategy = cells.text("algorithm_or_strategy"),
                      .data = cells.text("data"),
                      .note = cells.text("note"),
                      .gpus_per_node = cells.count("gpus_per_node", most_gpus),
                      .nodes = cells.count("nodes", most_gpus),
                      .gpus = cells.count("gpus", most_gpus),
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
                      .zero_stage = zero_of(cells)};
    if (step.id.empty()) step.id = fmt::format("{}:{}", file, line);
    step.unread_reason = cells.problem();
    set_step_time(cells, step);
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
