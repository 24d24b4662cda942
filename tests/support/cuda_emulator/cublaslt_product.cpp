// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/cublaslt_product.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/element.hpp"
#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/memory.hpp"

namespace cuda_emulator::lt {
namespace {

bool is_fp8(cudaDataType t) { return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2; }

/// fp32 of which the product takes 10 bits of the mantissa.
float as_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x0fff + (bits >> 13 & 1)) & 0xffffe000);
}

/// As Hopper's tensor cores keep a sum of fp8 that is not brought to fp32: cut to 14 bits.
float as_fast_sum(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xfffffc00); }

bool fits(const Layout& l) {
  return l.order == CUBLASLT_ORDER_COL && static_cast<std::uint64_t>(l.ld) >= l.rows && l.rows > 0 && l.columns > 0;
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

template <class T>
std::vector<T> added(const std::byte* from, std::size_t parts, std::size_t count) {
  std::vector<T> sums(count), part(count);
  for (std::size_t i = 0; i < parts; ++i) {
    std::memcpy(part.data(), from + 4 * i * count, 4 * count);
    for (std::size_t j = 0; j < count; ++j) sums[j] += part[j];
  }
  return sums;
}

}  // namespace

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

bool is_consistent(const Product& p) {
  const std::uint64_t m = p.transposed_a() ? p.a.columns : p.a.rows, n = p.transposed_b() ? p.b.rows : p.b.columns;
  const bool counts = p.a.count == p.out.count && p.b.count == p.out.count && p.c.count == p.out.count;
  return fits(p.a) && fits(p.b) && fits(p.c) && fits(p.out) && m == p.m() && n == p.n() && p.c.rows == m &&
         p.c.columns == n && (p.transposed_b() ? p.b.columns : p.b.rows) == p.k() && counts;
}

bool has_algorithm(const Product& p, const Preference& f) {
  if (p.c.type != p.out.type || !has_known_epilogue(p)) return false;
  if ((p.d.a_scale || p.d.b_scale || p.d.fast_sums != 0) && !is_fp8(p.a.type)) return false;
  if (is_fp8(p.a.type) && is_fp8(p.b.type)) return has_fp8(p, f);
  if (p.a.type == CUDA_R_8I && p.b.type == CUDA_R_8I) return has_int8(p, f);
  return has_floats(p);
}

std::size_t workspace_of(const Product& p, const Algorithm& a) {
  return a.parts < 2 ? 0
                     : static_cast<std::size_t>(p.out.count) * p.m() * p.n() * 4 * static_cast<std::size_t>(a.parts);
}

Matrix::Matrix(const void* at, const Layout& l)
    : at_(static_cast<const std::byte*>(at)), l_(l), element_(*element_of(l.type)), bytes_(core::size_of(element_)) {}
bool Matrix::is_on_device() const {
  const auto lines = static_cast<std::size_t>(l_.columns - 1) * static_cast<std::size_t>(l_.ld) + l_.rows;
  const auto products = static_cast<std::size_t>(l_.count - 1) * static_cast<std::size_t>(l_.stride);
  return is_device_memory(at_, (products + lines) * bytes_);
}
double Matrix::load(std::size_t of, std::size_t row, std::size_t column) const {
  return core::load(element_, at_ + place(of, row, column));
}
void Matrix::store(std::size_t of, std::size_t row, std::size_t column, double v) const {
  core::store(element_, const_cast<std::byte*>(at_) + place(of, row, column), v);
}
std::size_t Matrix::place(std::size_t of, std::size_t row, std::size_t column) const {
  return (of * static_cast<std::size_t>(l_.stride) + column * static_cast<std::size_t>(l_.ld) + row) * bytes_;
}

template <class T>
std::vector<T> MatmulCall::decoded(const Matrix& x, bool transposed, std::size_t of, std::size_t rows,
                                   std::size_t columns) const {
  std::vector<T> all(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      all[i * columns + j] = static_cast<T>(transposed ? x.load(of, j, i) : x.load(of, i, j));
  if constexpr (std::is_same_v<T, float>)
    if (p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32) std::ranges::transform(all, all.begin(), as_tf32);
  return all;
}
template <class T>
void MatmulCall::run_one(std::size_t of) const {
  const std::size_t m = p.m(), n = p.n(), k = p.k(), parts = static_cast<std::size_t>(algorithm.parts);
  const auto left = decoded<T>(a, p.transposed_a(), of, m, k), right = decoded<T>(b, p.transposed_b(), of, k, n);
  std::vector<T> sums(m * n);
  for (std::size_t part = 0; part < parts; ++part) {
    std::ranges::fill(sums, T{});
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t l = part * k / parts; l < (part + 1) * k / parts; ++l)
        for (std::size_t j = 0; j < n; ++j) {
          sums[i * n + j] += left[i * k + l] * right[l * n + j];
          if constexpr (std::is_same_v<T, float>)
            if (p.d.fast_sums != 0 && l % 32 == 31) sums[i * n + j] = as_fast_sum(sums[i * n + j]);
        }
    if (parts > 1) std::memcpy(workspace + 4 * (of * parts + part) * m * n, sums.data(), 4 * m * n);
  }
  if (parts > 1) sums = added<T>(workspace + 4 * of * parts * m * n, parts, m * n);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) finish(of, i, j, static_cast<double>(sums[i * n + j]));
}
void MatmulCall::finish(std::size_t of, std::size_t i, std::size_t j, double sum) const {
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
void MatmulCall::run() const {
  for (std::size_t of = 0; of < static_cast<std::size_t>(p.out.count); ++of)
    p.d.compute == CUBLAS_COMPUTE_32I ? run_one<std::int32_t>(of) : run_one<float>(of);
}

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

}  // namespace cuda_emulator::lt
