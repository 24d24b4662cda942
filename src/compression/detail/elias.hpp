// SPDX-License-Identifier: Apache-2.0
// Elias' gamma code for whole numbers of at least 1, in a stream that fills each byte from its lowest bit up.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gradmeter::compression::detail {

/// The number of bits of a number's code.
constexpr unsigned gamma_bits(std::uint64_t value) { return 2 * static_cast<unsigned>(std::bit_width(value)) - 1; }

/// A string of bits: the lowest `count` bits of `bits`, whose other bits are 0.
struct BitString {
  std::uint32_t bits = 0, count = 0;
};
/// The code of a number from 1 to 65535.
constexpr BitString gamma_code(std::uint32_t value) {
  const auto bits_below_top = static_cast<std::uint32_t>(std::bit_width(value)) - 1;
  return {((value - (1U << bits_below_top)) << 1 | 1U) << bits_below_top, 2 * bits_below_top + 1};
}

/// Writes a stream of bits. It touches no byte behind the end of the stream.
class BitWriter {
 public:
  explicit BitWriter(std::byte* to) : to_(to) {}
  /// Appends the lowest `count` bits of `bits`. `count` is at most 32, and all higher bits must be 0.
  void put(std::uint64_t bits, unsigned count) {
    held_ |= bits << held_bits_;
    held_bits_ += count;
    if (held_bits_ < 32) return;
    std::memcpy(to_, &held_, 4);
    to_ += 4;
    held_ >>= 32;
    held_bits_ -= 32;
  }
  void gamma(std::uint64_t value) {
    const unsigned bits_below_top = static_cast<unsigned>(std::bit_width(value)) - 1;
    if (bits_below_top < 16) {
      const BitString code = gamma_code(static_cast<std::uint32_t>(value));
      return put(code.bits, code.count);
    }
    const std::uint64_t rest = value - (std::uint64_t{1} << bits_below_top);
    for (unsigned zeros = bits_below_top; zeros > 0; zeros -= std::min(zeros, 32u)) put(0, std::min(zeros, 32u));
    put(1, 1);
    put(rest & 0xffffffff, std::min(bits_below_top, 32u));
    if (bits_below_top > 32) put(rest >> 32, bits_below_top - 32);
  }
  /// Fills up the last byte with zeros; returns the end of the stream.
  std::byte* finish() {
    for (; held_bits_ > 0; held_bits_ -= std::min(held_bits_, 8u), held_ >>= 8)
      *to_++ = static_cast<std::byte>(held_ & 0xff);
    return to_;
  }

 private:
  std::byte* to_;
  std::uint64_t held_ = 0;
  unsigned held_bits_ = 0;  ///< below 32 between calls
};

/// Reads a stream of bits, and no byte outside the span. Past the end `take` returns zeros and sets `overrun`.
class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> from) : from_(from) {}
  /// Takes the next `count` bits, at most 32.
  std::uint64_t take(unsigned count) {
    if (held_bits_ < count) refill();
    const std::uint64_t bits = held_ & ((std::uint64_t{1} << count) - 1);
    drop(count);
    return bits;
  }
  /// Takes the next number; 0 if no valid code follows, as in a damaged stream.
  std::uint64_t gamma() {
    unsigned bits_below_top = 0;
    for (refill(); held_ == 0; refill()) {
      bits_below_top += held_bits_;
      drop(held_bits_);
      if (bits_below_top > 63 || at_ >= from_.size()) return 0;
    }
    const auto zeros = static_cast<unsigned>(std::countr_zero(held_));
    bits_below_top += zeros;
    drop(zeros);
    drop(1);
    if (bits_below_top > 63) return 0;
    const std::uint64_t low = take(std::min(bits_below_top, 32u));
    const std::uint64_t high = bits_below_top > 32 ? take(bits_below_top - 32) : 0;
    return (std::uint64_t{1} << bits_below_top) + (high << 32 | low);
  }
  bool overrun() const { return overrun_; }

 private:
  void drop(unsigned count) {
    overrun_ = overrun_ || count > held_bits_;
    held_ = count < 64 ? held_ >> count : 0;
    held_bits_ -= std::min(count, held_bits_);
  }
  void refill() {
    if (held_bits_ <= 32 && at_ + 4 <= from_.size()) {
      std::uint32_t word;
      std::memcpy(&word, from_.data() + at_, 4);
      held_ |= std::uint64_t{word} << held_bits_;
      held_bits_ += 32;
      at_ += 4;
    }
    while (held_bits_ <= 56 && at_ < from_.size() && at_ + 4 > from_.size()) {
      held_ |= std::to_integer<std::uint64_t>(from_[at_++]) << held_bits_;
      held_bits_ += 8;
    }
  }
  std::span<const std::byte> from_;
  std::size_t at_ = 0;
  std::uint64_t held_ = 0;
  unsigned held_bits_ = 0;
  bool overrun_ = false;
};

}  // namespace gradmeter::compression::detail
