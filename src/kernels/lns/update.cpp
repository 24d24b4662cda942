#include "kernels/lns/update.hpp"

#include "kernels/lns/lns.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::size_t grain = 1 << 14;  // elements for each thread at least

/// change(i): the word that is added to element i.
template <class Change>
void change_each(LnsUpdate u, std::span<float> w, std::span<float> carry, const Change& change) {
  const LnsConversion t = lns_conversion(u.fraction_bits).view();
  const LnsTables& sums = lns_tables(u.fraction_bits);
  split(w.size(), grain, [&](std::size_t first, std::size_t n) {
    const auto table = [&sums](std::uint32_t d, bool opposite) { return sums.g(d, opposite); };
    for (std::size_t i = first; i < first + n; ++i)
      lns_change(t, table, w[i], u.kahan ? &carry[i] : nullptr, change(t, i));
  });
}

}  // namespace

void lns_round(unsigned fraction_bits, std::span<float> weights) {
  const LnsConversion t = lns_conversion(fraction_bits).view();
  for (float& w : weights) w = lns_decode(t, lns_encode(t, w, nullptr));
}

void lns_add(LnsUpdate u, std::span<float> w, std::span<const float> target, std::span<float> carry) {
  change_each(u, w, carry, [=](const auto& t, std::size_t i) { return lns_encode(t, target[i] - w[i], nullptr); });
}

void lns_descend(LnsUpdate u, std::span<float> w, std::span<const float> g, float size, std::span<float> carry) {
  const Lns16 factor = Lns(u.fraction_bits).encode(-double{size});
  change_each(u, w, carry, [=](const auto& t, std::size_t i) {
    return lns_multiply(lns_encode(t, g[i], nullptr), factor, nullptr);
  });
}

}  // namespace gradmeter::kernels
