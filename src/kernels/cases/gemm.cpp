// Dense products by oneDNN's matmul: fp32; bf16 with sums in fp32; u8 by s8 with sums in int32.
#include <algorithm>
#include <cmath>
#include <deque>

#include "kernels/cases/element_check.hpp"
#include "kernels/cases/makers.hpp"
#include "kernels/onednn.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {
namespace {

using onednn::Tag;
using onednn::Tensor;
using onednn::Type;

dnnl::memory::desc matrix(std::size_t rows, std::size_t columns, Type type, Transpose t) {
  return {{onednn::dim(rows), onednn::dim(columns)}, type, t == Transpose::yes ? Tag::ba : Tag::ab};
}

class GemmCase final : public KernelCase {
  struct Operands {
    Tensor a, b, c;
  };

 public:
  GemmCase(const Problem& p, const KernelCaseOptions& o)
      : s_(std::get<GemmShape>(p.shape)),
        precision_(p.precision),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        description_(describe()),
        matmul_(description_),
        scratch_(description_.scratchpad_desc(), engine_),
        seed_(o.seed) {
    const onednn::OperandTypes t = onednn::operand_types(precision_);
    Tensor plain_b(matrix(s_.k, s_.n, t.right, s_.transpose_b), engine_);
    for (std::size_t i = 0; i < o.sets; ++i) {
      sets_.push_back({Tensor(description_.src_desc(), engine_), Tensor(description_.weights_desc(), engine_),
                       Tensor(description_.dst_desc(), engine_)});
      sets_.back().a.fill(o.seed + 2 * i);
      plain_b.fill(o.seed + 2 * i + 1);
      onednn::reorder(plain_b, sets_.back().b);
    }
  }

  void run(std::size_t set) override {
    Operands& x = sets_[set];
    onednn::checked("matmul", [&] {
      matmul_.execute(stream_, {{DNNL_ARG_SRC, x.a.memory()},
                                {DNNL_ARG_WEIGHTS, x.b.memory()},
                                {DNNL_ARG_DST, x.c.memory()},
                                {DNNL_ARG_SCRATCHPAD, scratch_.memory()}});
      stream_.wait();
    });
  }

  KernelCaseCheck check(double flops_at_most, bool inject_error) override {
    run(0);
    const auto count = static_cast<std::size_t>(std::max(flops_at_most / (2 * static_cast<double>(s_.k)), 16.0));
    const auto places = sample_places(s_.m * s_.n, count, seed_);
    if (inject_error) onednn::add_to_element(sets_[0].c, places[places.size() / 2], 0.5 * usual_size());
    const Tensor a = sets_[0].a.dense(Tag::ab), b = sets_[0].b.dense(Tag::ba);
    ElementCheck element_check;
    for (const std::size_t at : places) {
      const ReferenceSum sum = reference(a, b, at / s_.n, at % s_.n);
      element_check.add(sets_[0].c.at(at), sum.value, allowed_distance(sum, precision_));
    }
    return element_check.verdict();
  }

  std::string implementation() const override { return fmt::format("onednn {}", description_.impl_info_str()); }

 private:
  dnnl::matmul::primitive_desc describe() const {
    const onednn::OperandTypes t = onednn::operand_types(precision_);
    auto b = matrix(s_.k, s_.n, t.right, s_.transpose_b);
    if (s_.packed) b = {{onednn::dim(s_.k), onednn::dim(s_.n)}, t.right, Tag::any};
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return onednn::checked("creation of a matmul primitive", [&]() -> dnnl::matmul::primitive_desc {
      return {dnnl::matmul::desc(matrix(s_.m, s_.k, t.left, s_.transpose_a), b,
                                 matrix(s_.m, s_.n, t.result, Transpose::no)),
              attributes, engine_};
    });
  }

  /// Root mean square of an element of C: sums of k products of two random numbers.
  double usual_size() const {
    const double product = precision_ == Precision::int8 ? 148 * 73 : 1;
    return product * std::sqrt(static_cast<double>(s_.k));
  }

  /// One element; b by columns.
  ReferenceSum reference(const Tensor& a, const Tensor& b, std::size_t row, std::size_t column) const {
    ReferenceSum sum;
    for (std::size_t l = 0; l < s_.k; ++l) sum.add(a.at(row * s_.k + l), b.at(column * s_.k + l));
    return sum;
  }

  GemmShape s_;
  Precision precision_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc description_;
  dnnl::matmul matmul_;
  Tensor scratch_;
  std::uint64_t seed_;
  std::deque<Operands> sets_;
};

}  // namespace

std::string gemm_case_refusal(const Problem& p) {
  if (p.pass != Pass::forward) return "gemm has one pass; its backward is two products of other shapes";
  const auto& s = std::get<GemmShape>(p.shape);
  if (s.m == 0 || s.n == 0 || s.k == 0) return "gemm needs m, n and k of at least 1";
  if (p.precision == Precision::bf16) return onednn::bf16_refusal();
  return {};
}

std::size_t gemm_case_bytes(const Problem& p) { return static_cast<std::size_t>(bytes(p)); }

std::unique_ptr<KernelCase> make_gemm_case(const Problem& p, const KernelCaseOptions& o) {
  return std::make_unique<GemmCase>(p, o);
}

}  // namespace gradmeter::kernels
