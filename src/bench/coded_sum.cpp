#include "bench/coded_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "allreduce/known_data.hpp"
#include "compression/gradients.hpp"
#include "runtime/mpi_collectives.hpp"

namespace gradmeter::bench {

void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out) {
  static constexpr std::uint64_t common = 0;
  const compression::TestGradient gaussian("gaussian");
  gaussian.draw(seed, common, out);
  std::vector<float> own(out.size());
  gaussian.draw(seed, static_cast<std::uint64_t>(rank) + 1, own);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.5f * out[i] + own[i];
}

CodedSum compare_coded_sum(const runtime::Communicator& c, std::span<const float> mine, std::span<const float> result,
                           allreduce::Op op) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  const runtime::Reduction sum(core::Element::f64, runtime::Combine::sum);
  const double share = op == allreduce::Op::average ? 1.0 / c.size() : 1.0;
  std::vector<double> exact;
  double lost = 0, norm = 0;
  std::vector<float> of_root;
  std::uint64_t differing = 0;
  for (std::size_t at = 0; at < mine.size(); at += piece) {
    const std::size_t n = std::min(piece, mine.size() - at);
    exact.assign(mine.begin() + static_cast<std::ptrdiff_t>(at), mine.begin() + static_cast<std::ptrdiff_t>(at + n));
    auto* bytes = reinterpret_cast<std::byte*>(exact.data());
    runtime::mpi_all_reduce(c, {bytes, bytes, n}, sum, nullptr);
    for (std::size_t i = 0; i < n; ++i) {
      const double right = exact[i] * share, off = static_cast<double>(result[at + i]) - right;
      lost += off * off;
      norm += right * right;
    }
  }
  const auto hashes = c.all_gather_value(allreduce::hash_of(std::as_bytes(result)));
  const bool same = std::ranges::all_of(hashes, [&](auto h) { return h == hashes.front(); });
  if (!same) {
    for (std::size_t at = 0; at < result.size(); at += piece) {
      const auto part = result.subspan(at, std::min(piece, result.size() - at));
      of_root.assign(part.begin(), part.end());
      runtime::mpi_broadcast(c, {nullptr, reinterpret_cast<std::byte*>(of_root.data()), part.size()}, 0,
                             runtime::Reduction(core::Element::f32, runtime::Combine::sum), nullptr);
      for (std::size_t i = 0; i < part.size(); ++i) {
        differing += std::bit_cast<std::uint32_t>(part[i]) != std::bit_cast<std::uint32_t>(of_root[i]);
      }
    }
  }
  return {.error = norm > 0 ? lost / norm : lost,
          .same_bits = same,
          .differing = static_cast<std::uint64_t>(c.sum(static_cast<double>(differing)))};
}

}  // namespace gradmeter::bench
