// SPDX-License-Identifier: Apache-2.0
// A kernel case, which `gradmeter kernels` times: a problem prepared on a backend with data of its own, checked against
// a float64 reference, and run many times.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cases/error_bound.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels {

/// Options of a case. `sets`: the number of copies of all operands, which are used in turn. If together they are larger
/// than the caches, operands are cold in every call; with one copy they are hot.
struct KernelCaseOptions {
  std::size_t sets = 1;
  std::uint64_t seed = 1;
  std::string_view backend = {};  ///< empty: the first that takes the problem
  runtime::Device* device = &runtime::host_device();
  AlgorithmSearch search = AlgorithmSearch::estimated;  ///< the search for products and convolutions
};

/// One check of an operand set's result. `seed` decides which elements are checked, so that no call can prepare for it.
struct CheckedCall {
  std::size_t set = 0;
  std::size_t runs = 1;       ///< number of runs of the set between prepare_check and finish_check
  double flops_at_most = 0;   ///< limit of the reference's FLOP; a large problem is checked in part
  std::uint64_t seed = 1;     ///< seed of the draw of checked elements
  bool inject_error = false;  ///< one checked element is first made wrong, by half of the usual magnitude (for tests)
};

/// Data is random: Gaussian, or uniform over the range of an 8-bit format. Only one thread uses a case; its kernels run
/// on as many threads as compute_threads() gave on the thread that made the case.
class KernelCase {
 public:
  virtual ~KernelCase() = default;
  /// One call on operand set `set` of KernelCaseOptions::sets.
  virtual void run(std::size_t set) = 0;
  /// The queue into which `run` submits the call. Null: `run` runs it on the host before it returns.
  virtual runtime::Queue* queue() { return nullptr; }
  /// Gives a set other inputs, so that its results are no longer those of earlier calls. (cuSPARSE and cuSPARSELt keep
  /// theirs.)
  virtual void redraw(std::size_t set, std::uint64_t seed) = 0;
  /// A check calls prepare_check before, and finish_check after, one or more runs of the set. finish_check needs their
  /// number (CheckedCall::runs), since some operations change their inputs or add to their results; the case cannot
  /// count them, since captured work runs without calls of `run`. prepare_check overwrites outputs, unless the
  /// operation updates them in place, with a value that no call is likely to write, so that a call that leaves them out
  /// is noticed; most cases overwrite only a few, so that the call takes as long as others. finish_check checks the
  /// whole result, or in large problems as many elements, rows, planes or steps as the limit of FLOP allows.
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
/// All cases for the device. Every row of op_backends() has a case, except rows with `is_untimed`, whose times are
/// of no use. Cases of operations that are no Op come after these.
std::vector<KernelCaseInfo> kernel_cases(const runtime::Device& = runtime::host_device());
/// Adds a case of an operation that is no Op. Call it before threads begin.
void add_kernel_case(const KernelCaseInfo&);

/// Makes the case of a problem. Errors: UsageError with the reason; BackendError when the library refuses.
std::unique_ptr<KernelCase> make_kernel_case(const Problem&, const KernelCaseOptions&);
/// The reason why no backend of the device takes the problem; empty: one does.
std::string kernel_case_refusal(const Problem&, const runtime::Device& = runtime::host_device());
std::size_t kernel_case_bytes(const Problem&, const runtime::Device& = runtime::host_device());

// The functions behind kernel_cases(), one group for each file of cases. Users call make_kernel_case, which names the
// backend.

std::size_t operand_bytes(const Problem&);         ///< held_bytes (problem.hpp) as a whole number
std::size_t native_operand_bytes(const Problem&);  ///< native_held_bytes as a whole number
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
