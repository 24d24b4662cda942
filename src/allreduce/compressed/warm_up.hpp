// A gathered codec whose density comes down over its first calls.
#pragma once
#include <string>

#include "allreduce/compressed/coded_request.hpp"

namespace gradmeter::allreduce {

// What CodedExchange asks of a codec with `warmup` steps: one gathered collective for each density, which hand on what
// the codec keeps. A call is a step of the tensor that begins there. The parts are those of the density it comes down
// to: who wants the first steps' asks by compression::warm_up_phases.
std::string warm_up_refusal(const CodedRequest&);
std::size_t warm_up_arena_bytes(const CodedRequest&, std::uint32_t rank);
std::unique_ptr<Collective> bind_warm_up(const CodedRequest&, const Site&);
CallParts warm_up_parts(const CodedRequest&, const TensorPart&);

}  // namespace gradmeter::allreduce
