// SPDX-License-Identifier: Apache-2.0
// One matrix product by cuBLASLt: its descriptors, and the choice among the library's algorithms.
#pragma once
#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "kernels/cuda/library.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/op.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels::cuda {

/// Throws if a call failed. Errors: BackendError with the library's own text and the caller's file and line.
void check_cublaslt(cublasStatus_t, const char* call, std::source_location = std::source_location::current());
/// Notes an error that a destructor cannot throw.
void release_cublaslt(cublasStatus_t) noexcept;

template <class T, cublasStatus_t (*destroy)(T)>
using LtOwner = LibraryHandle<T, destroy, release_cublaslt>;
using LtHandle = LtOwner<cublasLtHandle_t, cublasLtDestroy>;
using LtDescription = LtOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = LtOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = LtOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// How the tensor cores compute. tf32: fp32 operands are cut to 10 bits of mantissa. fast_sums, for fp8: intermediate
/// sums are not promoted to a higher precision from time to time, which is faster and less accurate.
/// Source: cuBLAS, cublasComputeType_t; CUBLASLT_MATMUL_DESC_FAST_ACCUM
enum class LtMode : std::uint8_t { usual, tf32, fast_sums };

/// A product as the library computes it. Matrices are row-major, and the operands of several products follow one
/// another, as in GemmShape. The shape's extents include the padding with which operands are stored.
struct LtProblem {
  GemmShape shape;
  cudaDataType a, b, c, bias;  ///< types of the operands
  bool scaled = false;         ///< a and b have scales in device memory
  LtMode mode = LtMode::usual;
};

/// Addresses in device memory.
struct LtOperands {
  const std::byte *a, *b, *bias;  ///< bias is null where the product has none
  std::byte* c;
  const float *a_scale = nullptr, *b_scale = nullptr;
};

/// A product and the algorithms chosen for it, one for each alignment of operands that has occurred.
class LtProduct {
 public:
  /// Chooses an algorithm for operands that are aligned to 256 bytes. An exhaustive search waits for the device.
  /// Errors: BackendError when there is no such algorithm, or when the library fails.
  LtProduct(const LtProblem&, AlgorithmSearch, runtime::Device&);

  /// Queues the product. The first call with operands of another alignment also chooses an algorithm for that
  /// alignment.
  void run(const LtOperands&, cudaStream_t);
  /// Chooses an algorithm for the alignment of these operands, unless one is chosen already.
  void choose_for(const LtOperands& o) { (void)chosen_for(alignments_of(o)); }

  std::size_t workspace_bytes() const;
  /// Names the algorithm chosen for operands that are aligned to 256 bytes: "algorithm 66, tile 20, stages 36, cluster
  /// 3, split-k 1".
  std::string algorithm() const;

 private:
  using Alignments = std::array<std::uint32_t, 4>;  ///< alignments of a, b, c and bias in bytes, 256 at most
  struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    std::size_t workspace_bytes;
  };
  struct Chosen {
    cublasLtMatmulAlgo_t algorithm;
    runtime::OwnedBuffer workspace;
  };
  static Alignments alignments_of(const LtOperands&);
  void describe();
  template <class T>
  void set(cublasLtMatmulDescAttributes_t, const T&);
  const Chosen& chosen_for(const Alignments&);
  std::vector<Candidate> candidates(const Alignments&, int most);
  std::optional<Candidate> fastest(const std::vector<Candidate>&);
  float time_of(const Candidate&, const LtOperands&, const runtime::Buffer& workspace, const runtime::Stream&);
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t&, const LtOperands&, const runtime::Buffer& workspace,
                          cudaStream_t);

  LtProblem problem_;
  AlgorithmSearch search_;
  runtime::Device& device_;
  std::shared_ptr<const LtHandle> library_;
  LtDescription description_;
  LtLayout a_, b_, c_;
  std::map<Alignments, Chosen> chosen_;
};

}  // namespace gradmeter::kernels::cuda
