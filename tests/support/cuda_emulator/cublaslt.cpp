// SPDX-License-Identifier: Apache-2.0
// cublasLtMatmul as a reference product on the emulated streams, as far as gradmeter calls it. What the real library
// has no algorithm for, by its tables of types, transposes and alignments, is refused here too.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "support/cuda_emulator/cublaslt_product.hpp"
#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/hardware.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/sanitizers.hpp"
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator::lt {
namespace {

constexpr std::uint64_t algorithm_mark = 0x616c676f72697468;

template <class T, class Opaque>
T& in(Opaque* o) {
  static_assert(sizeof(T) <= sizeof o->data && std::is_trivially_copyable_v<T>);
  return *reinterpret_cast<T*>(o);
}
template <class T, class Opaque>
const T& in(const Opaque* o) {
  static_assert(sizeof(T) <= sizeof o->data && std::is_trivially_copyable_v<T>);
  return *reinterpret_cast<const T*>(o);
}

Product product_of(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t out) {
  return {in<Description>(d), in<Layout>(a), in<Layout>(b), in<Layout>(c), in<Layout>(out)};
}

double scalar(const void* at, cudaDataType t) {
  return t == CUDA_R_32I ? *static_cast<const std::int32_t*>(at) : static_cast<double>(*static_cast<const float*>(at));
}

template <class T>
cublasStatus_t set(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t get(const T& from, void* to, std::size_t bytes, std::size_t* written) {
  if (written) *written = sizeof from;
  if (bytes != sizeof from) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, &from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace cuda_emulator::lt

using namespace cuda_emulator;
using namespace cuda_emulator::lt;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<char*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusString(cublasStatus_t s) {
  switch (s) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "an error that the emulator does not name";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType scale) {
  *d = new cublasLtMatmulDescOpaque_t{};
  in<Description>(*d) = {.compute = compute,
                         .scale = scale,
                         .a = CUBLAS_OP_N,
                         .b = CUBLAS_OP_N,
                         .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                         .bias_type = -1,
                         .bias = nullptr,
                         .a_scale = nullptr,
                         .b_scale = nullptr,
                         .fast_sums = 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  auto& x = in<Description>(d);
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(x.a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(x.b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(x.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(x.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(x.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(x.a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(x.b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set(x.fast_sums, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  if (!element_of(type)) return CUBLAS_STATUS_INVALID_VALUE;
  *l = new cublasLtMatrixLayoutOpaque_t{};
  in<Layout>(*l) = {type, CUBLASLT_ORDER_COL, rows, columns, ld, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, std::size_t bytes) {
  auto& x = in<Layout>(l);
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(x.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(x.count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(x.stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = new cublasLtMatmulPreferenceOpaque_t{};
  in<Preference>(*p) = {
      .workspace = 0, .schemes = CUBLASLT_REDUCTION_SCHEME_MASK, .a = 256, .b = 256, .c = 256, .d = 256};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    std::size_t bytes) {
  auto& x = in<Preference>(p);
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(x.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(x.schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(x.a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(x.b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(x.c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(x.d, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

/// First an algorithm that splits k, where the workspace has room for it: so that a workspace used by two at once is
/// seen. The last is the fastest, so that a search finds another than the first.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  const Product p = product_of(d, a, b, c, out);
  const auto& f = in<Preference>(preference);
  if (!is_consistent(p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_algorithm(p, f)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const std::int32_t parts : {3, 1, 1}) {
    const Algorithm algorithm{.mark = algorithm_mark,
                              .id = 60 + *found,
                              .parts = parts,
                              .tile = CUBLASLT_MATMUL_TILE_64x64,
                              .stages = static_cast<std::uint32_t>(CUBLASLT_MATMUL_STAGES_32x1 + *found),
                              .cluster = CUBLASLT_CLUSTER_SHAPE_1x1x1,
                              .a = f.a,
                              .b = f.b,
                              .c = f.c,
                              .d = f.d};
    const bool splits = parts > 1;
    if (splits && ((f.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0 || p.k() < 8)) continue;
    if (*found == wanted || workspace_of(p, algorithm) > f.workspace) continue;
    auto& r = results[(*found)++];
    r = {};
    in<Algorithm>(&r.algo) = algorithm;
    r.workspaceSize = workspace_of(p, algorithm);
    r.state = CUBLAS_STATUS_SUCCESS;
    r.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t which, void* to,
                                                    std::size_t bytes, std::size_t* written) {
  const auto& x = in<Algorithm>(algo);
  switch (which) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return get(x.id, to, bytes, written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return get(x.tile, to, bytes, written);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return get(x.stages, to, bytes, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return get(x.parts, to, bytes, written);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return get(x.cluster, to, bytes, written);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const Lock lock;
  const Product p = product_of(d, a_layout, b_layout, c_layout, out_layout);
  if (!algo || in<Algorithm>(algo).mark != algorithm_mark) {
    report("cublasLtMatmul: no algorithm was chosen");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto& chosen = in<Algorithm>(algo);
  const Preference promised{.workspace = 0,
                            .schemes = CUBLASLT_REDUCTION_SCHEME_MASK,
                            .a = chosen.a,
                            .b = chosen.b,
                            .c = chosen.c,
                            .d = chosen.d};
  Stream* const s = find_stream(stream);
  if (!s || !is_consistent(p) || !has_algorithm(p, promised)) return CUBLAS_STATUS_INVALID_VALUE;
  const MatmulCall call{.p = p,
                        .algorithm = chosen,
                        .a = Matrix(a, p.a),
                        .b = Matrix(b, p.b),
                        .c = Matrix(c, p.c),
                        .out = Matrix(out, p.out),
                        .workspace = static_cast<std::byte*>(workspace),
                        .alpha = scalar(alpha, p.d.scale),
                        .beta = scalar(beta, p.d.scale)};
  if (!check_call(call, workspace_bytes)) return CUBLAS_STATUS_INVALID_VALUE;
  const double flops = 2.0 * static_cast<double>(p.m() * p.n()) * static_cast<double>(p.k());
  const auto run = [call] {
    const Watched watched;  // this file is instrumented
    call.run();
  };
  if (wait_for_place(*s) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++running_counts().products;
  push(*s, {.run = run, .what = "cublasLtMatmul", .seconds = 5e-6 + 2e-12 * flops + 1e-7 * (99 - chosen.id)});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
