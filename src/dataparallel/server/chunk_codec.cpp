// SPDX-License-Identifier: Apache-2.0
// The codecs in a form for messages from one sender to one receiver. Codecs that consist of collectives have such a
// form here; all others are applied unchanged, chunk by chunk.
#include "dataparallel/server/chunk_codec.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "compression/codecs/dgc.hpp"
#include "compression/codecs/low_rank.hpp"
#include "compression/codecs/sparse.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {

namespace {

using compression::MatrixShape;
using compression::MomentumCorrection;
using compression::RandomDraw;
using compression::RandomK;

std::vector<std::uint32_t> places_of(const RandomK& chosen, std::size_t n, const RandomDraw& d) {
  std::vector<std::uint32_t> places(chosen.kept(n));
  // The chunk's first element is part of the key, so that chunks draw different places; RandomK takes it as the number
  // of a tensor.
  chosen.draw_places({.seed = d.seed, .step = d.step, .tensor = static_cast<std::uint32_t>(d.first)}, n, places);
  return places;
}

/// residual: what earlier encodings lost; empty: without error feedback.
std::size_t encode_drawn_places(const RandomK& chosen, std::vector<float>& residual, std::span<const float> x,
                                std::byte* wire, const RandomDraw& draw) {
  const auto places = places_of(chosen, x.size(), draw);
  std::vector<float> values(places.size());
  if (residual.empty()) {
    chosen.gather(x, places, values);
  } else {
    chosen.take_from_residual(x, places, residual, values);
  }
  const std::size_t bytes = values.size() * sizeof(float);
  if (bytes > 0) std::memcpy(wire, values.data(), bytes);
  return bytes;
}

/// random-k: both sides draw the places, so that only values travel. The draw depends on the change's clock, not on its
/// sender. So all changes of a clock have the same places, and their sum on a server is as sparse as each of them.
/// Wire: k fp32, k = ceil(density·n). Cost: O(k), with error feedback O(n) at the sender. Memory there: n with
/// feedback. Source: Stich et al., NeurIPS 2018; Vogels et al., NeurIPS 2019.
class DrawnPlaces final : public ChunkCodec {
 public:
  explicit DrawnPlaces(const compression::CodecChoice& c) : chosen_(c.parsed), feedback_(c.feedback) {}
  std::size_t wire_bytes(std::size_t n) const override { return chosen_.kept(n) * sizeof(float); }
  ChunkEncoder encoder(std::size_t n) const override {
    return [this, residual = std::vector<float>(feedback_ ? n : 0, 0.0f)](std::span<const float> x, std::byte* wire,
                                                                          const RandomDraw& draw) mutable {
      return encode_drawn_places(chosen_, residual, x, wire, draw);
    };
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const RandomDraw& draw) const override {
    const auto places = places_of(chosen_, out.size(), draw);
    std::vector<float> values(places.size());
    if (!values.empty()) std::memcpy(values.data(), wire.data(), values.size() * sizeof(float));
    RandomK::scatter(values, places, out);
  }

 private:
  RandomK chosen_;
  bool feedback_;
};

/// Deep gradient compression: the sender corrects momentum, and sends the largest elements. If the codec clips
/// gradients, it clips each chunk by the chunk's norm, for `senders` ranks.
/// Wire: as top-k's. Memory at the sender: 2n. Source: Lin et al., ICLR 2018, section 3.
class MomentumCorrected final : public ChunkCodec {
 public:
  MomentumCorrected(const compression::CodecChoice& c, std::size_t senders)
      : correction_(c.parsed), senders_(senders) {}
  std::size_t wire_bytes(std::size_t n) const override { return correction_.encoding().wire_bytes(n); }
  ChunkEncoder encoder(std::size_t n) const override {
    return [this, u = std::vector<float>(n, 0.0f), v = std::vector<float>(n, 0.0f)](
               std::span<const float> x, std::byte* wire, const RandomDraw&) mutable {
      return correction_.encode(x, senders_, u, v, wire);
    };
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const RandomDraw&) const override {
    correction_.encoding().decode(wire, out);
  }

 private:
  MomentumCorrection correction_;
  std::size_t senders_;
};

/// PowerSGD's two thin factors. On the wire q follows p; the wire need not be aligned.
struct Factors {
  std::vector<float> p, q;
  Factors(const MatrixShape& m, std::size_t rank) : p(m.p_size(rank)), q(m.q_size(rank)) {}
  void write(std::byte* wire) const {
    std::memcpy(wire, p.data(), p.size() * sizeof(float));
    std::memcpy(wire + p.size() * sizeof(float), q.data(), q.size() * sizeof(float));
  }
  void read(const std::byte* wire) {
    std::memcpy(p.data(), wire, p.size() * sizeof(float));
    std::memcpy(q.data(), wire + p.size() * sizeof(float), q.size() * sizeof(float));
  }
};

std::size_t factor_bytes(const MatrixShape& m, std::size_t rank) {
  return compression::padded((m.p_size(rank) + m.q_size(rank)) * sizeof(float));
}

class ThinFactorEncoder {
 public:
  ThinFactorEncoder(std::size_t rank, const MatrixShape& matrix, bool feedback)
      : rank_(rank), matrix_(matrix), factors_(matrix_, rank), residual_(feedback ? matrix.count : 0, 0.0f) {}

  std::size_t operator()(std::span<const float> x, std::byte* wire, const RandomDraw& draw) {
    for (std::size_t i = 0; i < residual_.size(); ++i) residual_[i] += x[i];
    const std::span<const float> m = residual_.empty() ? x : residual_;
    if (!has_last_q_)
      compression::draw_first_q(matrix_, rank_, draw.seed, static_cast<std::uint32_t>(draw.first), factors_.q);
    compression::multiply(matrix_, rank_, m, factors_.q, factors_.p);
    compression::orthonormalise(matrix_, rank_, factors_.p);
    compression::multiply_transposed(matrix_, rank_, m, factors_.p, factors_.q);
    const std::size_t bytes = factor_bytes(matrix_, rank_);
    std::fill(wire, wire + bytes, std::byte{0});
    factors_.write(wire);
    // An infinity or a NaN in Q or in the residual would stay there for ever, so both begin anew.
    has_last_q_ = std::ranges::all_of(factors_.q, [](float v) { return std::isfinite(v); });
    update_residual();
    return bytes;
  }

 private:
  void update_residual() {
    if (residual_.empty()) return;
    std::vector<float> sent(residual_.size());
    compression::reconstruct(matrix_, rank_, factors_.p, factors_.q, sent);
    for (std::size_t i = 0; i < sent.size(); ++i) residual_[i] = has_last_q_ ? residual_[i] - sent[i] : 0;
  }

  std::size_t rank_;
  MatrixShape matrix_;
  Factors factors_;
  std::vector<float> residual_;  ///< empty: without error feedback
  bool has_last_q_ = false;
};

/// PowerSGD: the sender computes both thin factors of its own change, since there is no sum over ranks. A chunk is
/// taken as a nearly square matrix, unless its shape is known. Q is kept from one change to the next (warm start).
/// Wire: P, then Q, padded; a chunk whose factors have more than half as many elements as the chunk goes as fp32.
/// Memory at the sender: Q, and n with error feedback. Cost: 6·rank flops an element to encode and 2·rank to decode.
/// Source: Vogels et al., NeurIPS 2019, with one worker.
class ThinFactors final : public ChunkCodec {
 public:
  ThinFactors(const compression::CodecChoice& c, const std::optional<MatrixShape>& shape)
      : rank_(compression::rank_of(c.parsed)), feedback_(c.feedback), shape_(shape) {}
  std::size_t wire_bytes(std::size_t n) const override {
    const MatrixShape m = matrix_of(n);
    const bool pays = n > 0 && compression::low_rank_refusal(m, rank_).empty() &&
                      compression::low_rank_pays(m.rows, m.columns, rank_);
    return pays ? factor_bytes(m, rank_) : n * sizeof(float);
  }
  ChunkEncoder encoder(std::size_t n) const override { return ThinFactorEncoder(rank_, matrix_of(n), feedback_); }
  void decode(std::span<const std::byte> wire, std::span<float> out, const RandomDraw&) const override {
    const MatrixShape m = matrix_of(out.size());
    Factors factors(m, rank_);
    factors.read(wire.data());
    compression::reconstruct(m, rank_, factors.p, factors.q, out);
  }

 private:
  MatrixShape matrix_of(std::size_t n) const {
    return shape_ && shape_->count == n ? *shape_ : compression::square_matrix(n);
  }

  std::size_t rank_;
  bool feedback_;
  std::optional<MatrixShape> shape_;
};

/// A codec unchanged, applied chunk by chunk.
class Plain final : public ChunkCodec {
 public:
  Plain(compression::CodecPtr codec, bool feedback) : codec_(std::move(codec)), feedback_(feedback) {}
  std::size_t grain() const override { return codec_->grain(); }
  std::size_t wire_bytes(std::size_t n) const override { return codec_->wire_bytes(n); }
  bool variable() const override { return codec_->variable(); }
  /// With error feedback, what one encoding of a chunk loses is added to the chunk's next change.
  ChunkEncoder encoder(std::size_t n) const override {
    if (!feedback_)
      return [this](std::span<const float> x, std::byte* wire, const RandomDraw& draw) {
        return codec_->encode(x, wire, draw);
      };
    return [this, residual = std::vector<float>(n, 0.0f)](std::span<const float> x, std::byte* wire,
                                                          const RandomDraw& draw) mutable {
      std::vector<float> scratch(x.size());
      return compression::encode_with_feedback(*codec_, x, residual, scratch, wire, draw);
    };
  }
  void decode(std::span<const std::byte> wire, std::span<float> out, const RandomDraw&) const override {
    codec_->decode(wire, out);
  }

 private:
  compression::CodecPtr codec_;
  bool feedback_;
};

/// The form, for one sender and one receiver, of a codec that consists of collectives; null: it has no such form.
ChunkCodecPtr point_to_point_form(const compression::CodecChoice& c, std::size_t senders,
                                  const std::optional<MatrixShape>& shape = {}) {
  const std::string_view name = c.info->name;
  if (name == "dgc") return std::make_shared<MomentumCorrected>(c, senders);
  if (name == "powersgd") return std::make_shared<ThinFactors>(c, shape);
  if (name == "randomk") return std::make_shared<DrawnPlaces>(c);
  return nullptr;
}

}  // namespace

std::string chunk_codec_refusal(const compression::CodecChoice& c) {
  if (c.codec || point_to_point_form(c, 1)) return {};
  return fmt::format("codec {} is made of collectives and nobody has said how one rank sends it to another; take qsgd8",
                     c.label);
}

ChunkCodecPtr make_chunk_codec(const compression::CodecChoice& c, std::size_t senders,
                               const std::optional<MatrixShape>& shape) {
  if (c.codec) return std::make_shared<Plain>(c.codec, c.feedback);
  return point_to_point_form(c, senders, shape);
}

}  // namespace gradmeter::dataparallel
