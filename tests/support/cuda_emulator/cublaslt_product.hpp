// SPDX-License-Identifier: Apache-2.0
// A product of cublasLtMatmul: whether the library has an algorithm for it, and its computation.
#pragma once
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/element.hpp"

namespace cuda_emulator::lt {

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

/// None: a type that no product here has.
std::optional<core::Element> element_of(cudaDataType);

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

bool is_consistent(const Product&);
/// By the library's tables of types, transposes and alignments.
bool has_algorithm(const Product&, const Preference&);
std::size_t workspace_of(const Product&, const Algorithm&);

class Matrix {
 public:
  Matrix(const void* at, const Layout& l);
  /// Of the whole batch.
  bool is_on_device() const;
  bool is_aligned(std::uint32_t to) const { return reinterpret_cast<std::uintptr_t>(at_) % to == 0; }
  double load(std::size_t of, std::size_t row, std::size_t column) const;
  void store(std::size_t of, std::size_t row, std::size_t column, double) const;

 private:
  std::size_t place(std::size_t of, std::size_t row, std::size_t column) const;
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

  void run() const;

 private:
  /// op(X), rows one after another.
  template <class T>
  std::vector<T> decoded(const Matrix& x, bool transposed, std::size_t of, std::size_t rows, std::size_t columns) const;
  /// Each part of k into a part of the workspace, if there are several.
  template <class T>
  void run_one(std::size_t of) const;
  void finish(std::size_t of, std::size_t i, std::size_t j, double sum) const;
};

/// What the real library would not notice, and a device would answer by a fault or by wrong numbers: is reported.
bool check_call(const MatmulCall&, std::size_t workspace_bytes);

}  // namespace cuda_emulator::lt
