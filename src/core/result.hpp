// SPDX-License-Identifier: Apache-2.0
// One measured point: its factors (settings), its metrics (results) and its raw samples. docs/result-file.md and
// data/schema/result.schema.json state the file format.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/statistics.hpp"

namespace gradmeter::core {

/// A part of a step, from begin to end [s from the step's begin].
struct Span {
  std::string name;
  double begin_s = 0, end_s = 0;
  std::optional<double> ready_s = {};      ///< for an exchange: when it was posted, which may be before it begins
  std::optional<std::int64_t> bytes = {};  ///< payload of an exchange
  bool operator==(const Span&) const = default;
};
using Spans = std::vector<Span>;

/// A pointer to an immutable T that several owners share.
template <class T>
class Shared {
 public:
  explicit Shared(T value) : held_(new Held{.value = std::move(value)}) {}
  Shared(const Shared& other) noexcept : held_(other.held_) {
    if (held_) held_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Shared(Shared&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~Shared() {
    if (held_ && held_->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held_;
  }
  const T& operator*() const { return held_->value; }

 private:
  struct Held {
    T value;
    std::atomic<std::uint32_t> owners = 1;
  };
  Held* held_;
};

/// The value of a factor or metric: null, a bool, a number, a text, a summary or spans. A factor that does not apply is
/// null, and so is a metric that was not measured. Copies share texts, summaries and spans, so a hundred thousand
/// points with the same texts store each text once.
class Value {
 public:
  Value() = default;
  template <std::same_as<bool> T>
  Value(T truth) : held_(truth) {}
  template <std::integral T>
  requires(!std::same_as<T, bool> && (std::is_signed_v<T> || sizeof(T) < sizeof(std::int64_t))) Value(T whole)
      : held_(static_cast<std::int64_t>(whole)) {}
  Value(double real) : held_(real) {}
  Value(std::string text) : held_(Shared(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(const Summary& summary) : held_(Shared(summary)) {}
  Value(Spans spans) : held_(Shared(std::move(spans))) {}

  /// The content if it is a T: bool, std::int64_t, double, std::string, Summary or Spans; else null.
  template <class T>
  const T* as() const {
    if constexpr (std::is_arithmetic_v<T>) {
      return std::get_if<T>(&held_);
    } else {
      const auto* shared = std::get_if<Shared<T>>(&held_);
      return shared ? &**shared : nullptr;
    }
  }
  /// Errors: std::bad_variant_access if the content is not a T.
  template <class T>
  const T& get() const {
    const T* held = as<T>();
    return held ? *held : throw std::bad_variant_access();
  }
  bool is_null() const { return held_.index() == 0; }
  /// Values are equal if type and text (`to_text`) are equal. Different finite numbers have different texts.
  friend bool operator==(const Value&, const Value&);

 private:
  std::variant<std::monostate, bool, std::int64_t, double, Shared<std::string>, Shared<Summary>, Shared<Spans>> held_;
};
inline bool is_null(const Value& v) { return v.is_null(); }
/// The value as text in the result file's format: null, true, 12, 0.5, text. A Summary becomes its median, and Spans
/// become their count ("3 spans").
std::string to_text(const Value&);

/// Values by key. `Key` is an enum; only values that are not null take memory.
template <class Key, std::size_t key_count>
class Values {
 public:
  /// A proxy through which the value of one key is read or written. A reference to the Value would become invalid with
  /// the next write to any key.
  class Slot {
   public:
    Slot(Values& values, Key key) : values_(values), key_(key) {}
    Slot(const Slot&) = default;
    Slot& operator=(Value value) {
      values_.set(key_, std::move(value));
      return *this;
    }
    Slot& operator=(const Slot& other) { return *this = Value(other); }
    operator const Value&() const { return std::as_const(values_)[key_]; }
    template <class T>
    const T* as() const {
      return static_cast<const Value&>(*this).template as<T>();
    }
    template <class T>
    const T& get() const {
      return static_cast<const Value&>(*this).template get<T>();
    }

   private:
    Values& values_;
    Key key_;
  };

  Values() = default;
  Values(const Values&) = default;
  Values& operator=(const Values&) = default;
  /// Leaves `other` empty.
  Values(Values&& other) noexcept
      : present_(std::exchange(other.present_, {})), values_(std::exchange(other.values_, {})) {}
  Values& operator=(Values&& other) noexcept {
    present_ = std::exchange(other.present_, {});
    values_ = std::exchange(other.values_, {});
    return *this;
  }
  ~Values() = default;

  const Value& operator[](Key key) const {
    static const Value null;
    return has(key) ? values_[place(key)] : null;
  }
  Slot operator[](Key key) { return {*this, key}; }
  void set(Key key, Value value) {
    const auto at = values_.begin() + static_cast<std::ptrdiff_t>(place(key));
    const bool had = has(key), has_now = !value.is_null();
    if (had != has_now) present_[word(key)] ^= bit(key);
    if (had && has_now) {
      *at = std::move(value);
    } else if (has_now) {
      values_.insert(at, std::move(value));
    } else if (had) {
      values_.erase(at);
    }
  }
  /// Calls visit(key, value) for each value that is not null, in the order of the keys.
  template <class Visit>
  void each(const Visit& visit) const {
    auto value = values_.begin();
    for (std::size_t word = 0; word < present_.size(); ++word)
      for (std::uint64_t left = present_[word]; left != 0; left &= left - 1)
        visit(static_cast<Key>(64 * word + static_cast<std::size_t>(std::countr_zero(left))), *value++);
  }
  /// Gives back memory that was reserved for later writes.
  void shrink_to_fit() { values_.shrink_to_fit(); }
  bool operator==(const Values&) const = default;

 private:
  static constexpr std::size_t word(Key key) { return static_cast<std::size_t>(key) / 64; }
  static constexpr std::uint64_t bit(Key key) { return std::uint64_t{1} << (static_cast<std::size_t>(key) % 64); }
  bool has(Key key) const { return (present_[word(key)] & bit(key)) != 0; }
  std::size_t place(Key key) const {
    std::size_t before = 0;
    for (std::size_t i = 0; i < word(key); ++i) before += static_cast<std::size_t>(std::popcount(present_[i]));
    return before + static_cast<std::size_t>(std::popcount(present_[word(key)] & (bit(key) - 1)));
  }

  std::array<std::uint64_t, (key_count + 63) / 64> present_{};  ///< a bit for each key: 1 if its value is not null
  std::vector<Value> values_;  ///< one value for each bit that is set in `present_`, in the order of the bits
};

/// The kind of value that a key may have. Enumerators have the names of the definitions in result.schema.json, which
/// has none for `size_or_auto`.
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
  spans          ///< a list of Span
};
std::string_view name(KeyKind);

/// The description of a key; result_keys.inc has one for each key.
struct KeyInfo {
  std::string_view key;
  KeyKind kind;
  std::string_view unit;  ///< "s", "B/s"; "1" for a plain number, empty for other values
  std::string_view meaning;
};

enum class Factor : std::uint8_t {
#define GRADMETER_FACTOR(key, kind, unit, meaning) key,
#define GRADMETER_METRIC(key, kind, unit, meaning)
#include "core/result_keys.inc"
  count_  // the number of factors
};
inline constexpr std::size_t factor_count = static_cast<std::size_t>(Factor::count_);
std::string_view name(Factor);
std::span<const KeyInfo> factor_table();

/// The settings of a point. A factor that does not apply is null.
class Factors : public Values<Factor, factor_count> {
 public:
  /// "ranks=4 model=mlp:784-1024-1024-10 …": the key by which --resume and compare match points. Nulls are left out.
  std::string key() const;
};

enum class Metric : std::uint8_t {
#define GRADMETER_METRIC(key, kind, unit, meaning) key,
#define GRADMETER_FACTOR(key, kind, unit, meaning)
#include "core/result_keys.inc"
  count_  // the number of metrics
};
inline constexpr std::size_t metric_count = static_cast<std::size_t>(Metric::count_);
std::string_view name(Metric);
std::span<const KeyInfo> metric_table();

class Metrics : public Values<Metric, metric_count> {
 public:
  /// The metric as a number: a summary's median, 1 and 0 for true and false; NaN for null, a text or spans.
  double number(Metric) const;
};

enum class Status : std::uint8_t { ok, unsupported, skipped, failed, wrong, mistrusted };
std::string_view name(Status);

struct Point {
  std::string experiment;  ///< "scale", "train", …
  Status status = Status::ok;
  std::string reason;  ///< why the status is not ok
  Factors factors;
  Metrics metrics;
  std::vector<double> raw_times_s;
};

/// The machine and command of a run, as its first line describes them. bench/engine/session.cpp fills it in.
struct RunInfo {
  std::string run_id, time, command, version, commit;
  std::vector<std::string> hosts;
  std::int64_t ranks = 1, nodes = 1;
  std::string mapping, mpi, mpi_threads, mpi_copy_mechanism, cpu, binding, fingerprint;
  std::int64_t cores_per_node = 0, memory_bytes_per_node = 0;
  std::map<std::string, std::string> libraries, environment;
  std::vector<std::string> gpus;
};

// How much other programs and the hypervisor disturbed a point while it was measured.

/// The share of the elapsed time for which the point's threads were ready but waited for a core [0..1]. By convention 0
/// if the point has more threads than cores, since these threads then wait for each other.
double run_delay(const Metrics&);
/// True if run_delay is over a twentieth of the time.
bool waits_for_cores(const Metrics&);
/// Share of the time that the hypervisor took [0..1].
double steal(const Metrics&);
/// True if steal is over a twentieth of the time.
bool loses_cores(const Metrics&);
/// True if the machine was not in its usual state during more than half of the blocks of samples.
bool is_mostly_disturbed(const Metrics&);
/// True if waits_for_cores, loses_cores or is_mostly_disturbed is true. Such a point is marked, and so is every
/// conclusion from it.
bool is_disturbed(const Metrics&);
/// The largest share of the point's time that a disturbance may have caused [0..1]; 0: there was none.
double share_of_disturbance(const Metrics&);

}  // namespace gradmeter::core
