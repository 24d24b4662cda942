// TernGrad as a sum of integers: all ranks quantise with the largest of their scales, so that codes add up.
#pragma once
#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

/// One rounding for each contribution, none of the sum, by any all-reduce that has int8, vendors' too.
/// Cost: an all-reduce of one fp32 (max), then one of n int8 (sum).
/// Sends 8 bits an element where `terngrad:exchange=gather` has 2, but as many at any number of ranks: fewer bytes from
/// 9 ranks on.
/// Refused beyond 127 ranks, whose sum int8 may not hold.
std::string shared_scale_refusal(const CodedRequest&);
std::size_t shared_scale_arena_bytes(const CodedRequest&, std::uint32_t rank);
CallParts shared_scale_parts(const CodedRequest&, std::span<const TensorPart>);
std::unique_ptr<Collective> bind_shared_scale(const CodedRequest&, const Site&);

}  // namespace gradmeter::allreduce
