// SPDX-License-Identifier: Apache-2.0
#include "compression/expected_error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "compression/codecs/sparse.hpp"
#include "compression/detail/bucketed.hpp"

namespace gradmeter::compression {

double squared_norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

double squared_error(std::span<const float> decoded, std::span<const float> exact) {
  double sum = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = static_cast<double>(decoded[i]) - static_cast<double>(exact[i]);
    sum += difference * difference;
  }
  return sum;
}

namespace {

using Values = std::span<const float>;

double parameter(const core::ParsedName& name, const std::string& key, double fallback) {
  const auto found = name.parameters.find(key);
  if (found == name.parameters.end()) return fallback;
  const std::string& text = found->second;
  double value = fallback;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{} ? value : fallback;
}

bool parameter_is(const core::ParsedName& name, const std::string& key, std::string_view value) {
  const auto found = name.parameters.find(key);
  return found != name.parameters.end() && found->second == value;
}

template <class Visit>
void each_bucket(const core::ParsedName& name, Values x, Visit visit) {
  const auto bucket_size = static_cast<std::size_t>(parameter(name, "bucket", 512));
  for (std::size_t i = 0; i < x.size(); i += bucket_size) visit(x.subspan(i, std::min(bucket_size, x.size() - i)));
}

double largest(Values x) {
  double most = 0;
  for (const float v : x) most = std::max(most, std::fabs(static_cast<double>(v)));
  return most;
}

/// A bound of the relative error that the arithmetic in fp32 adds to a number that is encoded and decoded.
constexpr double fp32_relative_error = 0x1p-22;

/// Adds up the errors of rounding to a neighbour: at random without bias, or to the nearest. x is known with a doubt of
/// |x|·fp32_relative_error, which changes the mean error by at most that times the distance of the neighbours.
class RoundingError {
 public:
  explicit RoundingError(const core::ParsedName& codec) : nearest_(parameter_is(codec, "rounding", "nearest")) {}
  void add(double x, double lo, double hi) {
    const double below = x - lo, above = hi - x, mean = below * above;
    const double uncertainty = std::fabs(x) * fp32_relative_error * (hi - lo);
    arithmetic_ += uncertainty;
    if (nearest_) {
      mean_ += std::min(below * below, above * above);
      return;
    }
    mean_ += mean;
    variance_ += mean * (above - below) * (above - below) + uncertainty * (hi - lo) * (hi - lo);
  }
  ExpectedError result() const { return {mean_, std::sqrt(variance_), false, arithmetic_}; }

 private:
  bool nearest_;
  double mean_ = 0, variance_ = 0, arithmetic_ = 0;
};

/// Rounding to the levels 0, N/s, 2N/s … N, where N is the bucket's norm.
ExpectedError uniform_levels(const core::ParsedName& name, Values x, double s, bool l2) {
  RoundingError rounding(name);
  each_bucket(name, x, [&](Values bucket) {
    const double norm = l2 ? static_cast<double>(detail::l2_of(squared_norm(bucket))) : largest(bucket);
    if (norm == 0) return;
    for (const float v : bucket) {
      const double place = std::fabs(static_cast<double>(v)) * s / norm, floor = std::min(std::floor(place), s - 1);
      rounding.add(place * norm / s, floor * norm / s, (floor + 1) * norm / s);
    }
  });
  return rounding.result();
}

ExpectedError qsgd(const core::ParsedName& name, Values x) {
  const double bits = name.base.back() - '0';
  return uniform_levels(name, x, std::exp2(bits - 1) - 1, parameter_is(name, "norm", "l2"));
}

ExpectedError qsgd_elias(const core::ParsedName& name, Values x) {
  return uniform_levels(name, x, parameter(name, "levels", 7), true);
}

ExpectedError one_stochastic_bit(const core::ParsedName& name, Values x) {
  RoundingError rounding(name);
  each_bucket(name, x, [&](Values bucket) {
    const double norm = largest(bucket);
    for (const float v : bucket) rounding.add(v, -norm, norm);
  });
  return rounding.result();
}

/// Magnitudes above the limit, `clip` root mean squares, are cut to it. What is cut off is a bias, equal in all draws.
ExpectedError terngrad(const core::ParsedName& name, Values x) {
  const double clip = parameter(name, "clip", 0), most = largest(x);
  const double limit = clip * std::sqrt(squared_norm(x) / std::max(1.0, static_cast<double>(x.size())));
  const double scale = clip > 0 ? std::min(most, limit) : most;
  RoundingError rounding(name);
  double bias = 0;
  for (const float v : x) {
    const double magnitude = std::fabs(static_cast<double>(v)), beyond = std::max(magnitude - scale, 0.0);
    rounding.add(std::min(magnitude, scale), 0, scale);
    bias += beyond * beyond;
  }
  ExpectedError out = rounding.result();
  out.mean += bias;
  return out;
}

/// Rounding to 0 and to powers of two down to 2^(E - 126), where E = ceil(log2 of the bucket's largest |x|).
ExpectedError natural(const core::ParsedName& name, Values x) {
  RoundingError rounding(name);
  each_bucket(name, x, [&](Values bucket) {
    const double most = largest(bucket);
    if (most == 0) return;
    const double least = std::exp2(std::ceil(std::log2(most)) - 126);
    for (const float v : bucket) {
      const double magnitude = std::fabs(static_cast<double>(v));
      const double lo = magnitude < least ? 0 : std::exp2(std::floor(std::log2(magnitude)));
      rounding.add(magnitude, lo, magnitude < least ? least : 2 * lo);
    }
  });
  return rounding.result();
}

/// Rounding to 0, N·2⁻⁶ … N/2, N, where N is the bucket's largest |x|.
ExpectedError logarithmic(const core::ParsedName& name, Values x) {
  RoundingError rounding(name);
  each_bucket(name, x, [&](Values bucket) {
    const double most = largest(bucket);
    if (most == 0) return;
    for (const float v : bucket) {
      const double magnitude = std::fabs(static_cast<double>(v));
      double hi = most;
      while (hi > most / 64 && hi / 2 >= magnitude) hi /= 2;
      rounding.add(magnitude, hi > most / 64 ? hi / 2 : 0, hi);
    }
  });
  return rounding.result();
}

/// The error of replacing n elements by their mean magnitude m with their signs: Σ(|x| - m)². It is summed as it
/// stands, since Σx² - (Σ|x|)²/n cancels where all magnitudes are alike.
ExpectedError sign_times_mean(const core::ParsedName& name, Values x) {
  const bool has_two_means = parameter_is(name, "means", "2");
  double error = 0;
  each_bucket(name, x, [&](Values bucket) {
    double sum[2] = {0, 0}, count[2] = {0, 0};
    const auto side_of = [&](float v) { return has_two_means && v < 0 ? 1 : 0; };
    for (const float v : bucket) {
      sum[side_of(v)] += std::fabs(static_cast<double>(v));
      ++count[side_of(v)];
    }
    for (const float v : bucket) {
      const double off = std::fabs(static_cast<double>(v)) - sum[side_of(v)] / count[side_of(v)];
      error += off * off;
    }
  });
  return {error, 0, false};
}

ExpectedError tail_energy(const core::ParsedName& name, Values x) {
  const std::size_t k = detail::Density(name).sent_of(x.size());
  std::vector<float> magnitudes(x.size());
  std::transform(x.begin(), x.end(), magnitudes.begin(), [](float v) { return std::fabs(v); });
  const auto tail = magnitudes.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(magnitudes.begin(), tail, magnitudes.end(), std::greater<>());
  return {squared_norm({tail, magnitudes.end()}), 0, false};
}

/// The error of an element is at most half the distance between neighbouring numbers of the format: `relative`·|x| in
/// the normal range, `absolute` below it. `top`: the number that the bucket's largest |x| is scaled to; 0: no scaling.
ExpectedError cast(const core::ParsedName& name, Values x, double relative, double absolute, double top) {
  double bound = 0;
  each_bucket(name, x, [&](Values bucket) {
    const double scaled = top > 0 ? absolute * largest(bucket) / top : absolute;
    for (const float v : bucket) {
      const double largest_error = std::max(relative * std::fabs(static_cast<double>(v)), scaled);
      bound += largest_error * largest_error;
    }
  });
  return {bound, 0, true};
}

ExpectedError bf16(const core::ParsedName& name, Values x) { return cast(name, x, 0x1p-8, 0x1p-134, 0); }
ExpectedError fp16(const core::ParsedName& name, Values x) { return cast(name, x, 0x1p-11, 0x1p-25, 0); }
ExpectedError fp8_e4m3(const core::ParsedName& name, Values x) { return cast(name, x, 0x1p-4, 0x1p-10, 448); }
ExpectedError fp8_e5m2(const core::ParsedName& name, Values x) { return cast(name, x, 0x1p-3, 0x1p-17, 57344); }

/// The least magnitude that the codec rounds to infinity; infinity: there is none.
double overflow_of(std::string_view codec) {
  return codec == "bf16" ? 0x1.ffp127 : codec == "fp16" ? 65520 : static_cast<double>(INFINITY);
}

/// The codecs whose error has a formula. The others consist of collectives.
using ErrorFormula = ExpectedError (*)(const core::ParsedName&, Values);
constexpr std::array<std::pair<std::string_view, ErrorFormula>, 14> rules{{{"bf16", bf16},
                                                                           {"fp16", fp16},
                                                                           {"fp8-e4m3", fp8_e4m3},
                                                                           {"fp8-e5m2", fp8_e5m2},
                                                                           {"lns4", logarithmic},
                                                                           {"natural8", natural},
                                                                           {"onebit", sign_times_mean},
                                                                           {"qsgd1", one_stochastic_bit},
                                                                           {"qsgd2", qsgd},
                                                                           {"qsgd4", qsgd},
                                                                           {"qsgd8", qsgd},
                                                                           {"qsgd-elias", qsgd_elias},
                                                                           {"terngrad", terngrad},
                                                                           {"topk", tail_energy}}};

}  // namespace

std::optional<ExpectedError> expected_error(const core::ParsedName& codec, std::span<const float> x) {
  const double energy = squared_norm(x);
  if (!std::isfinite(energy) || largest(x) >= overflow_of(codec.base)) return std::nullopt;
  const auto rule = std::ranges::find(rules, codec.base, &std::pair<std::string_view, ErrorFormula>::first);
  if (rule == rules.end()) return std::nullopt;
  ExpectedError out = rule->second(codec, x);
  out.arithmetic += fp32_relative_error * fp32_relative_error * energy;
  return out;
}

ReceivedValue received_value(const core::ParsedName& codec) {
  constexpr std::array<std::string_view, 3> deterministic{"dgc", "onebit", "topk"};
  if (codec.base == "randomk") return ReceivedValue::chosen;
  if (codec.base == "powersgd") return ReceivedValue::projected;
  const bool drawn = std::ranges::find(deterministic, codec.base) == deterministic.end();
  return drawn && !parameter_is(codec, "rounding", "nearest") ? ReceivedValue::all : ReceivedValue::encoded;
}

bool matches_prediction(const ExpectedError& e, double measured, std::size_t draws) {
  constexpr double allowed = 1e-3;
  const double tolerance = allowed * e.mean + e.arithmetic;
  if (e.is_bound) return measured <= e.mean + tolerance;
  return std::fabs(measured - e.mean) <= 6 * e.deviation / std::sqrt(static_cast<double>(draws)) + tolerance;
}

}  // namespace gradmeter::compression
