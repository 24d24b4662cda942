// SPDX-License-Identifier: Apache-2.0
// Data whose right answer is known: every operation is checked with it before its time counts.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/element.hpp"

namespace gradmeter::allreduce {

/// `exact`: whole numbers that differ by rank and by index, such that every partial result in every order is exactly
/// representable: the right answer is one bit pattern, whatever the algorithm. In types that represent few integers
/// exactly (fp8-e5m2: up to 8), only some ranks have a number other than 0 at each index. Products have factors of ±1
/// and a few 2s.
/// `random`: floats are uniform in [-1, 1), rounded to the type. For products, up to 16 ranks at each index have
/// magnitudes from 0.75 to 1.25, and all other ranks have ±1. Integers for min and max are uniform over the whole type;
/// integers for sums and products are as in `exact`, since vendors differ in the result of an integer overflow.
enum class Pattern : std::uint8_t { exact, random };

/// Describes the inputs of all ranks. An element depends only on these members, its rank and its index, so any rank can
/// compute any other's input, and any part of any collective's answer. Ranks are 1 to 2^20.
struct KnownData {
  Pattern pattern = Pattern::exact;
  core::Element element = core::Element::f32;
  Op op = Op::sum;
  std::size_t ranks = 1;
  std::uint64_t seed = 0;
  /// True where all ranks' values are added in fp32 and rounded once, so that the tolerance for small floats is
  /// narrower.
  bool rounds_once = false;
  /// With `exact`, a stamp other than 0 replaces the seed for the stamped elements (the first 64, and two of each
  /// 1,024). So each call has other data than the call before, all over the buffer, at little cost.
  std::uint64_t stamp = 0;
  /// The stamp of element 0, in place of `stamp`, if neither of the two is 0. `restamp` ignores it.
  std::uint64_t element_0_stamp = 0;
  /// The number of all-reduces that are made in place, one after another; at most `most_calls_in_place`.
  std::size_t calls_in_place = 1;
};

/// Writes rank `rank`'s elements from `begin` on. Cost: O(n).
void fill(const KnownData&, std::size_t rank, std::size_t begin, std::span<std::byte> out);

/// Changes data that `fill` has made with any stamp or with none: the stamped elements get the values of this stamp.
/// `out` begins at element `begin`. Cost: O(n / 1,024).
void restamp(const KnownData&, std::size_t rank, std::size_t begin, std::span<std::byte> out);
/// The bytes of element 0 with the data's stamp, at the beginning of the array.
std::array<std::byte, 8> first_element(const KnownData&, std::size_t rank);

/// The largest number of all-reduces in place, one after another, whose right answer is one bit pattern: at most 5, and
/// for sums only as many as stay exact; 1 for averages, products and data that are not exact.
std::size_t most_calls_in_place(const KnownData&);

struct CheckResult {
  std::uint64_t wrong = 0;  ///< number of wrong elements
  /// The largest error of an element, |result − right|. For sums and averages of random floats it is relative to the
  /// sum of the summands' magnitudes (divided by the ranks for an average), to compare with the unit roundoff; else to
  /// the right answer. Infinite for a NaN.
  double error = 0;
  std::uint64_t first_wrong = std::numeric_limits<std::uint64_t>::max();  ///< index within the collective's data

  CheckResult& operator+=(const CheckResult&);
};

/// Compares a part of a result, elements [begin, begin + n), with the reduction of all ranks' inputs: for all-reduce
/// and reduce-scatter. Pattern `exact` allows one bit pattern. Pattern `random` allows these errors, with u the unit
/// roundoff and Σ|x| the sum of the summands' magnitudes. Sums: (ranks − 1)·u·Σ|x|, whatever the order (Jeannerod &
/// Rump 2013); with `rounds_once` ((ranks − 1)·2^-24 + u)·Σ|x|. Averages: two roundings more than sums. Products: a
/// relative error of u for each rank whose factor is not ±1, and one more u. Min, max and integers: no error. Cost:
/// O(ranks · n), so ranks may check one part each.
CheckResult check_reduced(const KnownData&, std::size_t begin, std::span<const std::byte> result);

/// Compares data that must arrive unchanged with rank `source`'s elements from `begin` on: for broadcast, all-gather,
/// all-to-all, send and receive.
CheckResult check_copied(const KnownData&, std::size_t source, std::size_t begin, std::span<const std::byte> result);

/// Makes one element wrong: adds 0.5 (1 to an integer), or one step of the type where 0.5 would be rounded away.
void inject_error(core::Element, std::byte* value);

/// A hash of 64 bits, by which ranks compare their buffers. Cost: O(n), one pass. It does not protect against forgery.
std::uint64_t hash_of(std::span<const std::byte>);

// Known data for every collective: the input of each rank, and the result that it must hold afterwards.

/// One call of a collective on known data. Buffers have the whole size on every rank; `block_begin` cuts the blocks.
struct KnownCollective {
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  KnownData data = {};
  std::size_t count = 0;  ///< elements
  std::size_t root = 0;   ///< the root of a broadcast
};

/// Writes this rank's contribution, before the call. The bytes of `in` that are no part of it are set to 0xa5.
void write_input(const KnownCollective&, std::size_t rank, std::span<std::byte> in);
/// Gives this rank's contribution the data's stamp (see `restamp` of known data), before a later call on the same data.
void restamp(const KnownCollective&, std::size_t rank, std::span<std::byte> in);
/// Compares this rank's result with the right one, after the call. Cost: O(ranks · count) for a reduction.
CheckResult check(const KnownCollective&, std::size_t rank, std::span<const std::byte> result);
/// Does what `check` does, but for only one of `ranks` equal shares of an all-reduce's result, so that ranks that hold
/// the same bits can divide the work. Cost: O(count).
CheckResult check_share(const KnownCollective&, std::size_t share, std::span<const std::byte> result);
/// Does what `check` does, for an all-reduce that leaves different bits on the ranks. It checks the whole result if
/// that has at most 2^26 / ranks elements; else a sample of about so many elements, which differs from rank to rank.
/// Cost: O(ranks · count) up to that length; a sample costs about as much as a whole result of that length.
CheckResult check_sample(const KnownCollective&, std::size_t rank, std::span<const std::byte> result);
/// Makes one element of this rank's result wrong, if the rank has a result.
void inject_error(const KnownCollective&, std::size_t rank, std::span<std::byte> result);
/// True where all ranks end with the same data.
bool same_on_all_ranks(CollectiveKind);

}  // namespace gradmeter::allreduce
