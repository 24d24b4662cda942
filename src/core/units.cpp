// SPDX-License-Identifier: Apache-2.0
#include "core/units.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"

namespace gradmeter::core {

namespace {

using detail::quote;

struct Scale {
  double factor;
  std::string_view unit;
};

constexpr std::array duration_units{Scale{1, ""},  Scale{1e-6, "us"}, Scale{1e-3, "ms"},
                                    Scale{1, "s"}, Scale{60, "m"},    Scale{3600, "h"}};

constexpr std::array time_units{Scale{1e-9, "ns"}, Scale{1e-6, "µs"}, Scale{1e-3, "ms"}, Scale{1, "s"}};
constexpr std::array byte_rate_units{Scale{1, "B/s"},    Scale{1e3, "kB/s"},  Scale{1e6, "MB/s"},
                                     Scale{1e9, "GB/s"}, Scale{1e12, "TB/s"}, Scale{1e15, "PB/s"}};
constexpr std::array flop_rate_units{Scale{1, "FLOP/s"},    Scale{1e3, "kFLOP/s"},  Scale{1e6, "MFLOP/s"},
                                     Scale{1e9, "GFLOP/s"}, Scale{1e12, "TFLOP/s"}, Scale{1e15, "PFLOP/s"},
                                     Scale{1e18, "EFLOP/s"}};

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes the leading digits off `text`, and returns them.
std::string_view take_digits(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size() && is_digit(text[n])) ++n;
  const std::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  return digits;
}

/// The factor for which a size's suffix stands: 2^shift, or 1000^thousands.
struct SizeUnit {
  unsigned shift = 0, thousands = 0;
};

/// K, M, G and T are binary, as in nccl-tests, and so are KiB, MiB, GiB and TiB; KB, MB, GB and TB are decimal.
std::optional<SizeUnit> size_unit(std::string_view suffix) {
  const std::string s = lower(suffix);
  if (s.empty() || s == "b") return SizeUnit{};
  constexpr std::string_view letters = "kmgt";
  const std::size_t place = letters.find(s[0]);
  if (place == std::string_view::npos) return std::nullopt;
  const auto power = static_cast<unsigned>(place + 1);
  if (s.size() == 1 || s.substr(1) == "ib") return SizeUnit{.shift = 10 * power};
  return s.substr(1) == "b" ? std::optional(SizeUnit{.thousands = power}) : std::nullopt;
}

/// digits × 2^shift; empty if that is above 2^63 - 1, since sizes are also stored as signed 64-bit numbers.
std::optional<std::uint64_t> shifted(std::string_view digits, unsigned shift) {
  if (digits.empty()) return 0;
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (code != std::errc{} || value > (most >> shift)) return std::nullopt;
  return value << shift;
}

/// 0.fraction × 2^shift, where `fraction` are decimal digits; empty if that is not a whole number. For k digits, the
/// last not 0, it is numerator × 2^shift / (2^k × 5^k): whole only if 5^k divides the numerator and k <= shift.
std::optional<std::uint64_t> shifted_fraction(std::string_view fraction, unsigned shift) {
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  if (fraction.empty()) return 0;
  if (fraction.size() > 18 || fraction.size() > shift) return std::nullopt;
  std::uint64_t numerator = 0, five_to_k = 1;
  for (const char c : fraction) {
    numerator = numerator * 10 + static_cast<std::uint64_t>(c - '0');
    five_to_k *= 5;
  }
  if (numerator % five_to_k != 0) return std::nullopt;
  return (numerator / five_to_k) << (shift - fraction.size());
}

/// whole.fraction × 1000^thousands, as digits: "1", "5" and 1 give "1500"; empty if that is not a whole number.
std::optional<std::string> decimal_digits(std::string_view whole, std::string_view fraction, unsigned thousands) {
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  const std::size_t places = std::size_t{3} * thousands;
  if (fraction.size() > places) return std::nullopt;
  return fmt::format("{}{}{}", whole, fraction, std::string(places - fraction.size(), '0'));
}

/// Takes a number, and the blanks around it, off the front of `text`; empty if there is no finite number.
std::optional<double> take_number(std::string_view& text) {
  text = trim(text);
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc{} || !std::isfinite(number)) return std::nullopt;
  text = trim(text.substr(static_cast<std::size_t>(end - text.data())));
  return number;
}

std::optional<double> find_factor(std::span<const Scale> scales, std::string_view unit) {
  for (const Scale& s : scales) {
    if (s.unit == unit) return s.factor;
  }
  return std::nullopt;
}

std::string units_of(std::span<const Scale> scales) {
  std::string names;
  for (const Scale& s : scales) {
    if (!s.unit.empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", s.unit);
  }
  return names;
}

/// Three significant digits. Trailing zeros are kept, so that the numbers of a column line up.
std::string three_digits(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude < 0.9995) return fmt::format("{:.3g}", value);
  if (magnitude < 9.995) return fmt::format("{:.2f}", value);
  if (magnitude < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::optional<std::string> special_value_text(double value, std::string_view zero_unit) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return fmt::format("0 {}", zero_unit);
  return std::nullopt;
}

std::string scaled_text(double value, std::span<const Scale> scales) {
  std::size_t i = 0;
  while (i + 1 < scales.size() && std::fabs(value) / scales[i].factor >= 999.5) ++i;
  return fmt::format("{} {}", three_digits(value / scales[i].factor), scales[i].unit);
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  constexpr std::string_view advice =
      "write bytes such as 4096, 4K, 1.5M or 25MB (K and KiB are 1024 bytes, KB is 1000; so M, G, T)";
  std::string_view rest = trim(text);
  if (rest.starts_with('-')) throw UsageError(fmt::format("size {} is negative: {}", quote(text), advice));
  const std::string_view whole = take_digits(rest);
  std::string_view fraction;
  const bool has_point = rest.starts_with('.');
  if (has_point) {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
  }
  const auto unit = size_unit(trim(rest));
  if (whole.empty() || !unit || (has_point && fraction.empty())) {
    throw UsageError(fmt::format("size {} is not understood: {}", quote(text), advice));
  }
  const auto not_whole = [&] {
    return UsageError(fmt::format("size {} is not a whole number of bytes: {}", quote(text), advice));
  };
  std::string digits(whole);
  if (unit->thousands > 0) {
    const auto decimal = decimal_digits(whole, fraction, unit->thousands);
    if (!decimal) throw not_whole();
    digits = *decimal, fraction = {};
  }
  const auto base = shifted(digits, unit->shift);
  if (!base) throw UsageError(fmt::format("size {} is too large: at most 2^63 - 1 bytes", quote(text)));
  const auto extra = shifted_fraction(fraction, unit->shift);
  if (!extra) throw not_whole();
  return {static_cast<std::size_t>(*base + *extra)};
}

namespace {

/// The seconds of a text such as "1h30m", whose units get smaller from part to part; empty if it is no such text.
std::optional<double> sum_of_durations(std::string_view text) {
  double seconds = 0, last_factor = std::numeric_limits<double>::infinity();
  do {
    const auto number = take_number(text);
    if (!number || *number < 0) return std::nullopt;
    const auto letters = std::min(text.find_first_of("0123456789."), text.size());
    const auto unit = trim(text.substr(0, letters));
    const auto factor = find_factor(duration_units, unit);
    const bool is_alone = std::isinf(last_factor) && letters == text.size();
    if (!factor || *factor >= last_factor || (unit.empty() && !is_alone)) return std::nullopt;
    seconds += *number * *factor;
    last_factor = *factor;
    text = text.substr(letters);
  } while (!text.empty());
  return seconds;
}

}  // namespace

Seconds parse_duration(std::string_view text) {
  const auto seconds = sum_of_durations(text);
  if (!seconds || !std::isfinite(*seconds)) {
    throw UsageError(
        fmt::format("duration {} is not understood: write seconds, or numbers and units, such as 30, 30s, 5m or 1h30m; "
                    "units: {}",
                    quote(text), units_of(duration_units)));
  }
  return {*seconds};
}

std::string to_text(Bytes bytes) {
  constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes.value);
  std::size_t i = 0;
  // Four digits hold any whole number below 1024; a value that would round to 1024 belongs to the next unit.
  while (i + 1 < units.size() && value >= 1023.5) {
    value /= 1024;
    ++i;
  }
  return fmt::format("{:.4g} {}", value, units[i]);
}

std::string to_text(Seconds seconds) {
  if (const auto text = special_value_text(seconds.value, "s")) return *text;
  const double magnitude = std::fabs(seconds.value);
  if (magnitude < 999.5) return scaled_text(seconds.value, time_units);
  if (magnitude < 7200) return fmt::format("{} min", three_digits(seconds.value / 60));
  return fmt::format("{} h", three_digits(seconds.value / 3600));
}

std::string to_text(BytesPerSecond rate) {
  if (auto text = special_value_text(rate.value, "B/s")) return *text;
  return scaled_text(rate.value, byte_rate_units);
}

std::string to_text(FlopsPerSecond rate) {
  if (auto text = special_value_text(rate.value, "FLOP/s")) return *text;
  return scaled_text(rate.value, flop_rate_units);
}

std::string clock_text(Seconds time) {
  const auto seconds = std::max(0LL, std::llround(time.value));
  const auto hours = seconds / 3600, minutes = seconds / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, seconds % 60)
                   : fmt::format("{:02}:{:02}", minutes, seconds % 60);
}

}  // namespace gradmeter::core
