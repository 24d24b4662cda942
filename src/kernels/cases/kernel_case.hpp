// A kernel case, which `gradmeter kernels` times: a problem prepared on a backend with data of its own, checked against
// a float64 reference, and run many times.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels {

/// `sets`: copies of all operands, run in turn, so that together they are larger than the caches (cold); 1: hot.
struct KernelCaseOptions {
  std::size_t sets = 1;
  std::uint64_t seed = 1;
  std::string_view backend = {};  ///< empty: the first that takes the problem
  runtime::Device* device = &runtime::host_device();
  AlgorithmSearch search = AlgorithmSearch::estimated;  ///< of products and convolutions
};

/// How far a result is from the reference on the same inputs, which are those rounded to the storage type.
/// `worst` is over single elements, so that one wrong element shows among millions: the distance in units of what
/// rounding may do to the element. For a sum of products that is u·|reference| + 4·2^-24·√k·Σ|a·b|, u the roundoff of
/// the type that results are stored in. Integers must be equal.
struct KernelCaseCheck {
  double error = 0;       ///< ‖result − reference‖ / ‖reference‖ over the checked elements, for the record
  double worst = 0;       ///< over the checked elements; right up to 1
  double zero_share = 0;  ///< of the result; many zeros: the data was not what it should be
  bool right() const { return worst <= 1; }  // false for NaN
};

/// One check of one call, whose result is looked at where nobody knows before.
struct CheckedCall {
  std::size_t set = 0;
  double flops_at_most = 0;   ///< the reference takes about so many: a big problem is checked in part
  std::uint64_t seed = 1;     ///< of the places that are looked at
  bool inject_error = false;  ///< one checked element is made wrong first, by half of a usual one's size (test hook)
};

/// Data is random, uniform or Gaussian, never zeros nor small whole numbers. One thread calls; kernels use
/// compute_threads() of the thread that made it.
class KernelCase {
 public:
  virtual ~KernelCase() = default;
  /// One call on operand set `set` of KernelCaseOptions::sets.
  virtual void run(std::size_t set) = 0;
  /// Where `run` submits the call. Null: on the host, where it is done when `run` returns.
  virtual runtime::Queue* queue() { return nullptr; }
  /// Other inputs for a set, so that its results are no longer those of earlier calls.
  virtual void redraw(std::size_t set, std::uint64_t seed) = 0;
  /// The two halves of a check, before and after one `run` of the set, or several: first some places of its outputs
  /// that will be looked at get what no call writes, so that a call that does not write them shows. Few are touched,
  /// so that the call takes as long as others. Then the result is checked: all of it, or for big problems as many
  /// elements, rows, planes or steps as the reference may take.
  virtual void prepare_check(const CheckedCall&) = 0;
  virtual KernelCaseCheck finish_check(const CheckedCall&) = 0;
  /// Of a call of its own, on set 0.
  KernelCaseCheck check(double flops_at_most, bool inject_error) {
    const CheckedCall call{.flops_at_most = flops_at_most, .inject_error = inject_error};
    prepare_check(call);
    run(call.set);
    return finish_check(call);
  }
  /// What the library says it chose: "onednn brgemm:avx512_core".
  virtual std::string implementation() const = 0;
};

/// One row of the registry. `refusal`: why it cannot run a problem of this operation and precision; empty: it can.
/// `resident_bytes`: of one operand set.
struct KernelCaseInfo {
  std::string_view backend, source;
  KernelKind operation;
  Precision precision;
  std::string (*refusal)(const Problem&);
  std::size_t (*resident_bytes)(const Problem&);
  std::unique_ptr<KernelCase> (*make)(const Problem&, const KernelCaseOptions&);
  std::string_view device = "host";  ///< runtime::Device::name
};
/// Every row of op_backends() for the device but the definitions, by which nothing is to be judged, has a case; those
/// of other operations follow.
std::vector<KernelCaseInfo> kernel_cases(const runtime::Device& = runtime::host_device());
/// Of an operation that is no Op. Before threads begin.
void add_kernel_case(const KernelCaseInfo&);

/// Errors: UsageError with the reason; BackendError when the library refuses.
std::unique_ptr<KernelCase> make_kernel_case(const Problem&, const KernelCaseOptions&);
/// Empty: some backend of the device takes it.
std::string kernel_case_refusal(const Problem&, const runtime::Device& = runtime::host_device());
std::size_t kernel_case_bytes(const Problem&, const runtime::Device& = runtime::host_device());

}  // namespace gradmeter::kernels
