// Many draws at once. Highway compiles this file once for every instruction set and picks at run time.
#include "core/random.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/random_many.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradmeter::core::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As philox4x32, a block a lane: every 32-bit word lies in the lower half of a 64-bit lane, and what the rounds leave
// in the upper halves no multiplication reads. Returns how many draws it made.
std::size_t Bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint64_t* HWY_RESTRICT out,
                 std::size_t n) {
#if HWY_TARGET == HWY_SCALAR  // one lane, which holds no two words
  (void)seed, (void)stream, (void)first, (void)out, (void)n;
  return 0;
#else
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> words;
  const std::size_t lanes = hn::Lanes(d);
  const auto product = [&](auto a, auto b) { return hn::MulEven(hn::BitCast(words, a), hn::BitCast(words, b)); };
  const auto multiplier0 = hn::Set(d, philox_multiplier0), multiplier1 = hn::Set(d, philox_multiplier1);
  const auto lower = hn::Set(d, 0xffffffffu);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto c0 = hn::Iota(d, first + i), c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Set(d, stream & 0xffffffffu), c3 = hn::Set(d, stream >> 32);
    auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < philox_rounds; ++round, k0 += philox_weyl0, k1 += philox_weyl1) {
      const auto product0 = product(multiplier0, c0), product1 = product(multiplier1, c2);
      c0 = hn::Xor(hn::ShiftRight<32>(product1), hn::Xor(c1, hn::Set(d, std::uint64_t{k0})));
      c1 = product1;
      c2 = hn::Xor(hn::ShiftRight<32>(product0), hn::Xor(c3, hn::Set(d, std::uint64_t{k1})));
      c3 = product0;
    }
    hn::StoreU(hn::Or(hn::And(c0, lower), hn::ShiftLeft<32>(c1)), d, out + i);
  }
  return i;
#endif
}

}  // namespace gradmeter::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradmeter::core {

HWY_EXPORT(Bits);

void Random::bits(std::uint64_t first, std::span<std::uint64_t> out) const {
  for (std::size_t i = HWY_DYNAMIC_DISPATCH(Bits)(seed_, stream_, first, out.data(), out.size()); i < out.size(); ++i) {
    out[i] = bits(first + i);
  }
}

}  // namespace gradmeter::core
#endif
