#pragma once
#include <cmath>
#include <cstring>
#include "bench/collective_check.hpp"
#include "core/random.hpp"
namespace gradmeter::bench::known {
struct Found {
  std::uint64_t wrong = 0;
  double error = 0;
};
inline double value(Pattern p, int rank, std::size_t i) {
  if (p == Pattern::exact) return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - 50;
  return static_cast<float>(2 * core::Random(1, static_cast<std::uint64_t>(rank)).uniform(i) - 1);
}
inline void fill(Pattern p, core::Element, allreduce::Op, int rank, std::size_t first, std::span<std::byte> to) {
  auto* f = reinterpret_cast<float*>(to.data());
  for (std::size_t i = 0; i < to.size() / 4; ++i) f[i] = static_cast<float>(value(p, rank, first + i));
}
inline Found check(Pattern p, core::Element, allreduce::Op, int ranks, std::size_t first,
                   std::span<const std::byte> got) {
  Found out;
  const auto* f = reinterpret_cast<const float*>(got.data());
  for (std::size_t i = 0; i < got.size() / 4; ++i) {
    double sum = 0, size = 0;
    for (int r = 0; r < ranks; ++r) {
      const double v = value(p, r, first + i);
      sum += v;
      size += std::fabs(v);
    }
    const double off = std::fabs(f[i] - sum);
    out.wrong += !(off <= (p == Pattern::exact ? 0 : ranks * 0x1p-24 * size));
    if (size > 0) out.error = std::max(out.error, off / size);
  }
  return out;
}
inline void damage(core::Element, std::byte* at) {
  float f;
  std::memcpy(&f, at, 4);
  f += 0.5f;
  std::memcpy(at, &f, 4);
}
inline void fill_ones(core::Element, std::span<std::byte> b) {
  std::fill_n(reinterpret_cast<float*>(b.data()), b.size() / 4, 1.0f);
}
}  // namespace gradmeter::bench::known
