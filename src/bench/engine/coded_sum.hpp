// SPDX-License-Identifier: Apache-2.0
// Test data for exchanges with a codec, and checks of the sums that such exchanges return.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allreduce/reduce.hpp"
#include "compression/registry.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

/// A worker's test gradient: Gaussian numbers that only this worker has, plus half of Gaussian numbers that all workers
/// share. The figures in parentheses in results/compression.md, "How the error of a sum grows with the ranks", are for
/// such workers. The factor 1/2 matters: without it, gradients would be more alike and the norm of their sum larger, so
/// that on 8 ranks the relative squared error of the sum would be 0.53 times as large.
void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out);
/// Draws the Gaussian numbers that only this worker has.
void draw_own_gradient(std::uint64_t seed, int rank, std::span<float> out);

/// The kind of data that workers contribute. gradient: `draw_worker_gradient`. signs: random signs that all ranks
/// share, times a magnitude. If contributions are encoded at most once on the way, the magnitude is P, the number of
/// ranks, on every rank: some codecs then use one scale for all ranks (terngrad with exchange=sum), and one scale
/// represents only equal magnitudes without loss. If contributions are encoded several times, the magnitude on rank r
/// is P + r, so that ranks differ. Codecs that represent a bucket by its largest or mean magnitude encode such data
/// without loss, however often sums are encoded again.
enum class CodedData : std::uint8_t { gradient, signs };

/// A tensor that an exchange has summed, with the known data that the ranks contributed.
struct CodedTensor {
  const compression::CodecChoice& codec;
  /// The most times that a contribution is encoded on its way into the sum (allreduce::encodings_on_the_way); 0: the
  /// tensor was exchanged without the codec.
  std::uint32_t encodings;
  std::uint64_t seed;  ///< seed of the data
  allreduce::Op op;    ///< sum or average
  CodedData data = CodedData::gradient;
  std::size_t columns = 0;  ///< columns of a matrix; 0: a tensor without a shape
};

/// True where this codec by its definition loses nothing of `CodedData::signs`, and where there is no codec.
bool keeps_signs(const compression::CodecChoice&);
/// Draws what rank `rank` of `ranks` ranks contributes.
void draw_coded(const CodedTensor&, int rank, int ranks, std::span<float> out);
/// The magnitude of every element of the ranks' sum, for `CodedData::signs`.
double magnitude_of_sum(const CodedTensor&, int ranks);

// Finds how much an exchange of encoded gradients has lost: its result is compared with the exact sum, and the loss
// with the greatest loss that its codec may cause.

/// The finding of `check_coded_sum`.
struct CodedSum {
  /// Sums over the elements of (result - exact)^2 and of exact^2. Where the result is an average, it is scaled to a
  /// sum.
  double squared_error = 0, squared_sum = 0;
  double error = 0;             ///< relative and squared: lost / exact
  bool same_bits = true;        ///< all ranks hold the same bits
  std::uint64_t differing = 0;  ///< number of elements that differ from rank 0's, over all ranks
  /// The reason why this cannot be the codec's sum of all contributions; empty: it can be.
  std::string fault;
};

/// Checks a sum. Collective. If all ranks hold the same bits, all get the same finding; otherwise `squared_error` and
/// `error` are those of this rank's result. The call must have begun without residuals of earlier calls. Without a
/// codec (`encodings` 0) the result must be the exact sum, within fp32 rounding. Otherwise the check depends on what
/// the codec's decoder gets of a contribution (compression::ReceivedValue); n is the number of elements:
///   all         The error may be at most the expected error of all encodings on the way, plus a quarter of it and six
///               standard deviations. The sum is also projected on each rank's own numbers (`draw_own_gradient`). This
///               gives the factor, called share, by which the sum contains them. The share should be 1, and may be off
///               by 1/4 plus six of its standard deviations; one standard deviation is about
///               sqrt(CodedSum::squared_error)/n. The share of a dropped contribution is about 0, so the check notices
///               a dropped contribution if six standard deviations are less than 3/4 (qsgd4 over direct on 8 ranks:
///               from some 200 elements on).
///   encoded     The sum must be that of the ranks' own encodings, within fp32 rounding. Where sums are encoded again
///               on the way, only the error is checked, against the worst case.
///   chosen      At the k elements that the codec sends, the result must be the exact sum (times n/k where the codec
///               scales its values so), within fp32 rounding. Up to a tenth of the k elements may be missing.
///   projected   The result's product with the exact sum must be the result's own square, within 1e-3, since it is a
///               projection of the sum (`ProjectedSum`).
/// For signs and a codec that keeps them, the result must be the known sum, whatever `ReceivedValue` is. The
/// differences between the two, with their signs and added up over all elements, may be as large as three elements of
/// the known sum and n/2^20 more for each encoding, beyond fp32 rounding, because random rounding now and then takes a
/// neighbouring level of the codec. So a dropped contribution is noticed if it is more than 3/n of the sum. In the
/// shortest tensors that codecs encode by default (n = 1024) this holds for each rank's contribution on up to some 200
/// ranks. Cost: drawing the gradient, and 8 bytes an element over MPI, in pieces (for `encoded` 16 bytes, for signs
/// none).
CodedSum check_coded_sum(const runtime::Communicator&, const CodedTensor&, std::span<const float> result);

// Checks that PowerSGD's result is the projection of the exact sum.

/// The codec turns the sum, as a matrix M, into X = P·Pᵀ·M, where the columns of P are orthonormal. So <X, M> = <X, X>,
/// and <y, M_d> = <y, X_d> for any combination y of the columns of X and any column d. A tensor may fill the last row
/// of M only in part. M is 0 in the rest of that row, but X need not be, and the result lacks these elements of X.
/// Since <X, X> needs them, they are computed from the known ones. Let c be a column that reaches the last row, X_c
/// this column of X, and x_c its last element. The sum y = Σ x_c·X_c over these columns has Σ x_c² as its last element.
/// So the missing element of column d is <y, M_d - X_d> over the other rows, divided by Σ x_c².
class ProjectedSum {
 public:
  /// result [n]: a view; times `scale` it is the sum. columns: number of columns of the matrix, which is stored by
  /// rows; above 0. Cost: a pass over the result; 8 bytes a row and 8 bytes a column.
  ProjectedSum(std::span<const float> result, std::size_t columns, double scale);
  /// Adds elements of the exact sum, from element `first` on; each element is added once.
  void add(std::size_t first, std::span<const double> exact);
  /// Returns what is wrong; empty: the result is the projection, within 1e-3 of its square.
  std::string fault() const;

 private:
  double at(std::size_t i) const { return scale_ * static_cast<double>(result_[i]); }

  std::span<const float> result_;
  std::size_t columns_, in_last_row_;  ///< elements in the last row if it is short; 0: it is full
  double scale_, product_ = 0, square_ = 0, last_row_square_ = 0;
  std::vector<double> combination_, missing_;  ///< y without its last element; missing elements × Σ x_c²
};

}  // namespace gradmeter::bench
