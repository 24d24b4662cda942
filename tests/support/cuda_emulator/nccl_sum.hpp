// SPDX-License-Identifier: Apache-2.0
// NCCL's reductions on the host: a value at a time, rounded to its type after every operation.
#pragma once
#include <nccl.h>

#include <cstddef>

namespace cuda_emulator {

/// 0: no type of NCCL's.
std::size_t size_of(ncclDataType_t);
/// What NCCL does to a rank's values before they are added: an average of floats multiplies by 1/ranks, rounded to the
/// type.
void prepare(char* values, std::size_t bytes, ncclDataType_t, int op, int ranks);
/// to[i] = to[i] ∘ from[i].
void fold(char* to, const char* from, std::size_t bytes, ncclDataType_t, int op);
/// And after: an average of integers divides.
void complete(char* values, std::size_t bytes, ncclDataType_t, int op, int ranks);

}  // namespace cuda_emulator
