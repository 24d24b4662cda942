// C = alpha·op(A)·op(B) + beta·C (+ bias by column) (+ activation): the kernel that takes nearly all training time.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gradmeter::kernels {

enum class Transpose { no, yes };
enum class Activation { none, relu };

/// op(A) is [m × k], op(B) is [k × n], C is [m × n]; all row-major and dense. With transpose_a, A lies as [k × m].
struct GemmShape {
  std::size_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  bool packed = false;                       ///< B is in the backend's own layout, as weights are for inference
  bool bias = false;                         ///< add bias[n] to each row of C
  Activation activation = Activation::none;  ///< applied last
  bool accumulate = false;                   ///< beta = 1 instead of 0
  bool operator==(const GemmShape&) const = default;
  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
  /// Each operand once.
  double bytes() const { return 4.0 * (double(m) * double(k) + double(k) * double(n) + double(m) * double(n)); }
};

/// A problem prepared on one backend: primitives are created once and run many times.
class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual void run(std::span<const float> a, std::span<const float> b, std::span<const float> bias,
                   std::span<float> c) = 0;
  /// What the backend says it chose: "onednn brgemm:avx512_core".
  virtual std::string implementation() const = 0;
};

/// The backends that were built; the first is the default. "reference" sums in float64 and rounds once.
struct GemmBackend {
  std::string_view name, source;
  std::unique_ptr<Gemm> (*make)(const GemmShape&);
};
std::span<const GemmBackend> gemm_backends();
/// Errors: UsageError on an unknown backend; BackendError when the library refuses the problem.
std::unique_ptr<Gemm> make_gemm(const GemmShape&, std::string_view backend = gemm_backends().front().name);

/// ‖C − C_ref‖ ≤ tolerance · ‖C_ref‖ for fp32 operands and fp32 accumulation over k summands.
double gemm_tolerance(const GemmShape&);

}  // namespace gradmeter::kernels
