#include "compression/detail/parameters.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression::detail {
namespace {

__extension__ using Wide = unsigned __int128;

/// Ten to this power times the most elements still fits in 128 bits.
constexpr unsigned most_places = 38;

}  // namespace

double number_between(const core::ParsedName& name, std::string_view parameter, double least, double most,
                      bool closed) {
  const std::string& text = name.parameters.at(std::string(parameter));
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool inside = value >= least && (value < most || (closed && value == most));
  // Written back, it must be the same text: names that mean the same must be equal.
  if (error != std::errc{} || end != text.data() + text.size() || !inside || fmt::format("{}", value) != text) {
    throw core::UsageError(
        fmt::format("codec {} takes numbers from {} {} {} as {}, written as short as can be, not '{}'", name.base,
                    least, closed ? "to" : "to below", most, parameter, text));
  }
  return value;
}

Density::Density(const core::ParsedName& name) : value_(fraction(name, "density")) {
  // The shortest text that reads back as this value: what was written, as `fraction` makes sure.
  const std::string text = fmt::format("{}", value_);
  const std::size_t mark = std::min(text.find('e'), text.size());
  const int exponent = mark < text.size() ? std::stoi(text.substr(mark + 1)) : 0;
  int behind_point = 0;
  bool passed_point = false;
  for (const char c : std::string_view(text).substr(0, mark)) {
    if (c != '.') digits_ = 10 * digits_ + static_cast<std::uint64_t>(c - '0');
    if (c != '.' && passed_point) ++behind_point;
    passed_point = passed_point || c == '.';
  }
  places_ = static_cast<unsigned>(behind_point - exponent);
}

std::size_t Density::of(std::size_t n) const {
  // So small a density of anything that fits in memory is one element.
  if (n == 0 || places_ > most_places) return n == 0 ? 0 : 1;
  Wide ten = 1;
  for (unsigned i = 0; i < places_; ++i) ten *= 10;
  const Wide product = Wide{digits_} * n;
  return std::min(n, static_cast<std::size_t>(product / ten + (product % ten != 0)));
}

void require_indexable(std::string_view codec, std::size_t n) {
  constexpr std::size_t most = std::size_t{1} << 32;
  if (n <= most) return;
  throw core::UsageError(
      fmt::format("codec {} sends places as 32 bits and cannot name {} elements of one tensor: cut it into tensors of "
                  "at most {}",
                  codec, n, most));
}

}  // namespace gradmeter::compression::detail
