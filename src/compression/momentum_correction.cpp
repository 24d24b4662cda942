#include "compression/momentum_correction.hpp"

#include <cmath>
#include <limits>

#include "compression/detail/bucketed.hpp"
#include "compression/detail/parameters.hpp"
#include "compression/warm_up.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

float clip_factor_at(double clip, double norm, std::size_t ranks) {
  const double most = clip / std::sqrt(static_cast<double>(ranks));
  if (clip == 0 || !std::isfinite(norm) || norm <= most) return 1.0f;
  return static_cast<float>(most / norm);
}

}  // namespace

MomentumCorrection::MomentumCorrection(const core::ParsedName& name)
    : momentum_(static_cast<float>(detail::number_between(name, "momentum", 0, 1, false))),
      clip_(detail::number_between(name, "clip", 0, std::numeric_limits<float>::max(), true)),
      encoding_(make_topk_encoding(name)) {}

float MomentumCorrection::clip_factor(double norm, std::size_t ranks) const {
  return clip_factor_at(clip_, norm, ranks);
}

void MomentumCorrection::accumulate(std::span<const float> g, float factor, std::span<float> u,
                                    std::span<float> v) const {
  // Element by element with no sums across: any vectors give the same bits.
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
  encoding_->clear_sent(wire, u);
  encoding_->clear_sent(wire, v);
}

std::size_t MomentumCorrection::encode(std::span<const float> g, std::size_t ranks, std::span<float> u,
                                       std::span<float> v, std::byte* wire) const {
  accumulate(g, clip_ == 0 ? 1.0f : clip_factor(l2_of_gradient(g), ranks), u, v);
  const std::size_t bytes = encoding_->encode(v, wire, {});
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

}  // namespace gradmeter::compression
