// Dense products in the logarithmic number system: lns16 multiplies and adds in it, lns16-linear only stores in it.
#include "kernels/lns/gemm.hpp"
#include "kernels/ops/host_op.hpp"
#include "kernels/ops/makers.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::size_t conversion_grain = 1 << 14;  // elements for each thread at least

Operand matrix(const Lns& lns, std::string_view name, std::size_t elements) {
  return {.name = name,
          .format = &lns_number_format(lns.fraction_bits()),
          .elements = elements,
          .stored_bytes = elements * sizeof(Lns16)};
}
Operand floats_of(const Operand& o) {
  return {.name = o.name,
          .format = &number_format(core::Element::f32),
          .elements = o.elements,
          .stored_bytes = o.elements * sizeof(float)};
}

std::span<const Lns16> words(const std::byte* at, std::size_t n) { return {reinterpret_cast<const Lns16*>(at), n}; }
std::span<Lns16> words(std::byte* at, std::size_t n) { return {reinterpret_cast<Lns16*>(at), n}; }

/// One operand between its own form and fp32.
class LnsConvertOp final : public HostOp {
 public:
  enum class To { logarithms, floats };
  LnsConvertOp(const Lns& lns, const Operand& o, To to)
      : HostOp({to == To::logarithms ? floats_of(o) : o}, {to == To::logarithms ? o : floats_of(o)},
               {.flops = 0, .bytes = static_cast<double>(o.elements * (sizeof(float) + sizeof(Lns16)))}),
        lns_(lns),
        to_(to) {}
  std::string implementation() const override { return "lns conversion"; }

 protected:
  void compute(Reads in, Writes out) override {
    split(inputs()[0].elements, conversion_grain, [&](std::size_t first, std::size_t n) {
      if (to_ == To::logarithms) {
        lns_encode(lns_, {reinterpret_cast<const float*>(in[0]) + first, n}, words(out[0] + first * sizeof(Lns16), n));
      } else {
        lns_decode(lns_, words(in[0] + first * sizeof(Lns16), n), {reinterpret_cast<float*>(out[0]) + first, n});
      }
    });
  }

 private:
  Lns lns_;
  To to_;
};

std::vector<Operand> operands_of(const GemmShape& s, const Lns& lns) {
  std::vector<Operand> all{matrix(lns, "a", s.m * s.k), matrix(lns, "b", s.k * s.n)};
  if (s.bias) all.push_back(matrix(lns, "bias", s.n));
  return all;
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
  std::unique_ptr<Op> packing_floats(std::size_t input) const override {
    return std::make_unique<LnsConvertOp>(lns_, inputs()[input], LnsConvertOp::To::logarithms);
  }
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override {
    return std::make_unique<LnsConvertOp>(lns_, outputs()[output], LnsConvertOp::To::floats);
  }

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
