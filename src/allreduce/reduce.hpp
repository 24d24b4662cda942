// SPDX-License-Identifier: Apache-2.0
// Reductions (sum, minimum, maximum, product) of blocks in host memory: the work of StepKind::recv_reduce.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "core/element.hpp"

namespace gradmeter::allreduce {

enum class Op : unsigned char { sum, average, min, max, product };
std::string_view name(Op);

/// destination[i] = sources[0][i] ∘ sources[1][i] ∘ …, left to right; `average` sums here, and `finish` divides.
/// destination may be one of the sources, but must not overlap one in part. There are two or more sources of n elements
/// each.
///
/// Small floats (16-bit and 8-bit) are combined in fp32 and rounded to nearest even; values that are too large become
/// infinity (e4m3: NaN). If `accumulate` is the element type itself, the result of each operation is rounded, as in a
/// sequence of two-source reductions. If `accumulate` is fp32, only the final result is rounded. For elements other
/// than small floats, `accumulate` must be the element type.
///
/// The bits are the same on every instruction set, and the order of two operands never matters. Any NaN among the
/// operands gives the quiet NaN of positive sign. For min and max, -0 is less than +0. Integers wrap.
/// Cost: (sources + 1)·n elements moved, each once.
void reduce(core::Element, core::Element accumulate, Op, std::byte* destination,
            std::span<const std::byte* const> sources, std::size_t n);

/// Turns complete sums into results: for `average` they are multiplied by 1/ranks, which is an fp64 number for fp64 and
/// an fp32 number for all other floats; for other operations the values are copied, unless destination and source are
/// the same. Small floats are multiplied in fp32 and rounded once. So an average that was accumulated in fp32 is
/// rounded twice: as a sum and here. (To avoid that, the sum would have to travel as fp32.)
void finish(core::Element, Op, std::byte* destination, const std::byte* source, std::size_t n, int ranks);

/// Converts n small floats to fp32 (exactly), and back, rounded as `reduce` rounds.
void widen(core::Element from, float* destination, const std::byte* source, std::size_t n);
void narrow(core::Element to, std::byte* destination, const float* source, std::size_t n);

/// Errors: UsageError if the type has no such operation (average of integers), or cannot be summed in `accumulate`.
void check_supported(core::Element, Op, core::Element accumulate);
inline void check_supported(core::Element e, Op op) { check_supported(e, op, e); }

namespace detail {

/// The parts of `reduce` and `finish` for small floats. They have their own source file, which is compiled for every
/// instruction set. wide: sums are kept in fp32 and rounded once.
void reduce_small_floats(core::Element, bool wide, Op, std::byte* destination,
                         std::span<const std::byte* const> sources, std::size_t n);
void scale_small_floats(core::Element, std::byte* destination, const std::byte* source, std::size_t n, float factor);

}  // namespace detail
}  // namespace gradmeter::allreduce
