// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/coded_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "allreduce/test_data.hpp"
#include "compression/codecs/dgc.hpp"
#include "compression/codecs/low_rank.hpp"
#include "compression/codecs/sparse.hpp"
#include "compression/expected_error.hpp"
#include "compression/test_gradients.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

/// Numbers of random streams; the numbers that only rank r has come from stream r + 1.
constexpr std::uint64_t common_stream = 0, signs_stream = 0x7369676e73;

/// The source of normally distributed numbers, whose table is made once.
const compression::GradientSource& gaussian() {
  static const compression::GradientSource g("gaussian");
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
  // 3 is neither a power of two nor the largest number of a format, which some codecs encode without loss by chance.
  constexpr std::array<float, 4> probe{3, -3, -3, 3};
  const auto e = compression::expected_error(codec.parsed, probe);
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

ProjectedSum::ProjectedSum(std::span<const float> result, std::size_t columns, double scale)
    : result_(result), columns_(columns), in_last_row_(result.size() % columns), scale_(scale) {
  if (in_last_row_ == 0) return;
  const std::size_t last = result.size() - in_last_row_;
  combination_.resize(last / columns);
  missing_.resize(columns - in_last_row_);
  for (std::size_t c = 0; c < in_last_row_; ++c) last_row_square_ += at(last + c) * at(last + c);
  for (std::size_t row = 0; row < combination_.size(); ++row) {
    for (std::size_t c = 0; c < in_last_row_; ++c) combination_[row] += at(last + c) * at(row * columns + c);
  }
}

void ProjectedSum::add(std::size_t first, std::span<const double> exact) {
  for (std::size_t n = 0; n < exact.size(); ++n) {
    const std::size_t i = first + n, row = i / columns_, column = i % columns_;
    product_ += at(i) * exact[n];
    square_ += at(i) * at(i);
    if (in_last_row_ > 0 && column >= in_last_row_) {
      missing_[column - in_last_row_] += combination_[row] * (exact[n] - at(i));
    }
  }
}

std::string ProjectedSum::fault() const {
  constexpr double allowed = 1e-3;
  double square = square_;
  if (last_row_square_ > 0) {  // 0: X is 0 in that row, also where its elements are missing
    for (const double m : missing_) square += std::pow(m / last_row_square_, 2);
  }
  if (square_ > 0 && std::fabs(product_ - square) <= allowed * square_) return {};
  return fmt::format("no projection of the sum: its product with it is {:.4g}, its square {:.4g}", product_, square);
}

namespace {

using compression::ReceivedValue;

constexpr std::size_t piece = std::size_t{1} << 16;  ///< [elements] that are summed over the ranks at once
/// The error of fp32 for each summand, relative to the sum: half a unit in the last place, times four, since averages
/// and scales are rounded too.
constexpr double rounding = 4 * 0x1p-24;
constexpr double deviations = 6;  ///< the number of standard deviations by which a random error may exceed its mean

double as_double(float x) { return static_cast<double>(x); }
double squared(double x) { return x * x; }

/// Returns x encoded and decoded once, without the state of earlier calls (residuals, momentum).
std::vector<float> decoded(const compression::CodecChoice& codec, std::span<const float> x, std::size_t ranks) {
  std::vector<float> out(x.size());
  std::vector<std::byte> wire;
  if (codec.codec) {
    wire.resize(codec.codec->wire_bytes(x.size()));
    wire.resize(codec.codec->encode(x, wire.data(), {}));
    codec.codec->decode(wire, out);
  } else {
    const compression::MomentumCorrection correction(codec.parsed);
    std::vector<float> u(x.size()), v(x.size());
    wire.resize(correction.encoding().wire_bytes(x.size()));
    wire.resize(correction.encode(x, ranks, u, v, wire.data()));
    correction.encoding().decode(wire, out);
  }
  return out;
}

/// The expected squared error of one encoding of each rank's contribution.
struct Expected {
  /// Sums over ranks: of the expected squared error, its variance, its square root, and the contribution's squared
  /// norm.
  double mean = 0, variance = 0, sum_of_roots = 0, squared_norm = 0;
  /// known: the codec has a formula. worst_case: the errors are not random, so they may all point the same way.
  bool known = false, worst_case = false;
};

Expected expected_of(const runtime::Communicator& c, const CodedTensor& t, std::span<const float> mine) {
  const auto e = compression::expected_error(t.codec.parsed, mine);
  const double found = e ? e->mean : 0, deviation = e ? e->deviation : 0;
  std::array<double, 4> sums{found, squared(deviation), std::sqrt(found), compression::squared_norm(mine)};
  c.sum(sums);
  const bool has_random_error = compression::received_value(t.codec.parsed) == ReceivedValue::all;
  return {.mean = sums[0],
          .variance = sums[1],
          .sum_of_roots = sums[2],
          .squared_norm = sums[3],
          .known = e.has_value(),
          .worst_case = !has_random_error || (e && e->is_bound)};
}

/// An upper bound of the sum's squared error (CodedSum::squared_error). Every encoding on the way is taken to lose the
/// same share of its input as the first one loses of the contributions. The input of an encoding is at most as long as
/// the sum or all contributions, whichever is longer, plus what was lost before. Random errors add up as variances,
/// others at worst as lengths. n: number of elements.
double most_error(const Expected& e, std::uint32_t encodings, double sum_norm, double n) {
  constexpr double margin = 1.25, kurtosis = 8;
  const double share = e.squared_norm > 0 ? e.mean / e.squared_norm : 0,
               encoded_norm = std::max(sum_norm, e.squared_norm);
  double squared_error = e.worst_case ? squared(e.sum_of_roots) : e.mean;
  for (std::uint32_t i = 1; i < encodings; ++i) {
    squared_error = e.worst_case ? squared(std::sqrt(squared_error) +
                                           std::sqrt(share) * (std::sqrt(encoded_norm) + std::sqrt(squared_error)))
                                 : squared_error + share * (encoded_norm + squared_error);
  }
  const double variance = e.worst_case ? 0 : e.variance + kurtosis * squared(squared_error) / std::max(n, 1.0);
  return margin * squared_error + deviations * std::sqrt(variance);
}

/// Sums over the elements. An average is scaled to a sum first. "Expected" is what arrives if nothing is wrong; "own"
/// are the numbers that only this rank has contributed.
struct SumProducts {
  double lost = 0, exact = 0;              ///< (result - exact)^2, exact^2
  double off_square = 0;                   ///< (result - expected)^2
  double off_own = 0, off_own_square = 0;  ///< (result - expected) · own; the squares of these products
  double contribution_own = 0;             ///< this rank's contribution · own
  std::size_t nonzero = 0;                 ///< number of elements of the result that are not 0
};

class SumCheck {
 public:
  SumCheck(const runtime::Communicator& c, const CodedTensor& t, std::span<const float> result)
      : c_(c),
        tensor_(t),
        result_(result),
        received_value_(t.encodings == 0 ? ReceivedValue::all : compression::received_value(t.codec.parsed)),
        mine_(result.size()),
        own_(result.size()),
        scale_(t.op == allreduce::Op::average ? c.size() : 1) {
    draw_worker_gradient(t.seed, c.rank(), mine_);
    draw_own_gradient(t.seed, c.rank(), own_);
    if (received_value_ == ReceivedValue::encoded)
      encoded_ = decoded(t.codec, mine_, static_cast<std::size_t>(c.size()));
    if (received_value_ == ReceivedValue::projected && !result.empty()) {
      const std::size_t columns = t.columns > 0 ? t.columns : compression::square_matrix(result.size()).columns;
      projected_.emplace(result, columns, scale_);
    }
    if (received_value_ == ReceivedValue::chosen) {
      const compression::RandomK chosen(t.codec.parsed);
      kept_ = chosen.kept(mine_.size());
      if (!t.codec.feedback) factor_ = static_cast<double>(mine_.size()) / static_cast<double>(kept_);
    }
  }

  CodedSum judge() {
    for (std::size_t at = 0; at < result_.size(); at += piece) add(at, std::min(piece, result_.size() - at));
    return {.squared_error = sums_.lost,
            .squared_sum = sums_.exact,
            .fault = runtime::first_report(c_, result_.empty() ? "" : fault()).text};
  }

 private:
  void add(std::size_t at, std::size_t n) {
    exact_.assign(mine_.begin() + static_cast<std::ptrdiff_t>(at), mine_.begin() + static_cast<std::ptrdiff_t>(at + n));
    c_.sum(exact_);
    if (projected_) projected_->add(at, exact_);
    if (!encoded_.empty()) {
      arriving_.assign(encoded_.begin() + static_cast<std::ptrdiff_t>(at),
                       encoded_.begin() + static_cast<std::ptrdiff_t>(at + n));
      c_.sum(arriving_);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double actual = scale_ * as_double(result_[at + i]), exact = exact_[i], own = as_double(own_[at + i]);
      const bool is_nonzero = result_[at + i] != 0;
      const double expected = received_value_ == ReceivedValue::encoded  ? arriving_[i]
                              : received_value_ == ReceivedValue::chosen ? (is_nonzero ? factor_ * exact : 0)
                                                                         : exact;
      sums_.lost += squared(actual - exact);
      sums_.exact += squared(exact);
      sums_.off_square += squared(actual - expected);
      sums_.off_own += (actual - expected) * own;
      sums_.off_own_square += squared((actual - expected) * own);
      sums_.contribution_own += as_double(mine_[at + i]) * own;
      sums_.nonzero += is_nonzero ? 1 : 0;
    }
  }

  std::string fault() {
    const Expected e = expected_of(c_, tensor_, mine_);
    // fp32 rounds once for each rank's summand, relative to the sum so far.
    const double fp32_rounding =
        squared(rounding * factor_ * c_.size()) * std::max(e.squared_norm * c_.size(), sums_.exact);
    if (tensor_.encodings == 0) return exact_fault(fp32_rounding);
    switch (received_value_) {
      case ReceivedValue::chosen:
        if (sums_.nonzero < kept_ - kept_ / 10 || sums_.nonzero > kept_) {
          return fmt::format("{} elements arrived, {} were to", sums_.nonzero, kept_);
        }
        return exact_fault(fp32_rounding);
      case ReceivedValue::projected:
        return projected_->fault();
      case ReceivedValue::encoded:
        return tensor_.encodings == 1 ? exact_fault(fp32_rounding) : error_fault(e, fp32_rounding);
      case ReceivedValue::all:
        break;
    }
    if (auto why = error_fault(e, fp32_rounding); !why.empty()) return why;
    return share_fault();
  }

  std::string exact_fault(double fp32_rounding) const {
    if (sums_.off_square <= fp32_rounding) return {};
    return fmt::format("the sum is off by {:.2g} of its length where only fp32 may round",
                       std::sqrt(sums_.off_square / sums_.exact));
  }

  std::string error_fault(const Expected& e, double fp32_rounding) const {
    if (!e.known) return std::isfinite(sums_.lost) ? "" : "the sum is no number";
    const double most =
        most_error(e, tensor_.encodings, sums_.exact, static_cast<double>(mine_.size())) + fp32_rounding;
    if (sums_.lost <= most) return {};
    return fmt::format("error {:.3g}; the codec may lose {:.3g}", sums_.lost / sums_.exact, most / sums_.exact);
  }

  std::string share_fault() const {
    constexpr double allowed = 0.25;
    const double off = sums_.off_own / sums_.contribution_own;
    const double deviation = std::sqrt(sums_.off_own_square) / sums_.contribution_own;
    if (std::fabs(off) <= allowed + deviations * deviation) return {};
    return fmt::format("{:.0f} % of rank {}'s contribution is in the sum", 100 * (1 + off), c_.rank());
  }

  const runtime::Communicator& c_;
  const CodedTensor& tensor_;
  std::span<const float> result_;
  ReceivedValue received_value_;
  /// mine_: this rank's contribution. own_: the part of it that only this rank has. encoded_: `mine_` after encoding
  /// and decoding.
  std::vector<float> mine_, own_, encoded_;
  double scale_;  ///< factor from the result to a sum: the number of ranks for an average
  /// For `ReceivedValue::chosen`: the number of elements that the codec sends, and the factor that it multiplies them
  /// by.
  std::size_t kept_ = 0;
  double factor_ = 1;
  std::optional<ProjectedSum> projected_;
  SumProducts sums_;
  std::vector<double> exact_, arriving_;  ///< sums over ranks for one piece: of contributions, and of `encoded_`
};

CodedSum check_signs(const runtime::Communicator& c, const CodedTensor& t, std::span<const float> result) {
  const double sum = magnitude_of_sum(t, c.size()), scale = t.op == allreduce::Op::average ? c.size() : 1;
  const auto n = static_cast<double>(result.size());
  std::vector<float> rank0_contribution(result.size());  // all ranks' contributions have the same signs
  draw_coded(t, 0, c.size(), rank0_contribution);
  CodedSum out;
  out.squared_sum = n * squared(sum);
  double aligned_sum = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double actual = (rank0_contribution[i] < 0 ? -scale : scale) * as_double(result[i]);
    out.squared_error += squared(actual - sum);
    aligned_sum += actual;
  }
  // If rounding puts a magnitude just below its level, stochastic rounding takes it to the next lower level with a
  // small probability (`wrong_level_probability`).
  constexpr double elements_between_levels = 3, wrong_level_probability = 0x1p-20;
  const double encodings = t.encodings, fp32_rounding = rounding * c.size() * (encodings + 1);
  const double allowed_elements =
      t.encodings > 0 ? elements_between_levels + wrong_level_probability * encodings * n : 0;
  const double off = std::fabs(aligned_sum - n * sum) / sum, lost = out.squared_error / squared(sum);
  const bool right =
      off <= allowed_elements + fp32_rounding * n && lost <= allowed_elements + squared(fp32_rounding) * n;
  if (!right) {
    out.fault = fmt::format("{:.3g} % of the sum of equal magnitudes is there, of which the codec loses nothing",
                            100 * aligned_sum / (n * sum));
  }
  out.fault = runtime::first_report(c, out.fault).text;
  return out;
}

/// The number of elements whose bits differ from rank 0's, over all ranks.
std::uint64_t count_differing(const runtime::Communicator& c, std::span<const float> result) {
  std::vector<float> of_root;
  double differing = 0;
  for (std::size_t at = 0; at < result.size(); at += piece) {
    const auto part = result.subspan(at, std::min(piece, result.size() - at));
    of_root.assign(part.begin(), part.end());
    c.broadcast(std::span<float>(of_root));
    for (std::size_t i = 0; i < part.size(); ++i) {
      differing += std::bit_cast<std::uint32_t>(part[i]) != std::bit_cast<std::uint32_t>(of_root[i]) ? 1 : 0;
    }
  }
  return static_cast<std::uint64_t>(c.sum(differing));
}

void compare_bits(const runtime::Communicator& c, std::span<const float> result, CodedSum& out) {
  out.same_bits = runtime::same_on_all(c, allreduce::hash_of(std::as_bytes(result)));
  if (!out.same_bits) out.differing = count_differing(c, result);
}

}  // namespace

CodedSum check_coded_sum(const runtime::Communicator& c, const CodedTensor& t, std::span<const float> result) {
  CodedSum out = t.data == CodedData::signs ? check_signs(c, t, result) : SumCheck(c, t, result).judge();
  out.error = out.squared_sum > 0 ? out.squared_error / out.squared_sum : out.squared_error;
  compare_bits(c, result, out);
  return out;
}

}  // namespace gradmeter::bench
