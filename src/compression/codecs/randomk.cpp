#include "compression/codecs/randomk.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "compression/detail/draws.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr std::array<std::string_view, 2> switches{"off", "on"};

/// [0, n): multiply-shift; bias under 2^-32 for n up to 2^32.
std::uint64_t below(std::uint64_t bits, std::uint64_t n) { return static_cast<std::uint64_t>(Wide{bits} * n >> 64); }

}  // namespace

RandomK::RandomK(const core::ParsedName& name) : density_(name), scaled_(one_of(name, "scale", switches) == 1) {}

void RandomK::draw_places(const Draw& draw, std::size_t n, std::span<std::uint32_t> places) const {
  detail::require_indexable("randomk", n);
  const std::size_t k = places.size();
  if (k == n) return std::iota(places.begin(), places.end(), 0u);
  const std::uint64_t key = Draw{.seed = draw.seed, .step = draw.step, .tensor = draw.tensor}.key();
  const std::uint64_t turn = below(detail::mixed(key), n);
  // Piece j is [j·n/k, (j+1)·n/k). After the rotation, later pieces wrap to 0: those come first.
  const auto place_of = [&](std::uint64_t j) {
    const std::uint64_t begin = j * n / k, end = (j + 1) * n / k;
    const std::uint64_t place = begin + below(detail::mixed(key ^ detail::mixed(j)), end - begin) + turn;
    return place < n ? place : place - n;
  };
  std::uint64_t first = 0, last = k;  // the first piece whose place is behind the end
  while (first < last) {
    const std::uint64_t middle = (first + last) / 2;
    if (place_of(middle) >= turn) first = middle + 1;
    if (place_of(middle) < turn) last = middle;
  }
  for (std::uint64_t j = 0; j < k; ++j) {
    places[j] = static_cast<std::uint32_t>(place_of(first + j < k ? first + j : first + j - k));
  }
}

void RandomK::gather(std::span<const float> x, std::span<const std::uint32_t> places, std::span<float> values) const {
  const float factor =
      scaled_ ? static_cast<float>(static_cast<double>(x.size()) / static_cast<double>(places.size())) : 1.0f;
  for (std::size_t j = 0; j < places.size(); ++j) values[j] = factor * x[places[j]];
}

void RandomK::scatter(std::span<const float> values, std::span<const std::uint32_t> places, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t j = 0; j < places.size(); ++j) out[places[j]] = values[j];
}

void RandomK::clear_sent(std::span<const std::uint32_t> places, std::span<float> x) {
  for (const std::uint32_t place : places) x[place] = 0;
}

void check_randomk(const core::ParsedName& name) {
  const RandomK refuses_bad_values(name);
  if (one_of(name, "scale", switches) == 1 && one_of(name, "ef", switches) == 1) {
    throw core::UsageError(
        "codec randomk: scale=on sends values times n/k, whose loss error feedback would blow up; take ef=off or "
        "scale=off");
  }
}

}  // namespace gradmeter::compression
