// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm/cublaslt_product.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <span>

#include "core/format.hpp"
#include "kernels/gemm/gpu_kernels.hpp"

namespace gradmeter::kernels::cuda {
namespace {

constexpr std::uint32_t most_alignment = 256;  // the largest alignment that the heuristic distinguishes

/// The library's state on the current device. Making it takes milliseconds, so it is kept while a product uses it.
std::shared_ptr<const LtHandle> library_of_device() {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<const LtHandle>> by_device;
  int device = 0;
  runtime::check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  if (auto kept = by_device[device].lock()) return kept;
  const auto handle = std::make_shared<LtHandle>();
  check_cublaslt(cublasLtCreate(handle->out_address()), "cublasLtCreate");
  by_device[device] = handle;
  return handle;
}

/// The largest workspace of an algorithm [bytes]: 32 MiB on Hopper and later GPUs, else 4 MiB, as NVIDIA advises.
std::size_t most_workspace() { return std::size_t{current_device().major >= 9 ? 32u : 4u} << 20; }

/// Describes row-major matrices. The library's matrices are column-major, so it sees each of these as its transpose.
LtLayout layout(cudaDataType type, std::size_t rows, std::size_t columns, std::size_t count) {
  LtLayout l;
  check_cublaslt(cublasLtMatrixLayoutCreate(l.out_address(), type, columns, rows, static_cast<std::int64_t>(columns)),
                 "cublasLtMatrixLayoutCreate");
  if (count == 1) return l;
  const auto products = static_cast<std::int32_t>(count);
  const auto stride = static_cast<std::int64_t>(rows * columns);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t which, const auto& value) {
    check_cublaslt(cublasLtMatrixLayoutSetAttribute(l.get(), which, &value, sizeof value),
                   "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, products);
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  return l;
}

bool is_transposed(Transpose t) { return t == Transpose::yes; }
cublasOperation_t operation(Transpose t) { return is_transposed(t) ? CUBLAS_OP_T : CUBLAS_OP_N; }

cublasLtEpilogue_t epilogue(const GemmShape& s) {
  const bool is_relu = s.activation == Activation::relu;
  if (s.bias) return is_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return is_relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

std::size_t bytes_of(cudaDataType t) {
  switch (t) {
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 1;
  }
}

template <class T>
T configured(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t which) {
  T value{};
  std::size_t written = 0;
  check_cublaslt(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, sizeof value, &written),
                 "cublasLtMatmulAlgoConfigGetAttribute");
  return value;
}

/// Operands for timing algorithms, filled with small numbers, so that no sum overflows.
struct TrialOperands {
  runtime::OwnedBuffer a, b, bias, c, scales;

  TrialOperands(const LtProblem& p, runtime::Device& device) {
    const GemmShape& s = p.shape;
    const auto fill = [&](runtime::OwnedBuffer& to, std::size_t bytes) {
      constexpr unsigned char byte = 0x3c;  // 1.5 in e4m3, 1.06 in fp16, 0.01 in bf16 and fp32
      to = device.allocate(core::Element::i8, bytes);
      runtime::fill(to.buffer.device(), byte);
    };
    fill(a, s.count * s.m * s.k * bytes_of(p.a));
    fill(b, s.count * s.k * s.n * bytes_of(p.b));
    fill(bias, s.n * bytes_of(p.bias));
    fill(c, s.count * s.m * s.n * bytes_of(p.c));
    fill(scales, 2 * sizeof(Fp8Scale));
  }
  LtOperands addresses(const LtProblem& p) const {
    const auto at = [](const runtime::OwnedBuffer& x) { return x.buffer.device().device_address(); };
    const auto* const scale = reinterpret_cast<const Fp8Scale*>(at(scales));
    return {.a = at(a),
            .b = at(b),
            .bias = p.shape.bias ? at(bias) : nullptr,
            .c = at(c),
            .a_scale = p.scaled ? &scale[0].factor : nullptr,
            .b_scale = p.scaled ? &scale[1].factor : nullptr};
  }
};

}  // namespace

void check_cublaslt(cublasStatus_t status, const char* call, std::source_location where) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw core::BackendError("cuBLASLt", call, cublasLtGetStatusString(status), where);
}

void release_cublaslt(cublasStatus_t status) noexcept {
  if (status != CUBLAS_STATUS_SUCCESS)
    core::note_failed_release("cuBLASLt", "destroy", cublasLtGetStatusString(status));
}

LtProduct::LtProduct(const LtProblem& p, AlgorithmSearch search, runtime::Device& device)
    : problem_(p),
      search_(search),
      device_(device),
      library_(library_of_device()),
      a_(is_transposed(p.shape.transpose_a) ? layout(p.a, p.shape.k, p.shape.m, p.shape.count)
                                            : layout(p.a, p.shape.m, p.shape.k, p.shape.count)),
      b_(is_transposed(p.shape.transpose_b) ? layout(p.b, p.shape.n, p.shape.k, p.shape.count)
                                            : layout(p.b, p.shape.k, p.shape.n, p.shape.count)),
      c_(layout(p.c, p.shape.m, p.shape.n, p.shape.count)) {
  describe();
  (void)chosen_for({most_alignment, most_alignment, most_alignment, most_alignment});
}

template <class T>
void LtProduct::set(cublasLtMatmulDescAttributes_t which, const T& value) {
  check_cublaslt(cublasLtMatmulDescSetAttribute(description_.get(), which, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
}

/// The library sees row-major C = A·B as column-major C' = B'·A', so its first operand is b.
void LtProduct::describe() {
  const bool is_integer = problem_.c == CUDA_R_32I;
  const cublasComputeType_t float_type =
      problem_.mode == LtMode::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_cublaslt(cublasLtMatmulDescCreate(description_.out_address(), is_integer ? CUBLAS_COMPUTE_32I : float_type,
                                          is_integer ? CUDA_R_32I : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
  if (problem_.mode == LtMode::fast_sums) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(problem_.shape.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(problem_.shape.transpose_a));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(problem_.shape));
  if (problem_.shape.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(problem_.bias));
}

LtProduct::Alignments LtProduct::alignments_of(const LtOperands& o) {
  const auto alignment = [](const std::byte* at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at) | most_alignment;
    return static_cast<std::uint32_t>(std::uintptr_t{1} << std::countr_zero(address));
  };
  return {alignment(o.a), alignment(o.b), alignment(o.c), alignment(o.bias)};
}

const LtProduct::Chosen& LtProduct::chosen_for(const Alignments& aligned) {
  if (const auto known = chosen_.find(aligned); known != chosen_.end()) return known->second;
  constexpr int most_candidates = 64;
  const bool is_exhaustive = search_ == AlgorithmSearch::exhaustive;
  const std::vector<Candidate> measured = candidates(aligned, is_exhaustive ? most_candidates : 1);
  const Candidate best = fastest(measured).value_or(measured.front());
  return chosen_[aligned] = {best.algorithm, device_.allocate(core::Element::i8, best.workspace_bytes)};
}

/// Asks the library for at most `most` algorithms, the one that it estimates to be fastest first.
std::vector<LtProduct::Candidate> LtProduct::candidates(const Alignments& aligned, int most) {
  LtPreference preference;
  check_cublaslt(cublasLtMatmulPreferenceCreate(preference.out_address()), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
    check_cublaslt(cublasLtMatmulPreferenceSetAttribute(preference.get(), which, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{most_workspace()});
  // Where k is divided, the parts' sums are added in the type of the computation, never in a narrower one.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
  // The library takes the alignment of the bias from this address; it reads nothing there.
  if (problem_.shape.bias)
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(std::uintptr_t{aligned[3]}));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  check_cublaslt(cublasLtMatmulAlgoGetHeuristic(library_->get(), description_.get(), b_.get(), a_.get(), c_.get(),
                                                c_.get(), preference.get(), most, results.data(), &count),
                 "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Candidate> usable;
  for (const auto& r : std::span(results).first(static_cast<std::size_t>(count)))
    if (r.state == CUBLAS_STATUS_SUCCESS) usable.push_back({r.algo, r.workspaceSize});
  if (usable.empty())
    throw core::BackendError("cuBLASLt", "cublasLtMatmulAlgoGetHeuristic",
                             fmt::format("it has no algorithm for {}", text(problem_.shape)));
  return usable;
}

/// Times the candidates on this device, all with the same operands, and returns the fastest. Empty: there are fewer
/// than two candidates, or the library refuses all.
std::optional<LtProduct::Candidate> LtProduct::fastest(const std::vector<Candidate>& all) {
  if (all.size() < 2) return {};
  const TrialOperands trial(problem_, device_);
  const auto most_workspace_bytes = std::ranges::max(all, {}, &Candidate::workspace_bytes).workspace_bytes;
  const runtime::OwnedBuffer workspace = device_.allocate(core::Element::i8, most_workspace_bytes);
  // Waits for all other work, so that it does not run while candidates are timed.
  runtime::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const runtime::Stream stream;
  std::optional<Candidate> best;
  float least_time = 0;
  for (const Candidate& c : all) {
    const float time = time_of(c, trial.addresses(problem_), workspace.buffer.part(0, c.workspace_bytes), stream);
    if (time < 0 || (best && time >= least_time)) continue;
    best = c, least_time = time;
  }
  return best;
}

/// The median time of five products [ms]; negative if the library refuses the candidate.
float LtProduct::time_of(const Candidate& c, const LtOperands& operands, const runtime::Buffer& workspace,
                         const runtime::Stream& stream) {
  if (multiply(c.algorithm, operands, workspace, stream.get()) != CUBLAS_STATUS_SUCCESS) return -1;  // also warms up
  std::array<float, 5> times{};
  for (float& t : times) {
    const runtime::CudaEvent begin, end;
    begin.record(stream);
    check_cublaslt(multiply(c.algorithm, operands, workspace, stream.get()), "cublasLtMatmul");
    end.record(stream);
    end.synchronize();
    t = static_cast<float>(1e3 * end.since(begin).value);
  }
  std::ranges::nth_element(times, times.begin() + 2);
  return times[2];
}

cublasStatus_t LtProduct::multiply(const cublasLtMatmulAlgo_t& algorithm, const LtOperands& o,
                                   const runtime::Buffer& workspace, cudaStream_t stream) {
  if (o.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(o.bias));
  if (problem_.scaled) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(o.b_scale));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(o.a_scale));
  }
  const float one = 1, c_factor = problem_.shape.accumulate ? 1 : 0;
  const std::int32_t integer_one = 1, integer_c_factor = problem_.shape.accumulate ? 1 : 0;
  const bool is_integer = problem_.c == CUDA_R_32I;
  const void* const alpha = is_integer ? static_cast<const void*>(&integer_one) : &one;
  const void* const beta = is_integer ? static_cast<const void*>(&integer_c_factor) : &c_factor;
  return cublasLtMatmul(library_->get(), description_.get(), alpha, o.b, b_.get(), o.a, a_.get(), beta, o.c, c_.get(),
                        o.c, c_.get(), &algorithm, workspace.device().device_address(), workspace.bytes(), stream);
}

void LtProduct::run(const LtOperands& o, cudaStream_t stream) {
  const Chosen& c = chosen_for(alignments_of(o));
  check_cublaslt(multiply(c.algorithm, o, c.workspace.buffer, stream), "cublasLtMatmul");
}

std::size_t LtProduct::workspace_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [aligned, chosen] : chosen_) bytes += chosen.workspace.buffer.bytes();
  return bytes;
}

std::string LtProduct::algorithm() const {
  const auto& a = chosen_.at({most_alignment, most_alignment, most_alignment, most_alignment}).algorithm;
  return fmt::format("algorithm {}, tile {}, stages {}, cluster {}, split-k {}",
                     configured<std::int32_t>(a, CUBLASLT_ALGO_CONFIG_ID),
                     configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     configured<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     configured<std::uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
                     configured<std::int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
}

}  // namespace gradmeter::kernels::cuda
