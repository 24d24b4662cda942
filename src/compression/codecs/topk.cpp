#include "compression/codecs/topk.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compression/detail/largest.hpp"
#include "compression/detail/parameters.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

[[noreturn]] void damaged_topk(const char* how) { throw core::BackendError("compression", "topk", how); }

constexpr float unfit = std::numeric_limits<float>::quiet_NaN();

class TopKEncoding final : public TopK {
 public:
  explicit TopKEncoding(const core::ParsedName& name)
      : TopK(name.canonical()), density_(name), bitmap_(density_.value() > 1.0 / 32) {}
  std::size_t grain() const override { return whole_tensor; }
  std::size_t kept(std::size_t n) const override { return density_.of(n); }
  bool sends_bitmap() const override { return bitmap_; }
  std::size_t wire_bytes(std::size_t n) const override {
    detail::require_indexable(name(), n);
    return places(n) + padded(4 * kept(n));
  }

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw&) const override {
    const std::size_t n = x.size(), k = kept(n), bytes = wire_bytes(n);
    if (n == 0) return 0;
    detail::Picked to{.values = wire + places(n)};
    (bitmap_ ? to.bitmap : to.indices) = wire;
    if (bitmap_) std::fill(wire, wire + places(n), std::byte{0});
    if (!bitmap_) std::fill(wire + 4 * k, wire + places(n), std::byte{0});
    std::fill(to.values + 4 * k, wire + bytes, std::byte{0});
    const detail::Threshold threshold = detail::find_threshold(x, k);
    if (threshold.finite) {
      detail::pick(x, threshold, to);
    } else {
      mark_unfit(k, to);
    }
    return bytes;
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    each_sent(wire, out, [&](std::size_t i, float value) { out[i] = value; });
  }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    if (addend.data() != out.data()) std::copy(addend.begin(), addend.end(), out.begin());
    each_sent(wire, out, [&](std::size_t i, float value) { out[i] += value; });
  }
  void clear_sent(std::span<const std::byte> wire, std::span<float> values) const override {
    if (is_corrupt(wire, values.size())) return std::fill(values.begin(), values.end(), 0.0f);
    each_sent(wire, values, [&](std::size_t i, float) { values[i] = 0; });
  }

 private:
  /// Bytes before the values.
  std::size_t places(std::size_t n) const { return bitmap_ ? code_bytes(n, 1) : padded(4 * kept(n)); }

  static void mark_unfit(std::size_t k, const detail::Picked& to) {
    for (std::size_t i = 0; i < k; ++i) {
      const auto index = static_cast<std::uint32_t>(i);
      if (to.indices) std::memcpy(to.indices + 4 * i, &index, 4);
      if (to.bitmap) to.bitmap[i / 8] |= static_cast<std::byte>(1u << i % 8);
      std::memcpy(to.values + 4 * i, &unfit, 4);
    }
  }

  bool is_corrupt(std::span<const std::byte> wire, std::size_t n) const {
    if (n == 0) return false;
    if (wire.size() < wire_bytes(n)) throw core::BackendError("compression", "topk", "fewer bytes than the tensor has");
    float first;
    std::memcpy(&first, wire.data() + places(n), 4);
    return std::isnan(first);
  }

  /// body(place, value), ascending; where the input was not finite, `out` becomes NaN and nothing is visited.
  template <class Body>
  void each_sent(std::span<const std::byte> wire, std::span<float> out, Body body) const {
    if (out.empty()) return;
    if (is_corrupt(wire, out.size())) return std::fill(out.begin(), out.end(), unfit);
    const std::byte* values = wire.data() + places(out.size());
    bitmap_ ? each_in_bitmap(wire.data(), values, out.size(), body) : each_index(wire.data(), values, out.size(), body);
  }

  template <class Body>
  void each_index(const std::byte* indices, const std::byte* values, std::size_t n, Body body) const {
    std::size_t least = 0;
    for (std::size_t j = 0; j < kept(n); ++j) {
      std::uint32_t index;
      float value;
      std::memcpy(&index, indices + 4 * j, 4);
      std::memcpy(&value, values + 4 * j, 4);
      if (index < least || index >= n) damaged_topk("places are not ascending inside the tensor");
      least = std::size_t{index} + 1;
      body(index, value);
    }
  }

  template <class Body>
  void each_in_bitmap(const std::byte* bits, const std::byte* values, std::size_t n, Body body) const {
    std::size_t j = 0;
    const std::size_t k = kept(n), bytes = code_bytes(n, 1);  // whole words of 8: padded to 16
    for (std::size_t at = 0; at < bytes; at += 8) {
      std::uint64_t word;
      for (std::memcpy(&word, bits + at, 8); word != 0; word &= word - 1, ++j) {
        const std::size_t i = 8 * at + static_cast<std::size_t>(std::countr_zero(word));
        if (i >= n || j == k) damaged_topk("the bitmap has bits outside the tensor, or too many");
        float value;
        std::memcpy(&value, values + 4 * j, 4);
        body(i, value);
      }
    }
    if (j != k) damaged_topk("the bitmap has too few bits");
  }

  detail::Density density_;
  bool bitmap_;
};

}  // namespace

std::unique_ptr<TopK> make_topk_encoding(const core::ParsedName& name) { return std::make_unique<TopKEncoding>(name); }
std::unique_ptr<Codec> make_topk(const core::ParsedName& name) { return make_topk_encoding(name); }

}  // namespace gradmeter::compression
