// SPDX-License-Identifier: Apache-2.0
#include "kernels/problems/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/format.hpp"

namespace gradmeter::kernels {
namespace {

template <class... Visitors>
struct Match : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Match(Visitors...) -> Match<Visitors...>;

double real(std::size_t n) { return static_cast<double>(n); }
char letter(Transpose t) { return t == Transpose::yes ? 'T' : 'N'; }
double gates(Cell c) { return c == Cell::vanilla ? 1 : c == Cell::lstm ? 4 : 3; }

/// ",count=4" for key "count"; empty for the usual value.
std::string text_unless_usual(const char* key, std::size_t value, std::size_t usual) {
  return value == usual ? "" : fmt::format(",{}={}", key, value);
}

/// Bytes of the index of a kept entry: a column number of 32 bits, which 16 rows share in a block; in 2:4 two bits,
/// which give its place among four neighbours.
double index_bytes(SparseFormat f) {
  if (f == SparseFormat::two_of_four) return 0.25;
  return f == SparseFormat::blocked ? 4.0 / 16 : 4;
}

/// Chooses the bytes of operands that count: `moved` are those that a call must read or write, `held` all.
enum class CountedBytes : std::uint8_t { moved, held };

/// The number of places of an input's extent, without its padding, that a filter reads in `outputs` steps.
double places_read(std::size_t extent, std::size_t pad, std::size_t filter, std::size_t stride, std::size_t outputs) {
  // The places read among the first `end`, counted from the beginning of the padding.
  const auto read_before = [&](std::size_t end) {
    if (outputs == 0 || stride == 0) return std::size_t{0};
    if (stride <= filter) return std::min(end, (outputs - 1) * stride + filter);
    const std::size_t whole = std::min(end / stride, outputs);
    return whole * filter + (whole < outputs ? std::min(end - whole * stride, filter) : 0);
  };
  return real(read_before(pad + extent) - read_before(pad));
}

/// The share of the rows of B that a sparse product is expected to read: those whose column of A has an entry.
double share_of_rows_read(const SparseShape& s) {
  const double units = s.format == SparseFormat::blocked ? std::ceil(real(s.m) / 16) : real(s.m);
  return 1 - std::pow(s.sparsity, units);
}

struct PointwiseCost {
  double flops, reads_and_writes;  ///< for one element
};
/// The cost of an element. Fused: each array is read or written once. Unfused: each operation reads its operands (an
/// operand that it takes twice counts once) and writes its result. A division, a root and an exponential count as one
/// operation, a change of sign as none; a sigmoid has 3 (exponential, sum, quotient) and a tanh 4, each in one pass.
/// pointwise/case.cpp has the operations.
PointwiseCost cost_of(const PointwiseShape& p) {
  switch (p.kind) {
    case PointwiseKind::sgd:
      return {2, p.fused ? 3.0 : 5.0};
    case PointwiseKind::momentum:
      return {4, p.fused ? 5.0 : 10.0};
    case PointwiseKind::adam:
      return {12, p.fused ? 7.0 : 28.0};
    case PointwiseKind::lstm_cell:
      break;
  }
  return {21, p.fused ? 7.0 : 22.0};
}

}  // namespace

std::string_view name(KernelKind o) {
  constexpr std::array<std::string_view, 5> names{"gemm", "conv", "rnn", "sparse", "pointwise"};
  return names[static_cast<std::size_t>(o)];
}
std::string_view name(AlgorithmSearch s) { return s == AlgorithmSearch::estimated ? "estimated" : "exhaustive"; }

std::string_view name(Pass p) {
  constexpr std::array<std::string_view, 3> names{"forward", "backward-data", "backward-weights"};
  return names[static_cast<std::size_t>(p)];
}
namespace {
constexpr std::string_view lns_source = "Coleman et al. 2000; Miyashita et al. 2016";

/// The row of a format to which operands are rounded by software, each scaled by its largest number. native_bytes: 0 if
/// no hardware has the format.
PrecisionInfo emulated_operands(std::string_view name, double roundoff, std::size_t native_bytes,
                                std::string_view source) {
  return {.name = name,
          .storage_bytes = 4,
          .result_bytes = 4,
          .roundoff = roundoff,
          .integer = false,
          .about = "emulated: scaled and rounded operands, fp32 sums and results",
          .source = source,
          .emulated = true,
          .native_bytes = native_bytes,
          .native_result_bytes = native_bytes > 0 ? std::size_t{4} : 0};
}

/// The row of fp8 with sums of about 14 bits, as Hopper's tensor cores keep them.
PrecisionInfo with_fast_sums(PrecisionInfo row, std::string_view name) {
  row.name = name;
  row.about = "kernels on a GPU alone: fp8 with sums in the tensor cores' about 14 bits (FAST_ACCUM)";
  row.source = "cuBLASLt, CUBLASLT_MATMUL_DESC_FAST_ACCUM; bits: DeepSeek-V3 2024, section 3.3.2";
  row.is_gpu_mode = true;
  row.sum_roundoff = 0x1p-13;
  return row;
}

std::vector<PrecisionInfo>& precision_rows() {
  static std::vector<PrecisionInfo> rows{
      {"fp32", 4, 4, 0x1p-24, false, "computed and accumulated in fp32", "IEEE 754 binary32"},
      {"bf16", 2, 2, 0x1p-8, false, "accumulated in fp32", "Kalamkar et al. 2019"},
      {"int8", 1, 4, 0, true, "of kernels alone: accumulated in int32", "Jacob et al. 2018"},
      {"lns16", 2, 2, 0, false, "16-bit logarithms, accumulated in them", lns_source, 8, true},
      {"lns16-linear", 2, 2, 0, false, "16-bit logarithms, accumulated in fp32", lns_source, 8},
      {"lns16-f7", 2, 2, 0, false, "as lns16 with 7 fraction bits", lns_source, 7, true},
      {"lns16-f6", 2, 2, 0, false, "as lns16 with 6 fraction bits", lns_source, 6, true},
      {.name = "fp16",
       .storage_bytes = 4,
       .result_bytes = 4,
       .roundoff = 0x1p-11,
       .integer = false,
       .about = "emulated: operands and results rounded, accumulated in fp32",
       .source = "IEEE 754 binary16",
       .emulated = true,
       .native_bytes = 2,
       .native_result_bytes = 2},
      emulated_operands("fp8-e4m3", 0x1p-4, 1, "OCP 8-bit floating point 1.0"),
      emulated_operands("fp8-e5m2", 0x1p-3, 1, "OCP 8-bit floating point 1.0"),
      emulated_operands("int4", 1.0 / 14, 0, "Jacob et al. 2018, with 4 bits"),
      {.name = "tf32",
       .storage_bytes = 4,
       .result_bytes = 4,
       .roundoff = 0x1p-24,
       .integer = false,
       .about = "kernels on a GPU alone: fp32 operands cut to 10 bits of mantissa, accumulated in fp32",
       .source = "NVIDIA A100 Tensor Core GPU Architecture, 2020",
       .is_gpu_mode = true},
      with_fast_sums(emulated_operands("", 0x1p-4, 1, ""), "fp8-e4m3-fast"),
      with_fast_sums(emulated_operands("", 0x1p-3, 1, ""), "fp8-e5m2-fast"),
  };
  return rows;
}
}  // namespace

std::span<const PrecisionInfo> precision_table() { return precision_rows(); }

Precision add_precision(const PrecisionInfo& row) {
  precision_rows().push_back(row);
  return static_cast<Precision>(precision_rows().size() - 1);
}

std::vector<Precision> precisions() {
  std::vector<Precision> precisions;
  for (std::size_t i = 0; i < precision_rows().size(); ++i) precisions.push_back(static_cast<Precision>(i));
  return precisions;
}

const PrecisionInfo& info(Precision p) { return precision_table()[static_cast<std::size_t>(p)]; }
std::string_view name(Cell c) {
  constexpr std::array<std::string_view, 3> names{"vanilla", "lstm", "gru"};
  return names[static_cast<std::size_t>(c)];
}
std::string_view name(SparseFormat f) {
  constexpr std::array<std::string_view, 3> names{"csr", "blocked", "2:4"};
  return names[static_cast<std::size_t>(f)];
}
std::string_view name(PointwiseKind k) {
  constexpr std::array<std::string_view, 4> names{"sgd", "momentum", "adam", "lstm-cell"};
  return names[static_cast<std::size_t>(k)];
}

std::string text(const ProblemShape& shape) {
  return std::visit(
      Match{[](const GemmShape& s) {
              return fmt::format("m={},n={},k={},a={},b={}{}{}", s.m, s.n, s.k, letter(s.transpose_a),
                                 letter(s.transpose_b), s.packed ? ",packed=yes" : "",
                                 text_unless_usual("count", s.count, 1));
            },
            [](const ConvShape& s) {
              return fmt::format("w={},h={},c={},n={},k={},fw={},fh={},pw={},ph={},sw={},sh={}", s.width, s.height,
                                 s.channels, s.batch, s.filters, s.filter_width, s.filter_height, s.pad_width,
                                 s.pad_height, s.stride_width, s.stride_height);
            },
            [](const RnnShape& s) {
              return fmt::format("cell={},hidden={},batch={},steps={}{}", name(s.cell), s.hidden, s.batch, s.steps,
                                 text_unless_usual("input", s.input, 0));
            },
            [](const SparseShape& s) {
              return fmt::format("m={},n={},k={},sparsity={},format={}", s.m, s.n, s.k, s.sparsity, name(s.format));
            },
            [](const PointwiseShape& s) {
              return fmt::format("kind={},elements={},fused={}", name(s.kind), s.elements, s.fused ? "yes" : "no");
            }},
      shape);
}

double flops(const Problem& p) {
  return std::visit(Match{[](const GemmShape& s) { return s.flops(); },
                          [](const ConvShape& s) {
                            return 2 * real(s.batch) * real(s.filters) * real(s.out_width()) * real(s.out_height()) *
                                   real(s.channels) * real(s.filter_width) * real(s.filter_height);
                          },
                          [](const RnnShape& s) {
                            return 2 * gates(s.cell) * real(s.hidden) * real(s.hidden) * real(s.batch) * real(s.steps);
                          },
                          [](const SparseShape& s) { return 2 * real(s.m) * real(s.n) * real(s.k) * (1 - s.sparsity); },
                          [](const PointwiseShape& s) { return cost_of(s).flops * real(s.elements); }},
                    p.shape);
}

double full_flops(const Problem& p) {
  const auto* const rnn = std::get_if<RnnShape>(&p.shape);
  return rnn ? flops(p) * (1 + real(rnn->input_width()) / real(rnn->hidden)) : flops(p);
}

double run_flops(const Problem& p) {
  return (p.operation() == KernelKind::rnn && p.pass != Pass::forward ? 2 : 1) * full_flops(p);
}

namespace {

/// operand_size, result_size: bytes of an element of an operand and of a result.
double counted_bytes(const Problem& p, double operand_size, double result_size, CountedBytes count) {
  const bool all = count == CountedBytes::held;
  return std::visit(
      Match{[&](const GemmShape& s) {
              return real(s.count) * (operand_size * (real(s.m) * real(s.k) + real(s.k) * real(s.n)) +
                                      result_size * real(s.m) * real(s.n));
            },
            [&](const ConvShape& s) {
              const double images = real(s.batch) * real(s.channels), in = images * real(s.width) * real(s.height);
              const double read =
                  all ? in
                      : images * places_read(s.width, s.pad_width, s.filter_width, s.stride_width, s.out_width()) *
                            places_read(s.height, s.pad_height, s.filter_height, s.stride_height, s.out_height());
              const double filters = real(s.filters) * real(s.channels) * real(s.filter_width) * real(s.filter_height);
              const double out = real(s.batch) * real(s.filters) * real(s.out_width()) * real(s.out_height());
              if (p.pass == Pass::backward_data) return operand_size * (out + filters) + result_size * in;
              if (p.pass == Pass::backward_weights) return operand_size * (out + read) + result_size * filters;
              return operand_size * (read + filters) + result_size * out;
            },
            [&](const RnnShape& s) {
              const double widths = real(s.input_width()) + real(s.hidden);
              // A backward pass reads weights, layers and output gradients, and writes gradients of weights and inputs.
              const double passes = p.pass == Pass::forward ? 1 : 2;
              return passes * operand_size *
                     (gates(s.cell) * real(s.hidden) * widths + real(s.batch) * real(s.steps) * widths);
            },
            [&](const SparseShape& s) {
              const double kept = real(s.m) * real(s.k) * (1 - s.sparsity);
              const double index = index_bytes(s.format);  // for each number that is kept
              const double rows = real(s.k) * (all ? 1 : share_of_rows_read(s));
              return kept * (operand_size + index) + operand_size * rows * real(s.n) +
                     result_size * real(s.m) * real(s.n);
            },
            [&](const PointwiseShape& s) { return operand_size * cost_of(s).reads_and_writes * real(s.elements); }},
      p.shape);
}

}  // namespace

namespace {
double stored_bytes(const Problem& p, CountedBytes count) {
  return counted_bytes(p, real(storage_bytes(p.precision)), real(info(p.precision).result_bytes), count);
}
double native_stored_bytes(const Problem& p, CountedBytes count) {
  const PrecisionInfo& i = info(p.precision);
  return i.native_bytes > 0 ? counted_bytes(p, real(i.native_bytes), real(i.native_result_bytes), count)
                            : stored_bytes(p, count);
}
}  // namespace

double bytes(const Problem& p) { return stored_bytes(p, CountedBytes::moved); }
double native_bytes(const Problem& p) { return native_stored_bytes(p, CountedBytes::moved); }
double held_bytes(const Problem& p) { return stored_bytes(p, CountedBytes::held); }
double native_held_bytes(const Problem& p) { return native_stored_bytes(p, CountedBytes::held); }

std::size_t whole_bytes(double bytes) {
  constexpr double most = 0x1p62;
  return static_cast<std::size_t>(std::min(bytes, most));
}

}  // namespace gradmeter::kernels
