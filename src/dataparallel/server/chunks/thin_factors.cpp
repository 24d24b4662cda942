#include "dataparallel/server/chunks/thin_factors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "compression/codecs/low_rank.hpp"

namespace gradmeter::dataparallel {
namespace {

using compression::Draw;
using compression::Matrix;

/// Both as they lie on the wire, which need not be aligned.
struct Factors {
  std::vector<float> p, q;
  Factors(const Matrix& m, std::size_t rank) : p(m.p_size(rank)), q(m.q_size(rank)) {}
  void write(std::byte* wire) const {
    std::memcpy(wire, p.data(), p.size() * sizeof(float));
    std::memcpy(wire + p.size() * sizeof(float), q.data(), q.size() * sizeof(float));
  }
  void read(const std::byte* wire) {
    std::memcpy(p.data(), wire, p.size() * sizeof(float));
    std::memcpy(q.data(), wire + p.size() * sizeof(float), q.size() * sizeof(float));
  }
};

std::size_t factor_bytes(const Matrix& m, std::size_t rank) {
  return compression::padded((m.p_size(rank) + m.q_size(rank)) * sizeof(float));
}

class ThinFactorEncoder final : public ChunkEncoder {
 public:
  ThinFactorEncoder(std::size_t rank, std::size_t n, bool feedback)
      : rank_(rank),
        matrix_(compression::square_matrix(n)),
        factors_(matrix_, rank),
        residual_(feedback ? n : 0, 0.0f) {}

  std::size_t encode(std::span<const float> x, std::byte* wire, const Draw& draw) override {
    for (std::size_t i = 0; i < residual_.size(); ++i) residual_[i] += x[i];
    const std::span<const float> m = residual_.empty() ? x : residual_;
    if (!warm_)
      compression::draw_first_q(matrix_, rank_, draw.seed, static_cast<std::uint32_t>(draw.first), factors_.q);
    compression::multiply(matrix_, rank_, m, factors_.q, factors_.p);
    compression::orthonormalise(matrix_, rank_, factors_.p);
    compression::multiply_transposed(matrix_, rank_, m, factors_.p, factors_.q);
    const std::size_t bytes = factor_bytes(matrix_, rank_);
    std::fill(wire, wire + bytes, std::byte{0});
    factors_.write(wire);
    // A basis with an infinity or a NaN would never become finite again, nor would such a residual.
    warm_ = std::ranges::all_of(factors_.q, [](float v) { return std::isfinite(v); });
    keep_what_is_missing();
    return bytes;
  }

 private:
  void keep_what_is_missing() {
    if (residual_.empty()) return;
    std::vector<float> sent(residual_.size());
    compression::reconstruct(matrix_, rank_, factors_.p, factors_.q, sent);
    for (std::size_t i = 0; i < sent.size(); ++i) residual_[i] = warm_ ? residual_[i] - sent[i] : 0;
  }

  std::size_t rank_;
  Matrix matrix_;
  Factors factors_;
  std::vector<float> residual_;  ///< empty: without error feedback
  bool warm_ = false;
};

class ThinFactors final : public ChunkCodec {
 public:
  explicit ThinFactors(const compression::CodecChoice& c)
      : rank_(compression::rank_of(c.parsed)), feedback_(c.feedback) {}
  std::size_t wire_bytes(std::size_t n) const override {
    const Matrix m = compression::square_matrix(n);
    const bool pays = n > 0 && compression::low_rank_refusal(m, rank_).empty() &&
                      compression::low_rank_pays(m.rows, m.columns, rank_);
    return pays ? factor_bytes(m, rank_) : n * sizeof(float);
  }
  std::unique_ptr<ChunkEncoder> encoder(std::size_t n) const override {
    return std::make_unique<ThinFactorEncoder>(rank_, n, feedback_);
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const Draw&) const override {
    const Matrix m = compression::square_matrix(out.size());
    Factors factors(m, rank_);
    factors.read(wire.data());
    compression::reconstruct(m, rank_, factors.p, factors.q, out);
  }

 private:
  std::size_t rank_;
  bool feedback_;
};

}  // namespace

ChunkCodecPtr make_thin_factor_chunks(const compression::CodecChoice& c, std::size_t) {
  return std::make_shared<ThinFactors>(c);
}

}  // namespace gradmeter::dataparallel
