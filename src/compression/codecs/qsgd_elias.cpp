#include "compression/codecs/qsgd_elias.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compression/detail/bucketed.hpp"
#include "compression/detail/draws.hpp"
#include "compression/detail/elias.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"

namespace gradmeter::compression {
namespace {

[[noreturn]] void damaged(const char* how) { throw core::BackendError("compression", "qsgd-elias", how); }

/// |q| of one number; the arithmetic of detail/qsgd_rule.hpp, for levels known at run time.
struct Quantiser {
  Quantiser(float norm, std::size_t levels)
      : prescale(detail::prescale_for(norm)),
        cap(static_cast<float>(levels) * 0x1p24f),
        factor(static_cast<float>(static_cast<double>(cap) / (double{norm} * prescale))) {}
  std::uint32_t level(float x, std::uint32_t draw) const {
    return (static_cast<std::uint32_t>(std::min(std::fabs(x) * prescale * factor, cap)) + draw) >> 24;
  }
  float prescale, cap, factor;
};

class QsgdElias final : public Codec {
 public:
  explicit QsgdElias(const core::ParsedName& name)
      : Codec(name.canonical()), bucket_(detail::bucket_of(name)), levels_(whole_number(name, "levels", 1, 127)) {}
  std::size_t grain() const override { return bucket_; }
  bool variable() const override { return true; }
  /// Per element, gamma(gap) + 1 + gamma(|q|) bits over the gap are most where every gap is 1; and one gap more.
  std::size_t wire_bytes(std::size_t n) const override {
    return n == 0 ? 0 : scale_bytes(n, bucket_) + code_bytes(n + 1, 2 + detail::gamma_bits(levels_));
  }

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw& draw) const override {
    const std::size_t n = x.size();
    if (n == 0) return 0;
    const detail::Draws draws(draw);
    std::fill(wire, wire + scale_bytes(n, bucket_), std::byte{0});
    detail::BitWriter bits(wire + scale_bytes(n, bucket_));
    std::size_t next = 0;  // the place behind the last q that is not 0
    for (std::size_t at = 0, b = 0; at < n; at += bucket_, ++b) {
      const auto part = x.subspan(at, std::min(bucket_, n - at));
      const float norm = detail::l2_norm(part);
      std::memcpy(wire + 4 * b, &norm, 4);
      if (norm > 0) next = encode_bucket(part, Quantiser(norm, levels_), draws, at, next, bits);
    }
    bits.gamma(n + 1 - next);
    std::byte* const end = bits.finish();
    const auto written = static_cast<std::size_t>(end - wire);
    std::fill(end, wire + padded(written), std::byte{0});
    return padded(written);
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    unpack(wire, out);
  }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    if (addend.data() != out.data()) std::copy(addend.begin(), addend.end(), out.begin());
    unpack(wire, out);
  }

 private:
  std::size_t encode_bucket(std::span<const float> x, const Quantiser& quantiser, const detail::Draws& draws,
                            std::size_t at, std::size_t next, detail::BitWriter& bits) const {
    const bool crosses = draws.crosses(at, x.size());
    const detail::DrawKeys keys = draws.keys(at);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto low = static_cast<std::uint32_t>(draws.number(at + i));
      const std::uint32_t q = quantiser.level(x[i], crosses ? draws.draw(at + i) : keys.draw(low));
      if (q == 0) continue;
      bits.gamma(at + i + 1 - next);
      bits.put(std::signbit(x[i]) ? 1 : 0, 1);
      bits.gamma(q);
      next = at + i + 1;
    }
    return next;
  }

  float scale_at(std::span<const std::byte> wire, std::size_t bucket) const {
    float scale;
    std::memcpy(&scale, wire.data() + 4 * bucket, 4);
    return scale;
  }

  /// Adds to `out` what is not 0.
  void unpack(std::span<const std::byte> wire, std::span<float> out) const {
    const std::size_t n = out.size();
    if (n == 0) return;
    if (wire.size() < scale_bytes(n, bucket_)) damaged("fewer bytes than the scales take");
    detail::BitReader bits(wire.subspan(scale_bytes(n, bucket_)));
    const float inverse = 1.0f / static_cast<float>(levels_);
    // Each turn takes a bit at least and moves on by a place at least: it ends.
    for (std::size_t next = 0;;) {
      const std::uint64_t gap = bits.gamma();
      if (gap == 0 || gap > n + 1 - next) damaged("a gap leads outside the tensor");
      next += gap;
      if (next == n + 1) break;
      const bool negative = bits.take(1) != 0;
      const std::uint64_t q = bits.gamma();
      if (q == 0 || q > levels_) damaged("a level that there is not");
      const float value = static_cast<float>(q) * inverse * scale_at(wire, (next - 1) / bucket_);
      out[next - 1] += negative ? -value : value;
    }
    if (bits.overrun()) damaged("the stream ends early");
    for (std::size_t at = 0, b = 0; at < n; at += bucket_, ++b) {
      if (!std::isnan(scale_at(wire, b))) continue;
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(at), std::min(bucket_, n - at), unfit);
    }
  }

  static constexpr float unfit = std::numeric_limits<float>::quiet_NaN();
  std::size_t bucket_, levels_;
};

}  // namespace

std::unique_ptr<Codec> make_qsgd_elias(const core::ParsedName& name) { return std::make_unique<QsgdElias>(name); }

bool qsgd_elias_expands(const core::ParsedName& name) {
  const std::size_t levels = whole_number(name, "levels", 1, 127);
  return detail::bucket_of(name) > 4 * levels * levels;
}

}  // namespace gradmeter::compression
