// SPDX-License-Identifier: Apache-2.0
// Products of 2:4 by cuSPARSELt as a reference on the emulated streams, as far as gradmeter calls it. What the real
// library does not check, or answers by wrong numbers, is reported: structures that are not made, matrices that are not
// compressed, workspaces that are too short.
#include <cusparseLt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/element.hpp"
#include "support/cuda_emulator/cublaslt_product.hpp"
#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/sanitizers.hpp"
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator::sparse {
namespace {

namespace core = gradmeter::core;
using core::Element;
using Bytes = std::byte*;

enum class Kind : std::uint32_t { none, library = 0x6c740001, matrix, description, selection, plan };
struct Header {
  Kind kind = Kind::none;
};
struct Library : Header {};
struct Matrix : Header {
  std::size_t rows = 0, columns = 0;
  cudaDataType type{};
  bool is_structured = false;
  std::size_t bytes() const { return rows * columns * core::size_of(*lt::element_of(type)); }
};
struct Description : Header {
  Matrix a, b, c;
  bool is_b_transposed = false;
  bool is_whole = false;
  std::size_t m() const { return c.rows; }
  std::size_t n() const { return c.columns; }
  std::size_t k() const { return a.columns; }
  Element operand() const { return *lt::element_of(a.type); }
  std::size_t bytes() const { return core::size_of(operand()); }
  std::size_t places() const { return m() * k() / 4; }  ///< a byte for each four neighbours of A
  std::size_t kept_bytes() const { return m() * k() / 2 * bytes(); }
};
struct Selection : Header {
  int id = 0, parts = 1;
};
/// It refers to the selection, which a search changes, as the library's does.
struct Plan : Header {
  Description d;
  Selection* selection = nullptr;
  std::size_t workspace() const { return selection->parts < 2 ? 0 : 4 * d.m() * d.n(); }
};

template <class T, class Opaque>
T& in(Opaque* o) {
  static_assert(sizeof(T) <= sizeof o->data && std::is_trivially_copyable_v<T>);
  return *reinterpret_cast<T*>(o->data);
}
template <class T, class Opaque>
const T& in(const Opaque* o) {
  return in<T>(const_cast<Opaque*>(o));
}
template <class T, class Opaque>
bool is_made(const Opaque* o, Kind kind, const char* call) {
  if (o && in<T>(o).kind == kind) return true;
  report("%s: a structure that is not made, or destroyed", call);
  return false;
}
template <class Opaque>
cusparseStatus_t destroy(const Opaque* o, Kind kind, const char* call) {
  if (!is_made<Header>(o, kind, call)) return CUSPARSE_STATUS_INVALID_VALUE;
  const_cast<Header&>(in<Header>(o)).kind = Kind::none;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t describe(const cusparseLtHandle_t* h, cusparseLtMatDescriptor_t* to, Matrix m, std::int64_t ld,
                          std::uint32_t alignment, cusparseOrder_t order) {
  const auto element = lt::element_of(m.type);
  if (!is_made<Library>(h, Kind::library, "a descriptor") || !element) return CUSPARSE_STATUS_INVALID_VALUE;
  const std::size_t multiple = (m.is_structured ? 32 : 16) / core::size_of(*element);
  if (order != CUSPARSE_ORDER_ROW || static_cast<std::size_t>(ld) != m.columns || alignment % 16 != 0 ||
      m.rows % multiple != 0 || m.columns % multiple != 0)
    return CUSPARSE_STATUS_NOT_SUPPORTED;
  m.kind = Kind::matrix;
  in<Matrix>(to) = m;
  return CUSPARSE_STATUS_SUCCESS;
}

/// By the library's table of types; 8 bits with k contiguous in both.
bool has_product(const Description& d, cusparseComputeType compute) {
  const std::size_t k = d.is_b_transposed ? d.b.columns : d.b.rows, n = d.is_b_transposed ? d.b.rows : d.b.columns;
  if (!d.a.is_structured || d.a.type != d.b.type || d.a.rows != d.m() || k != d.k() || n != d.n()) return false;
  if (d.a.type == CUDA_R_8I) return d.is_b_transposed && d.c.type == CUDA_R_32I && compute == CUSPARSE_COMPUTE_32I;
  if (compute != CUSPARSE_COMPUTE_32F) return false;
  if (d.a.type == CUDA_R_8F_E4M3) return d.is_b_transposed && d.c.type == CUDA_R_32F;
  return (d.a.type == CUDA_R_16F || d.a.type == CUDA_R_16BF) && d.c.type == d.a.type;
}

/// How many of four neighbours are not zero, and which: two bits each.
struct Four {
  unsigned count = 0, which = 0;
};
Four look(const Description& d, const std::byte* four) {
  Four f;
  for (unsigned i = 0; i < 4; ++i)
    if (core::load(d.operand(), four + i * d.bytes()) != 0 && ++f.count <= 2) f.which |= i << 2 * (f.count - 1);
  return f;
}

void compress(const Description& d, const std::byte* dense, Bytes to) {
  for (std::size_t g = 0; g < d.places(); ++g) {
    const std::byte* const four = dense + 4 * g * d.bytes();
    const Four f = look(d, four);
    // One zero stands for what was not kept; its place is that of another number then, times zero.
    for (unsigned i = 0; i < 2; ++i) {
      const Bytes kept = to + (2 * g + i) * d.bytes();
      if (i < f.count) std::memcpy(kept, four + (f.which >> 2 * i & 3) * d.bytes(), d.bytes());
      if (i >= f.count) std::memset(kept, 0, d.bytes());
    }
    to[d.kept_bytes() + g] = static_cast<std::byte>(f.which);
  }
}

template <class T>
void multiply(const Description& d, const std::byte* a, const std::byte* b, Bytes c, Bytes workspace) {
  const std::size_t groups = d.k() / 4;
  std::vector<T> right(d.k() * d.n()), sums(d.n());
  for (std::size_t l = 0; l < d.k(); ++l)
    for (std::size_t j = 0; j < d.n(); ++j)
      right[l * d.n() + j] =
          static_cast<T>(core::load(d.operand(), b + (d.is_b_transposed ? j * d.k() + l : l * d.n() + j) * d.bytes()));
  for (std::size_t i = 0; i < d.m(); ++i) {
    std::fill(sums.begin(), sums.end(), T{});
    for (std::size_t g = i * groups; g < (i + 1) * groups; ++g) {
      const auto which = static_cast<unsigned>(a[d.kept_bytes() + g]);
      if (which > 15) return report("cusparseLtMatmul: A was not compressed");
      for (unsigned e = 0; e < 2; ++e) {
        const auto value = static_cast<T>(core::load(d.operand(), a + (2 * g + e) * d.bytes()));
        const T* const row = &right[(4 * (g - i * groups) + (which >> 2 * e & 3)) * d.n()];
        for (std::size_t j = 0; j < d.n(); ++j) sums[j] += value * row[j];
      }
    }
    if (workspace) std::memcpy(workspace + 4 * i * d.n(), sums.data(), 4 * d.n());  // as parts of k would
    const Element element = *lt::element_of(d.c.type);
    for (std::size_t j = 0; j < d.n(); ++j)
      core::store(element, c + (i * d.n() + j) * core::size_of(element), static_cast<double>(sums[j]));
  }
}

cusparseStatus_t push_work(cudaStream_t stream, const char* what, std::function<void()> work, double seconds) {
  Stream* const s = find_stream(stream);
  if (!s) return CUSPARSE_STATUS_INVALID_VALUE;
  const auto run = [work = std::move(work)] {
    const Watched watched;  // this file is instrumented
    work();
  };
  push(*s, {.run = run, .what = what, .seconds = seconds});
  return CUSPARSE_STATUS_SUCCESS;
}

bool is_there(const char* call, const void* at, std::size_t bytes) {
  if (is_device_memory(at, bytes) && reinterpret_cast<std::uintptr_t>(at) % 16 == 0) return true;
  report("%s: an operand leaves its allocation, is no memory of the device, or is not aligned", call);
  return false;
}

cusparseStatus_t queue_product(const Plan& p, const void* alpha, const void* a, const void* b, const void* beta,
                               const void* c, void* to, void* workspace, std::size_t workspace_bytes,
                               cudaStream_t* streams, std::int32_t count) {
  const char* const call = "cusparseLtMatmul";
  const Description d = p.d;
  const bool plain = *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0 && c == to;
  if (!plain || count != 1) return CUSPARSE_STATUS_NOT_SUPPORTED;
  const bool all = is_there(call, a, d.kept_bytes() + d.places()) && is_there(call, b, d.b.bytes()) &&
                   is_there(call, to, d.c.bytes()) &&
                   (workspace_bytes == 0 || is_there(call, workspace, workspace_bytes));
  if (!all) return CUSPARSE_STATUS_INVALID_VALUE;
  const auto* const left = static_cast<const std::byte*>(a);
  const auto* const right = static_cast<const std::byte*>(b);
  const Bytes parts = workspace_bytes > 0 ? static_cast<Bytes>(workspace) : nullptr;
  const auto run = [d, left, right, to, parts] {
    const auto multiplied = d.is_whole ? multiply<std::int32_t> : multiply<float>;
    multiplied(d, left, right, static_cast<Bytes>(to), parts);
  };
  const double products = static_cast<double>(d.m() * d.n()) * static_cast<double>(d.k());
  return push_work(*streams, call, run, 5e-6 + 1e-12 * products);
}

}  // namespace
}  // namespace cuda_emulator::sparse

using namespace cuda_emulator;
using namespace cuda_emulator::sparse;

extern "C" {

cusparseStatus_t cusparseLtInit(cusparseLtHandle_t* h) {
  in<Library>(h) = {{Kind::library}};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseLtDestroy(const cusparseLtHandle_t* h) {
  return destroy(h, Kind::library, "cusparseLtDestroy");
}
const char* cusparseLtGetErrorString(cusparseStatus_t s) {
  return s == CUSPARSE_STATUS_NOT_SUPPORTED ? "operation not supported" : "invalid value";
}

cusparseStatus_t cusparseLtDenseDescriptorInit(const cusparseLtHandle_t* h, cusparseLtMatDescriptor_t* to,
                                               std::int64_t rows, std::int64_t columns, std::int64_t ld,
                                               std::uint32_t alignment, cudaDataType type, cusparseOrder_t order) {
  return describe(h, to, {{}, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), type, false}, ld,
                  alignment, order);
}
cusparseStatus_t cusparseLtStructuredDescriptorInit(const cusparseLtHandle_t* h, cusparseLtMatDescriptor_t* to,
                                                    std::int64_t rows, std::int64_t columns, std::int64_t ld,
                                                    std::uint32_t alignment, cudaDataType type, cusparseOrder_t order,
                                                    cusparseLtSparsity_t) {
  return describe(h, to, {{}, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), type, true}, ld,
                  alignment, order);
}
cusparseStatus_t cusparseLtMatDescriptorDestroy(const cusparseLtMatDescriptor_t* m) {
  return destroy(m, Kind::matrix, "cusparseLtMatDescriptorDestroy");
}

cusparseStatus_t cusparseLtMatmulDescriptorInit(const cusparseLtHandle_t* h, cusparseLtMatmulDescriptor_t* to,
                                                cusparseOperation_t op_a, cusparseOperation_t op_b,
                                                const cusparseLtMatDescriptor_t* a, const cusparseLtMatDescriptor_t* b,
                                                const cusparseLtMatDescriptor_t* c,
                                                const cusparseLtMatDescriptor_t* out, cusparseComputeType compute) {
  const char* const call = "cusparseLtMatmulDescriptorInit";
  bool made = is_made<Library>(h, Kind::library, call) && c == out && op_a == CUSPARSE_OPERATION_NON_TRANSPOSE;
  for (const auto* m : {a, b, c}) made = made && is_made<Matrix>(m, Kind::matrix, call);
  if (!made) return CUSPARSE_STATUS_INVALID_VALUE;
  const Description d{{Kind::description},
                      in<Matrix>(a),
                      in<Matrix>(b),
                      in<Matrix>(c),
                      op_b == CUSPARSE_OPERATION_TRANSPOSE,
                      compute == CUSPARSE_COMPUTE_32I};
  if (!has_product(d, compute)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  in<Description>(to) = d;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtMatmulAlgSelectionInit(const cusparseLtHandle_t* h, cusparseLtMatmulAlgSelection_t* to,
                                                  const cusparseLtMatmulDescriptor_t* d, cusparseLtMatmulAlg_t) {
  const char* const call = "cusparseLtMatmulAlgSelectionInit";
  if (!is_made<Library>(h, Kind::library, call) || !is_made<Description>(d, Kind::description, call))
    return CUSPARSE_STATUS_INVALID_VALUE;
  in<Selection>(to) = {{Kind::selection}, 0, 1};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseLtMatmulAlgSelectionDestroy(const cusparseLtMatmulAlgSelection_t* s) {
  return destroy(s, Kind::selection, "cusparseLtMatmulAlgSelectionDestroy");
}
cusparseStatus_t cusparseLtMatmulAlgGetAttribute(const cusparseLtHandle_t*, const cusparseLtMatmulAlgSelection_t* s,
                                                 cusparseLtMatmulAlgAttribute_t which, void* to, std::size_t bytes) {
  if (!is_made<Selection>(s, Kind::selection, "cusparseLtMatmulAlgGetAttribute") || bytes != sizeof(int))
    return CUSPARSE_STATUS_INVALID_VALUE;
  const auto& x = in<Selection>(s);
  const int value = which == CUSPARSELT_MATMUL_ALG_CONFIG_ID ? x.id : which == CUSPARSELT_MATMUL_SPLIT_K ? x.parts : 1;
  std::memcpy(to, &value, sizeof value);
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtMatmulPlanInit(const cusparseLtHandle_t*, cusparseLtMatmulPlan_t* to,
                                          const cusparseLtMatmulDescriptor_t* d,
                                          const cusparseLtMatmulAlgSelection_t* s) {
  const char* const call = "cusparseLtMatmulPlanInit";
  if (!is_made<Description>(d, Kind::description, call) || !is_made<Selection>(s, Kind::selection, call))
    return CUSPARSE_STATUS_INVALID_VALUE;
  in<Plan>(to) = {{Kind::plan}, in<Description>(d), const_cast<Selection*>(&in<Selection>(s))};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseLtMatmulPlanDestroy(const cusparseLtMatmulPlan_t* p) {
  return destroy(p, Kind::plan, "cusparseLtMatmulPlanDestroy");
}
cusparseStatus_t cusparseLtMatmulGetWorkspace(const cusparseLtHandle_t*, const cusparseLtMatmulPlan_t* p,
                                              std::size_t* bytes) {
  if (!is_made<Plan>(p, Kind::plan, "cusparseLtMatmulGetWorkspace")) return CUSPARSE_STATUS_INVALID_VALUE;
  *bytes = in<Plan>(p).workspace();
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseLtSpMMAPruneCheck(const cusparseLtHandle_t*, const cusparseLtMatmulDescriptor_t* of,
                                           const void* dense, int* found, cudaStream_t stream) {
  const Lock lock;
  const char* const call = "cusparseLtSpMMAPruneCheck";
  if (!is_made<Description>(of, Kind::description, call)) return CUSPARSE_STATUS_INVALID_VALUE;
  const Description d = in<Description>(of);
  if (!is_there(call, dense, d.a.bytes()) || !is_there(call, found, sizeof *found))
    return CUSPARSE_STATUS_INVALID_VALUE;
  const auto run = [d, dense, found] {
    *found = 0;
    for (std::size_t g = 0; g < d.places(); ++g)
      *found |= look(d, static_cast<const std::byte*>(dense) + 4 * g * d.bytes()).count > 2;
  };
  return push_work(stream, call, run, 1e-5);
}
cusparseStatus_t cusparseLtSpMMACompressedSize(const cusparseLtHandle_t*, const cusparseLtMatmulPlan_t* of,
                                               std::size_t* bytes, std::size_t* scratch) {
  if (!is_made<Plan>(of, Kind::plan, "cusparseLtSpMMACompressedSize")) return CUSPARSE_STATUS_INVALID_VALUE;
  const Description& d = in<Plan>(of).d;
  *bytes = d.kept_bytes() + d.places(), *scratch = d.places();
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseLtSpMMACompress(const cusparseLtHandle_t*, const cusparseLtMatmulPlan_t* of, const void* dense,
                                         void* to, void* scratch, cudaStream_t stream) {
  const Lock lock;
  const char* const call = "cusparseLtSpMMACompress";
  if (!is_made<Plan>(of, Kind::plan, call)) return CUSPARSE_STATUS_INVALID_VALUE;
  const Description d = in<Plan>(of).d;
  if (!is_there(call, dense, d.a.bytes()) || !is_there(call, to, d.kept_bytes() + d.places()) ||
      !is_there(call, scratch, d.places()))
    return CUSPARSE_STATUS_INVALID_VALUE;
  const auto run = [d, dense, to, scratch] {
    std::memset(scratch, 0x5a, d.places());
    compress(d, static_cast<const std::byte*>(dense), static_cast<Bytes>(to));
  };
  return push_work(stream, call, run, 1e-5);
}

cusparseStatus_t cusparseLtMatmul(const cusparseLtHandle_t* h, const cusparseLtMatmulPlan_t* of, const void* alpha,
                                  const void* a, const void* b, const void* beta, const void* c, void* to,
                                  void* workspace, cudaStream_t* streams, std::int32_t count) {
  const Lock lock;
  const char* const call = "cusparseLtMatmul";
  if (!is_made<Library>(h, Kind::library, call) || !is_made<Plan>(of, Kind::plan, call))
    return CUSPARSE_STATUS_INVALID_VALUE;
  const Plan& p = in<Plan>(of);
  return queue_product(p, alpha, a, b, beta, c, to, workspace, p.workspace(), streams, count);
}
/// Finds another algorithm than the first, which wants a workspace.
cusparseStatus_t cusparseLtMatmulSearch(const cusparseLtHandle_t* h, cusparseLtMatmulPlan_t* of, const void* alpha,
                                        const void* a, const void* b, const void* beta, const void* c, void* to, void*,
                                        cudaStream_t* streams, std::int32_t count) {
  const Lock lock;
  const char* const call = "cusparseLtMatmulSearch";
  if (!is_made<Library>(h, Kind::library, call) || !is_made<Plan>(of, Kind::plan, call))
    return CUSPARSE_STATUS_INVALID_VALUE;
  const Plan& p = in<Plan>(of);
  const auto done = queue_product(p, alpha, a, b, beta, c, to, nullptr, 0, streams, count);
  p.selection->id = 2, p.selection->parts = 2;
  return done;
}

}  // extern "C"
