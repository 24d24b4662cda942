// random-k: all ranks draw the same places, so any all-reduce can sum the values on their way.
#pragma once
#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// Cost: an all-reduce of density·n values; n written by each rank.
std::size_t random_k_arena_bytes(const CodedRequest&, std::uint32_t rank);
CallParts random_k_parts(const CodedRequest&, std::span<const TensorPart>);
std::unique_ptr<Collective> bind_random_k(const CodedRequest&, const Site&);

}  // namespace gradmeter::allreduce
