// SPDX-License-Identifier: Apache-2.0
// Products of matrices of logarithmic numbers on the host, and the operation that computes them.
#include <hwy/targets.h>

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "kernels/backends.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/lns.hpp"
#include "kernels/lns/tile.hpp"

namespace gradmeter::kernels {
namespace {

using detail::LnsChecks;
using detail::LnsFactor;
constexpr std::size_t tile_rows = detail::lns_tile_rows;
/// 128 rows of B in two forms (LnsTile::b) take 16 KiB with AVX-512, so they stay in a first-level cache for all tiles.
constexpr std::size_t block_depth = 128;

void require_operands(const GemmShape& p, std::span<const Lns16> a, std::span<const Lns16> b,
                      std::span<const Lns16> c) {
  require_elements("lns_gemm: a", a.size(), p.m * p.k);
  require_elements("lns_gemm: b", b.size(), p.k * p.n);
  require_elements("lns_gemm: c", c.size(), p.m * p.n);
}

Lns16 left(const GemmShape& p, std::span<const Lns16> a, std::size_t i, std::size_t k) {
  return p.transpose_a == Transpose::yes ? a[k * p.m + i] : a[i * p.k + k];
}
Lns16 right(const GemmShape& p, std::span<const Lns16> b, std::size_t k, std::size_t j) {
  return p.transpose_b == Transpose::yes ? b[j * p.k + k] : b[k * p.n + j];
}

/// The least and the largest code of an operand's numbers that are not zero.
struct CodeRange {
  std::int32_t least = Lns16::largest, most = 0;
  explicit CodeRange(std::span<const Lns16> words) {
    for (const Lns16 w : words) {
      // A zero changes neither bound.
      most = std::max(most, w.code());
      least = std::min(least, w.zero() ? Lns16::largest : w.code());
    }
  }
};

/// How codes are shifted so that a tile can do without checks (tile.hpp). Sums of zeros alone stay below a certain
/// code, and the codes of numbers are shifted so far above it that such sums leave numbers unchanged.
struct Window {
  std::int32_t shift;         ///< added to the codes of products
  std::int32_t least_number;  ///< a sum with a smaller code is a sum of zeros
  std::int32_t most_a;        ///< A's largest code
  LnsChecks checks;

  /// Finds the window for operands with these codes. Checks stay on if a product or a sum might leave the range, or if
  /// codes are spread too widely.
  static Window plan(const Lns& lns, const CodeRange& a, const CodeRange& b) {
    const LnsTables& t = lns.tables();
    // How far a sum's code can be above those of its terms: a sum no longer grows when it is entries() above the next
    // term, and that term can add at most an octave.
    const auto reach = static_cast<std::int32_t>(t.entries()) + (1 << lns.fraction_bits());
    // How far a result's code can be below those of its terms: the case of neighbouring numbers that cancel.
    const std::int32_t drop = -*std::ranges::min_element(t.doubled()) / 2;
    const std::int32_t least = a.least + b.least - Lns16::one - drop, most = a.most + b.most - Lns16::one + reach;
    const std::int32_t floor = reach + static_cast<std::int32_t>(t.entries()) + 1;
    if (least < 1 || most > Lns16::largest || most - least + floor > Lns16::largest)
      return {0, 1, a.most, LnsChecks::all};
    return {floor - least, floor, a.most, LnsChecks::none};
  }
};

class LogarithmicGemm final : public LnsGemm {
 public:
  LogarithmicGemm(const GemmShape& problem, const Lns& lns) : shape_(problem), lns_(lns) {}

  void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) override {
    require_operands(shape_, a, b, c);
    const Window window = Window::plan(lns_, CodeRange(a), CodeRange(b));
    // Asked in each run, since tests change the instruction set.
    lanes_ = detail::lns_tile_lanes();
    pack_a(a, window);
    pack_b(b, window);
    split(shape_.m, (std::size_t{1} << 20) / (shape_.n * shape_.k) + 1,
          [&](std::size_t first, std::size_t count) { multiply(first, count, window, c); });
  }

  std::string implementation() const override {
    return fmt::format("lns f{} {}, {}", lns_.fraction_bits(),
                       lns_.tables().kind() == LnsAddition::exact ? "exact" : "interpolated",
                       hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()));
  }

 private:
  std::size_t row_tiles() const { return (shape_.m + tile_rows - 1) / tile_rows; }
  std::size_t panels() const { return (shape_.n + lanes_ - 1) / lanes_; }

  void pack_a(std::span<const Lns16> a, const Window& window) {
    a_.assign(row_tiles() * tile_rows * shape_.k, LnsFactor{});  // rows after the last one of A stay zero
    for (std::size_t i = 0; i < shape_.m; ++i)
      for (std::size_t k = 0; k < shape_.k; ++k) {
        const Lns16 w = left(shape_, a, i, k);
        if (w.zero()) continue;
        a_[(i / tile_rows * shape_.k + k) * tile_rows + i % tile_rows] = {
            static_cast<std::uint16_t>(window.most_a - w.code()), w.negative() ? ~0U : 0};
      }
  }

  void pack_b(std::span<const Lns16> b, const Window& window) {
    const std::int32_t shift = window.shift + window.most_a - Lns16::one;
    const std::size_t copies = detail::lns_tile_copies(window.checks);
    b_.assign(panels() * shape_.k * copies * lanes_, 0);
    for (std::size_t k = 0; k < shape_.k; ++k)
      for (std::size_t j = 0; j < shape_.n; ++j) {
        const Lns16 w = right(shape_, b, k, j);
        if (w.zero()) continue;  // zeros have no sign in either form, or they would cancel numbers
        std::uint16_t* const row = &b_[(j / lanes_ * shape_.k + k) * copies * lanes_ + j % lanes_];
        const bool checked = window.checks == LnsChecks::all;
        const std::int32_t code = w.code() + shift, doubled_code = checked ? 0 : 2 * code;
        row[0] = static_cast<std::uint16_t>(doubled_code + (w.negative() ? 1 : 0));
        row[lanes_] = static_cast<std::uint16_t>(row[0] ^ 1);
        // If this is not positive, no product with the number reaches the range.
        if (checked) row[2 * lanes_] = static_cast<std::uint16_t>(std::max(code, 0));
      }
  }

  // Computes rows [first, first + count) of C. `first` is a multiple of tile_rows, since split() begins parts at
  // multiples of 16.
  void multiply(std::size_t first, std::size_t count, const Window& window, std::span<Lns16> c) const {
    const std::size_t begin = first / tile_rows, end = (first + count + tile_rows - 1) / tile_rows;
    AlignedVector<std::uint16_t> sums((end - begin) * tile_rows * lanes_);
    for (std::size_t panel = 0; panel < panels(); ++panel) {
      std::ranges::fill(sums, std::uint16_t{0});
      for (std::size_t k = 0; k < shape_.k; k += block_depth)
        for (std::size_t tile = begin; tile < end; ++tile)
          detail::lns_tile({.a = &a_[(tile * shape_.k + k) * tile_rows],
                            .b = &b_[(panel * shape_.k + k) * detail::lns_tile_copies(window.checks) * lanes_],
                            .sums = &sums[(tile - begin) * tile_rows * lanes_],
                            .depth = std::min(block_depth, shape_.k - k),
                            .tables = &lns_.tables(),
                            .checks = window.checks});
      const std::size_t column = panel * lanes_, width = std::min(lanes_, shape_.n - column);
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < width; ++j)
          c[(first + i) * shape_.n + column + j] = unpacked(sums[i * lanes_ + j], window);
    }
  }

  static Lns16 unpacked(std::uint16_t rotated, const Window& window) {
    const std::int32_t code = rotated >> 1;
    return code < window.least_number ? Lns16{} : Lns16::from((rotated & 1) != 0, code - window.shift);
  }

  GemmShape shape_;
  Lns lns_;
  std::size_t lanes_ = 0;
  AlignedVector<LnsFactor> a_;      ///< packed A [row tiles × k × tile_rows]
  AlignedVector<std::uint16_t> b_;  ///< packed B [panels × k × copies × lanes], where lns_tile_copies gives the copies
};

class LinearGemm final : public LnsGemm {
 public:
  LinearGemm(const GemmShape& problem, const Lns& lns)
      : shape_(problem),
        lns_(lns),
        gemm_(make_gemm(problem)),
        a_(shape_.m * shape_.k),
        b_(shape_.k * shape_.n),
        c_(shape_.m * shape_.n) {}

  void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) override {
    require_operands(shape_, a, b, c);
    lns_decode(lns_, a, a_);
    lns_decode(lns_, b, b_);
    gemm_->run(a_, b_, {}, c_);
    lns_encode(lns_, c_, c);
  }

  std::string implementation() const override {
    return fmt::format("lns f{} linear, {}", lns_.fraction_bits(), gemm_->implementation());
  }

 private:
  GemmShape shape_;
  Lns lns_;
  std::unique_ptr<Gemm> gemm_;
  AlignedVector<float> a_, b_, c_;
};

}  // namespace

std::unique_ptr<LnsGemm> make_lns_gemm(const GemmShape& problem, const Lns& lns, LnsSum sum) {
  if (problem.m == 0 || problem.n == 0 || problem.k == 0)
    throw std::invalid_argument(
        fmt::format("lns_gemm: {} x {} x {} has an empty extent", problem.m, problem.n, problem.k));
  if (problem.bias || problem.accumulate || problem.activation != Activation::none)
    throw std::invalid_argument("lns_gemm: bias, activation and accumulation are not part of it; apply them after it");
  if (sum == LnsSum::linear) return std::make_unique<LinearGemm>(problem, lns);
  return std::make_unique<LogarithmicGemm>(problem, lns);
}

// The operation of dense products in the logarithmic number system: lns16 multiplies and adds logarithms; lns16-linear
// only stores numbers as logarithms.

namespace {

constexpr std::size_t conversion_grain = 1 << 14;  // the fewest elements for each thread

Operand matrix(const Lns& lns, std::string_view name, std::size_t elements) {
  return {.name = name,
          .format = &lns_number_format(lns.fraction_bits()),
          .elements = elements,
          .stored_bytes = elements * sizeof(Lns16)};
}
std::span<const Lns16> words(const std::byte* at, std::size_t n) { return {reinterpret_cast<const Lns16*>(at), n}; }
std::span<Lns16> words(std::byte* at, std::size_t n) { return {reinterpret_cast<Lns16*>(at), n}; }

/// Makes the operation that converts an operand from fp32 to logarithms (`decoding`: back to fp32).
std::unique_ptr<Op> encoding(const Lns& lns, const Operand& o) {
  return make_host_conversion(
      in_plain_floats(o), o, "lns conversion", [lns, n = o.elements](const std::byte* from, std::byte* to) {
        split(n, conversion_grain, [&](std::size_t first, std::size_t count) {
          lns_encode(lns, {reinterpret_cast<const float*>(from) + first, count}, words(to, n).subspan(first, count));
        });
      });
}
std::unique_ptr<Op> decoding(const Lns& lns, const Operand& o) {
  return make_host_conversion(
      o, in_plain_floats(o), "lns conversion", [lns, n = o.elements](const std::byte* from, std::byte* to) {
        split(n, conversion_grain, [&](std::size_t first, std::size_t count) {
          lns_decode(lns, words(from, n).subspan(first, count), {reinterpret_cast<float*>(to) + first, count});
        });
      });
}

std::vector<Operand> operands_of(const GemmShape& s, const Lns& lns) {
  std::vector<Operand> operands{matrix(lns, "a", s.m * s.k), matrix(lns, "b", s.k * s.n)};
  if (s.bias) operands.push_back(matrix(lns, "bias", s.n));
  return operands;
}

GemmShape product_alone(GemmShape s) {
  s.bias = false;
  s.activation = Activation::none;
  return s;
}

/// A product, then bias and ReLU. The bias is added as a logarithm even if the product's sums are linear.
class LnsOp final : public HostOp {
 public:
  LnsOp(const GemmShape& s, const Lns& lns, LnsSum sum, runtime::Cost cost)
      : HostOp(operands_of(s, lns), {matrix(lns, "c", s.m * s.n)}, cost),
        shape_(s),
        lns_(lns),
        gemm_(make_lns_gemm(product_alone(s), lns, sum)) {}
  std::string implementation() const override { return gemm_->implementation(); }
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override { return encoding(lns_, inputs()[input]); }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override { return decoding(lns_, outputs()[output]); }

 protected:
  void compute(Reads in, Writes out) override {
    const std::span<Lns16> c = words(out[0], shape_.m * shape_.n);
    gemm_->run(words(in[0], shape_.m * shape_.k), words(in[1], shape_.k * shape_.n), c);
    if (shape_.bias) add_bias(words(in[2], shape_.n), c);
    if (shape_.activation == Activation::relu)
      for (Lns16& x : c) x = x.negative() ? Lns16{} : x;
  }

 private:
  void add_bias(std::span<const Lns16> bias, std::span<Lns16> c) const {
    for (std::size_t i = 0; i < shape_.m; ++i)
      for (std::size_t j = 0; j < shape_.n; ++j) c[i * shape_.n + j] = lns_.add(c[i * shape_.n + j], bias[j]);
  }

  GemmShape shape_;
  Lns lns_;
  std::unique_ptr<LnsGemm> gemm_;
};

}  // namespace

std::string lns_op_refusal(const Problem& p) {
  if (auto why = onednn_gemm_refusal(p); !why.empty()) return why;
  return lns_shape_refusal(p);
}

std::unique_ptr<Op> make_lns_op(const Problem& p, const OpOptions&, runtime::Device&) {
  const PrecisionInfo& precision = info(p.precision);
  return std::make_unique<LnsOp>(std::get<GemmShape>(p.shape), Lns(precision.logarithm_bits),
                                 precision.logarithmic_sums ? LnsSum::logarithmic : LnsSum::linear,
                                 runtime::Cost{.flops = flops(p), .bytes = bytes(p)});
}

}  // namespace gradmeter::kernels
