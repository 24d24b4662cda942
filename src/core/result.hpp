// One measured point: its factors (what was set), its metrics (what was found), its raw samples.
// docs/result-file.md and data/schema/result.schema.json state the file format.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/statistics.hpp"

namespace gradmeter::core {

/// Something that lasted for a part of a step, which begins at 0 [s].
struct Span {
  std::string name;
  double begin_s = 0, end_s = 0;
  std::optional<double> ready_s = {};      ///< of an exchange: when it was given to the layer below
  std::optional<std::int64_t> bytes = {};  ///< likewise
  bool operator==(const Span&) const = default;
};
using Spans = std::vector<Span>;

/// monostate is null: does not apply (factor) or was not measured (metric).
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Summary, Spans>;
inline bool is_null(const Value& v) { return std::holds_alternative<std::monostate>(v); }
/// In the result file's format: null, true, 12, 0.5, text. A Summary shows its median, and
/// Spans how many there are.
std::string to_text(const Value&);

/// Which values a key takes, as the schema names them.
enum class KeyKind : std::uint8_t {
  label,         ///< text
  truth,         ///< true, false
  choice,        ///< text, true, false
  count,         ///< whole number of at least 1
  size,          ///< bytes
  size_or_auto,  ///< bytes, or "auto"
  whole,         ///< whole number of at least 0
  amount,        ///< number of at least 0
  measure,       ///< number, or a Summary
  spans          ///< list of Spans
};
std::string_view name(KeyKind);

/// What there is to say of a key; result_keys.inc has the rows.
struct KeyInfo {
  std::string_view key;
  KeyKind kind;
  std::string_view unit;  ///< "s", "B/s"; "1" of a plain number, empty of what is none
  std::string_view meaning;
};

enum class Factor : std::uint8_t {
#define GRADMETER_FACTOR(key, kind, unit, meaning) key,
#define GRADMETER_METRIC(key, kind, unit, meaning)
#include "core/result_keys.inc"
  count_  // not one
};
inline constexpr std::size_t factor_count = static_cast<std::size_t>(Factor::count_);
std::string_view name(Factor);
std::span<const KeyInfo> factor_table();

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
#define GRADMETER_METRIC(key, kind, unit, meaning) key,
#define GRADMETER_FACTOR(key, kind, unit, meaning)
#include "core/result_keys.inc"
  count_  // not one
};
inline constexpr std::size_t metric_count = static_cast<std::size_t>(Metric::count_);
std::string_view name(Metric);
std::span<const KeyInfo> metric_table();

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
  std::string mapping, mpi, mpi_threads, cpu, binding, fingerprint;
  std::int64_t cores_per_node = 0, memory_bytes_per_node = 0;
  std::map<std::string, std::string> libraries, environment;
  std::vector<std::string> gpus;
};

}  // namespace gradmeter::core
