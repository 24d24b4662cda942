// Dense products on a GPU by cuBLASLt: fp32; bf16 and fp16 with sums in fp32; fp8 with sums and results in fp32, of
// operands that are scaled by their largest number; int8 by int8 with sums in int32.
//
// Operands in fp8 and int8 are packed: the library takes them with k contiguous in both, and extents that are multiples
// of 16. Results are packed where that makes them larger than they are.
#pragma once
#include <memory>
#include <string>

#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

/// fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8.
std::string cublaslt_refusal(const Problem&);
/// scratch_bytes: the workspace of the algorithm, 32 MiB at most on devices of 9.0 and later, else 4.
std::unique_ptr<Op> make_cublaslt_op(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels::cuda
