// SPDX-License-Identifier: Apache-2.0
#include "allreduce/test_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "core/element.hpp"

namespace gradmeter::allreduce {
namespace {

using core::Element;
using Bytes = std::vector<std::byte>;

constexpr std::array all_operations{Op::sum, Op::average, Op::min, Op::max, Op::product};
constexpr std::array<std::size_t, 12> rank_counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 127};

/// Calls f for every type, operation and number of ranks that mean something.
template <class F>
void for_every_case(Pattern pattern, F f) {
  for (const auto& row : core::elements) {
    for (const Op op : all_operations) {
      if (op == Op::average && core::is_integer(row.element)) continue;
      for (const std::size_t ranks : rank_counts) {
        f(KnownData{.pattern = pattern, .element = row.element, .op = op, .ranks = ranks, .seed = 42});
      }
    }
  }
}

std::string text(const KnownData& k) {
  return std::string(core::info(k.element).name) + ' ' + std::string(name(k.op)) + " of " + std::to_string(k.ranks);
}

std::vector<Bytes> inputs(const KnownData& k, std::size_t begin, std::size_t n) {
  std::vector<Bytes> all(k.ranks, Bytes(n * core::size_of(k.element)));
  for (std::size_t r = 0; r < k.ranks; ++r) fill(k, r, begin, all[r]);
  return all;
}

/// One after the other in the order given, or neighbours first as a tree does.
Bytes reduced(const KnownData& k, std::vector<Bytes> values, const std::vector<std::size_t>& order, bool tree) {
  const std::size_t n = values[0].size() / core::size_of(k.element);
  const auto join = [&](Bytes& a, const Bytes& b) {
    const std::array<const std::byte*, 2> sources{a.data(), b.data()};
    reduce(k.element, k.element, k.op, a.data(), sources, n);
  };
  std::vector<Bytes> parts;
  for (const std::size_t r : order) parts.push_back(values[r]);
  while (parts.size() > 1) {
    if (!tree) {
      join(parts[0], parts[1]);
      parts.erase(parts.begin() + 1);
      continue;
    }
    std::vector<Bytes> joined;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      joined.push_back(parts[i]);
      if (i + 1 < parts.size()) join(joined.back(), parts[i + 1]);
    }
    parts = std::move(joined);
  }
  finish(k.element, k.op, parts[0].data(), parts[0].data(), n, static_cast<int>(k.ranks));
  return parts[0];
}

std::vector<std::size_t> shuffled(std::size_t ranks, unsigned seed) {
  std::vector<std::size_t> order(ranks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

constexpr std::size_t places = 97;
constexpr std::size_t somewhere = 1000;  // so that the range crosses from one chunk into the next

TEST(KnownData, EveryOrderOfReductionGivesTheExactBits) {
  for_every_case(Pattern::exact, [](const KnownData& k) {
    const auto values = inputs(k, somewhere, places);
    for (const bool tree : {false, true}) {
      const Bytes result = reduced(k, values, shuffled(k.ranks, tree ? 1 : 2), tree);
      const CheckResult v = check_reduced(k, somewhere, result);
      EXPECT_EQ(v.wrong, 0u) << text(k) << " tree " << tree << " first " << v.first_wrong;
      EXPECT_EQ(v.error, 0) << text(k);
    }
  });
}

TEST(KnownData, EveryPartialSumIsExactSinceAllMagnitudesTogetherAre) {
  for_every_case(Pattern::exact, [](const KnownData& k) {
    if (k.op != Op::sum) return;
    const auto values = inputs(k, somewhere, places);
    const std::size_t width = core::size_of(k.element);
    for (std::size_t i = 0; i < places; ++i) {
      double magnitude = 0;
      for (const auto& v : values) magnitude += std::fabs(core::load(k.element, v.data() + i * width));
      EXPECT_LE(magnitude, static_cast<double>(core::info(k.element).exact_integers)) << text(k);
      EXPECT_GT(magnitude, 0) << text(k);
    }
  });
}

TEST(KnownData, DamageToAnyElementIsAlwaysFound) {
  for_every_case(Pattern::exact, [](const KnownData& k) {
    const std::size_t width = core::size_of(k.element);
    const Bytes right = reduced(k, inputs(k, somewhere, places), shuffled(k.ranks, 3), true);
    Bytes all = right;
    for (std::size_t i = 0; i < places; ++i) inject_error(k.element, all.data() + i * width);
    EXPECT_EQ(check_reduced(k, somewhere, all).wrong, places) << text(k);
    for (const std::size_t i : {std::size_t{0}, places / 2, places - 1}) {
      Bytes result = right;
      inject_error(k.element, result.data() + i * width);
      const CheckResult v = check_reduced(k, somewhere, result);
      EXPECT_EQ(v.wrong, 1u) << text(k) << " at " << i;
      EXPECT_EQ(v.first_wrong, somewhere + i) << text(k);
      EXPECT_GT(v.error, 0) << text(k);
    }
  });
}

TEST(KnownData, DamageIsHalfAOneToAnIntegerOrAStep) {
  std::array<std::byte, 8> place{};
  const auto damaged = [&](Element e, double x) {
    core::store(e, place.data(), x);
    inject_error(e, place.data());
    return core::load(e, place.data());
  };
  EXPECT_EQ(damaged(Element::f32, 3), 3.5);
  EXPECT_EQ(damaged(Element::f32, -0.5), 0);
  EXPECT_EQ(damaged(Element::i32, 3), 4);
  EXPECT_EQ(damaged(Element::i32, 255), 256);
  EXPECT_EQ(damaged(Element::i8, 127), -128);
  EXPECT_EQ(damaged(Element::e5m2, 2), 2.5);
  EXPECT_EQ(damaged(Element::e5m2, 4), 5) << "4.5 would be rounded to 4";
  EXPECT_EQ(damaged(Element::bf16, 256), 258);
  EXPECT_EQ(damaged(Element::f64, 0x1p60), 0x1p60 + 256);
}

TEST(KnownData, ALostOrDoubledRankIsFoundWhereItCounts) {
  for_every_case(Pattern::exact, [](const KnownData& k) {
    // An extreme of many ranks is often another rank's, and a product often +1: not at every place then.
    if (k.ranks < 2 || (k.op != Op::sum && k.op != Op::average)) return;
    const auto values = inputs(k, 0, 1024);
    for (const std::size_t r : {std::size_t{0}, k.ranks - 1}) {
      auto lost = shuffled(k.ranks, 4), doubled = lost;
      lost.erase(std::find(lost.begin(), lost.end(), r));
      doubled.push_back(r);
      EXPECT_GT(check_reduced(k, 0, reduced(k, values, lost, false)).wrong, 0u) << text(k) << " without " << r;
      EXPECT_GT(check_reduced(k, 0, reduced(k, values, doubled, false)).wrong, 0u) << text(k) << " twice " << r;
    }
  });
}

TEST(KnownData, RanksAndPlacesDiffer) {
  for (const auto pattern : {Pattern::exact, Pattern::random}) {
    for_every_case(pattern, [](const KnownData& k) {
      if (k.op == Op::average) return;
      const auto values = inputs(k, 0, 512);
      std::set<std::uint64_t> different;
      for (const auto& v : values) different.insert(hash_of(v));
      EXPECT_EQ(different.size(), k.ranks) << text(k);
      Bytes later(values[0].size());
      fill(k, 0, 512, later);
      EXPECT_NE(later, values[0]) << text(k);
      fill(k, 0, std::size_t{1} << 32, later);
      EXPECT_NE(later, values[0]) << text(k) << ": the upper half of an index counts";
      KnownData other = k;
      other.seed = k.seed + (std::uint64_t{1} << 40);
      fill(other, 0, 0, later);
      EXPECT_NE(later, values[0]) << text(k) << ": so does that of the seed";
    });
  }
}

TEST(KnownData, AnElementDependsOnItsIndexAndNotOnTheRangeItIsAskedIn) {
  for (const auto pattern : {Pattern::exact, Pattern::random}) {
    for (const auto& row : core::elements) {
      const KnownData k{.pattern = pattern, .element = row.element, .ranks = 3};
      Bytes whole(3000 * row.bytes);
      fill(k, 2, 0, whole);
      for (const std::size_t begin : {std::size_t{1}, std::size_t{1023}, std::size_t{1024}, std::size_t{1999}}) {
        Bytes part(1000 * row.bytes);
        fill(k, 2, begin, part);
        EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin * row.bytes, part.size()), 0) << row.name;
      }
    }
  }
}

TEST(KnownData, RandomDataIsRightWithinItsToleranceInEveryOrder) {
  for_every_case(Pattern::random, [](const KnownData& k) {
    const auto values = inputs(k, somewhere, places);
    for (const bool tree : {false, true}) {
      const CheckResult v = check_reduced(k, somewhere, reduced(k, values, shuffled(k.ranks, 5), tree));
      EXPECT_EQ(v.wrong, 0u) << text(k) << " tree " << tree << " error " << v.error;
      const bool exact = core::is_integer(k.element) || k.op == Op::min || k.op == Op::max;
      if (exact || k.ranks == 1) {
        EXPECT_EQ(v.error, 0) << text(k);
      }
      if (k.op == Op::sum && k.ranks > 4 && !core::is_integer(k.element)) {
        EXPECT_GT(v.error, 0) << text(k) << ": rounding must show";
        EXPECT_LT(v.error, static_cast<double>(k.ranks) * core::info(k.element).unit_roundoff) << text(k);
      }
    }
  });
}

TEST(KnownData, ProductsOfManyRanksStayNormalAndAFaultShows) {
  for (const auto& row : core::elements) {
    if (core::is_integer(row.element)) continue;
    for (const std::size_t ranks : {2u, 16u, 58u, 128u}) {
      const KnownData k{.pattern = Pattern::random, .element = row.element, .op = Op::product, .ranks = ranks};
      const auto values = inputs(k, 0, places);
      const auto value = [&](const Bytes& b, std::size_t i) {
        return std::fabs(core::load(row.element, b.data() + i * row.bytes));
      };
      const double smallest_normal = row.smallest / (2 * row.unit_roundoff);
      for (std::size_t i = 0; i < places; ++i) {
        double least = 1, most = 1;  // of the products of any ranks
        for (const auto& v : values) least *= std::min(1.0, value(v, i)), most *= std::max(1.0, value(v, i));
        EXPECT_GE(least, smallest_normal) << text(k);
        EXPECT_LE(most, row.largest) << text(k);
      }
      Bytes result = reduced(k, values, shuffled(ranks, 7), true);
      EXPECT_EQ(check_reduced(k, 0, result).wrong, 0u) << text(k);
      std::byte* const damaged = result.data() + 50 * row.bytes;
      core::store(row.element, damaged, 2 * core::load(row.element, damaged));
      EXPECT_EQ(check_reduced(k, 0, result).first_wrong, 50u) << text(k);
    }
  }
}

TEST(KnownData, OneRoundingInFp32PassesTheNarrowerTolerance) {
  for (const auto& row : core::elements) {
    if (!core::is_small_float(row.element)) continue;
    for (const Op op : {Op::sum, Op::average}) {
      KnownData k{.pattern = Pattern::random, .element = row.element, .op = op, .ranks = 64};
      const auto values = inputs(k, 0, 2000);
      std::vector<const std::byte*> sources;
      for (const auto& v : values) sources.push_back(v.data());
      Bytes once(values[0].size()), each(values[0].size());
      reduce(row.element, Element::f32, op, once.data(), sources, 2000);
      finish(row.element, op, once.data(), once.data(), 2000, 64);
      reduce(row.element, row.element, op, each.data(), sources, 2000);
      finish(row.element, op, each.data(), each.data(), 2000, 64);
      const double narrow = check_reduced(k, 0, once).error, wide = check_reduced(k, 0, each).error;
      EXPECT_LT(narrow, wide) << row.name;
      k.rounds_once = true;
      EXPECT_EQ(check_reduced(k, 0, once).wrong, 0u) << row.name << ' ' << name(op);
    }
  }
}

TEST(KnownData, ARandomSumThatIsOffByMoreThanRoundingIsFound) {
  for (const auto& row : core::elements) {
    const KnownData k{.pattern = Pattern::random, .element = row.element, .ranks = 3};
    Bytes result = reduced(k, inputs(k, 0, places), shuffled(3, 6), false);
    const std::size_t at = 50 * row.bytes;
    if (core::is_integer(row.element)) {
      inject_error(row.element, result.data() + at);
    } else {
      core::store(row.element, result.data() + at, core::load(row.element, result.data() + at) + 3);
    }
    EXPECT_EQ(check_reduced(k, 0, result).wrong, 1u) << row.name;
    EXPECT_EQ(check_reduced(k, 0, result).first_wrong, 50u) << row.name;
  }
}

TEST(KnownData, ANanIsWrongAndInfinitelyOff) {
  for (const auto pattern : {Pattern::exact, Pattern::random}) {
    const KnownData k{.pattern = pattern, .element = Element::bf16, .ranks = 2};
    Bytes result = reduced(k, inputs(k, 0, 5), {0, 1}, false);
    core::store(Element::bf16, result.data() + 4, std::nan(""));
    const CheckResult v = check_reduced(k, 0, result);
    EXPECT_EQ(v.wrong, 1u);
    EXPECT_EQ(v.first_wrong, 2u);
    EXPECT_TRUE(std::isinf(v.error));
  }
}

TEST(KnownData, CopiesAreHeldAgainstTheirSource) {
  for (const auto& row : core::elements) {
    const KnownData k{.element = row.element, .ranks = 4};
    Bytes copy(2000 * row.bytes);
    fill(k, 3, 77, copy);
    EXPECT_EQ(check_copied(k, 3, 77, copy).wrong, 0u) << row.name;
    EXPECT_GT(check_copied(k, 2, 77, copy).wrong, 0u) << row.name;
    EXPECT_GT(check_copied(k, 3, 78, copy).wrong, 0u) << row.name;
    inject_error(row.element, copy.data() + 1999 * row.bytes);
    EXPECT_EQ(check_copied(k, 3, 77, copy).first_wrong, 77u + 1999) << row.name;
  }
}

TEST(KnownData, AStampChangesEveryPageAndTheAnswerWithIt) {
  for_every_case(Pattern::exact, [](KnownData k) {
    if (k.ranks > 4) return;
    constexpr std::size_t begin = 1000, n = 4000;
    const Bytes before = inputs(k, begin, n)[0];
    KnownData later = k;
    later.stamp = 7;
    std::vector<Bytes> all = inputs(k, begin, n);
    for (std::size_t r = 0; r < k.ranks; ++r) restamp(later, r, begin, all[r]);
    EXPECT_EQ(all, inputs(later, begin, n)) << text(k);
    const Bytes result = reduced(k, all, shuffled(k.ranks, 1), false),
                stale = reduced(k, inputs(k, begin, n), shuffled(k.ranks, 1), false);
    EXPECT_EQ(check_reduced(later, begin, result).wrong, 0u) << text(k);
    // Of each page two elements at most are others; products and bytes have few values.
    if (core::size_of(k.element) >= 4 && k.op == Op::sum) {
      for (std::size_t page = 1024; page + 1024 <= begin + n; page += 1024) {
        const auto part =
            std::span(stale).subspan((page - begin) * core::size_of(k.element), 1024 * core::size_of(k.element));
        const auto wrong = check_reduced(later, page, part).wrong;
        EXPECT_TRUE(wrong == 1 || wrong == 2) << text(k) << ": " << wrong;
      }
    }
    for (std::size_t r = 0; r < k.ranks; ++r) restamp(k, r, begin, all[r]);
    EXPECT_EQ(all[0], before) << text(k);
  });
}

TEST(KnownData, TheSmallestBuffersAreStampedWhole) {
  KnownData k{.element = Element::f32, .ranks = 2};
  Bytes first(64 * 4), second(64 * 4);
  fill(k, 1, 0, first);
  k.stamp = 1;
  fill(k, 1, 0, second);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < 64; ++i) differ += std::memcmp(&first[4 * i], &second[4 * i], 4) != 0;
  EXPECT_GE(differ, 62u);
}

TEST(KnownData, TheFirstElementHasAStampOfItsOwn) {
  KnownData k{.element = Element::i32, .ranks = 2};
  k.stamp = 3;
  Bytes data(2000 * 4);
  fill(k, 1, 0, data);
  KnownData later = k;
  later.stamp = 4;
  const auto first = first_element(later, 1);
  std::memcpy(data.data(), first.data(), 4);
  k.element_0_stamp = 4;
  EXPECT_EQ(check_copied(k, 1, 0, data).wrong, 0u);
  k.element_0_stamp = 5;
  EXPECT_EQ(check_copied(k, 1, 0, data).wrong, 1u);
}

TEST(KnownData, CallsInPlaceHaveOneAnswerWhileSumsAreExact) {
  for_every_case(Pattern::exact, [](KnownData k) {
    if (k.ranks > 16) return;
    const std::size_t most = most_calls_in_place(k);
    EXPECT_TRUE(most >= 1 && most <= 5) << text(k);
    Bytes result = reduced(k, inputs(k, 0, 1500), shuffled(k.ranks, 1), false);
    for (k.calls_in_place = 1; k.calls_in_place <= most; ++k.calls_in_place) {
      EXPECT_EQ(check_reduced(k, 0, result).wrong, 0u) << text(k) << ", " << k.calls_in_place;
      result = reduced(k, std::vector<Bytes>(k.ranks, result), shuffled(k.ranks, 1), false);
    }
  });
  EXPECT_EQ(most_calls_in_place({.element = Element::f32, .ranks = 2}), 5u);
  EXPECT_EQ(most_calls_in_place({.element = Element::f32, .ranks = 4}), 3u);
  EXPECT_EQ(most_calls_in_place({.element = Element::f32, .op = Op::average, .ranks = 2}), 1u);
  KnownData k{.element = Element::f32, .ranks = 2};
  const Bytes once = reduced(k, inputs(k, 0, 100), {0, 1}, false);
  k.calls_in_place = 2;
  EXPECT_GT(check_reduced(k, 0, once).wrong, 90u);
}

TEST(KnownData, VerdictsOfPartsAddUpToThatOfTheWhole) {
  const KnownData k{.element = Element::f32, .ranks = 2};
  Bytes result = reduced(k, inputs(k, 0, 3000), {0, 1}, false);
  for (const std::size_t at : {5u, 2500u}) inject_error(Element::f32, result.data() + 4 * at);
  const std::span<const std::byte> all(result);
  CheckResult parts = check_reduced(k, 2000, all.subspan(8000));
  parts += check_reduced(k, 0, all.subspan(0, 8000));
  const CheckResult whole = check_reduced(k, 0, all);
  EXPECT_EQ(whole.wrong, 2u);
  EXPECT_EQ(parts.wrong, whole.wrong);
  EXPECT_EQ(parts.first_wrong, 5u);
  EXPECT_EQ(parts.error, whole.error);
}

TEST(KnownData, NothingIsRight) {
  const KnownData k{.ranks = 2};
  fill(k, 0, 0, {});
  EXPECT_EQ(check_reduced(k, 0, {}).wrong, 0u);
  EXPECT_EQ(check_copied(k, 0, 0, {}).wrong, 0u);
}

TEST(HashOf, EveryBitAndTheLengthCount) {
  std::set<std::uint64_t> seen;
  for (const std::size_t n : {0u, 1u, 7u, 8u, 31u, 32u, 33u, 100u}) {
    Bytes bytes(n);
    EXPECT_TRUE(seen.insert(hash_of(bytes)).second) << n;
    for (std::size_t bit = 0; bit < 8 * n; ++bit) {
      bytes[bit / 8] ^= std::byte(1u << bit % 8);
      EXPECT_TRUE(seen.insert(hash_of(bytes)).second) << n << ' ' << bit;
      bytes[bit / 8] ^= std::byte(1u << bit % 8);
    }
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
