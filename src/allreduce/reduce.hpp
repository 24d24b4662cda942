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
/// destination may be one of the sources, but not overlap one in part. Two or more sources of n elements each.
///
/// 16-bit and 8-bit floats are combined in fp32 and rounded to nearest even, too large ones to infinity (e4m3: NaN).
/// `accumulate` says when: the element itself means after every operation, as two-source reductions in turn would;
/// fp32 means once, at the end. For all other types it must be the element itself.
///
/// The bits are the same on every instruction set, and the order of two operands never matters. Any NaN among the
/// operands gives the quiet NaN of positive sign; in min and max -0 is less than +0. Integers wrap. Cost: (sources +
/// 1)·n elements moved, each once.
void reduce(core::Element, core::Element accumulate, Op, std::byte* destination,
            std::span<const std::byte* const> sources, std::size_t n);

/// Finishes a complete value: for `average`, destination = source / ranks; else a copy when the places differ. Small
/// floats are multiplied by 1/ranks in fp32 and rounded once. So an average accumulated in fp32 is rounded twice, once
/// as a sum and once here. (A sum that stayed wide between the two would have to travel wide.)
void finish(core::Element, Op, std::byte* destination, const std::byte* source, std::size_t n, int ranks);

/// n small floats to fp32 (exact), and back: rounded as `reduce` does.
void widen(core::Element from, float* destination, const std::byte* source, std::size_t n);
void narrow(core::Element to, std::byte* destination, const float* source, std::size_t n);

/// Errors: UsageError when the operation means nothing for the type (average of integers), or when it does not
/// accumulate in that other type.
void check_supported(core::Element, Op, core::Element accumulate);
inline void check_supported(core::Element e, Op op) { check_supported(e, op, e); }

}  // namespace gradmeter::allreduce
