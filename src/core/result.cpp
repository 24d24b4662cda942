#include "core/result.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "core/format.hpp"

namespace gradmeter::core {

namespace {

constexpr std::array<std::string_view, factor_count> kFactorNames{
    "ranks",        "nodes",      "ranks_per_node", "mapping",   "interconnect", "model",        "batch_per_rank",
    "batch_global", "accumulate", "threads",        "precision", "update",       "strategy",     "mesh",
    "algorithm",    "codec",      "bucket_bytes",   "overlap",   "scaling",      "transport",    "device",
    "size_bytes",   "dtype",      "accum_dtype",    "op",        "collective",   "buffers",      "in_place",
    "cadence",      "reduction",  "problem",        "pass",      "cache",        "distribution", "placement",
    "inject"};

constexpr std::array<std::string_view, metric_count> kMetricNames{"time_s",
                                                                  "compute_s",
                                                                  "comm_s",
                                                                  "exposed_s",
                                                                  "exposed_union_s",
                                                                  "overlap_s",
                                                                  "interference_s",
                                                                  "contention_s",
                                                                  "straggle_s",
                                                                  "wait_s",
                                                                  "wire_s",
                                                                  "other_s",
                                                                  "bound_by",
                                                                  "exposed_ci95_low",
                                                                  "exposed_ci95_high",
                                                                  "samples_per_s",
                                                                  "efficiency",
                                                                  "efficiency_ci95_low",
                                                                  "efficiency_ci95_high",
                                                                  "efficiency_node",
                                                                  "self_speedup",
                                                                  "baseline_time_s",
                                                                  "baseline_ranks",
                                                                  "baseline_batch",
                                                                  "algbw_bytes_per_s",
                                                                  "busbw_bytes_per_s",
                                                                  "bytes_sent_per_rank_max",
                                                                  "bytes_sent_total",
                                                                  "bytes_inter_node",
                                                                  "bytes_predicted",
                                                                  "encode_s",
                                                                  "decode_s",
                                                                  "decode_add_s",
                                                                  "reduce_encode_s",
                                                                  "memcpy_s",
                                                                  "add_s",
                                                                  "wire_bits",
                                                                  "error",
                                                                  "error_expected",
                                                                  "error_bound",
                                                                  "crossover_bytes_per_s",
                                                                  "wrong",
                                                                  "limit_s",
                                                                  "limit",
                                                                  "limit_compute_s",
                                                                  "limit_exchange_s",
                                                                  "limit_roofline_s",
                                                                  "predicted_time_s",
                                                                  "flops_per_s",
                                                                  "roofline",
                                                                  "implementation",
                                                                  "oversubscribed",
                                                                  "noise_steal",
                                                                  "noise_run_delay",
                                                                  "noise_switches",
                                                                  "frequency_hz",
                                                                  "blocks",
                                                                  "disturbed_blocks",
                                                                  "left_out_blocks",
                                                                  "steadiness",
                                                                  "gradient_norm",
                                                                  "gradient_variance",
                                                                  "noise_scale_samples",
                                                                  "loss",
                                                                  "accuracy",
                                                                  "staleness",
                                                                  "staleness_p99",
                                                                  "staleness_max",
                                                                  "updates_per_s",
                                                                  "clock_gap",
                                                                  "held_s",
                                                                  "standstill_s",
                                                                  "standstill_causes",
                                                                  "samples_to_target",
                                                                  "time_to_target_s",
                                                                  "time_per_sample_s",
                                                                  "accuracy_at_samples",
                                                                  "learn_samples",
                                                                  "accuracy_at_time",
                                                                  "learn_time_s",
                                                                  "warmup_s",
                                                                  "warmup_samples",
                                                                  "progress_threads",
                                                                  "bucket_chosen_bytes",
                                                                  "peak_flops_per_s",
                                                                  "link_bytes_per_s",
                                                                  "full_flops_per_s",
                                                                  "bytes_per_s",
                                                                  "memory_bytes_per_s",
                                                                  "ranks_spread",
                                                                  "slowest_rank",
                                                                  "slowest_host",
                                                                  "calls_per_sample",
                                                                  "operand_sets",
                                                                  "published",
                                                                  "published_time_s",
                                                                  "application",
                                                                  "step",
                                                                  "epoch"};

constexpr std::array<std::string_view, 6> kStatusNames{"ok", "unsupported", "skipped", "failed", "wrong", "mistrusted"};

// A name left out would leave the last place empty.
static_assert(!kFactorNames.back().empty() && !kMetricNames.back().empty());

}  // namespace

std::string_view name(Factor factor) { return kFactorNames.at(static_cast<std::size_t>(factor)); }
std::string_view name(Metric metric) { return kMetricNames.at(static_cast<std::size_t>(metric)); }
std::string_view name(Status status) { return kStatusNames.at(static_cast<std::size_t>(status)); }

std::string to_text(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "null";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return v;
        } else if constexpr (std::is_same_v<T, Summary>) {
          return to_text(Value{v.median});
        } else if constexpr (std::is_same_v<T, double>) {
          return std::isfinite(v) ? fmt::format("{}", v) : "null";  // the file has no NaN either
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

bool Factors::operator==(const Factors& other) const {
  for (std::size_t i = 0; i < factor_count; ++i) {
    // Texts round-trip, so equal texts of one type are equal values.
    const Value &mine = values_[i], &theirs = other.values_[i];
    if (mine.index() != theirs.index() || to_text(mine) != to_text(theirs)) return false;
  }
  return true;
}

std::string Factors::key() const {
  std::string key;
  for (std::size_t i = 0; i < factor_count; ++i) {
    if (is_null(values_[i])) continue;
    key += fmt::format("{}{}={}", key.empty() ? "" : " ", kFactorNames[i], to_text(values_[i]));
  }
  return key;
}

double Metrics::number(Metric metric) const {
  return std::visit(
      [](const auto& v) -> double {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<T>) {
          return static_cast<double>(v);
        } else if constexpr (std::is_same_v<T, Summary>) {
          return v.median;
        } else {
          return std::numeric_limits<double>::quiet_NaN();
        }
      },
      (*this)[metric]);
}

}  // namespace gradmeter::core
