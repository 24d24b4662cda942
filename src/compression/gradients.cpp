#include "compression/gradients.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/random.hpp"

namespace gradmeter::compression {
namespace {

constexpr std::size_t table_size = std::size_t{1} << 16;
constexpr std::uint64_t everything = std::uint64_t{1} << 32;
constexpr std::uint64_t table_seed = 0x67726164;  // any; the tables are the same for every seed of a gradient

std::vector<float> gaussian_table() {
  const core::Random random(table_seed, 0);
  std::vector<float> out(table_size);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(random.gaussian(i));
  return out;
}

std::vector<float> laplace_table() {
  const core::Random random(table_seed, 1);
  std::vector<float> out(table_size);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto g = [&](std::size_t k) { return random.gaussian(4 * i + k); };
    out[i] = static_cast<float>(g(0) * g(1) - g(2) * g(3));
  }
  return out;
}

/// In (0, 1], written as the shortest text that means it.
double density_of(core::ParsedName& name) {
  for (const auto& [key, value] : name.parameters) {
    if (key != "density")
      core::refuse_unknown("parameter of distribution sparse", key, std::vector<std::string>{"density"});
  }
  name.parameters.try_emplace("density", "0.05");
  try {
    return fraction(name, "density");
  } catch (const core::UsageError&) {
    throw core::UsageError(fmt::format("distribution sparse takes numbers above 0 and up to 1 as density, not '{}'",
                                       name.parameters.at("density")));
  }
}

}  // namespace

TestGradient::TestGradient(std::string_view text) : kept_(everything) {
  constexpr std::string_view file = "file:";
  if (text.starts_with(file)) {
    recorded_ = std::make_shared<RecordedGradient>(read_gradient(std::string(text.substr(file.size()))));
    name_ = text;
    return;
  }
  core::ParsedName parsed = core::parse_name(text);
  const bool sparse = parsed.base == "sparse";
  if (!sparse && parsed.base != "gaussian" && parsed.base != "laplace") {
    core::refuse_unknown("distribution", parsed.base,
                         std::vector<std::string>{"file:PATH", "gaussian", "laplace", "sparse"});
  }
  if (!parsed.bare.empty() || (!sparse && !parsed.parameters.empty())) {
    throw core::UsageError(fmt::format("distribution {} takes no '{}'", parsed.base,
                                       text.substr(std::min(text.size(), parsed.base.size() + 1))));
  }
  if (sparse) kept_ = static_cast<std::uint64_t>(std::llround(density_of(parsed) * static_cast<double>(everything)));
  table_ = parsed.base == "laplace" ? laplace_table() : gaussian_table();
  name_ = parsed.canonical();
}

void TestGradient::draw(std::uint64_t seed, std::uint64_t stream, std::span<float> out) const {
  if (recorded_) {
    const auto& values = recorded_->values;
    for (std::size_t i = 0; i < out.size();) {
      const std::size_t n = std::min(values.size(), out.size() - i);
      std::copy_n(values.begin(), n, out.begin() + static_cast<std::ptrdiff_t>(i));
      i += n;
    }
    return;
  }
  const core::Random random(seed, stream);
  std::array<std::uint64_t, 512> draws{};
  for (std::size_t first = 0; first < out.size(); first += draws.size()) {
    const auto some = std::span(draws).first(std::min(draws.size(), out.size() - first));
    random.bits(first, some);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const float magnitude = table_[some[i] & (table_size - 1)];
      const float value = (some[i] >> 16 & 1) != 0 ? -magnitude : magnitude;
      out[first + i] = some[i] >> 32 < kept_ ? value : 0.0f;
    }
  }
}

}  // namespace gradmeter::compression
