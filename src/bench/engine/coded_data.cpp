#include "bench/engine/coded_data.hpp"

#include <array>
#include <vector>

#include "compression/gradients.hpp"
#include "compression/identities.hpp"
#include "core/random.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::uint64_t common_stream = 0, signs_stream = 0x7369676e73;

/// Its table is made once.
const compression::TestGradient& gaussian() {
  static const compression::TestGradient g("gaussian");
  return g;
}

double magnitude_of(const CodedTensor& t, int rank, int ranks) { return t.encodings > 1 ? ranks + rank : ranks; }

void draw_signs(std::uint64_t seed, float magnitude, std::span<float> out) {
  constexpr std::size_t width = 64;
  const core::Random random(seed, signs_stream);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < out.size(); ++i, bits >>= 1) {
    if (i % width == 0) bits = random.bits(i / width);
    out[i] = bits & 1 ? -magnitude : magnitude;
  }
}

}  // namespace

void draw_own_gradient(std::uint64_t seed, int rank, std::span<float> out) {
  gaussian().draw(seed, static_cast<std::uint64_t>(rank) + 1, out);
}

void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out) {
  gaussian().draw(seed, common_stream, out);
  std::vector<float> own(out.size());
  draw_own_gradient(seed, rank, own);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.5f * out[i] + own[i];
}

bool keeps_signs(const compression::CodecChoice& codec) {
  if (codec.parsed.parameters.contains("density")) return false;  // elements that are not chosen are lost
  // Neither a power of two nor the largest number of a format.
  constexpr std::array<float, 4> some{3, -3, -3, 3};
  const auto e = compression::expected_error(codec.parsed, some);
  return e && !e->is_bound && e->mean == 0;
}

void draw_coded(const CodedTensor& t, int rank, int ranks, std::span<float> out) {
  if (t.data == CodedData::gradient) return draw_worker_gradient(t.seed, rank, out);
  draw_signs(t.seed, static_cast<float>(magnitude_of(t, rank, ranks)), out);
}

double magnitude_of_sum(const CodedTensor& t, int ranks) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += magnitude_of(t, r, ranks);
  return sum;
}

}  // namespace gradmeter::bench
