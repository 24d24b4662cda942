// SPDX-License-Identifier: Apache-2.0
// The contract of every codec of the registry: a new row is tested without a new test.
#include <algorithm>
#include <array>
#include <cfenv>
#include <cstring>
#include <limits>
#include <string>

#include "compression/detail/bucketed.hpp"
#include "compression/support.hpp"
#include "core/format.hpp"
#include "runtime/threads/this_thread.hpp"

namespace gradmeter::compression {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Every row that has a codec, with its defaults and, where there are, other parameters.
std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& row : codecs()) {
    if (!row.make) continue;
    out.emplace_back(row.name);
    const auto has = [&](std::string_view parameter) { return row.parameters.find(parameter) != row.parameters.npos; };
    if (has("bucket=")) out.push_back(fmt::format("{}:bucket=64", row.name));
    if (has("bucket=")) out.push_back(fmt::format("{}:bucket=4160", row.name));
    if (has("means=1")) out.push_back(fmt::format("{}:means=2", row.name));
    if (has("density=0.01")) out.push_back(fmt::format("{}:density=0.2", row.name));
    if (has("norm=max")) out.push_back(fmt::format("{}:norm=l2", row.name));
    if (has("rounding=stochastic")) out.push_back(fmt::format("{}:rounding=nearest", row.name));
  }
  return out;
}

/// Lengths around units, vectors, bytes and buckets.
constexpr std::array<std::size_t, 22> lengths{0,  1,  2,  3,   7,   8,   9,   15,  16,   17,   31,
                                              63, 64, 65, 127, 129, 511, 512, 513, 1024, 4160, 5000};

/// Equal bits, but for NaN, whose payload says nothing.
::testing::AssertionResult same(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " elements";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

class RegistryContract : public ::testing::TestWithParam<std::string> {
 protected:
  CodecPtr codec_ = codec(GetParam());
};
/// Bits of an element by a sum such as "1 + 32*means/bucket".
double bits_by(std::string_view sum, const CodecChoice& c, std::size_t n) {
  double bits = 0, term = 1;
  bool divides = false;
  for (std::size_t at = 0; at < sum.size();) {
    const std::size_t end = std::min(sum.find_first_of(" */+", at), sum.size());
    const std::string factor(sum.substr(at, end - at));
    if (!factor.empty()) {
      const auto parameter = c.parsed.parameters.find(factor);
      const double value = factor == "n"                            ? static_cast<double>(n)
                           : parameter != c.parsed.parameters.end() ? std::stod(parameter->second)
                                                                    : std::stod(factor);
      term = divides ? term / value : term * value;
    }
    if (end < sum.size() && sum[end] == '+') bits += term, term = 1;
    if (end < sum.size() && sum[end] != ' ') divides = sum[end] == '/';
    at = end + 1;
  }
  return bits + term;
}

TEST_P(RegistryContract, TheListSaysHowManyBitsAreSent) {
  const auto choice = find_codec(GetParam());
  std::string_view text = choice->info->wire_text;
  if (text.starts_with("by the data")) return;
  if (const auto above = text.find("above 1/32: "); above != text.npos) {
    const bool bitmap = std::stod(choice->parsed.parameters.at("density")) > 1.0 / 32;
    text = bitmap ? text.substr(above + 12, text.size() - above - 13) : text.substr(0, text.find(" ("));
  }
  text = text.substr(0, text.find(';'));
  constexpr std::size_t n = std::size_t{1} << 20;
  const double sent = 8.0 * static_cast<double>(choice->codec->wire_bytes(n)) / static_cast<double>(n);
  const double listed = bits_by(text, *choice, n);
  EXPECT_NEAR(sent, listed, 0.01 * listed) << choice->info->wire_text;
}

INSTANTIATE_TEST_SUITE_P(Codecs, RegistryContract, ::testing::ValuesIn(names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST_P(RegistryContract, WireSizeIsWhatIsWritten) {
  for (const std::size_t n : lengths) {
    const auto x = gaussians(n);
    encoded(*codec_, x);
    EXPECT_EQ(codec_->wire_bytes(n) % 16, 0u) << n;
    EXPECT_GE(codec_->wire_bytes(n + 1), codec_->wire_bytes(n)) << n;
  }
}

TEST_P(RegistryContract, ZerosDecodeToExactZeros) {
  for (const float zero : {0.0F, -0.0F}) {
    for (const std::size_t n : lengths) {
      const std::vector<float> x(n, zero);
      for (const float v : passed(*codec_, x, {.step = n})) ASSERT_EQ(v, 0.0F) << n;
    }
  }
}

TEST_P(RegistryContract, WhatIsEncodedTwiceIsTheSame) {
  for (const std::size_t n : lengths) {
    const auto x = gaussians(n);
    const RandomDraw draw{.seed = 1, .step = 2, .tensor = 3, .rank = 4, .phase = 5, .first = 1024 * codec_->grain()};
    const Bytes once = encoded(*codec_, x, draw);
    EXPECT_EQ(encoded(*codec_, x, draw), once) << n;
    EXPECT_TRUE(same(decoded(*codec_, once, n), decoded(*codec_, once, n))) << n;
  }
}

TEST_P(RegistryContract, AdditionIsDecodingAndOneSum) {
  for (const std::size_t n : lengths) {
    const auto x = gaussians(n, 0.01F, 0), addend = gaussians(n, 0.01F, 1);
    const Bytes wire = encoded(*codec_, x);
    auto expected = decoded(*codec_, wire, n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = addend[i] + expected[i];
    std::vector<float> apart(n), in_place = addend;
    codec_->decode_add(wire, addend, apart);
    codec_->decode_add(wire, in_place, in_place);
    EXPECT_TRUE(same(apart, expected)) << n;
    EXPECT_TRUE(same(in_place, expected)) << n;
  }
}

TEST_P(RegistryContract, AWireNeedsNoAlignment) {
  for (const std::size_t n : lengths) {
    const auto x = gaussians(n);
    const Bytes wire = encoded(*codec_, x);
    Bytes shifted(codec_->wire_bytes(n) + 1);
    const std::size_t bytes = codec_->encode(x, shifted.data() + 1, {});
    ASSERT_EQ(bytes, wire.size());
    EXPECT_TRUE(std::equal(wire.begin(), wire.end(), shifted.begin() + 1)) << n;
    std::vector<float> out(n + 1);
    codec_->decode({shifted.data() + 1, bytes}, std::span(out).subspan(1));
    EXPECT_TRUE(same(std::span(out).subspan(1), decoded(*codec_, wire, n))) << n;
  }
}

TEST_P(RegistryContract, WhatIsNotFiniteIsSeenAfterDecoding) {
  // NaN with few bits may become infinity where bits are cut off, with all of them zero where it is rounded up.
  const float few_bits = std::bit_cast<float>(0x7f800001u), all_bits = std::bit_cast<float>(0x7fffffffu);
  for (const float bad : {not_a_number, few_bits, all_bits, infinity, -infinity}) {
    for (const std::size_t n : {1u, 64u, 1000u}) {
      for (const std::size_t place : {std::size_t{0}, n / 2, n - 1}) {
        auto x = gaussians(n);
        x[place] = bad;
        const float out = passed(*codec_, x)[place];
        EXPECT_TRUE(std::isnan(bad) ? std::isnan(out) : !std::isfinite(out)) << bad << ' ' << n << ' ' << place;
      }
    }
  }
}

TEST_P(RegistryContract, FiniteInputsStayFinite) {
  constexpr float most = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
  if (codec_->name().starts_with("fp16") || codec_->name().starts_with("bf16")) return;  // their range is smaller
  for (const float unit : {smallest, 1000 * smallest, 0x1p-126F, 0x1p-64F, 0x1p64F, most / 8, most}) {
    for (const std::size_t n : {1u, 7u, 1000u}) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = unit / static_cast<float>(1 + i % 7) * (i % 2 ? -1.0F : 1.0F);
      for (const float v : passed(*codec_, x, {.step = n})) ASSERT_TRUE(std::isfinite(v)) << unit << ' ' << n;
    }
  }
}

/// The mode of the whole program (runtime::flush_subnormals).
TEST_P(RegistryContract, LargeNumbersHaveTheSameBitsWhereSubnormalsAreFlushed) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "this processor's mode is not known to us";
#endif
  constexpr std::size_t n = 1000;
  std::fenv_t usual;
  ASSERT_EQ(std::fegetenv(&usual), 0);
  on_every_target([&] {
    for (const float unit : {0x1p64F, 0x1p125F, 0x1.8p126F, std::numeric_limits<float>::max()}) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = unit / static_cast<float>(1 + i % 7) * (i % 2 ? -1.0F : 1.0F);
      const auto expected = passed(*codec_, x, {.step = n});
      runtime::flush_subnormals();
      const auto flushed = passed(*codec_, x, {.step = n}), plain = passed(codec_->reference(), x, {.step = n});
      ASSERT_EQ(std::fesetenv(&usual), 0);
      EXPECT_TRUE(same(flushed, expected)) << unit;
      EXPECT_TRUE(same(plain, expected)) << unit;
    }
  });
}

TEST_P(RegistryContract, CodesDoNotDependOnWhereASpanIsCut) {
  if (codec_->variable() || codec_->grain() == whole_tensor) return;
  const std::size_t grain = codec_->grain(), n = 3 * grain + grain / 2 + 1;
  if (codec_->wire_bytes(2 * grain) == codec_->wire_bytes(grain) && grain > 1) return;
  const auto x = gaussians(n);
  const RandomDraw draw{.seed = 9, .first = 7 * grain};
  const auto whole = passed(*codec_, x, draw);
  if (codec_->name().starts_with("terngrad")) return;  // one scale a call
  for (const std::size_t cut : {grain, 2 * grain, 3 * grain}) {
    RandomDraw rest = draw;
    rest.first += cut;
    auto pieces = passed(*codec_, std::span(x).first(cut), draw);
    const auto end = passed(*codec_, std::span(x).subspan(cut), rest);
    pieces.insert(pieces.end(), end.begin(), end.end());
    EXPECT_TRUE(same(pieces, whole)) << cut;
  }
}

/// Buckets that are zero, unfit, tiny and ordinary, one after the other.
std::vector<float> mixture(std::size_t n) {
  auto x = gaussians(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (i / 600 % 5 == 1) x[i] = i % 2 ? 0.0F : -0.0F;
    if (i / 600 % 5 == 2) x[i] *= 0x1p-130F;
    if (i / 600 % 5 == 3 && i % 3 == 0) x[i] *= 1e-4F;
  }
  if (n > 3000) x[2900] = not_a_number;
  return x;
}

TEST_P(RegistryContract, EveryInstructionSetGivesTheBytesAndBitsOfThePlainLoops) {
  const Codec& plain = codec_->reference();
  if (&plain == codec_.get()) return;
  std::vector<std::size_t> all(lengths.begin(), lengths.end());
  all.push_back(20'011);
  on_every_target([&] {
    for (const std::size_t n : all) {
      const auto x = mixture(n), addend = gaussians(n, 0.01F, 1);
      // The last has numbers of more than 32 bits, and of two high words.
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5} << 32, (std::uint64_t{3} << 32) - 700}) {
        const RandomDraw draw{.seed = 8, .step = n, .first = first};
        const Bytes wire = encoded(plain, x, draw);
        ASSERT_TRUE(encoded(*codec_, x, draw) == wire) << n << " from " << first;
        ASSERT_TRUE(same(decoded(*codec_, wire, n), decoded(plain, wire, n))) << n;
        std::vector<float> sum(n), plain_sum(n);
        codec_->decode_add(wire, addend, sum);
        plain.decode_add(wire, addend, plain_sum);
        ASSERT_TRUE(same(sum, plain_sum)) << n;
      }
    }
  });
}

TEST_P(RegistryContract, MillionsOfElementsHaveTheSizeAndBitsOfTheirBuckets) {
  constexpr std::size_t n = (std::size_t{1} << 24) + 1;
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000);
  const Bytes wire = encoded(*codec_, x);
  const auto out = decoded(*codec_, wire, n);
  EXPECT_TRUE(std::isfinite(out.back()));
  if (codec_->grain() == whole_tensor || codec_->name().starts_with("terngrad")) return;
  // The last bucket, alone, has the same codes: no place was lost to rounding.
  const std::size_t from = (n - 1) / codec_->grain() * codec_->grain();
  EXPECT_TRUE(same(passed(*codec_, std::span(x).subspan(from), {.first = from}), std::span(out).subspan(from)));
}

TEST_P(RegistryContract, OutputsThatGoPastTheCachesHaveTheSameBits) {
  constexpr std::size_t n = (std::size_t{8} << 20) + 777, line = 16;  // 32 MiB and more; elements in a cache line
  std::vector<float> x(n), memory(n + 2 * line), apart(n + 2 * line);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000);
  const Bytes wire = encoded(*codec_, x);
  const auto at = [](std::vector<float>& v, std::size_t place) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(v.data()) / sizeof(float) % line;
    return std::span(v).subspan((line - past) % line + place, n);
  };
  codec_->decode(wire, at(memory, 0));  // aligned
  codec_->decode(wire, at(apart, 1));   // not
  EXPECT_TRUE(same(at(memory, 0), at(apart, 1)));
  codec_->decode_add(wire, x, at(memory, 0));
  codec_->decode_add(wire, x, at(apart, 1));
  EXPECT_TRUE(same(at(memory, 0), at(apart, 1)));
}

/// Whoever compares a codec with its paper must read in its row what is not as there.
TEST(CodecRows, SayWhereTheyDifferFromTheirPapers) {
  const auto rule = [](const char* name) { return std::string(find_codec(name)->info->rule); };
  EXPECT_NE(rule("terngrad").find("root mean square"), std::string::npos);
  EXPECT_NE(rule("randomk").find("times n/k"), std::string::npos);
  for (const char* name : {"topk", "randomk", "powersgd"})
    EXPECT_NE(rule(name).find("feedback keeps gradients, not steps"), std::string::npos) << name;
}

}  // namespace
}  // namespace gradmeter::compression
