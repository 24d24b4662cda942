// SPDX-License-Identifier: Apache-2.0
// Units as types. Only operators whose result has a meaning exist.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradmeter::core {

/// A double with a unit. Different tags make different types.
template <class Tag>
struct Quantity {
  double value = 0;
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return {value + o.value}; }
  constexpr Quantity operator-(Quantity o) const { return {value - o.value}; }
  constexpr Quantity operator*(double f) const { return {value * f}; }
  constexpr Quantity operator/(double f) const { return {value / f}; }
  constexpr double operator/(Quantity o) const { return value / o.value; }
  constexpr Quantity& operator+=(Quantity o) { return value += o.value, *this; }
};

using Seconds = Quantity<struct SecondsTag>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using Flops = Quantity<struct FlopsTag>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;

struct Bytes {
  std::size_t value = 0;
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes o) const { return {value + o.value}; }
  constexpr Bytes& operator+=(Bytes o) { return value += o.value, *this; }
};

constexpr BytesPerSecond operator/(Bytes b, Seconds s) { return {static_cast<double>(b.value) / s.value}; }
constexpr Seconds operator/(Bytes b, BytesPerSecond r) { return {static_cast<double>(b.value) / r.value}; }
constexpr FlopsPerSecond operator/(Flops f, Seconds s) { return {f.value / s.value}; }
constexpr Seconds operator/(Flops f, FlopsPerSecond r) { return {f.value / r.value}; }

namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) { return {static_cast<std::size_t>(n) << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return {static_cast<std::size_t>(n) << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return {static_cast<std::size_t>(n) << 30}; }
}  // namespace literals

/// Reads "4096", "4K" or "25MB": K and KiB stand for 1024 bytes, as in nccl-tests, and KB for 1000; likewise for M, G
/// and T. Errors: UsageError that quotes the text.
Bytes parse_bytes(std::string_view text);
/// Reads seconds ("30"), or numbers with units: "30s", "200ms", "5m", "1h30m". Errors: UsageError that quotes the text.
Seconds parse_duration(std::string_view text);

/// "4 KiB", "1.5 MiB", "12 B".
std::string to_text(Bytes);
/// Three significant digits and a fitting unit: "12.3 ms", "870 ns".
std::string to_text(Seconds);
/// Minutes and seconds, or hours, minutes and seconds: "01:10", "1:02:03".
std::string clock_text(Seconds);
/// Decimal units: "12.3 GB/s".
std::string to_text(BytesPerSecond);
/// "151 GFLOP/s".
std::string to_text(FlopsPerSecond);

}  // namespace gradmeter::core
