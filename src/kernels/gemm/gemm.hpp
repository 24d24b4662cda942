// SPDX-License-Identifier: Apache-2.0
// The dense matrix product C = op(A)·op(B) + beta·C with beta 0 or 1, optionally with a bias for each column and an
// activation. Training spends nearly all its time in these products.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gradmeter::kernels {

enum class Transpose { no, yes };
enum class Activation { none, relu };

/// op(A) is [m × k], op(B) is [k × n], C is [m × n]; all row-major and dense. With transpose_a, A is stored as [k × m];
/// with transpose_b, B as [n × k].
struct GemmShape {
  std::size_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  bool packed = false;                       ///< B is in the backend's own layout, as weights are for inference
  bool bias = false;                         ///< add bias[n] to each row of C
  Activation activation = Activation::none;  ///< applied last
  bool accumulate = false;                   ///< beta = 1 instead of 0
  std::size_t count = 1;                     ///< number of products of this shape; their operands follow one another
  bool operator==(const GemmShape&) const = default;
  double flops() const { return 2.0 * double(count) * double(m) * double(n) * double(k); }
};

class Op;

/// A product of fp32 matrices in the host's memory, for callers without a queue: when `run` returns, C is complete.
class Gemm {
 public:
  /// Errors: those of `prepare`; std::invalid_argument on an empty extent.
  explicit Gemm(const GemmShape&, std::string_view backend = {});
  ~Gemm();
  /// `bias` is empty if the shape has none. Errors: std::invalid_argument when a length is not that of the shape.
  void run(std::span<const float> a, std::span<const float> b, std::span<const float> bias, std::span<float> c);
  std::string implementation() const;

 private:
  std::unique_ptr<Op> op_;
};
inline std::unique_ptr<Gemm> make_gemm(const GemmShape& s, std::string_view backend = {}) {
  return std::make_unique<Gemm>(s, backend);
}

}  // namespace gradmeter::kernels
