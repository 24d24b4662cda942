// SPDX-License-Identifier: Apache-2.0
// A kernel to be measured: an operation on a shape, in a pass and a precision. These are plain values; DeepBench's
// lists are lists of them.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/gemm/gemm.hpp"

namespace gradmeter::kernels {

enum class KernelKind : std::uint8_t { gemm, conv, rnn, sparse, pointwise };
enum class Pass : std::uint8_t { forward, backward_data, backward_weights };
/// The type of operands and of sums. lns16: the logarithmic number system with 8 fraction bits (lns16_f7 and lns16_f6:
/// with 7 and 6), for sums too. lns16_linear: numbers are stored as in lns16, but decoded and summed in fp32. tf32 is a
/// GPU's fast mode for products of fp32, and the `_fast` ones are its fast modes for fp8. Each mode is a precision of
/// its own, so that times of different modes are not confused.
enum class Precision : std::uint8_t {
  fp32,
  bf16,
  int8,
  lns16,
  lns16_linear,
  lns16_f7,
  lns16_f6,
  fp16,
  fp8_e4m3,
  fp8_e5m2,
  int4,
  tf32,
  fp8_e4m3_fast,
  fp8_e5m2_fast
};

std::string_view name(KernelKind);
std::string_view name(Pass);
/// A row of precision_table(). A new precision is one more row, and its kernels.
struct PrecisionInfo {
  std::string_view name;
  std::size_t storage_bytes;  ///< bytes of an operand's element
  std::size_t result_bytes;   ///< bytes of a result's element
  double roundoff;            ///< relative error of storing a result
  bool integer;               ///< sums are exact whole numbers
  std::string_view about, source;
  unsigned logarithm_bits = 0;    ///< fraction bits of numbers kept as logarithms; 0: the format has none
  bool logarithmic_sums = false;  ///< sums are logarithms too
  bool emulated = false;  ///< operands are fp32 that software rounds: the accuracy is the format's, the time is not
  /// Bytes of an operand's and of a result's element on hardware that has the emulated format; by convention 0: as
  /// storage_bytes and result_bytes.
  std::size_t native_bytes = 0, native_result_bytes = 0;
  bool is_gpu_mode = false;       ///< only kernel cases on a GPU use it
  double sum_roundoff = 0x1p-24;  ///< relative error of each addition of a sum
};
/// The table in the order of Precision.
std::span<const PrecisionInfo> precision_table();
/// Adds a precision to the table, as a test does. Call it before threads begin; it invalidates spans of the table.
Precision add_precision(const PrecisionInfo&);
const PrecisionInfo& info(Precision);
std::vector<Precision> precisions();  ///< all precisions of the table
inline std::string_view name(Precision p) { return info(p).name; }
inline std::size_t storage_bytes(Precision p) { return info(p).storage_bytes; }

/// Inputs [batch x channels x height x width], filters [filters x channels x filter_height x filter_width].
struct ConvShape {
  std::size_t width = 0, height = 0, channels = 0, batch = 0, filters = 0;
  std::size_t filter_width = 0, filter_height = 0, pad_width = 0, pad_height = 0, stride_width = 1, stride_height = 1;
  std::size_t out_width() const { return (width + 2 * pad_width - filter_width) / stride_width + 1; }
  std::size_t out_height() const { return (height + 2 * pad_height - filter_height) / stride_height + 1; }
  bool operator==(const ConvShape&) const = default;
};
enum class Cell : std::uint8_t { vanilla, lstm, gru };
std::string_view name(Cell);
/// One recurrent layer in one direction.
struct RnnShape {
  Cell cell = Cell::vanilla;
  std::size_t hidden = 0, batch = 0, steps = 0;
  std::size_t input = 0;  ///< width of the layer's input; by convention 0: as wide as the hidden state
  std::size_t input_width() const { return input > 0 ? input : hidden; }
  bool operator==(const RnnShape&) const = default;
};
/// two_of_four, named 2:4, keeps two of each four adjacent numbers of a row, so that half of A is zero.
enum class SparseFormat : std::uint8_t { csr, blocked, two_of_four };
std::string_view name(SparseFormat);
/// C [m x n] = A · B, where a share `sparsity` of A [m x k] is zero.
struct SparseShape {
  std::size_t m = 0, n = 0, k = 0;
  double sparsity = 0.9;
  SparseFormat format = SparseFormat::csr;
  bool operator==(const SparseShape&) const = default;
};
enum class PointwiseKind : std::uint8_t { sgd, momentum, adam, lstm_cell };
std::string_view name(PointwiseKind);
/// fused: one pass over memory for the whole update; else one pass for each arithmetic operation, as in a library of
/// vector operations.
struct PointwiseShape {
  PointwiseKind kind = PointwiseKind::sgd;
  std::size_t elements = 0;
  bool fused = true;
  bool operator==(const PointwiseShape&) const = default;
};
using ProblemShape = std::variant<GemmShape, ConvShape, RnnShape, SparseShape, PointwiseShape>;

struct Problem {
  ProblemShape shape;
  Pass pass = Pass::forward;
  Precision precision = Precision::fp32;
  std::string application = {};  ///< the application that it comes from: "DeepSpeech"
  KernelKind operation() const { return static_cast<KernelKind>(shape.index()); }
};

/// True if both are the same operation, whichever list or application they come from.
inline bool same_work(const Problem& a, const Problem& b) {
  return a.shape == b.shape && a.pass == b.pass && a.precision == b.precision;
}

/// "m=1760,n=16,k=1760,a=N,b=T": the whole shape; equal texts mean equal shapes.
std::string text(const ProblemShape&);
/// The FLOP by which speeds are stated; a multiply and an add count as two. gemm: 2mnk. conv:
/// 2·(outputs)·(channels·filter area), the same for each pass. rnn: DeepBench's count, which has only the products with
/// the state: {2, 8, 6}·hidden²·batch·steps a pass for {vanilla, lstm, gru}. sparse: the dense product's count times
/// the density, so that zeros do not count in any format (for 2:4, vendors count them and so report twice as much).
/// pointwise: the arithmetic of the update or cell.
double flops(const Problem&);
/// As `flops`, but for an rnn also the products with the inputs, which DeepBench does not count: 2·gates·input·hidden
/// for each step of a sample.
double full_flops(const Problem&);
/// FLOP that one run of the operation computes: full_flops, but twice that for an rnn's backward pass, which makes the
/// gradients of inputs and of weights.
double run_flops(const Problem&);
/// Bytes of memory that a call must move: each operand once, in its storage type. What a call does not read is left
/// out: pixels that a convolution's filters skip because the stride is longer than the filter, and the expected number
/// of those rows of a sparse product's B that meet no entry of A.
double bytes(const Problem&);
/// As `bytes`, on hardware that has the precision: a GPU stores in 16 or 8 bits what the host emulates in fp32.
double native_bytes(const Problem&);
/// The memory that the operands take: `bytes` and `native_bytes` plus the bytes that a call does not read.
double held_bytes(const Problem&);
double native_held_bytes(const Problem&);
/// Converts a number of bytes to a whole number, at most 2^62, so that absurd shapes do not wrap to small numbers.
std::size_t whole_bytes(double);

/// How a GPU's library chooses among its algorithms: by its own estimate, or by timing all that it lists.
enum class AlgorithmSearch : std::uint8_t { estimated, exhaustive };
std::string_view name(AlgorithmSearch);

}  // namespace gradmeter::kernels
