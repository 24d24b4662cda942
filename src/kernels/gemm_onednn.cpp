// GEMM by oneDNN's matmul primitive, with bias, accumulation and ReLU fused into it. The primitive and its scratchpad
// are made once; run() only sets pointers. Transposes are memory strides (format tags ab, ba): nothing is copied here.
#include <stdexcept>
#include <unordered_map>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/gemm_backends.hpp"
#include "kernels/onednn.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {

namespace {

using onednn::checked;

dnnl::memory::desc matrix(std::size_t rows, std::size_t columns, Transpose transpose = Transpose::no) {
  using Tag = dnnl::memory::format_tag;
  return {{static_cast<dnnl::memory::dim>(rows), static_cast<dnnl::memory::dim>(columns)},
          dnnl::memory::data_type::f32,
          transpose == Transpose::yes ? Tag::ba : Tag::ab};
}

dnnl::primitive_attr attributes(const GemmProblem& p) {
  dnnl::post_ops after;
  if (p.accumulate) after.append_sum(1.0F);
  if (p.activation == Activation::relu) after.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  // The library's own scratchpad belongs to the thread that made the primitive; ours lets any one thread run it.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::matmul::primitive_desc describe(const GemmProblem& p, const dnnl::engine& engine) {
  const auto a = matrix(p.m, p.k, p.transpose_a), b = matrix(p.k, p.n, p.transpose_b), c = matrix(p.m, p.n);
  const auto problem = p.bias ? dnnl::matmul::desc(a, b, matrix(1, p.n), c) : dnnl::matmul::desc(a, b, c);
  return {problem, attributes(p), engine};
}

class OneDnnGemm final : public Gemm {
 public:
  explicit OneDnnGemm(const GemmProblem& problem)
      : p_(problem),
        threads_(compute_threads()),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        description_(describe(problem, engine_)),
        matmul_(description_),
        a_(description_.src_desc(), engine_, nullptr),
        b_(description_.weights_desc(), engine_, nullptr),
        c_(description_.dst_desc(), engine_, nullptr),
        arguments_{{DNNL_ARG_SRC, a_},
                   {DNNL_ARG_WEIGHTS, b_},
                   {DNNL_ARG_DST, c_},
                   {DNNL_ARG_SCRATCHPAD, dnnl::memory(description_.scratchpad_desc(), engine_)}} {
    if (!p_.bias) return;
    bias_ = dnnl::memory(description_.bias_desc(), engine_, nullptr);
    arguments_.emplace(DNNL_ARG_BIAS, bias_);
  }

  void run(std::span<const float> a, std::span<const float> b, std::span<const float> bias,
           std::span<float> c) override {
    require_operands(p_, a, b, bias, c);
    // The primitive has divided its work, and its scratchpad, among the threads of its making.
    if (compute_threads() != threads_)
      throw std::logic_error(fmt::format("gemm: made for {} threads, run by a thread that has {}; set_compute_threads",
                                         threads_, compute_threads()));
    checked("matmul", [&] {
      set(a_, a), set(b_, b), set(c_, c);
      if (p_.bias) set(bias_, bias);
      matmul_.execute(stream_, arguments_);
      stream_.wait();
    });
  }

  std::string implementation() const override { return fmt::format("onednn {}", description_.impl_info_str()); }

 private:
  // oneDNN takes no pointer to const; it does not write its sources.
  static void set(dnnl::memory& memory, std::span<const float> data) {
    memory.set_data_handle(const_cast<float*>(data.data()));
  }

  GemmProblem p_;
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc description_;
  dnnl::matmul matmul_;
  dnnl::memory a_, b_, c_, bias_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace

std::unique_ptr<Gemm> make_onednn_gemm(const GemmProblem& problem) {
  return checked("creation of a matmul primitive",
                 [&]() -> std::unique_ptr<Gemm> { return std::make_unique<OneDnnGemm>(problem); });
}

}  // namespace gradmeter::kernels
