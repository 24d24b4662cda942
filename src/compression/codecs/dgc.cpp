// SPDX-License-Identifier: Apache-2.0
#include "compression/codecs/dgc.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "compression/codecs/sparse.hpp"
#include "compression/detail/bucketed.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::compression {
namespace {

float clip_factor_at(double clip, double norm, std::size_t ranks) {
  const double largest_norm = clip / std::sqrt(static_cast<double>(ranks));
  if (clip == 0 || !std::isfinite(norm) || norm <= largest_norm) return 1.0f;
  return static_cast<float>(largest_norm / norm);
}

}  // namespace

MomentumCorrection::MomentumCorrection(const core::ParsedName& name)
    : momentum_(static_cast<float>(detail::number_between(name, "momentum", 0, 1, false))),
      clip_(detail::number_between(name, "clip", 0, std::numeric_limits<float>::max(), true)),
      encoding_(name) {}

float MomentumCorrection::clip_factor(double norm, std::size_t ranks) const {
  return clip_factor_at(clip_, norm, ranks);
}

void MomentumCorrection::accumulate(std::span<const float> g, float factor, std::span<float> u,
                                    std::span<float> v) const {
  // Each element is computed by itself, so vectors of any width give the same bits.
  const float m = momentum_;
  const float* __restrict from = g.data();
  float* __restrict velocity = u.data();
  float* __restrict waiting = v.data();
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float now = m * velocity[i] + factor * from[i];
    velocity[i] = now;
    waiting[i] += now;
  }
}

void MomentumCorrection::clear_sent(std::span<const std::byte> wire, std::span<float> u, std::span<float> v) const {
  encoding_.clear_sent(wire, u);
  encoding_.clear_sent(wire, v);
}

std::size_t MomentumCorrection::encode(std::span<const float> g, std::size_t ranks, std::span<float> u,
                                       std::span<float> v, std::byte* wire) const {
  accumulate(g, clip_ == 0 ? 1.0f : clip_factor(l2_of_gradient(g), ranks), u, v);
  const std::size_t bytes = encoding_.encode(v, wire, {});
  clear_sent({wire, bytes}, u, v);
  return bytes;
}

void check_dgc(const core::ParsedName& name) {
  const MomentumCorrection refuses_bad_values(name);
  (void)warm_up_steps(name);
  if (name.parameters.at("ef") == "off") {
    throw core::UsageError("codec dgc is made of error feedback and takes no ef=off; topk:ef=off sends without any");
  }
}

double momentum_of(const CodecChoice& c) {
  return c.info->name == "dgc" ? detail::number_between(c.parsed, "momentum", 0, 1, false) : 0;
}

double clip_of(const CodecChoicePtr& c) {
  if (!c || c->info->name != "dgc") return 0;
  return detail::number_between(c->parsed, "clip", 0, std::numeric_limits<float>::max(), true);
}

CodecChoicePtr without_clip(const CodecChoicePtr& c) {
  if (clip_of(c) == 0) return c;
  return with_parameter(*c, "clip", "0");
}

void clip_gradient(std::span<float> g, double clip, std::size_t ranks) {
  const float factor = clip_factor_at(clip, l2_of_gradient(g), ranks);
  if (factor == 1.0f) return;
  for (float& x : g) x *= factor;
}

double l2_of_gradient(std::span<const float> g) { return std::sqrt(detail::sum_of_squares(g)); }

namespace {

constexpr std::array<std::string_view, 4> densities{"0.25", "0.0625", "0.015625", "0.00390625"};
constexpr std::uint64_t most_steps = std::uint64_t{1} << 40;

bool is_automatic(const core::ParsedName& name) {
  const auto warm_up = name.parameters.find("warmup");
  return warm_up != name.parameters.end() && warm_up->second == "auto";
}

}  // namespace

std::uint64_t warm_up_steps(const core::ParsedName& name) {
  if (!name.parameters.contains("warmup") || is_automatic(name)) return 0;
  return whole_number(name, "warmup", 0, most_steps);
}

CodecChoicePtr with_warm_up(const CodecChoicePtr& c, std::uint64_t steps) {
  if (!c || !is_automatic(c->parsed)) return c;
  return with_parameter(*c, "warmup", std::to_string(std::min(steps, most_steps)));
}

std::vector<CodecChoicePtr> warm_up_stages(const CodecChoice& c) {
  const CodecChoicePtr last = with_parameter(c, "warmup", "0");
  std::vector<CodecChoicePtr> out;
  for (const auto density : densities) {
    const auto stage = with_parameter(*last, "density", std::string(density));
    if (fraction(stage->parsed, "density") > fraction(last->parsed, "density")) out.push_back(stage);
  }
  out.push_back(last);
  return out;
}

std::size_t warm_up_stage(std::uint64_t warm_up_steps, std::size_t stages, std::uint64_t step) {
  if (step >= warm_up_steps) return stages - 1;
  return std::min(stages - 1, static_cast<std::size_t>(densities.size() * step / warm_up_steps));
}

std::vector<DensityPhase> warm_up_phases(const CodecChoicePtr& c, std::uint64_t first, std::uint64_t steps) {
  const std::uint64_t warm_up = c ? warm_up_steps(c->parsed) : 0;
  if (warm_up == 0) return {{c, steps}};
  const auto stages = warm_up_stages(*c);
  std::vector<DensityPhase> out;
  for (std::uint64_t at = first; at < first + steps;) {
    const std::size_t stage = warm_up_stage(warm_up, stages.size(), at);
    std::uint64_t end = first + steps;
    if (stage + 1 < stages.size()) {
      const std::uint64_t next = ((stage + 1) * warm_up + densities.size() - 1) / densities.size();
      end = std::min(end, next);
    }
    out.push_back({stages[stage], end - at});
    at = end;
  }
  return out;
}

}  // namespace gradmeter::compression
