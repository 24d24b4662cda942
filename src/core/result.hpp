// One measured point: its factors (what was set), its metrics (what was found), its raw samples.
// docs/result-file.md and data/schema/result.schema.json state the file format.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/statistics.hpp"

namespace gradmeter::core {

/// monostate is null: does not apply (factor) or was not measured (metric).
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Summary>;
inline bool is_null(const Value& v) { return std::holds_alternative<std::monostate>(v); }
/// As the result file has it: null, true, 12, 0.5, text. A Summary shows its median.
std::string to_text(const Value&);

enum class Factor : std::uint8_t {
  ranks,
  nodes,
  ranks_per_node,
  mapping,
  interconnect,
  model,
  batch_per_rank,
  batch_global,
  accumulate,
  threads,
  precision,
  update,
  strategy,
  mesh,
  algorithm,
  codec,
  bucket_bytes,
  overlap,
  scaling,
  transport,
  device,
  size_bytes,
  dtype,
  accum_dtype,
  op,
  collective,
  buffers,
  in_place,
  cadence,
  reduction,
  problem,
  pass,
  cache,
  distribution,
  placement,
  inject,
  count_  // not a factor
};
inline constexpr std::size_t factor_count = static_cast<std::size_t>(Factor::count_);
std::string_view name(Factor);

/// Every factor has a place; a factor that does not apply is null.
class Factors {
 public:
  Value& operator[](Factor f) { return values_[static_cast<std::size_t>(f)]; }
  const Value& operator[](Factor f) const { return values_[static_cast<std::size_t>(f)]; }
  bool operator==(const Factors&) const;
  /// "ranks=4 model=mlp:784-1024-1024-10 …": what --resume and compare join on. Nulls are left out.
  std::string key() const;

 private:
  std::array<Value, factor_count> values_;
};

enum class Metric : std::uint8_t {
  time_s,
  compute_s,
  comm_s,
  exposed_s,
  exposed_union_s,
  overlap_s,
  interference_s,
  contention_s,
  straggle_s,
  wait_s,
  wire_s,
  other_s,
  bound_by,
  exposed_ci95_low,
  exposed_ci95_high,
  samples_per_s,
  efficiency,
  efficiency_ci95_low,
  efficiency_ci95_high,
  efficiency_node,
  self_speedup,
  baseline_time_s,
  baseline_ranks,
  baseline_batch,
  algbw_bytes_per_s,
  busbw_bytes_per_s,
  bytes_sent_per_rank_max,
  bytes_sent_total,
  bytes_inter_node,
  bytes_predicted,
  encode_s,
  decode_s,
  decode_add_s,
  reduce_encode_s,
  memcpy_s,
  add_s,
  wire_bits,
  error,
  error_expected,
  error_bound,
  crossover_bytes_per_s,
  wrong,
  limit_s,
  limit,
  limit_compute_s,
  limit_exchange_s,
  limit_roofline_s,
  predicted_time_s,
  flops_per_s,
  roofline,
  implementation,
  oversubscribed,
  noise_steal,
  noise_run_delay,
  noise_switches,
  frequency_hz,
  blocks,
  disturbed_blocks,
  left_out_blocks,
  steadiness,
  gradient_norm,
  gradient_variance,
  noise_scale_samples,
  loss,
  accuracy,
  staleness,
  staleness_p99,
  staleness_max,
  updates_per_s,
  clock_gap,
  held_s,
  standstill_s,
  standstill_causes,
  samples_to_target,
  time_to_target_s,
  time_per_sample_s,
  accuracy_at_samples,
  learn_samples,
  accuracy_at_time,
  learn_time_s,
  warmup_s,
  warmup_samples,
  progress_threads,
  bucket_chosen_bytes,
  peak_flops_per_s,
  link_bytes_per_s,
  full_flops_per_s,
  bytes_per_s,
  memory_bytes_per_s,
  ranks_spread,
  slowest_rank,
  slowest_host,
  calls_per_sample,
  operand_sets,
  published,
  published_time_s,
  application,
  step,
  epoch,
  count_
};
inline constexpr std::size_t metric_count = static_cast<std::size_t>(Metric::count_);
std::string_view name(Metric);

class Metrics {
 public:
  Value& operator[](Metric m) { return values_[static_cast<std::size_t>(m)]; }
  const Value& operator[](Metric m) const { return values_[static_cast<std::size_t>(m)]; }
  /// The number, or the summary's median; NaN when null or text.
  double number(Metric) const;

 private:
  std::array<Value, metric_count> values_;
};

enum class Status : std::uint8_t { ok, unsupported, skipped, failed, wrong, mistrusted };
std::string_view name(Status);

struct Point {
  std::string experiment;  ///< "scale", "train", …
  Status status = Status::ok;
  std::string reason;  ///< why, when not ok
  Factors factors;
  Metrics metrics;
  std::vector<double> raw_times_s;
};

/// What a run's head line says of the machine and the command. Filled by runtime (facts) and cli (command).
struct RunInfo {
  std::string run_id, time, command, version, commit;
  std::vector<std::string> hosts;
  std::int64_t ranks = 1, nodes = 1;
  std::string mapping, mpi, cpu, binding, fingerprint;
  std::int64_t cores_per_node = 0, memory_bytes_per_node = 0;
  std::map<std::string, std::string> libraries, environment;
  std::vector<std::string> gpus;
};

}  // namespace gradmeter::core
