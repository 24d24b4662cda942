// cublasLtMatmul as a reference product on the emulated streams, as far as gradmeter calls it. What the real library
// has no algorithm for, by its tables of types, transposes and alignments, is refused here too.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/small_float.hpp"
#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/sanitizers.hpp"
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator {
namespace {

namespace core = gradmeter::core;

struct Layout {
  cudaDataType type;
  cublasLtOrder_t order;
  std::uint64_t rows, columns;
  std::int64_t ld;
  std::int32_t count;
  std::int64_t stride;
};

struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t a, b;
  cublasLtEpilogue_t epilogue;
  std::int32_t bias_type;  ///< -1: the output's
  const void *bias, *a_scale, *b_scale;
  std::int8_t fast_sums;
};

struct Preference {
  std::uint64_t workspace;
  std::uint32_t schemes, a, b, c, d;  ///< alignments in bytes
};

/// A candidate of the heuristic, and what was promised about the operands.
struct Algorithm {
  std::uint64_t mark;
  std::int32_t id, parts;  ///< parts of k that are summed by themselves, in the workspace
  std::uint32_t tile, stages;
  std::uint16_t cluster;
  std::uint32_t a, b, c, d;
};
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

std::optional<core::Element> element_of(cudaDataType t) {
  switch (t) {
    case CUDA_R_32F:
      return core::Element::f32;
    case CUDA_R_16F:
      return core::Element::f16;
    case CUDA_R_16BF:
      return core::Element::bf16;
    case CUDA_R_8F_E4M3:
      return core::Element::e4m3;
    case CUDA_R_8F_E5M2:
      return core::Element::e5m2;
    case CUDA_R_8I:
      return core::Element::i8;
    case CUDA_R_32I:
      return core::Element::i32;
    default:
      return std::nullopt;
  }
}
bool is_fp8(cudaDataType t) { return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2; }

/// fp32 of which the product takes 10 bits of the mantissa.
float as_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x0fff + (bits >> 13 & 1)) & 0xffffe000);
}

/// All that decides whether there is an algorithm.
struct Product {
  Description d;
  Layout a, b, c, out;

  bool transposed_a() const { return d.a == CUBLAS_OP_T; }
  bool transposed_b() const { return d.b == CUBLAS_OP_T; }
  std::uint64_t m() const { return out.rows; }
  std::uint64_t n() const { return out.columns; }
  std::uint64_t k() const { return transposed_a() ? a.rows : a.columns; }
  bool has_bias() const { return d.epilogue == CUBLASLT_EPILOGUE_BIAS || d.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
  bool is_relu() const { return d.epilogue == CUBLASLT_EPILOGUE_RELU || d.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS; }
  cudaDataType bias_type() const { return d.bias_type < 0 ? out.type : static_cast<cudaDataType>(d.bias_type); }
};

bool fits(const Layout& l) {
  return l.order == CUBLASLT_ORDER_COL && static_cast<std::uint64_t>(l.ld) >= l.rows && l.rows > 0 && l.columns > 0;
}
bool is_consistent(const Product& p) {
  const std::uint64_t m = p.transposed_a() ? p.a.columns : p.a.rows, n = p.transposed_b() ? p.b.rows : p.b.columns;
  const bool counts = p.a.count == p.out.count && p.b.count == p.out.count && p.c.count == p.out.count;
  return fits(p.a) && fits(p.b) && fits(p.c) && fits(p.out) && m == p.m() && n == p.n() && p.c.rows == m &&
         p.c.columns == n && (p.transposed_b() ? p.b.columns : p.b.rows) == p.k() && counts;
}

bool has_known_epilogue(const Product& p) {
  return p.d.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.is_relu() || p.has_bias();
}

/// fp8 on devices of 8.9 and 9.0; int8 with sums of int32 in the regular order of memory.
bool has_fp8(const Product& p, const Preference& f) {
  const bool types = !(p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) && p.out.type == CUDA_R_32F;
  const bool extents = p.m() % 16 == 0 && p.k() % 16 == 0 && p.n() % 8 == 0 && p.a.ld % 16 == 0 && p.b.ld % 16 == 0;
  const bool bias = !p.has_bias() || p.bias_type() == CUDA_R_16BF;
  return types && extents && bias && p.transposed_a() && !p.transposed_b() && p.d.compute == CUBLAS_COMPUTE_32F &&
         p.d.scale == CUDA_R_32F && std::min({f.a, f.b, f.c, f.d}) >= 16;
}
bool has_int8(const Product& p, const Preference& f) {
  const bool extents = p.m() % 4 == 0 && p.k() % 4 == 0 && p.a.ld % 4 == 0 && p.b.ld % 4 == 0 && p.out.ld % 4 == 0 &&
                       (p.n() % 8 == 0 && p.n() > 16);
  return extents && p.out.type == CUDA_R_32I && p.transposed_a() && !p.transposed_b() &&
         p.d.compute == CUBLAS_COMPUTE_32I && p.d.scale == CUDA_R_32I && p.d.epilogue == CUBLASLT_EPILOGUE_DEFAULT &&
         std::min({f.a, f.b, f.c, f.d}) >= 4;
}
bool has_floats(const Product& p) {
  const bool half = p.a.type == CUDA_R_16F || p.a.type == CUDA_R_16BF;
  if (p.a.type != p.b.type || !(p.out.type == p.a.type || (half && p.out.type == CUDA_R_32F))) return false;
  if (p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && half) return false;
  if (p.has_bias() && p.bias_type() != p.out.type) return false;
  return (half || p.a.type == CUDA_R_32F) && p.d.scale == CUDA_R_32F &&
         (p.d.compute == CUBLAS_COMPUTE_32F || p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}
bool has_algorithm(const Product& p, const Preference& f) {
  if (p.c.type != p.out.type || !has_known_epilogue(p)) return false;
  if ((p.d.a_scale || p.d.b_scale) && !is_fp8(p.a.type)) return false;
  if (is_fp8(p.a.type) && is_fp8(p.b.type)) return has_fp8(p, f);
  if (p.a.type == CUDA_R_8I && p.b.type == CUDA_R_8I) return has_int8(p, f);
  return has_floats(p);
}

std::size_t workspace_of(const Product& p, const Algorithm& a) {
  return a.parts < 2 ? 0
                     : static_cast<std::size_t>(p.out.count) * p.m() * p.n() * 4 * static_cast<std::size_t>(a.parts);
}

class Matrix {
 public:
  Matrix(const void* at, const Layout& l)
      : at_(static_cast<const std::byte*>(at)), l_(l), element_(*element_of(l.type)), bytes_(core::size_of(element_)) {}
  /// Of the whole batch.
  bool is_on_device() const {
    const auto lines = static_cast<std::size_t>(l_.columns - 1) * static_cast<std::size_t>(l_.ld) + l_.rows;
    const auto products = static_cast<std::size_t>(l_.count - 1) * static_cast<std::size_t>(l_.stride);
    return is_device_memory(at_, (products + lines) * bytes_);
  }
  bool is_aligned(std::uint32_t to) const { return reinterpret_cast<std::uintptr_t>(at_) % to == 0; }
  double load(std::size_t of, std::size_t row, std::size_t column) const {
    return core::load(element_, at_ + place(of, row, column));
  }
  void store(std::size_t of, std::size_t row, std::size_t column, double v) const {
    core::store(element_, const_cast<std::byte*>(at_) + place(of, row, column), v);
  }

 private:
  std::size_t place(std::size_t of, std::size_t row, std::size_t column) const {
    return (of * static_cast<std::size_t>(l_.stride) + column * static_cast<std::size_t>(l_.ld) + row) * bytes_;
  }
  const std::byte* at_;
  Layout l_;
  core::Element element_;
  std::size_t bytes_;
};

/// One call: what it does when its stream gets there.
struct MatmulCall {
  Product p;
  Algorithm algorithm;
  Matrix a, b, c, out;
  std::byte* workspace;
  double alpha, beta;

  void run() const {
    for (std::size_t of = 0; of < static_cast<std::size_t>(p.out.count); ++of)
      p.d.compute == CUBLAS_COMPUTE_32I ? run_one<std::int32_t>(of) : run_one<float>(of);
  }

 private:
  /// op(X), rows one after another.
  template <class T>
  std::vector<T> decoded(const Matrix& x, bool transposed, std::size_t of, std::size_t rows,
                         std::size_t columns) const {
    std::vector<T> all(rows * columns);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        all[i * columns + j] = static_cast<T>(transposed ? x.load(of, j, i) : x.load(of, i, j));
    if constexpr (std::is_same_v<T, float>)
      if (p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32) std::ranges::transform(all, all.begin(), as_tf32);
    return all;
  }
  /// Each part of k into a part of the workspace, if there are several.
  template <class T>
  void run_one(std::size_t of) const {
    const std::size_t m = p.m(), n = p.n(), k = p.k(), parts = static_cast<std::size_t>(algorithm.parts);
    const auto left = decoded<T>(a, p.transposed_a(), of, m, k), right = decoded<T>(b, p.transposed_b(), of, k, n);
    std::vector<T> sums(m * n);
    for (std::size_t part = 0; part < parts; ++part) {
      std::ranges::fill(sums, T{});
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t l = part * k / parts; l < (part + 1) * k / parts; ++l)
          for (std::size_t j = 0; j < n; ++j) sums[i * n + j] += left[i * k + l] * right[l * n + j];
      if (parts > 1) std::memcpy(workspace + 4 * (of * parts + part) * m * n, sums.data(), 4 * m * n);
    }
    if (parts > 1) sums = added<T>(workspace + 4 * of * parts * m * n, parts, m * n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) finish(of, i, j, static_cast<double>(sums[i * n + j]));
  }
  template <class T>
  static std::vector<T> added(const std::byte* from, std::size_t parts, std::size_t count) {
    std::vector<T> sums(count), part(count);
    for (std::size_t i = 0; i < parts; ++i) {
      std::memcpy(part.data(), from + 4 * i * count, 4 * count);
      for (std::size_t j = 0; j < count; ++j) sums[j] += part[j];
    }
    return sums;
  }
  void finish(std::size_t of, std::size_t i, std::size_t j, double sum) const {
    sum *= alpha;
    for (const void* scale : {p.d.a_scale, p.d.b_scale})
      if (scale) sum *= static_cast<double>(*static_cast<const float*>(scale));
    if (beta != 0) sum += beta * c.load(of, i, j);
    if (p.has_bias()) {
      const core::Element e = *element_of(p.bias_type());
      sum += core::load(e, static_cast<const std::byte*>(p.d.bias) + i * core::size_of(e));
    }
    if (p.is_relu()) sum = std::max(sum, 0.0);
    out.store(of, i, j, sum);
  }
};

Product product_of(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t out) {
  return {in<Description>(d), in<Layout>(a), in<Layout>(b), in<Layout>(c), in<Layout>(out)};
}

/// What the real library would not notice, and a device would answer by a fault or by wrong numbers.
bool check_call(const MatmulCall& call, std::size_t workspace_bytes) {
  const Product& p = call.p;
  if (!call.a.is_on_device() || !call.b.is_on_device() || !call.c.is_on_device() || !call.out.is_on_device()) {
    report("cublasLtMatmul: an operand leaves its allocation, or is no memory of the device");
    return false;
  }
  const Algorithm& f = call.algorithm;
  if (!call.a.is_aligned(f.a) || !call.b.is_aligned(f.b) || !call.c.is_aligned(f.c) || !call.out.is_aligned(f.d)) {
    report("cublasLtMatmul: an operand is less aligned than the algorithm was chosen for");
    return false;
  }
  const std::size_t needed = workspace_of(p, f);
  if (workspace_bytes < needed || (needed > 0 && !is_device_memory(call.workspace, needed))) {
    report("cublasLtMatmul: the algorithm needs a workspace of %zu bytes", needed);
    return false;
  }
  if (p.has_bias() && !is_device_memory(p.d.bias, p.m() * core::size_of(*element_of(p.bias_type())))) {
    report("cublasLtMatmul: the bias leaves its allocation, or is no memory of the device");
    return false;
  }
  for (const void* scale : {p.d.a_scale, p.d.b_scale})
    if (scale && !is_device_memory(scale, sizeof(float))) {
      report("cublasLtMatmul: a scale is no memory of the device");
      return false;
    }
  return true;
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
}  // namespace cuda_emulator

using namespace cuda_emulator;

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
  push(*s, {.run = run, .what = "cublasLtMatmul", .seconds = 5e-6 + 2e-12 * flops + 1e-7 * (99 - chosen.id)});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
