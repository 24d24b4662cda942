// A gathered codec whose density decreases over its first calls.
#pragma once
#include <string>

#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

// The members of CodedExchange for a codec with `warmup` steps. There is one gathered collective for each density, and
// each hands the codec's state to the next. A call counts as a step of the pack, by the place of its first tensor. The
// parts are those of the final density; compression::warm_up_phases knows the first steps'.
std::string warm_up_refusal(const CodedRequest&);
std::size_t warm_up_arena_bytes(const CodedRequest&, std::uint32_t rank);
std::unique_ptr<Collective> bind_warm_up(const CodedRequest&, const Site&);
CallParts warm_up_parts(const CodedRequest&, std::span<const TensorPart>);

}  // namespace gradmeter::allreduce
