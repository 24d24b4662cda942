#include "core/result.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "core/format.hpp"
#include "core/quoting.hpp"

namespace gradmeter::core {

namespace {

constexpr std::array<KeyInfo, factor_count> factors{{
#define GRADMETER_FACTOR(key, kind, unit, meaning) {#key, KeyKind::kind, unit, meaning},
#define GRADMETER_METRIC(key, kind, unit, meaning)
#include "core/result_keys.inc"
}};

constexpr std::array<KeyInfo, metric_count> metrics{{
#define GRADMETER_FACTOR(key, kind, unit, meaning)
#define GRADMETER_METRIC(key, kind, unit, meaning) {#key, KeyKind::kind, unit, meaning},
#include "core/result_keys.inc"
}};

constexpr std::array<std::string_view, 6> kStatusNames{"ok", "unsupported", "skipped", "failed", "wrong", "mistrusted"};

constexpr std::array<std::string_view, 10> kKindNames{"label",        "truth", "choice", "count",   "size",
                                                      "size_or_auto", "whole", "amount", "measure", "spans"};

}  // namespace

std::string_view name(Factor factor) { return factors.at(static_cast<std::size_t>(factor)).key; }
std::span<const KeyInfo> factor_table() { return factors; }
std::string_view name(Metric metric) { return metrics.at(static_cast<std::size_t>(metric)).key; }
std::span<const KeyInfo> metric_table() { return metrics; }
std::string_view name(KeyKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }
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
        } else if constexpr (std::is_same_v<T, Spans>) {
          return fmt::format("{} spans", v.size());
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
    key += fmt::format("{}{}={}", key.empty() ? "" : " ", factors[i].key, key_part(to_text(values_[i])));
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
