// SPDX-License-Identifier: Apache-2.0
// A kernel case, which `gradmeter kernels` times: a problem prepared on a backend with data of its own, checked against
// a float64 reference, and run many times.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels {

/// `sets` copies of all operands are used in turn: if together they are larger than the caches, operands are cold in
/// every call; with one copy they are hot.
struct KernelCaseOptions {
  std::size_t sets = 1;
  std::uint64_t seed = 1;
  std::string_view backend = {};  ///< empty: the first that takes the problem
  runtime::Device* device = &runtime::host_device();
  AlgorithmSearch search = AlgorithmSearch::estimated;  ///< the search for products and convolutions
};

/// How far a result is from the reference on the same inputs, which are rounded to the storage type. `error` hides one
/// wrong element among millions. `worst` shows it, because each element is judged by itself: by the distance from its
/// reference, divided by the rounding error that is possible there (for a sum of products: `allowed_distance`). Whole
/// numbers must be equal.
struct KernelCaseCheck {
  double error = 0;       ///< ‖result − reference‖ / ‖reference‖ over the checked elements, for the record
  double worst = 0;       ///< the largest quotient of distance and possible rounding error; the result is right up to 1
  double zero_share = 0;  ///< share of zeros in the result; if it is large, the data was wrong
  bool right() const { return worst <= 1; }  // false for NaN
};

/// One check of one call. Which elements are checked is drawn from `seed`, so that no call can prepare for it.
struct CheckedCall {
  std::size_t set = 0;
  std::size_t runs = 1;       ///< number of runs of the set between the two halves of the check
  double flops_at_most = 0;   ///< limit of the reference's FLOP; a large problem is checked in part
  std::uint64_t seed = 1;     ///< seed of the draw of checked elements
  bool inject_error = false;  ///< one checked element is first made wrong, by half of the usual magnitude (for tests)
};

/// Data is random, uniform or Gaussian, never zeros nor small whole numbers. One thread uses it; kernels use as many
/// threads as compute_threads() gave on the thread that made it.
class KernelCase {
 public:
  virtual ~KernelCase() = default;
  /// One call on operand set `set` of KernelCaseOptions::sets.
  virtual void run(std::size_t set) = 0;
  /// The queue into which `run` submits the call. Null: `run` runs it on the host before it returns.
  virtual runtime::Queue* queue() { return nullptr; }
  /// Gives a set other inputs, so that its results are no longer those of earlier calls.
  virtual void redraw(std::size_t set, std::uint64_t seed) = 0;
  /// The two halves of a check, before and after CheckedCall::runs runs of the set, which the second half is told: some
  /// operations change their inputs or add to their results. Captured work runs without a call of `run`. The first half
  /// overwrites some of the outputs that will be checked with a value that no call writes, so that a call that leaves
  /// them out is noticed; only a few, so that the call takes as long as others. The second half checks the result: all
  /// of it, or in large problems as many elements, rows, planes or steps as the limit of FLOP allows.
  virtual void prepare_check(const CheckedCall&) = 0;
  virtual KernelCaseCheck finish_check(const CheckedCall&) = 0;
  /// Makes one call on set 0 and checks it.
  KernelCaseCheck check(double flops_at_most, bool inject_error) {
    const CheckedCall call{.flops_at_most = flops_at_most, .inject_error = inject_error};
    prepare_check(call);
    run(call.set);
    return finish_check(call);
  }
  /// The library's choice of algorithm: "onednn brgemm:avx512_core".
  virtual std::string implementation() const = 0;
};

/// A row of the table of kernel cases. `refusal`: why the backend cannot run a problem of this operation and precision;
/// empty: it can. `resident_bytes`: memory of one operand set.
struct KernelCaseInfo {
  std::string_view backend, source;
  KernelKind operation;
  Precision precision;
  std::string (*refusal)(const Problem&);
  std::size_t (*resident_bytes)(const Problem&);
  std::unique_ptr<KernelCase> (*make)(const Problem&, const KernelCaseOptions&);
  std::string_view device = "host";  ///< runtime::Device::name
};
/// All cases for the device. Every row of op_backends() has a case, except rows with `is_definition`, whose times are
/// of no use. Cases of operations that are no Op come after these.
std::vector<KernelCaseInfo> kernel_cases(const runtime::Device& = runtime::host_device());
/// Adds a case of an operation that is no Op. Call it before threads begin.
void add_kernel_case(const KernelCaseInfo&);

/// Makes the case of a problem. Errors: UsageError with the reason; BackendError when the library refuses.
std::unique_ptr<KernelCase> make_kernel_case(const Problem&, const KernelCaseOptions&);
/// The reason why no backend of the device takes the problem; empty: one does.
std::string kernel_case_refusal(const Problem&, const runtime::Device& = runtime::host_device());
std::size_t kernel_case_bytes(const Problem&, const runtime::Device& = runtime::host_device());

// Compares the elements of a result with a float64 reference, one by one, to make a KernelCaseCheck.

/// A sum of products in float64, and the magnitudes by which the error of a float sum is bounded.
struct ReferenceSum {
  double value = 0;
  double size = 0;        ///< sum of |a·b|
  double squares = 0;     ///< sum of (a·b)²
  std::size_t terms = 0;  ///< number of products; 0: the element is zero for any data
  void add(double a, double b) {
    value += a * b;
    size += std::fabs(a * b);
    squares += a * b * a * b;
    ++terms;
  }
};

/// Element `index` of C = op(A)·op(B) by its definition, where C holds the results of all `count` products one after
/// another. `a` and `b` read elements.
template <class A, class B>
ReferenceSum product_at(const GemmShape& s, const A& a, const B& b, std::size_t index) {
  const std::size_t row_of_all = index / s.n, column = index % s.n, product = row_of_all / s.m, row = row_of_all % s.m;
  const std::size_t first_a = product * s.m * s.k, first_b = product * s.k * s.n;
  const bool ta = s.transpose_a == Transpose::yes, tb = s.transpose_b == Transpose::yes;
  ReferenceSum sum;
  for (std::size_t l = 0; l < s.k; ++l)
    sum.add(a(first_a + (ta ? l * s.m + row : row * s.k + l)), b(first_b + (tb ? column * s.k + l : l * s.n + column)));
  return sum;
}

/// The possible error of a sum: u·|value| + 4·v·√terms·size, where u is the roundoff of the type that results are
/// stored in, and v that of an addition (2^-24 for fp32). It covers sums in any order, of any terms, and additions that
/// cut digits off. 0 for precisions whose sums are exact.
double allowed_distance(const ReferenceSum&, Precision);
/// The same for a sum of random terms of either sign with additions that round to nearest, as on a host:
/// u·|value| + 4·v·√terms·min(size, 2·√squares). Partial sums of such terms grow as √terms, as the result does, so the
/// bound stays a small share of a result of millions of terms; with `size` it would exceed the result.
double allowed_distance_of_random_terms(const ReferenceSum&, Precision);

class ElementCheck {
 public:
  /// `counts`: false for an element that is zero by the shape alone: it is checked, but does not count as a suspicious
  /// zero.
  void add(double result, double reference, double allowed, bool counts = true);
  KernelCaseCheck verdict() const;

 private:
  double squared_distance_ = 0, squared_reference_ = 0, worst_ = 0;
  std::size_t counted_ = 0, zeros_ = 0;
};

/// At most `count` indices out of [0, n), n > 0, in ascending order. If they cannot be all indices, they are the first,
/// the last, and a random one from each of the equal stretches between. (Indices at equal distances could miss whole
/// columns of a matrix.)
std::vector<std::size_t> sample_places(std::size_t n, std::size_t count, std::uint64_t seed);

// The functions behind kernel_cases(), one group for each file of cases. Users call make_kernel_case, which names the
// backend.

std::size_t operand_bytes(const Problem&);         ///< bytes of all operands, each once, as held_bytes
std::size_t native_operand_bytes(const Problem&);  ///< the same, as native_held_bytes
std::unique_ptr<KernelCase> make_product_case(const Problem&, const KernelCaseOptions&);

std::size_t lns_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_lns_case(const Problem&, const KernelCaseOptions&);

std::size_t rnn_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_rnn_case(const Problem&, const KernelCaseOptions&);

std::string sparse_case_refusal(const Problem&);
std::size_t sparse_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_sparse_case(const Problem&, const KernelCaseOptions&);

std::string pointwise_case_refusal(const Problem&);
std::size_t pointwise_case_bytes(const Problem&);
std::unique_ptr<KernelCase> make_pointwise_case(const Problem&, const KernelCaseOptions&);

}  // namespace gradmeter::kernels
