#include "analysis/findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Eight ranks; the efficiency's interval is ±`half`.
Point step(std::int64_t batch, double efficiency, double half = 0.01) {
  Point p;
  p.experiment = "scale";
  p.factors[Factor::ranks] = std::int64_t{8};
  p.factors[Factor::batch_per_rank] = batch;
  p.factors[Factor::strategy] = std::string("sync");
  p.factors[Factor::codec] = std::string("none");
  core::Summary time;
  time.median = 1 / efficiency;
  time.ci95_low = time.median * 0.99;
  time.ci95_high = time.median * 1.01;
  p.metrics[Metric::time_s] = time;
  p.metrics[Metric::baseline_time_s] = 1.0;
  p.metrics[Metric::efficiency] = efficiency;
  p.metrics[Metric::efficiency_ci95_low] = efficiency - half;
  p.metrics[Metric::efficiency_ci95_high] = efficiency + half;
  p.metrics[Metric::bound_by] = std::string("wire");
  p.metrics[Metric::wire_s] = 0.5;
  p.metrics[Metric::wait_s] = 0.25;
  return p;
}

std::string first(const std::vector<Point>& points) {
  const core::Run run{.info = {}, .points = points};
  const auto out = findings({&run, 1});
  return out.empty() ? "" : out.front().sentence;
}

TEST(Findings, SayHowEfficiencyFallsAndWhatItIsLostTo) {
  EXPECT_EQ(first({step(256, 0.96), step(16, 0.61)}),
            "On 8 ranks efficiency falls from 96 % to 61 % as the mini-batch of a rank falls from 256 to 16; two "
            "thirds of the "
            "lost time is waiting for the wire.");
}

TEST(Findings, DoNotNameADifferenceWithinIntervals) {
  EXPECT_THAT(first({step(256, 0.9, 0.1), step(16, 0.85, 0.1)}),
              HasSubstr("stays at 85 % to 90 % within its intervals"));
  Point better = step(16, 0.62);  // its time lies within the other's interval
  better.factors[Factor::codec] = std::string("bf16");
  EXPECT_THAT(first({step(256, 0.96), step(16, 0.615), better}), Not(HasSubstr("wins")));
}

TEST(Findings, NameWhatWinsTimeBack) {
  Point better = step(16, 0.8);
  better.factors[Factor::codec] = std::string("bf16");
  EXPECT_THAT(first({step(256, 0.96), step(16, 0.5), better}), HasSubstr("codec=bf16 wins three quarters of it back"));
}

Point call(const char* algorithm, double seconds, double limit) {
  Point p;
  p.experiment = "allreduce";
  p.factors[Factor::ranks] = std::int64_t{8};
  p.factors[Factor::collective] = std::string("allreduce");
  p.factors[Factor::size_bytes] = std::int64_t{1024};
  if (*algorithm) p.factors[Factor::algorithm] = std::string(algorithm);
  core::Summary time = core::summarise(std::vector<double>(20, seconds));
  p.metrics[Metric::time_s] = time;
  if (limit > 0) p.metrics[Metric::limit_s] = limit;
  return p;
}

TEST(Findings, OnlyOneOfSeveralIsTheFastest) {
  EXPECT_EQ(first({call("ring", 3e-3, 1e-3), call("direct", 2e-3, 1e-3)}),
            "Allreduce between 8 ranks: at 1 KiB direct is the fastest with 2.00 ms, 2.00 times the limit.");
  EXPECT_EQ(first({call("ring", 2e-3, 1e-3)}),
            "Allreduce between 8 ranks: at 1 KiB a call takes 2.00 ms, 2.00 times the limit.");
  EXPECT_EQ(first({call("", 2e-3, 0)}), "Allreduce between 8 ranks: at 1 KiB a call takes 2.00 ms.");  // imported
}

TEST(Findings, EqualSharesOfTheRooflineAreOne) {
  Point kernel;
  kernel.experiment = "kernels";
  kernel.factors[Factor::problem] = std::string("gemm:m=1,n=1,k=1");
  kernel.factors[Factor::precision] = std::string("fp32");
  kernel.metrics[Metric::roofline] = 0.8;
  Point other = kernel;
  other.factors[Factor::precision] = std::string("bf16");
  EXPECT_EQ(first({kernel, other}), "Kernels reach 80 % of what the roofline allows.");
  other.metrics[Metric::roofline] = 0.5;
  EXPECT_THAT(first({kernel, other}), HasSubstr("from 50 % (gemm:m=1,n=1,k=1 in bf16) to 80 %"));
}

TEST(Findings, SayNothingOfLinksThatWereNotMeasured) {
  Point link;
  link.experiment = "links";
  link.status = core::Status::unsupported;
  EXPECT_EQ(first({link}), "Of 1 point these have no figure: 1 unsupported.");
}

TEST(Findings, SayWhatIsNoMeasurement) {
  Point crowded = step(16, 0.5);
  crowded.metrics[Metric::oversubscribed] = true;
  EXPECT_THAT(first({crowded}), HasSubstr("not a measurement"));
  Point unclear = step(16, 0.5);
  unclear.metrics[Metric::bound_by] = std::string("undecided");
  EXPECT_THAT(first({unclear}), HasSubstr("what it is lost to is within the noise"));
}

TEST(Findings, LeaveOutWhatIsNotTrusted) {
  Point wrong = step(16, 0.5);
  wrong.status = core::Status::mistrusted;
  EXPECT_EQ(first({wrong}), "Of 1 point these have no figure: 1 mistrusted.");
  EXPECT_THAT(first({}), IsEmpty());
}

TEST(Shares, AreWordsWhereASimpleFractionIsNear) {
  EXPECT_EQ(share_in_words(0.66), "two thirds");
  EXPECT_EQ(share_in_words(0.41), "41 %");
  EXPECT_EQ(share_in_words(0.97), "almost all");
}

}  // namespace
}  // namespace gradmeter::analysis
