// SPDX-License-Identifier: Apache-2.0
// Inputs and measurements that the codecs' tests share.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "compression/registry.hpp"
#include "core/random.hpp"
#include "support/every_target.hpp"

namespace gradmeter::compression {

using Bytes = std::vector<std::byte>;

inline std::vector<float> gaussians(std::size_t n, float sigma = 0.01F, std::uint64_t stream = 0) {
  const core::Random random(11, stream);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = sigma * static_cast<float>(random.gaussian(i));
  return x;
}

inline CodecPtr codec(std::string_view name) { return find_codec(name)->codec; }

/// Encoded; where the last byte ends, nothing may be written.
inline Bytes encoded(const Codec& codec, std::span<const float> x, const RandomDraw& draw = {}) {
  constexpr std::size_t guard = 64;
  const std::size_t most = codec.wire_bytes(x.size());
  Bytes wire(most + guard, std::byte{0xa5});
  const std::size_t bytes = codec.encode(x, wire.data(), draw);
  if (codec.variable()) {
    EXPECT_LE(bytes, most) << codec.name();
  } else {
    EXPECT_EQ(bytes, most) << codec.name();
  }
  for (std::size_t i = most; i < wire.size(); ++i) EXPECT_EQ(wire[i], std::byte{0xa5}) << codec.name();
  wire.resize(bytes);
  return wire;
}

inline std::vector<float> decoded(const Codec& codec, const Bytes& wire, std::size_t n) {
  std::vector<float> out(n, 12345.0F);
  codec.decode(wire, out);
  return out;
}

inline std::vector<float> passed(const Codec& codec, std::span<const float> x, const RandomDraw& draw = {}) {
  return decoded(codec, encoded(codec, x, draw), x.size());
}

/// body(bucket) for each bucket of x.
inline void each_bucket(std::span<const float> x, std::size_t bucket,
                        const std::function<void(std::span<const float>)>& body) {
  for (std::size_t at = 0; at < x.size(); at += bucket) body(x.subspan(at, std::min(bucket, x.size() - at)));
}
inline double largest(std::span<const float> x) {
  double most = 0;
  for (const float v : x) most = std::max(most, std::fabs(double{v}));
  return most;
}
inline double length(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * double{v};
  return std::sqrt(sum);
}

/// Mean and its standard error.
struct Estimate {
  double mean = 0, error = 0;
};
inline Estimate estimate(std::span<const double> samples) {
  const auto n = static_cast<double>(samples.size());
  double sum = 0, squares = 0;
  for (const double s : samples) sum += s;
  for (const double s : samples) squares += (s - sum / n) * (s - sum / n);
  return {sum / n, std::sqrt(squares / (n - 1) / n)};
}
/// Within five of its own standard errors; and these small enough that an `expected` 5 % off would be seen.
inline void expect_mean(std::span<const double> samples, double expected) {
  const Estimate e = estimate(samples);
  EXPECT_NEAR(e.mean, expected, 5 * e.error + 1e-6 * std::fabs(expected));
  EXPECT_LT(10 * e.error, 0.05 * std::fabs(expected)) << "too few trials to see a factor of 1.05";
}

/// What a codec's random decoding of each element must be.
struct Moments {
  std::vector<double> mean, variance;
};

/// Encodes and decodes x in many steps, and compares the means of ‖Q - x‖² and of Q with the moments: each element's by
/// its own error, and all together along x, where a wrong factor would show.
inline void expect_moments(const Codec& codec, std::span<const float> x, const Moments& m, std::size_t trials = 400) {
  SCOPED_TRACE(codec.name());
  std::vector<double> energies, along, sums(x.size()), steps(x.size());
  double error = 0, target = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += m.variance[i] + (m.mean[i] - double{x[i]}) * (m.mean[i] - double{x[i]});
    target += m.mean[i] * m.mean[i];
  }
  for (std::size_t t = 0; t < trials; ++t) {
    const auto q = passed(codec, x, {.seed = 3, .step = t});
    double energy = 0, projection = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double off = double{q[i]} - double{x[i]}, from_mean = double{q[i]} - m.mean[i];
      energy += off * off;
      projection += double{q[i]} * m.mean[i];
      sums[i] += from_mean;
      steps[i] = std::max(steps[i], std::fabs(from_mean));
    }
    energies.push_back(energy);
    along.push_back(projection);
  }
  expect_mean(energies, error);
  expect_mean(along, target);
  std::size_t far = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    // One event more or less is allowed for where events are rare, and a float's rounding.
    const auto count = static_cast<double>(trials);
    const double allowed = 4 * std::sqrt(count * m.variance[i]) + steps[i] + 1e-6 * count * std::fabs(m.mean[i]);
    far += std::fabs(sums[i]) > allowed ? 1 : 0;
  }
  EXPECT_LE(far, 2 + x.size() / 1000) << "elements whose mean is more than four errors off";
}

using test::on_every_target;

}  // namespace gradmeter::compression
