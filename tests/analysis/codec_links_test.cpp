// SPDX-License-Identifier: Apache-2.0
#include "analysis/findings.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using testing::HasSubstr;
using testing::Not;

constexpr double gigabit = 1e9 / 8;

/// Every call of the codec takes as long as every other; the interval is 5 % to either side.
Point codec(const std::string& name, double bits, double seconds, std::int64_t size = 1 << 26,
            const std::string& baseline = "fp32") {
  Point p;
  p.experiment = "codecs";
  p.factors[Factor::codec] = name;
  p.factors[Factor::size_bytes] = size;
  p.factors[Factor::problem] = "parts=4,ranks=8,baseline=" + baseline;
  for (const Metric m : {Metric::encode_s, Metric::decode_s, Metric::decode_add_s})
    p.metrics[m] = core::Summary{.median = seconds, .ci95_low = 0.95 * seconds, .ci95_high = 1.05 * seconds, .n = 9};
  p.metrics[Metric::wire_bits] = bits;
  const double all = (1 + 1.0 / 8) + 7.0 / 8 + 1, dense = baseline == "bf16" ? 16 : 32;
  const double speed = static_cast<double>(size) / (all * seconds);
  p.metrics[Metric::crossover_bytes_per_s] = bits < dense ? 2 * 7.0 / 8 * (dense - bits) / 32 * speed : 0.0;
  return p;
}

/// Bytes at the link's rate, and with a codec all its arithmetic, each from the times themselves.
double gain(const Point& p, double link, double dense) {
  const double sent = 2 * 7.0 / 8 * std::ldexp(1, 26) / 32 / link, seconds = p.metrics.number(Metric::encode_s);
  return sent * dense / (sent * p.metrics.number(Metric::wire_bits) + 3 * seconds);
}

TEST(CodecsOnLink, NamesWhatIsWonOnItAndWithWhichCodec) {
  const std::vector points{codec("bf16:ef=off,min=0", 16, 5e-3), codec("qsgd4:bucket=512,ef=on", 4, 20e-3)};
  const auto f = codecs_on_link(points, {gigabit});
  ASSERT_TRUE(f);
  const Estimate four = f->figures.at("speed_with_qsgd4:bucket=512,ef=on"),
                 two = f->figures.at("speed_with_bf16:ef=off,min=0");
  EXPECT_NEAR(four.value, gain(points[1], gigabit, 32), 1e-9);
  EXPECT_NEAR(two.value, gain(points[0], gigabit, 32), 1e-9);
  EXPECT_LT(four.low, four.value);
  EXPECT_GT(four.high, four.value);
  EXPECT_THAT(f->sentence, HasSubstr("On a link of 1 Gbit/s"));
  EXPECT_THAT(f->sentence, HasSubstr("against the dense one in fp32"));
  EXPECT_THAT(f->sentence, HasSubstr("most is won with 4-bit gradients"));
}

TEST(CodecsOnLink, NoneIsShownToPayOnALinkThatIsFasterThanTheCrossover) {
  const auto f = codecs_on_link(std::vector{codec("bf16", 16, 20e-3)}, {100 * gigabit});
  ASSERT_TRUE(f);
  EXPECT_THAT(f->sentence, HasSubstr("none is shown to pay"));
  EXPECT_EQ(f->next, "");
  EXPECT_LT(f->figures.at("speed_with_bf16").high, 1);
}

TEST(CodecsOnLink, ADenseExchangeInBf16LeavesNoBitsToSave) {
  const std::vector points{codec("bf16", 16, 5e-3, 1 << 26, "bf16"), codec("qsgd4", 4, 5e-3, 1 << 26, "bf16")};
  const auto f = codecs_on_link(points, {gigabit});
  ASSERT_TRUE(f);
  EXPECT_THAT(f->sentence, HasSubstr("against the dense one in bf16"));
  EXPECT_THAT(f->sentence, HasSubstr("bf16 gradients saves no bits"));
  EXPECT_NEAR(f->figures.at("speed_with_qsgd4").value, gain(points[1], gigabit, 16), 1e-9);
}

TEST(CodecsOnLink, TakesTheLargestGradientAndNoOtherSize) {
  const std::vector points{codec("qsgd4", 4, 1e-5, 1 << 18), codec("qsgd4", 4, 20e-3),
                           codec("bf16", 16, 1e-5, 1 << 18)};
  const auto f = codecs_on_link(points, {gigabit});
  ASSERT_TRUE(f);
  EXPECT_EQ(f->rows.size(), 1u);
  EXPECT_THAT(f->sentence, Not(HasSubstr("bf16")));
  EXPECT_FALSE(codecs_on_link({}, {gigabit}));
}

TEST(CodecsOnLink, NamesTheGradientsWhereThereAreOthers) {
  std::vector points{codec("qsgd4", 4, 20e-3), codec("qsgd4", 4, 20e-3)};
  points[0].factors[Factor::distribution] = std::string("gaussian");
  EXPECT_THAT(codecs_on_link(std::span(points).first(1), {gigabit})->sentence, Not(HasSubstr("gaussian")));
  points[1].factors[Factor::distribution] = std::string("sparse:density=0.05");
  EXPECT_THAT(codecs_on_link(points, {gigabit})->sentence, HasSubstr("exchange of 64 MiB (gaussian) between"));
}

TEST(CodecsOnLink, SaysWhyNothingIsSaidOfCodecsThatHaveNoFormula) {
  Point p = codec("topk", 4, 20e-3);
  p.metrics[Metric::crossover_bytes_per_s] = {};
  const auto f = codecs_on_link(std::vector{p}, {gigabit});
  ASSERT_TRUE(f);
  EXPECT_THAT(f->sentence, HasSubstr("none of these codecs is exchanged so"));
  p.status = core::Status::unsupported;
  EXPECT_FALSE(codecs_on_link(std::vector{p}, {gigabit}));
}

TEST(CodecsOnLink, TheNextCommandHasTheCodecsParameters) {
  Point p = codec("onebit:bucket=512,ef=off,means=1", 1.0625, 5e-3);
  EXPECT_THAT(codecs_on_link(std::vector{p}, {gigabit})->next, HasSubstr("none,onebit:bucket=512,ef=off,means=1 "));
  p.metrics[Metric::implementation] = std::string("onebit:ef=off");
  EXPECT_THAT(codecs_on_link(std::vector{p}, {gigabit})->next, HasSubstr("--codec none,onebit:ef=off "));
}

TEST(CodecsOnLink, NamesNoWinnerWhereIntervalsMeet) {
  const auto f = codecs_on_link(std::vector{codec("qsgd4", 4, 20e-3), codec("qsgd4:norm=l2", 4, 20.1e-3)}, {gigabit});
  ASSERT_TRUE(f);
  EXPECT_THAT(f->sentence, HasSubstr("no difference is shown between"));
}

}  // namespace
}  // namespace gradmeter::analysis
