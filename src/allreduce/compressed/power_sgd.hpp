// PowerSGD: a gradient as a matrix, compressed to two thin factors that any all-reduce sums one after the other.
#pragma once
#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// Q is kept for each tensor from call to call (warm start); the first comes from a seed that all ranks share. A tensor
/// without rows and columns is taken as nearly square. What the factors miss of this rank's share of the sum goes into
/// its residual. Tensors that would shrink less than 2x go dense, up
/// to 1 MiB of a bucket's with the first factors.
/// Cost: 2 all-reduces for all tensors of a call, of rank·rows and rank·columns of each; 3·rank·n multiply-adds by each
/// rank.
std::string power_sgd_tensor_refusal(const CodedRequest&, const TensorPart&);
std::size_t power_sgd_arena_bytes(const CodedRequest&, std::uint32_t rank);
CallParts power_sgd_parts(const CodedRequest&, std::span<const TensorPart>);
std::unique_ptr<Collective> bind_power_sgd(const CodedRequest&, const Site&);

}  // namespace gradmeter::allreduce
