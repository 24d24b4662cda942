// What the bits of `onebit` decode to: the mean and its negative, or a mean for either sign.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/host_device.hpp"

namespace gradmeter::compression::detail {

/// What a bucket's bits 1 and 0 decode to.
struct SignValues {
  float one = 0, zero = 0;
};

/// The decoder of a rule (bucketed_plain.hpp); encoding is onebit's own, whose scales are means.
template <bool two>
struct SignRule;

template <>
struct SignRule<false> {
  static constexpr std::size_t bits = 1;
  using Scale = float;
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(float mean) : values{mean, -mean} {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const { return code ? values.one : values.zero; }
    SignValues values;
  };
};

template <>
struct SignRule<true> {
  static constexpr std::size_t bits = 1;
  using Scale = SignValues;
  struct Decoder {
    GRADMETER_HOST_DEVICE explicit Decoder(SignValues means) : values(means) {}
    GRADMETER_HOST_DEVICE float value(std::uint32_t code) const { return code ? values.one : values.zero; }
    SignValues values;
  };
};

/// The means of a bucket of `ones` elements that are not negative and `zeros` others: NaN where a sum is not finite.
template <bool two>
GRADMETER_HOST_DEVICE SignValues sign_means(double up, double down, std::size_t ones, std::size_t zeros, float unfit) {
  if (up - up != 0 || down - down != 0) return {unfit, unfit};
  if (!two) return {static_cast<float>(up / static_cast<double>(ones + zeros)), 0};
  return {ones ? static_cast<float>(up / static_cast<double>(ones)) : 0.0f,
          zeros ? static_cast<float>(down / static_cast<double>(zeros)) : 0.0f};
}

}  // namespace gradmeter::compression::detail
