// SPDX-License-Identifier: Apache-2.0
#include "allreduce/test_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/element.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;

/// Values are made in chunks that begin at multiples of this. In a chunk, loops have no branches and an index's upper
/// half is constant.
constexpr std::size_t chunk = 1024;

/// "lowbias32" (Wellons 2018): every bit of the input reaches every bit of the output.
constexpr std::uint32_t mix(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}
/// A number in [0, n) from 32 random bits.
constexpr std::uint32_t below(std::uint32_t n, std::uint32_t bits) {
  return static_cast<std::uint32_t>(std::uint64_t{bits} * n >> 32);
}

/// One stream of 32-bit draws by index.
struct Draws {
  std::uint32_t salt;
  Draws(std::uint64_t seed, std::size_t stream, std::size_t first) {
    const std::uint64_t high = first >> 32;
    salt = mix(mix(static_cast<std::uint32_t>(seed)) + static_cast<std::uint32_t>(seed >> 32) * 0x9e3779b9u);
    salt = mix(salt + static_cast<std::uint32_t>(high) * 0x85ebca6bu);
    salt = mix(salt + static_cast<std::uint32_t>(stream) * 0xc2b2ae35u);
  }
  std::uint32_t operator()(std::size_t index) const { return mix(static_cast<std::uint32_t>(index) ^ salt); }
};
/// Streams 2r and 2r + 1 belong to rank r; this stream belongs to all ranks.
constexpr std::size_t common_stream = std::size_t{1} << 31;

/// The limits of the exact pattern, within which every partial result is representable.
struct ExactLimits {
  std::uint32_t active;   ///< number of ranks whose value at a place is not neutral
  std::uint32_t most;     ///< the largest magnitude of their values
  std::int64_t multiple;  ///< all values are multiples of this, so that the upper half of 64-bit types is used too
};
ExactLimits limits_of(const KnownData& known) {
  constexpr std::int64_t plenty = 1 << 20;
  const std::int64_t largest = std::min(core::info(known.element).exact_integers, plenty);
  const auto ranks = static_cast<std::int64_t>(known.ranks);
  const std::int64_t multiple =
      core::size_of(known.element) == 8 && known.op != Op::product ? (std::int64_t{1} << 32) + 1 : 1;
  // A product of three 2s fits every type, and adding 0.5 to it gives another number.
  if (known.op == Op::product) return {static_cast<std::uint32_t>(std::min<std::int64_t>(ranks, 3)), 2, 1};
  if (known.op == Op::min || known.op == Op::max)
    return {static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(largest), multiple};
  // At least four magnitudes a rank, so that the ranks' values differ.
  const std::int64_t active = std::clamp<std::int64_t>(largest / 4, 1, ranks);
  return {static_cast<std::uint32_t>(active), static_cast<std::uint32_t>(largest / active), multiple};
}

/// The number of ranks whose factors in a random product are not ±1. Magnitudes of these factors lie between 0.75 and
/// 1.25, so that every partial product is a normal number of every type; and there are so few of them that a fault
/// exceeds the rounding errors.
std::size_t active_factors(const KnownData& known) {
  constexpr double most = 16;
  return std::min(known.ranks,
                  static_cast<std::size_t>(std::min(most, 0.25 / core::info(known.element).unit_roundoff)));
}

/// True where the rank is one of `active` consecutive ranks, which begin at another rank for each index.
bool is_active(const KnownData& known, std::size_t rank, std::uint32_t active, std::uint32_t drawn) {
  const auto ranks = static_cast<std::uint32_t>(known.ranks), me = static_cast<std::uint32_t>(rank);
  const std::uint32_t start = below(ranks, drawn);
  return (me >= start ? me - start : me + ranks - start) < active;
}

/// True where values are of the exact pattern. Integers in sums and products always are, because vendors differ in the
/// result of an overflow (Open MPI's vector operator on int8 saturates, ours wraps).
bool is_exact(const KnownData& known) {
  return known.pattern == Pattern::exact ||
         (core::is_integer(known.element) && known.op != Op::min && known.op != Op::max);
}

using WholeNumbers = std::array<std::int32_t, chunk>;

/// Makes `n` values of the exact pattern without a stamp, from index `first` on and within one chunk. They are not yet
/// multiplied by `ExactLimits::multiple`.
void seeded_numbers(const KnownData& known, ExactLimits limits, std::size_t rank, std::size_t first, std::size_t n,
                    std::int32_t* out) {
  const Draws mine(known.seed, 2 * rank, first), common(known.seed, common_stream, first);
  const bool product = known.op == Op::product;
  if (limits.active == known.ranks && !product) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bits = mine(first + i);
      const auto magnitude = static_cast<std::int32_t>(1 + below(limits.most, bits << 1));
      out[i] = bits >> 31 ? -magnitude : magnitude;
    }
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = mine(first + i);
    const bool active = is_active(known, rank, limits.active, common(first + i));
    const std::uint32_t drawn = product ? 2 : 1 + below(limits.most, bits << 1);
    const auto magnitude = static_cast<std::int32_t>(active ? drawn : product ? 1u : 0u);
    out[i] = bits >> 31 ? -magnitude : magnitude;
  }
}

/// Calls use(index) for the stamped places among `n` from index `first` on, within one chunk.
template <class Use>
void each_stamped(const KnownData& known, std::size_t first, std::size_t n, Use use) {
  constexpr std::size_t all_below = 64;  // so that small buffers and their blocks have stamped places
  const std::size_t end = first + n, begin = first - first % chunk;
  for (std::size_t i = first; i < std::min(end, all_below); ++i) use(i);
  const auto other = below(chunk, Draws(known.seed, common_stream, first)(begin));
  for (const std::size_t at : {begin, begin + other}) {
    if (at >= std::max(first, all_below) && at < end) use(at);
  }
}

/// The data from which stamped places are filled: those of a seed that the stamp selects.
KnownData stamped(KnownData known, std::uint64_t stamp) {
  known.seed += stamp * 0x9e3779b97f4a7c15;
  return known;
}

/// Makes values of the exact pattern with the data's stamps, not yet multiplied by `ExactLimits::multiple`.
void whole_numbers(const KnownData& known, ExactLimits limits, std::size_t rank, std::size_t first, std::size_t n,
                   WholeNumbers& out) {
  seeded_numbers(known, limits, rank, first, n, out.data());
  if (known.stamp == 0) return;
  const KnownData other = stamped(known, known.stamp);
  each_stamped(known, first, n, [&](std::size_t i) { seeded_numbers(other, limits, rank, i, 1, &out[i - first]); });
  if (known.element_0_stamp != 0 && first == 0)
    seeded_numbers(stamped(known, known.element_0_stamp), limits, rank, 0, 1, out.data());
}

template <class T>
void put(std::byte* to, const T* from, std::size_t n) {
  std::memcpy(to, from, n * sizeof(T));
}

template <class T>
void put_whole(const std::int32_t* v, std::int64_t multiple, std::byte* to, std::size_t n) {
  std::array<T, chunk> typed;
  for (std::size_t i = 0; i < n; ++i) typed[i] = static_cast<T>(v[i] * multiple);
  put(to, typed.data(), n);
}

void store_whole(Element e, const std::int32_t* v, std::int64_t multiple, std::byte* to, std::size_t n) {
  if (e == Element::f64) return put_whole<double>(v, multiple, to, n);
  if (e == Element::i64) return put_whole<std::int64_t>(v, multiple, to, n);
  if (e == Element::i32) return put_whole<std::int32_t>(v, multiple, to, n);
  if (e == Element::i8) return put_whole<std::int8_t>(v, multiple, to, n);
  std::array<float, chunk> floats;
  for (std::size_t i = 0; i < n; ++i) floats[i] = static_cast<float>(v[i] * multiple);
  if (e == Element::f32) return put(to, floats.data(), n);
  narrow(e, to, floats.data(), n);
}

/// Turns values in [-1, 1) into factors of the random pattern.
template <class T>
void make_factors(const KnownData& known, std::size_t rank, std::size_t first, std::span<T> values) {
  const Draws common(known.seed, common_stream, first);
  const auto active = static_cast<std::uint32_t>(active_factors(known));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T magnitude =
        is_active(known, rank, active, common(first + i)) ? T{0.75} + T{0.5} * std::fabs(values[i]) : T{1};
    values[i] = std::copysign(magnitude, values[i]);
  }
}

void store_random(const KnownData& known, std::size_t rank, std::size_t first, std::size_t n, std::byte* to) {
  const Draws low(known.seed, 2 * rank, first), high(known.seed, 2 * rank + 1, first);
  const auto wide = [&](std::size_t i) { return std::uint64_t{high(i)} << 32 | low(i); };
  if (core::is_integer(known.element)) {
    const std::size_t width = core::size_of(known.element);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t bits = wide(first + i);
      std::memcpy(to + i * width, &bits, width);
    }
  } else if (known.element == Element::f64) {
    std::array<double, chunk> values;
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = static_cast<double>(static_cast<std::int64_t>(wide(first + i)) >> 10) * 0x1p-53;
    }
    if (known.op == Op::product) make_factors(known, rank, first, std::span(values).first(n));
    put(to, values.data(), n);
  } else {
    std::array<float, chunk> values;
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>(static_cast<std::int32_t>(low(first + i)) >> 8) * 0x1p-23f;
    }
    if (known.op == Op::product) make_factors(known, rank, first, std::span(values).first(n));
    if (known.element == Element::f32) return put(to, values.data(), n);
    narrow(known.element, to, values.data(), n);
  }
}

/// Calls piece(index, offset, count) for the parts of [begin, begin + n) that lie in one chunk each; offset = index -
/// begin.
template <class Piece>
void by_chunks(std::size_t begin, std::size_t n, Piece piece) {
  for (std::size_t done = 0; done < n;) {
    const std::size_t at = begin + done, m = std::min(n - done, chunk - at % chunk);
    piece(at, done, m);
    done += m;
  }
}

void fill_chunk(const KnownData& known, std::size_t rank, std::size_t first, std::size_t n, std::byte* to) {
  if (!is_exact(known)) return store_random(known, rank, first, n, to);
  WholeNumbers values;
  const ExactLimits limits = limits_of(known);
  whole_numbers(known, limits, rank, first, n, values);
  store_whole(known.element, values.data(), limits.multiple, to, n);
}

using Chunk = std::array<std::byte, chunk * sizeof(double)>;

/// Computes the bits of an exact answer: whole numbers are reduced, and the result is finished as an all-reduce does.
void exact_answer(const KnownData& known, std::size_t first, std::size_t n, Chunk& out) {
  const ExactLimits limits = limits_of(known);
  WholeNumbers sum{}, next;
  whole_numbers(known, limits, 0, first, n, sum);
  for (std::size_t r = 1; r < known.ranks; ++r) {
    whole_numbers(known, limits, r, first, n, next);
    for (std::size_t i = 0; i < n; ++i) {
      if (known.op == Op::min) {
        sum[i] = std::min(sum[i], next[i]);
      } else if (known.op == Op::max) {
        sum[i] = std::max(sum[i], next[i]);
      } else {
        sum[i] = known.op == Op::product ? sum[i] * next[i] : sum[i] + next[i];
      }
    }
  }
  // In each later call in place, all ranks contribute the same numbers, so a sum is multiplied by the ranks.
  std::int64_t multiple = limits.multiple;
  for (std::size_t call = 1; call < known.calls_in_place && known.op == Op::sum; ++call)
    multiple *= static_cast<std::int64_t>(known.ranks);
  store_whole(known.element, sum.data(), multiple, out.data(), n);
  finish(known.element, known.op, out.data(), out.data(), n, static_cast<int>(known.ranks));
}

void note(CheckResult& v, bool wrong, double error, std::size_t index) {
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  v.error = std::max(v.error, error);
  if (!wrong) return;
  ++v.wrong;
  v.first_wrong = std::min<std::uint64_t>(v.first_wrong, index);
}

/// Compares bits; the error is computed only where they differ.
CheckResult compare_bits(Element e, std::size_t index, const std::byte* result, const std::byte* right, std::size_t n) {
  CheckResult v;
  const std::size_t width = core::size_of(e);
  if (n == 0 || std::memcmp(result, right, n * width) == 0) return v;
  for (std::size_t i = 0; i < n; ++i) {
    if (std::memcmp(result + i * width, right + i * width, width) == 0) continue;
    const double actual = core::load(e, result + i * width), expected = core::load(e, right + i * width);
    note(v, true, std::fabs(actual - expected) / std::max(std::fabs(expected), core::info(e).smallest), index + i);
  }
  return v;
}

/// Sums of doubles (`sum`) with their rounding errors (`rest`; Ogita, Rump & Oishi 2005), sums of magnitudes, and
/// products.
struct Sums {
  std::array<double, chunk> sum{}, rest{}, magnitude{};
  std::array<long double, chunk> product;
  Sums() { product.fill(1); }

  void add(std::size_t i, double x) {
    const double s = sum[i] + x, part = s - sum[i];
    rest[i] += (sum[i] - (s - part)) + (x - part);
    sum[i] = s;
    magnitude[i] += std::fabs(x);
  }
};

double tolerance(const KnownData& known, double right, double magnitude) {
  const auto& row = core::info(known.element);
  const double u = row.unit_roundoff, p = static_cast<double>(known.ranks);
  if (known.op == Op::product) return static_cast<double>(active_factors(known) + 1) * u * std::fabs(right);
  const bool once = known.rounds_once && core::is_small_float(known.element);
  // The last term allows one part in 2^40 for terms of second order and for the rounding of this function.
  const double sum = (once ? (p - 1) * 0x1p-24 * (1 + u) + u : (p - 1) * u) + 0x1p-40 * u;
  if (known.op == Op::average) return (sum + 2 * u * (1 + sum)) * magnitude / p + row.smallest;
  return sum * magnitude;
}

/// Checks sums and products of random floats.
CheckResult check_rounded(const KnownData& known, std::size_t first, const std::byte* result, std::size_t n) {
  Sums sums;
  Chunk next;
  const std::size_t width = core::size_of(known.element);
  std::array<double, chunk> values{};
  const auto read = [&](const std::byte* from) {
    if (known.element == Element::f64) return std::memcpy(values.data(), from, n * width), void();
    std::array<float, chunk> floats;
    if (known.element == Element::f32) {
      std::memcpy(floats.data(), from, n * width);
    } else {
      widen(known.element, floats.data(), from, n);
    }
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<double>(floats[i]);
  };
  for (std::size_t r = 0; r < known.ranks; ++r) {
    store_random(known, r, first, n, next.data());
    read(next.data());
    for (std::size_t i = 0; i < n; ++i) sums.add(i, values[i]);
    if (known.op != Op::product) continue;
    for (std::size_t i = 0; i < n; ++i) sums.product[i] *= static_cast<long double>(values[i]);
  }
  read(result);
  CheckResult checked;
  const double p = static_cast<double>(known.ranks);
  for (std::size_t i = 0; i < n; ++i) {
    double difference = (values[i] - sums.sum[i]) - sums.rest[i], right = sums.sum[i] + sums.rest[i];
    double scale = sums.magnitude[i];
    if (known.op == Op::average) right /= p, scale /= p, difference = values[i] - right;
    if (known.op == Op::product) {
      right = static_cast<double>(sums.product[i]), scale = std::fabs(right);
      difference = static_cast<double>(static_cast<long double>(values[i]) - sums.product[i]);
    }
    const double off = std::fabs(difference);
    const bool wrong = !(off <= tolerance(known, right, sums.magnitude[i]));
    note(checked, wrong, off == 0 ? 0 : off / std::max(scale, core::info(known.element).smallest), first + i);
  }
  return checked;
}

/// Checks min and max of random values against our own reduction, which is exact for them.
CheckResult check_by_reducing(const KnownData& known, std::size_t first, const std::byte* result, std::size_t n) {
  Chunk right, next;
  store_random(known, 0, first, n, right.data());
  const std::array<const std::byte*, 2> sources{right.data(), next.data()};
  for (std::size_t r = 1; r < known.ranks; ++r) {
    store_random(known, r, first, n, next.data());
    reduce(known.element, known.element, known.op, right.data(), sources, n);
  }
  return compare_bits(known.element, first, result, right.data(), n);
}

}  // namespace

CheckResult& CheckResult::operator+=(const CheckResult& other) {
  wrong += other.wrong;
  error = std::max(error, other.error);
  first_wrong = std::min(first_wrong, other.first_wrong);
  return *this;
}

void fill(const KnownData& known, std::size_t rank, std::size_t begin, std::span<std::byte> out) {
  const std::size_t width = core::size_of(known.element);
  by_chunks(begin, out.size() / width, [&](std::size_t at, std::size_t offset, std::size_t n) {
    fill_chunk(known, rank, at, n, out.data() + offset * width);
  });
}

void restamp(const KnownData& known, std::size_t rank, std::size_t begin, std::span<std::byte> out) {
  const std::size_t width = core::size_of(known.element);
  const auto limits = limits_of(known);
  const KnownData other = stamped(known, known.stamp);
  by_chunks(begin, out.size() / width, [&](std::size_t at, std::size_t, std::size_t n) {
    each_stamped(known, at, n, [&](std::size_t i) {
      std::int32_t value = 0;
      seeded_numbers(other, limits, rank, i, 1, &value);
      store_whole(known.element, &value, limits.multiple, out.data() + (i - begin) * width, 1);
    });
  });
}

std::array<std::byte, 8> first_element(const KnownData& known, std::size_t rank) {
  std::array<std::byte, 8> out{};
  restamp(known, rank, 0, std::span(out).first(core::size_of(known.element)));
  return out;
}

std::size_t most_calls_in_place(const KnownData& known) {
  constexpr std::size_t most = 5;
  if (!is_exact(known) || known.op == Op::average || known.op == Op::product) return 1;
  if (known.op != Op::sum || known.ranks == 1) return most;
  const auto limits = limits_of(known);
  double largest = static_cast<double>(limits.active) * limits.most * static_cast<double>(limits.multiple);
  std::size_t calls = 1;
  while (calls < most &&
         (largest *= static_cast<double>(known.ranks)) <= static_cast<double>(core::info(known.element).exact_integers))
    ++calls;
  return calls;
}

CheckResult check_reduced(const KnownData& known, std::size_t begin, std::span<const std::byte> result) {
  const std::size_t width = core::size_of(known.element);
  CheckResult checked;
  by_chunks(begin, result.size() / width, [&](std::size_t at, std::size_t offset, std::size_t n) {
    const std::byte* from = result.data() + offset * width;
    if (is_exact(known)) {
      Chunk right;
      exact_answer(known, at, n, right);
      checked += compare_bits(known.element, at, from, right.data(), n);
    } else if (known.op == Op::min || known.op == Op::max) {
      checked += check_by_reducing(known, at, from, n);
    } else {
      checked += check_rounded(known, at, from, n);
    }
  });
  return checked;
}

CheckResult check_copied(const KnownData& known, std::size_t source, std::size_t begin,
                         std::span<const std::byte> result) {
  const std::size_t width = core::size_of(known.element);
  CheckResult v;
  by_chunks(begin, result.size() / width, [&](std::size_t at, std::size_t offset, std::size_t n) {
    Chunk right;
    fill_chunk(known, source, at, n, right.data());
    v += compare_bits(known.element, at, result.data() + offset * width, right.data(), n);
  });
  return v;
}

void inject_error(Element e, std::byte* value) {
  std::array<std::byte, sizeof(double)> before{};
  const std::size_t width = core::size_of(e);
  std::memcpy(before.data(), value, width);
  if (!core::is_integer(e)) {
    core::store(e, value, core::load(e, value) + 0.5);
    if (std::memcmp(before.data(), value, width) != 0) return;
  }
  // The next bit pattern: the next number away from zero, or the integer plus one.
  for (std::size_t i = 0; i < width; ++i) {
    value[i] = std::byte(std::to_integer<unsigned>(value[i]) + 1);
    if (value[i] != std::byte{0}) return;
  }
}

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
  constexpr std::size_t lanes = 4, stride = lanes * sizeof(std::uint64_t);
  std::array<std::uint64_t, lanes> h{1, 2, 3, 4};
  const auto take = [&](const std::byte* from) {
    for (std::size_t j = 0; j < lanes; ++j) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + j * sizeof word, sizeof word);
      h[j] = (h[j] ^ word) * odd;
      h[j] ^= h[j] >> 29;
    }
  };
  std::size_t i = 0;
  for (; i + stride <= bytes.size(); i += stride) take(bytes.data() + i);
  std::array<std::byte, stride> rest{};
  if (i < bytes.size()) std::memcpy(rest.data(), bytes.data() + i, bytes.size() - i);
  take(rest.data());
  std::uint64_t hash = bytes.size();
  for (const std::uint64_t x : h) hash = (hash ^ x) * odd, hash ^= hash >> 32;
  return hash;
}

}  // namespace gradmeter::allreduce
