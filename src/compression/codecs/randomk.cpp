#include "compression/codecs/randomk.hpp"

#include <algorithm>
#include <array>

#include "compression/detail/randomk_places.hpp"
#include "compression/registry.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::array<std::string_view, 2> switches{"off", "on"};

}  // namespace

RandomK::RandomK(const core::ParsedName& name) : density_(name), scaled_(one_of(name, "ef", switches) == 0) {}

void RandomK::draw_places(const Draw& draw, std::size_t n, std::span<std::uint32_t> places) const {
  detail::require_indexable("randomk", n);
  if (places.empty()) return;
  const detail::RandomPlaces drawn(draw, n, places.size());
  for (std::uint64_t j = 0; j < places.size(); ++j) places[j] = drawn.place(j);
}

float RandomK::factor_of(std::size_t n, std::size_t k) const {
  return scaled_ ? static_cast<float>(static_cast<double>(n) / static_cast<double>(k)) : 1.0f;
}

void RandomK::gather(std::span<const float> x, std::span<const std::uint32_t> places, std::span<float> values) const {
  const float factor = factor_of(x.size(), places.size());
  for (std::size_t j = 0; j < places.size(); ++j) values[j] = factor * x[places[j]];
}

void RandomK::scatter(std::span<const float> values, std::span<const std::uint32_t> places, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t j = 0; j < places.size(); ++j) out[places[j]] = values[j];
}

void RandomK::clear_sent(std::span<const std::uint32_t> places, std::span<float> x) {
  for (const std::uint32_t place : places) x[place] = 0;
}

void check_randomk(const core::ParsedName& name) { const RandomK refuses_bad_values(name); }

}  // namespace gradmeter::compression
