// SPDX-License-Identifier: Apache-2.0
#include "predict/measurements.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "predict/embedded.hpp"

namespace gradmeter::predict {
namespace {

struct CsvRow {
  std::size_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> cells;
};

/// Source: RFC 4180.
std::vector<CsvRow> read_csv(std::string_view text, const std::string& file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<CsvRow> rows;
  std::size_t line = 1, at = 0;
  while (at < text.size()) {
    CsvRow row{.line = line, .cells = {""}};
    for (bool ends = false; !ends;) {
      if (at >= text.size()) break;
      char c = text[at++];
      if (c == '"' && row.cells.back().empty()) {
        for (;; ++at) {
          if (at >= text.size()) throw core::UsageError(fmt::format("{}:{}: a quoted cell has no end", file, row.line));
          c = text[at];
          if (c == '"' && at + 1 < text.size() && text[at + 1] == '"') {
            ++at;
          } else if (c == '"') {
            ++at;
            break;
          }
          line += c == '\n';
          row.cells.back() += c;
        }
      } else if (c == ',') {
        row.cells.emplace_back();
      } else if (c == '\n') {
        ++line;
        ends = true;
      } else if (c != '\r') {
        row.cells.back() += c;
      }
    }
    if (row.cells.size() > 1 || !row.cells.front().empty()) rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<double> to_number(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// Cells of one row by column.
class Cells {
 public:
  Cells(const std::map<std::string, std::size_t>& columns, const CsvRow& row) : columns_(columns), row_(row) {}

  std::string text(const std::string& column) const {
    const auto at = columns_.find(column);
    return at == columns_.end() || at->second >= row_.cells.size() ? "" : row_.cells[at->second];
  }
  /// 0 where the cell is empty, or no number of at least 0: then `problem` says so.
  double number(const std::string& column) const {
    const std::string cell = text(column);
    if (cell.empty()) return 0;
    const auto value = to_number(cell);
    if (value && *value >= 0) return *value;
    note(column, "is no number");
    return 0;
  }
  std::size_t count(const std::string& column) const {
    const double value = number(column);
    constexpr double most = 1e15;
    if (value == std::floor(value) && value <= most) return static_cast<std::size_t>(value);
    note(column, "is no whole number");
    return 0;
  }
  /// The first cell that could not be read; empty: all could be.
  const std::string& problem() const { return problem_; }

 private:
  void note(const std::string& column, std::string_view what) const {
    if (problem_.empty()) problem_ = fmt::format("column {}: '{}' {}", column, core::printable(text(column)), what);
  }
  const std::map<std::string, std::size_t>& columns_;
  const CsvRow& row_;
  mutable std::string problem_;
};

/// The stage of ZeRO from "3", "1", "fsdp 64"; 0 where it is not stated.
int zero_of(const std::string& text) {
  if (text.starts_with("fsdp") || text.starts_with("3")) return 3;
  if (text.starts_with("2")) return 2;
  return text.starts_with("1") ? 1 : 0;
}

/// Every metric as the time of a step [s].
void set_time(const Cells& cells, MeasuredStep& step) {
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
  const auto rows = read_csv(text, file);
  if (rows.empty()) throw core::UsageError(fmt::format("{}:1: an empty table; its first line names the columns", file));
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < rows.front().cells.size(); ++i) columns.emplace(rows.front().cells[i], i);
  for (const char* needed : {"system", "gpu", "gpus", "model", "global_batch", "metric", "value", "unit"}) {
    if (!columns.contains(needed))
      throw core::UsageError(
          fmt::format("{}:1: column {} is missing; docs/predict.md lists the columns", file, needed));
  }
  std::vector<MeasuredStep> out;
  for (const CsvRow& row : std::span(rows).subspan(1)) {
    if (row.cells.size() < columns.size())
      throw core::UsageError(
          fmt::format("{}:{}: {} cells where {} columns are named", file, row.line, row.cells.size(), columns.size()));
    const Cells c(columns, row);
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
    if (s.id.empty()) s.id = fmt::format("{}:{}", file, row.line);
    set_time(c, s);
    if (s.gpus == 0) s.problem = "the number of GPUs is not stated";
    if (!c.problem().empty()) s.problem = c.problem();
    if (!s.problem.empty()) s.step_s = 0;
    out.push_back(std::move(s));
  }
  return out;
}

std::string plain_name(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    if (std::isalnum(c)) out += static_cast<char>(std::tolower(c));
  return out;
}

namespace {

std::vector<Device> read_devices() {
  constexpr double tera = 1e12, giga = 1e9;
  const EmbeddedFile& file = device_files().front();
  const auto rows = read_csv(file.text, "devices.csv");
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < rows.front().cells.size(); ++i) columns.emplace(rows.front().cells[i], i);
  std::vector<Device> out;
  for (const CsvRow& row : std::span(rows).subspan(1)) {
    const Cells c(columns, row);
    Device d{.name = c.text("name"),
             .source = c.text("source"),
             .aliases = {},
             .fp32 = tera * c.number("fp32_tflops"),
             .tf32 = tera * c.number("tf32_tflops"),
             .fp16 = tera * c.number("fp16_tflops"),
             .bf16 = tera * c.number("bf16_tflops"),
             .fp8 = tera * c.number("fp8_tflops"),
             .memory_bytes = giga * c.number("memory_gb"),
             .memory_bytes_per_s = giga * c.number("memory_GBps"),
             .multiprocessors = c.number("multiprocessors"),
             .link_bytes_per_s = giga * c.number("link_GBps")};
    const std::string aliases = c.text("aliases");
    for (std::size_t at = 0; at < aliases.size();) {
      const std::size_t end = std::min(aliases.find(' ', at), aliases.size());
      d.aliases.push_back(aliases.substr(at, end - at));
      at = end + 1;
    }
    d.aliases.push_back(plain_name(d.name));
    out.push_back(std::move(d));
  }
  return out;
}

}  // namespace

double Device::peak(std::string_view precision) const {
  const auto has = [&](std::string_view part) { return precision.find(part) != std::string_view::npos; };
  const auto first_of = [](std::initializer_list<double> rates) {
    const auto* at = std::ranges::find_if(rates, [](double r) { return r > 0; });
    return at == rates.end() ? 0 : *at;
  };
  if (has("fp8") || has("FP8")) return first_of({fp8, bf16, fp16, fp32});
  if (has("bf16") || has("BF16")) return first_of({bf16, fp16, fp32});
  if (has("fp16") || has("amp")) return first_of({fp16, bf16, fp32});
  if (has("tf32")) return first_of({tf32, fp32});
  return first_of({fp32});
}

std::span<const Device> devices() {
  static const std::vector<Device> all = read_devices();
  return all;
}

const Device* find_device(std::string_view name) {
  const std::string wanted = plain_name(name);
  for (const Device& d : devices())
    if (std::ranges::find(d.aliases, wanted) != d.aliases.end()) return &d;
  return nullptr;
}

}  // namespace gradmeter::predict
