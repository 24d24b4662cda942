// Data whose right answer is known: every operation is checked with it before its time counts.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"

namespace gradmeter::allreduce {

/// `exact`: small whole numbers, different by rank and by place, such that every partial result in every order is
/// representable: the right answer is one bit pattern, whatever the algorithm. In types with a short run of exact
/// integers (fp8-e5m2: 8) only some ranks are non-zero at each place; products are of ±1 and a few 2s.
/// `random`: uniform in [-1, 1) rounded to the type; in products magnitudes from 0.75 to 1.25 of up to 16 ranks at each
/// place, and ±1 of the others; integers uniform over the whole type for min and max, and as in
/// `exact` for sums and products, since vendors differ in what an integer that overflows becomes.
enum class Pattern : std::uint8_t { exact, random };

/// Element `index` of rank `rank`'s input depends only on these, rank and index. So any rank can compute any other's
/// input, and any part of any collective's answer. Ranks are 1 to 2^20.
struct KnownData {
  Pattern pattern = Pattern::exact;
  core::Element element = core::Element::f32;
  Op op = Op::sum;
  std::size_t ranks = 1;
  std::uint64_t seed = 0;
  /// All ranks' values are added in fp32 and rounded once, so the tolerance for small floats is narrower.
  bool rounds_once = false;
  /// Not 0, and exact: the stamped places (the first 64 elements, and two of each 1,024) have values of this stamp in
  /// place of the seed's. So a call's data differ from the last one's all over the buffer and cost little to make.
  std::uint64_t stamp = 0;
  std::uint64_t first_stamp = 0;  ///< not 0: of element 0, in place of `stamp`
  /// So many all-reduces in place, one after another; at most `most_calls_in_place`.
  std::size_t calls = 1;
};

/// Rank `rank`'s elements from `begin` on. Cost: O(n).
void fill(const KnownData&, std::size_t rank, std::size_t begin, std::span<std::byte> out);

/// Changes data that `fill` has made, with any stamp or none: it gives the stamped places from element `begin` on the
/// values of this stamp. Cost: O(n / 1,024).
void restamp(const KnownData&, std::size_t rank, std::size_t begin, std::span<std::byte> out);
/// Element 0 with this stamp, in the first bytes.
std::array<std::byte, 8> first_element(const KnownData&, std::size_t rank);

/// How many all-reduces in place have one right answer, up to 5: sums must stay exact; averages and products only have
/// one call.
std::size_t most_calls_in_place(const KnownData&);

struct Verdict {
  std::uint64_t wrong = 0;
  /// The largest |result − right| / (sum of the summands' magnitudes), to compare with the unit roundoff; for min, max,
  /// product and copies relative to the right answer itself. Infinite for a NaN.
  double error = 0;
  std::uint64_t first_wrong = std::numeric_limits<std::uint64_t>::max();  ///< index within the collective's data

  Verdict& operator+=(const Verdict&);
};

/// Compares a part of a result, elements [begin, begin + n), with the reduction of all ranks' inputs: for all-reduce
/// and reduce-scatter. Pattern `exact` allows one bit pattern. Pattern `random` allows, for sums, (ranks − 1)·u·Σ|x|
/// with u the unit roundoff, whatever the order (Jeannerod & Rump 2013), with `rounds_once` (ranks − 1)·2^-24·Σ|x| and
/// one u; for averages two roundings more; for products one u relative for each rank that is not ±1, and one more;
/// nothing for min, max and integers. Cost: O(ranks · n), so ranks may check one part each.
Verdict check_reduced(const KnownData&, std::size_t begin, std::span<const std::byte> result);

/// Compares data that must arrive unchanged with rank `source`'s elements from `begin` on: for broadcast, all-gather,
/// all-to-all, send and receive.
Verdict check_copied(const KnownData&, std::size_t source, std::size_t begin, std::span<const std::byte> result);

/// Makes one element wrong: adds 0.5 (1 to an integer), or one step of the type where 0.5 would be rounded away.
void inject_error(core::Element, std::byte* value);

/// A hash of 64 bits, by which ranks compare their buffers. Cost: O(n), one pass. Not secure against intent.
std::uint64_t hash_of(std::span<const std::byte>);

}  // namespace gradmeter::allreduce
