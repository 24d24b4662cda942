// SPDX-License-Identifier: Apache-2.0
// Rows for ranks that differ, for wrong and suspicious results, and the roofline in them.
#include "bench/kernels/row.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "bench/kernels/kernels.hpp"
#include "core/format.hpp"
#include "kernels/problems/problem_file.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;
using core::Status;
using testing::HasSubstr;

const KernelPoint product{.problem = {.shape = kernels::GemmShape{.m = 100, .n = 100, .k = 100}}};

KernelResults two_ranks(const KernelPoint& point = product) {
  KernelResults f{
      .point = point, .ranks = 2, .host_of = [](int rank) { return std::string(rank == 0 ? "node1" : "node2"); }};
  f.checks = KernelChecks{.error = 2e-7};
  f.medians = {1e-3, 2e-3};
  for (int block = 0; block < 8; ++block) f.times.add(std::vector<double>(7, 2e-3));
  f.implementation = "test";
  f.bound = {.seconds = 1e-3, .name = "compute", .peak = {2e9}, .rate = {1e9}};
  return f;
}

TEST(KernelRow, IsTheSlowestRanks) {
  core::Point row;
  fill_kernel_check(two_ranks(), row);
  fill_kernel_times(two_ranks(), row);
  EXPECT_EQ(row.status, Status::ok);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::error), 2e-7);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::time_s), 2e-3);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::flops_per_s), 2e6 / 2e-3);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::bytes_per_s), 120000 / 2e-3);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::roofline), 0.5);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::ranks_spread), 2);
  EXPECT_EQ(row.metrics.number(Metric::slowest_rank), 1);
  EXPECT_EQ(core::to_text(row.metrics[Metric::slowest_host]), "node2");
  EXPECT_EQ(core::to_text(row.metrics[Metric::limit]), "compute");
}

/// A host emulates fp16 and fp8 in fp32; a GPU has them.
TEST(KernelRow, CountsTheBytesThatTheDeviceMoves) {
  const std::vector<std::tuple<kernels::Precision, bool, double>> cases{
      {kernels::Precision::fp16, true, 120000},     {kernels::Precision::fp16, false, 60000},
      {kernels::Precision::fp8_e4m3, true, 120000}, {kernels::Precision::fp8_e4m3, false, 60000},
      {kernels::Precision::int8, false, 60000},     {kernels::Precision::bf16, false, 60000}};
  for (const auto& [precision, on_host, bytes] : cases) {
    KernelPoint point = product;
    point.problem.precision = precision;
    auto f = two_ranks(point);
    f.on_host = on_host;
    core::Point row;
    fill_kernel_times(f, row);
    EXPECT_DOUBLE_EQ(row.metrics.number(Metric::bytes_per_s), bytes / 2e-3) << name(precision) << " " << on_host;
  }
}

TEST(KernelRow, IsMistrustedWhereItIsFasterThanWhatBoundsIt) {
  auto f = two_ranks();
  f.bound.seconds = 2.1e-3;
  core::Point row;
  const auto status = [&] {
    row = {};
    fill_kernel_times(f, row);
    return row.status;
  };
  EXPECT_EQ(status(), Status::ok) << "caches may hold more than was supposed";
  EXPECT_TRUE(core::is_null(row.metrics[Metric::limit_s])) << "then it is no limit";
  f.bound.certain = true;
  EXPECT_TRUE(beats_bound(f));
  EXPECT_EQ(status(), Status::mistrusted);
  f.bound.seconds = 1.9e-3;
  EXPECT_EQ(status(), Status::ok);
}

TEST(KernelRow, IsMistrustedWithoutAnIntervalWhereEachSampleIsFaster) {
  KernelResults f{.point = product};
  f.bound = {.seconds = 1e-3, .name = "compute", .peak = {2e9}, .rate = {1e9}, .certain = true};
  f.times.add(std::vector{0.2e-3, 0.8e-3});
  ASSERT_TRUE(std::isnan(core::summarise(f.times).ci95_high));
  EXPECT_TRUE(beats_bound(f));
  f.times.add(std::vector{1.1e-3});
  EXPECT_FALSE(beats_bound(f));
}

TEST(KernelRow, SaysWhereColdOperandsAreInTheCaches) {
  auto f = two_ranks();
  core::Point row;
  fill_kernel_times(f, row);
  EXPECT_EQ(row.reason, "");
  f.sets = 16384, f.cached_bytes = 2u << 20;
  fill_kernel_times(f, row);
  EXPECT_EQ(row.status, Status::ok);
  EXPECT_THAT(row.reason, HasSubstr("16384 sets of operands, 2 MiB together"));
}

TEST(KernelRow, NamesTheRankThatIsWrong) {
  auto f = two_ranks();
  f.checks = KernelChecks{.error = 0.5, .wrong_rank = 1, .worst = 3.25};
  core::Point row;
  fill_kernel_check(f, row);
  EXPECT_EQ(row.status, Status::wrong);
  EXPECT_THAT(row.reason, HasSubstr("3.25 times"));
  EXPECT_THAT(row.reason, HasSubstr("node2 (rank 1)"));
}

TEST(KernelRow, DoesNotLoseANan) {
  auto f = two_ranks();
  f.checks = KernelChecks{.error = std::numeric_limits<double>::quiet_NaN(), .wrong_rank = 0};
  core::Point row;
  fill_kernel_check(f, row);
  EXPECT_EQ(row.status, Status::wrong);
  EXPECT_TRUE(std::isnan(row.metrics.number(Metric::error)));
}

TEST(KernelRow, MistrustsResultsThatAreMostlyZeros) {
  auto f = two_ranks();
  f.checks->zero_share = 0.5;  // rectified
  core::Point row;
  fill_kernel_check(f, row);
  EXPECT_EQ(row.status, Status::ok);
  f.checks->zero_share = 0.7;
  fill_kernel_check(f, row);
  EXPECT_EQ(row.status, Status::mistrusted);
  EXPECT_THAT(row.reason, HasSubstr("70 %"));
}

TEST(KernelRow, CountsARecurrentLayerTwice) {
  const KernelPoint layer{.problem = {.shape = kernels::RnnShape{.hidden = 64, .batch = 4, .steps = 5}}};
  auto f = two_ranks();
  KernelResults g{.point = layer, .ranks = f.ranks, .host_of = f.host_of};
  g.medians = f.medians;
  g.times = f.times;
  core::Point row;
  fill_kernel_times(g, row);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::full_flops_per_s), 2 * row.metrics.number(Metric::flops_per_s));
  EXPECT_TRUE(core::is_null(row.metrics[Metric::roofline])) << "no peak is known";
}

/// The one backward pass makes the gradients of the inputs and of the weights.
TEST(KernelRow, CountsBothProductsOfARecurrentLayersBackwardPass) {
  const KernelPoint layer{.problem = {.shape = kernels::RnnShape{.hidden = 64, .batch = 4, .steps = 5},
                                      .pass = kernels::Pass::backward_data}};
  core::Point row;
  fill_kernel_times(two_ranks(layer), row);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::full_flops_per_s), 4 * row.metrics.number(Metric::flops_per_s));
}

TEST(KernelRow, HoldsPublishedTimesOnlyWhereThereAreSome) {
  core::Point row;
  fill_published("v100-mixed", {0}, row);
  EXPECT_TRUE(core::is_null(row.metrics[Metric::published]));
  fill_published("v100-mixed", {2e-5}, row);
  EXPECT_DOUBLE_EQ(row.metrics.number(Metric::published_time_s), 2e-5);
}

TEST(KernelBound, IsTheLongerOfArithmeticAndMemory) {
  const MemoryLevel memory{"memory", SIZE_MAX, {10e9}}, cache{"L3", 1 << 20, {100e9}};
  EXPECT_EQ(kernel_bound(1e9, 1e6, {100e9}, memory).name, "compute");
  EXPECT_DOUBLE_EQ(kernel_bound(1e9, 1e6, {100e9}, memory).seconds, 0.01);
  EXPECT_EQ(kernel_bound(1e6, 1e9, {100e9}, memory).name, "memory");
  EXPECT_DOUBLE_EQ(kernel_bound(1e6, 1e9, {100e9}, memory).seconds, 0.1);
  EXPECT_EQ(kernel_bound(1e6, 1e9, {100e9}, cache).name, "cache");
  EXPECT_EQ(kernel_bound(1e6, 1e9, {0}, memory).seconds, 0) << "without a peak there is no roofline";
}

TEST(KernelBound, IsCertainWhereNothingCanBeFaster) {
  const KernelBound compute{.seconds = 1, .name = "compute"}, memory{.seconds = 1, .name = "memory"},
      cache{.seconds = 1, .name = "cache"};
  EXPECT_TRUE(is_certain(compute, {}));
  EXPECT_FALSE(is_certain(compute, {.on_host = false}));
  EXPECT_FALSE(is_certain(compute, {.computes_all = false}));
  EXPECT_FALSE(is_certain(compute, {.is_upper_bound = false})) << "it is the library's best square product alone";
  EXPECT_TRUE(is_certain(memory, {.is_upper_bound = false, .rotation_bytes = 200, .caches = 100}));
  EXPECT_FALSE(is_certain(memory, {.rotation_bytes = 198, .caches = 100})) << "the caches keep a part";
  EXPECT_FALSE(is_certain(memory, {.rotation_bytes = 200})) << "the caches are not known";
  EXPECT_FALSE(is_certain(memory, {.on_host = false, .rotation_bytes = 200, .caches = 100}));
  EXPECT_FALSE(is_certain(cache, {.rotation_bytes = 200, .caches = 100}));
}

core::Point batch_point(std::int64_t batch, const char* precision, double flops_per_s) {
  using core::Factor;
  core::Point p;
  p.experiment = "kernels";
  p.factors[Factor::problem] = fmt::format("gemm:m=8,n={},k=8", batch);
  p.factors[Factor::pass] = std::string("forward");
  p.factors[Factor::precision] = std::string(precision);
  p.factors[Factor::cache] = std::string("hot");
  p.factors[Factor::ranks] = std::int64_t{1};
  p.factors[Factor::threads] = std::int64_t{1};
  p.factors[Factor::device] = std::string("cpu");
  p.factors[Factor::batch_per_rank] = batch;
  p.metrics[Metric::flops_per_s] = flops_per_s;
  p.metrics[Metric::roofline] = 0.5;
  return p;
}

/// The part of the tables that shows rates over the mini-batch.
std::string curves(const std::vector<core::Point>& points) {
  const std::string all = kernel_tables(points);
  const auto at = all.find("over the mini-batch");
  return at == std::string::npos ? "" : all.substr(all.rfind('\n', at) + 1);
}

TEST(KernelCurves, KeepUnlikePointsApart) {
  auto one = batch_point(16, "fp32", 11e9), two = batch_point(16, "fp32", 22e9);
  two.factors[core::Factor::threads] = std::int64_t{2};
  EXPECT_THAT(curves({one}), testing::AllOf(HasSubstr("over the mini-batch\n"), HasSubstr("11.0")));
  EXPECT_THAT(curves({one, two}), testing::AllOf(HasSubstr("mini-batch · threads=1\n"), HasSubstr("11.0"),
                                                 HasSubstr("mini-batch · threads=2\n"), HasSubstr("22.0")));
}

TEST(KernelCurves, KeepRunsApart) {
  EXPECT_THAT(curves({batch_point(16, "fp32", 11e9), batch_point(32, "fp32", 12e9), batch_point(16, "fp32", 22e9)}),
              testing::AllOf(HasSubstr("11.0"), HasSubstr("mini-batch · run 2\n"), HasSubstr("22.0")));
}

TEST(KernelCurves, SayWhichRatesAreNotTrusted) {
  auto fast = batch_point(16, "bf16", 99e9);
  fast.status = Status::mistrusted;
  fast.reason = "faster than can be";
  EXPECT_THAT(curves({batch_point(16, "fp32", 11e9), fast}), HasSubstr("bf16 mistrusted: faster than can be"));
}

}  // namespace
}  // namespace gradmeter::bench
