// C = op(A)·op(B) of numbers in the logarithmic system.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "kernels/gemm.hpp"
#include "kernels/lns/lns.hpp"

namespace gradmeter::kernels {

/// logarithmic: products and sums are those of `Lns`, in the order k = 0, 1, 2, …, starting from zero: that order is
/// part of the bits. Underflow and saturation are as in `Lns` but not counted. linear: numbers are only stored as
/// logarithms; they are decoded to fp32, multiplied by the fp32 library and the result is encoded. Its bits depend on
/// the library, as a Gemm's do.
enum class LnsSum { logarithmic, linear };

/// A prepared problem. Not for several threads at once: it owns the packed operands.
class LnsGemm {
 public:
  virtual ~LnsGemm() = default;
  /// Shape:  a [m × k], b [k × n] (or as the problem transposes them), c [m × n]; row-major.
  /// Errors: std::invalid_argument when a length differs.
  virtual void run(std::span<const Lns16> a, std::span<const Lns16> b, std::span<Lns16> c) = 0;
  /// The implementation: "lns f8 exact, AVX3_DL"; "lns f8 linear, onednn brg:avx512_core".
  virtual std::string implementation() const = 0;
};

/// Rows of C are shared among the calling thread's compute_threads(); their number does not change a bit.
/// Cost:   on AVX-512 logarithmic sums run at 1/15 of the fp32 library's speed or better, with exact tables and with
///         interpolated ones; at 1/22 where numbers may leave the range (README.md). linear: the fp32 product and a
///         pass over each operand.
/// Memory: 4 bytes for each element of A and 4 to 6 of B.
/// Errors: std::invalid_argument on an empty extent, and when the problem asks for bias, activation or accumulation.
std::unique_ptr<LnsGemm> make_lns_gemm(const GemmShape&, const Lns&, LnsSum = LnsSum::logarithmic);

/// Three loops over the scalar type: what LnsSum::logarithmic equals bit for bit.
void lns_gemm_reference(const GemmShape&, const Lns&, std::span<const Lns16> a, std::span<const Lns16> b,
                        std::span<Lns16> c);

}  // namespace gradmeter::kernels
