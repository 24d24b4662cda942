// SPDX-License-Identifier: Apache-2.0
// Products of logarithmic numbers on the host, and their operation.
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
/// 128 rows of B with their mirror are 16 KiB of AVX-512 vectors: they stay in a first-level cache for all tiles.
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

/// The range of codes of an operand's numbers; zeros do not count.
struct Codes {
  std::int32_t least = Lns16::largest, most = 0;
  explicit Codes(std::span<const Lns16> words) {
    for (const Lns16 w : words) {
      // Zeros change neither bound.
      most = std::max(most, w.code());
      least = std::min(least, w.zero() ? Lns16::largest : w.code());
    }
  }
};

/// The shift of codes for a tile without checks. Sums of zeros alone stay below `reach`, and numbers are so far above
/// it that such sums leave them unchanged.
struct Window {
  std::int32_t shift;         ///< shift of a product's code
  std::int32_t least_number;  ///< codes below it are sums of zeros
  std::int32_t most_a;
  LnsChecks checks;

  /// Checks stay on when a product or a sum might leave the range, or the numbers spread too widely.
  static Window plan(const Lns& lns, const Codes& a, const Codes& b) {
    const LnsTables& t = lns.tables();
    // An equal term adds an octave; a sum stops growing when it is `entries` above its terms.
    const auto reach = static_cast<std::int32_t>(t.entries()) + (1 << lns.fraction_bits());
    // Cancellation of neighbouring numbers leaves a result this far below them.
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
  LogarithmicGemm(const GemmShape& problem, const Lns& lns) : p_(problem), lns_(lns) {}

  void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) override {
    require_operands(p_, a, b, c);
    const Window window = Window::plan(lns_, Codes(a), Codes(b));
    // The number of lanes is read in each run, since tests change the instruction set.
    lanes_ = detail::lns_tile_lanes();
    pack_a(a, window);
    pack_b(b, window);
    split(p_.m, (std::size_t{1} << 20) / (p_.n * p_.k) + 1,
          [&](std::size_t first, std::size_t count) { multiply(first, count, window, c); });
  }

  std::string implementation() const override {
    return fmt::format("lns f{} {}, {}", lns_.fraction_bits(),
                       lns_.tables().kind() == LnsAddition::exact ? "exact" : "interpolated",
                       hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()));
  }

 private:
  std::size_t row_tiles() const { return (p_.m + tile_rows - 1) / tile_rows; }
  std::size_t panels() const { return (p_.n + lanes_ - 1) / lanes_; }

  void pack_a(std::span<const Lns16> a, const Window& window) {
    a_.assign(row_tiles() * tile_rows * p_.k, LnsFactor{});  // the rows after the last one stay zero
    for (std::size_t i = 0; i < p_.m; ++i)
      for (std::size_t k = 0; k < p_.k; ++k) {
        const Lns16 w = left(p_, a, i, k);
        if (w.zero()) continue;
        a_[(i / tile_rows * p_.k + k) * tile_rows + i % tile_rows] = {
            static_cast<std::uint16_t>(window.most_a - w.code()), w.negative() ? ~0U : 0};
      }
  }

  void pack_b(std::span<const Lns16> b, const Window& window) {
    const std::int32_t shift = window.shift + window.most_a - Lns16::one;
    const std::size_t copies = detail::lns_tile_copies(window.checks);
    b_.assign(panels() * p_.k * copies * lanes_, 0);
    for (std::size_t k = 0; k < p_.k; ++k)
      for (std::size_t j = 0; j < p_.n; ++j) {
        const Lns16 w = right(p_, b, k, j);
        if (w.zero()) continue;  // zeros have no sign on either side, or they would cancel
        std::uint16_t* const row = &b_[(j / lanes_ * p_.k + k) * copies * lanes_ + j % lanes_];
        const bool checked = window.checks == LnsChecks::all;
        const std::int32_t code = w.code() + shift, size = checked ? 0 : 2 * code;
        row[0] = static_cast<std::uint16_t>(size + (w.negative() ? 1 : 0));
        row[lanes_] = static_cast<std::uint16_t>(row[0] ^ 1);
        // A product with a factor that is not positive here does not reach the range.
        if (checked) row[2 * lanes_] = static_cast<std::uint16_t>(std::max(code, 0));
      }
  }

  // `first` is a multiple of a tile's rows: split() begins parts on multiples of 16.
  void multiply(std::size_t first, std::size_t count, const Window& window, std::span<Lns16> c) const {
    const std::size_t begin = first / tile_rows, end = (first + count + tile_rows - 1) / tile_rows;
    AlignedVector<std::uint16_t> sums((end - begin) * tile_rows * lanes_);
    for (std::size_t panel = 0; panel < panels(); ++panel) {
      std::ranges::fill(sums, std::uint16_t{0});
      for (std::size_t k = 0; k < p_.k; k += block_depth)
        for (std::size_t tile = begin; tile < end; ++tile)
          detail::lns_tile({.a = &a_[(tile * p_.k + k) * tile_rows],
                            .b = &b_[(panel * p_.k + k) * detail::lns_tile_copies(window.checks) * lanes_],
                            .sums = &sums[(tile - begin) * tile_rows * lanes_],
                            .depth = std::min(block_depth, p_.k - k),
                            .tables = &lns_.tables(),
                            .checks = window.checks});
      const std::size_t column = panel * lanes_, width = std::min(lanes_, p_.n - column);
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < width; ++j)
          c[(first + i) * p_.n + column + j] = unpacked(sums[i * lanes_ + j], window);
    }
  }

  static Lns16 unpacked(std::uint16_t turned, const Window& window) {
    const std::int32_t code = turned >> 1;
    return code < window.least_number ? Lns16{} : Lns16::from((turned & 1) != 0, code - window.shift);
  }

  GemmShape p_;
  Lns lns_;
  std::size_t lanes_ = 0;
  AlignedVector<LnsFactor> a_;      ///< [row tiles][k][tile_rows]
  AlignedVector<std::uint16_t> b_;  ///< [panels][k][2][lanes]
};

class LinearGemm final : public LnsGemm {
 public:
  LinearGemm(const GemmShape& problem, const Lns& lns)
      : p_(problem), lns_(lns), gemm_(make_gemm(problem)), a_(p_.m * p_.k), b_(p_.k * p_.n), c_(p_.m * p_.n) {}

  void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) override {
    require_operands(p_, a, b, c);
    lns_decode(lns_, a, a_);
    lns_decode(lns_, b, b_);
    gemm_->run(a_, b_, {}, c_);
    lns_encode(lns_, c_, c);
  }

  std::string implementation() const override {
    return fmt::format("lns f{} linear, {}", lns_.fraction_bits(), gemm_->implementation());
  }

 private:
  GemmShape p_;
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

// Dense products in the logarithmic number system: lns16 multiplies and adds in it, lns16-linear only stores in it.

namespace {

constexpr std::size_t conversion_grain = 1 << 14;  // elements for each thread at least

Operand matrix(const Lns& lns, std::string_view name, std::size_t elements) {
  return {.name = name,
          .format = &lns_number_format(lns.fraction_bits()),
          .elements = elements,
          .stored_bytes = elements * sizeof(Lns16)};
}
std::span<const Lns16> words(const std::byte* at, std::size_t n) { return {reinterpret_cast<const Lns16*>(at), n}; }
std::span<Lns16> words(std::byte* at, std::size_t n) { return {reinterpret_cast<Lns16*>(at), n}; }

/// Converts one operand to logarithms, or back to fp32.
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

/// The bias is the last summand, added as a logarithm also where the product's sums are linear.
class LnsOp final : public HostOp {
 public:
  LnsOp(const GemmShape& s, const Lns& lns, LnsSum sum, runtime::Cost cost)
      : HostOp(operands_of(s, lns), {matrix(lns, "c", s.m * s.n)}, cost),
        s_(s),
        lns_(lns),
        gemm_(make_lns_gemm(product_alone(s), lns, sum)) {}
  std::string implementation() const override { return gemm_->implementation(); }
  std::unique_ptr<Op> packing_floats(std::size_t input) const override { return encoding(lns_, inputs()[input]); }
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override { return decoding(lns_, outputs()[output]); }

 protected:
  void compute(Reads in, Writes out) override {
    const std::span<Lns16> c = words(out[0], s_.m * s_.n);
    gemm_->run(words(in[0], s_.m * s_.k), words(in[1], s_.k * s_.n), c);
    if (s_.bias) add_bias(words(in[2], s_.n), c);
    if (s_.activation == Activation::relu)
      for (Lns16& x : c) x = x.negative() ? Lns16{} : x;
  }

 private:
  void add_bias(std::span<const Lns16> bias, std::span<Lns16> c) const {
    for (std::size_t i = 0; i < s_.m; ++i)
      for (std::size_t j = 0; j < s_.n; ++j) c[i * s_.n + j] = lns_.add(c[i * s_.n + j], bias[j]);
  }

  GemmShape s_;
  Lns lns_;
  std::unique_ptr<LnsGemm> gemm_;
};

}  // namespace

std::string lns_op_refusal(const Problem& p) {
  if (auto why = gemm_op_refusal(p); !why.empty()) return why;
  return lns_shape_refusal(p);
}

std::unique_ptr<Op> make_lns_op(const Problem& p, const OpOptions&, runtime::Device&) {
  const PrecisionInfo& precision = info(p.precision);
  return std::make_unique<LnsOp>(std::get<GemmShape>(p.shape), Lns(precision.logarithm_bits),
                                 precision.logarithmic_sums ? LnsSum::logarithmic : LnsSum::linear,
                                 runtime::Cost{.flops = flops(p), .bytes = bytes(p)});
}

}  // namespace gradmeter::kernels
