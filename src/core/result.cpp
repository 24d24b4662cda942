// SPDX-License-Identifier: Apache-2.0
#include "core/result.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "core/format.hpp"
#include "core/print.hpp"

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

constexpr std::array<std::string_view, 6> status_names{"ok", "unsupported", "skipped", "failed", "wrong", "mistrusted"};

constexpr std::array<std::string_view, 10> kind_names{"label",        "truth", "choice", "count",   "size",
                                                      "size_or_auto", "whole", "amount", "measure", "spans"};

}  // namespace

std::string_view name(Factor factor) { return factors.at(static_cast<std::size_t>(factor)).key; }
std::span<const KeyInfo> factor_table() { return factors; }
std::string_view name(Metric metric) { return metrics.at(static_cast<std::size_t>(metric)).key; }
std::span<const KeyInfo> metric_table() { return metrics; }
std::string_view name(KeyKind kind) { return kind_names.at(static_cast<std::size_t>(kind)); }
std::string_view name(Status status) { return status_names.at(static_cast<std::size_t>(status)); }

bool operator==(const Value& a, const Value& b) {
  if (a.held_.index() != b.held_.index()) return false;
  if (const auto* text = a.as<std::string>()) return *text == b.get<std::string>();
  if (const auto* whole = a.as<std::int64_t>()) return *whole == b.get<std::int64_t>();
  return to_text(a) == to_text(b);
}

std::string to_text(const Value& value) {
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* truth = value.as<bool>()) return *truth ? "true" : "false";
  if (const auto* whole = value.as<std::int64_t>()) return fmt::format_int(*whole).str();
  if (const auto* spans = value.as<Spans>()) return fmt::format("{} spans", spans->size());
  const auto* real = value.as<double>();
  if (const auto* summary = value.as<Summary>()) real = &summary->median;
  return real && std::isfinite(*real) ? fmt::format("{}", *real) : "null";  // as in the file, which has no NaN
}

std::string Factors::key() const {
  std::string key;
  each([&key](Factor factor, const Value& value) {
    if (!key.empty()) key += ' ';
    key += name(factor);
    key += '=';
    key += escaped_key_part(to_text(value));
  });
  return key;
}

double Metrics::number(Metric metric) const {
  const Value& value = (*this)[metric];
  if (const auto* real = value.as<double>()) return *real;
  if (const auto* summary = value.as<Summary>()) return summary->median;
  if (const auto* whole = value.as<std::int64_t>()) return static_cast<double>(*whole);
  if (const auto* truth = value.as<bool>()) return *truth ? 1 : 0;
  return std::numeric_limits<double>::quiet_NaN();
}

namespace {

constexpr double noticeable_share = 0.05;

double or_zero(double share) { return std::isfinite(share) ? share : 0; }

}  // namespace

double run_delay(const Metrics& m) {
  const auto* is_oversubscribed = m[Metric::oversubscribed].as<bool>();
  return is_oversubscribed && *is_oversubscribed ? 0 : or_zero(m.number(Metric::noise_run_delay));
}
bool waits_for_cores(const Metrics& m) { return run_delay(m) > noticeable_share; }

double steal(const Metrics& m) { return or_zero(m.number(Metric::noise_steal)); }
bool loses_cores(const Metrics& m) { return steal(m) > noticeable_share; }

bool is_mostly_disturbed(const Metrics& m) { return 2 * m.number(Metric::disturbed_blocks) > m.number(Metric::blocks); }
bool is_disturbed(const Metrics& m) { return waits_for_cores(m) || loses_cores(m) || is_mostly_disturbed(m); }

double share_of_disturbance(const Metrics& m) {
  const double slowdown_share = is_mostly_disturbed(m) ? or_zero(1 - m.number(Metric::steadiness)) : 0;
  return std::clamp(std::max({steal(m), run_delay(m), slowdown_share}), 0.0, 1.0);
}

}  // namespace gradmeter::core
