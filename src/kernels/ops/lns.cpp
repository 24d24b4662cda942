// Dense products in the logarithmic number system: lns16 multiplies and adds in it, lns16-linear only stores in it.
#include <cstring>

#include "kernels/lns/gemm.hpp"
#include "kernels/ops/host_op.hpp"
#include "kernels/ops/makers.hpp"

namespace gradmeter::kernels {
namespace {

double load_lns(const std::byte* from) {
  Lns16 x;
  std::memcpy(&x, from, sizeof x);
  return Lns(8).decode(x);
}
void store_lns(std::byte* to, double value) {
  const Lns16 x = Lns(8).encode(value);
  std::memcpy(to, &x, sizeof x);
}
constexpr NumberFormat lns_format{.name = "lns16", .bytes = sizeof(Lns16), .load = load_lns, .store = store_lns};

Operand matrix(std::string_view name, std::size_t elements) {
  return {.name = name, .format = &lns_format, .elements = elements, .stored_bytes = elements * sizeof(Lns16)};
}

class LnsOp final : public HostOp {
 public:
  LnsOp(const GemmShape& s, LnsSum sum, runtime::Cost cost)
      : HostOp({matrix("a", s.m * s.k), matrix("b", s.k * s.n)}, {matrix("c", s.m * s.n)}, cost),
        s_(s),
        gemm_(make_lns_gemm(s, Lns(8), sum)) {}
  std::string implementation() const override { return gemm_->implementation(); }

 protected:
  void compute(Reads in, Writes out) override {
    gemm_->run({reinterpret_cast<const Lns16*>(in[0]), s_.m * s_.k},
               {reinterpret_cast<const Lns16*>(in[1]), s_.k * s_.n}, {reinterpret_cast<Lns16*>(out[0]), s_.m * s_.n});
  }

 private:
  GemmShape s_;
  std::unique_ptr<LnsGemm> gemm_;
};

}  // namespace

std::string lns_op_refusal(const Problem& p) {
  if (auto why = gemm_op_refusal(p); !why.empty()) return why;
  const auto& s = std::get<GemmShape>(p.shape);
  if (s.count > 1) return "lns16 has single products; leave count out";
  return s.packed ? "lns16 packs both operands in every call; leave packed out" : "";
}

std::unique_ptr<Op> make_lns_op(const Problem& p, const OpOptions&, runtime::Device&) {
  const LnsSum sum = p.precision == Precision::lns16 ? LnsSum::logarithmic : LnsSum::linear;
  return std::make_unique<LnsOp>(std::get<GemmShape>(p.shape), sum,
                                 runtime::Cost{.flops = flops(p), .bytes = bytes(p)});
}

}  // namespace gradmeter::kernels
