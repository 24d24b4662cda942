// Sums (and minima, maxima, products) of blocks: what a recv_reduce does to memory.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "core/element.hpp"

namespace gradmeter::allreduce {

enum class Op : unsigned char { sum, average, min, max, product };
std::string_view name(Op);

/// destination[i] = sources[0][i] ∘ sources[1][i] ∘ …, left to right; `average` sums here and divides in `finish`.
/// destination may be one of the sources. Two or more sources of n elements each.
/// Cost: (sources + 1)·n elements moved, in one pass that stays in the first cache.
void reduce(core::Element, Op, std::byte* destination, std::span<const std::byte* const> sources, std::size_t n);

/// The value is complete: for `average`, destination = source / ranks; else a copy when the places differ.
void finish(core::Element, Op, std::byte* destination, const std::byte* source, std::size_t n, int ranks);

/// Errors: UsageError when the operation means nothing for the type (average of integers).
void check_supported(core::Element, Op);

}  // namespace gradmeter::allreduce
