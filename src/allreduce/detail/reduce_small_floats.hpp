// The part of `reduce` for 16-bit and 8-bit floats: a file of its own, since it is compiled for every instruction set.
#pragma once
#include "allreduce/reduce.hpp"

namespace gradmeter::allreduce::detail {

void reduce_small_floats(core::Element, bool wide, Op, std::byte* destination,
                         std::span<const std::byte* const> sources, std::size_t n);
void scale_small_floats(core::Element, std::byte* destination, const std::byte* source, std::size_t n, float factor);

}  // namespace gradmeter::allreduce::detail
