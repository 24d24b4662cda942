// SPDX-License-Identifier: Apache-2.0
// Points, filters, operand sets and time shares: everything decided before a kernel runs.
#include "bench/kernels/plan.hpp"

#include <gmock/gmock.h>

#include <set>

#include "bench/kernels/limits.hpp"
#include "core/error.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/problems/problem_file.hpp"

namespace gradmeter::bench {
namespace {

using kernels::Pass;
using kernels::Precision;

ChosenProblem chosen(const char* shape, Pass pass = Pass::forward, std::string application = "") {
  return {.problem = {.shape = kernels::parse_shape(shape), .pass = pass, .application = std::move(application)}};
}

KernelFactors two_products() {
  KernelFactors f;
  f.problems = {chosen("gemm:m=16,n=160,k=8", Pass::forward, "DeepSpeech"), chosen("gemm:m=16,n=16,k=8")};
  return f;
}

std::vector<std::string> texts(const std::vector<KernelPoint>& points) {
  std::vector<std::string> out;
  for (const auto& p : points) out.push_back(kernels::problem_text(p.problem.shape));
  return out;
}

TEST(KernelPlan, HasEachCombinationOnce) {
  auto f = two_products();
  f.problems.push_back(f.problems.front());
  f.precisions = {Precision::fp32, Precision::int8};
  f.caches = {CacheState::hot, CacheState::cold};
  const auto points = plan_kernels(f);
  ASSERT_EQ(points.size(), 8u);
  EXPECT_EQ(points[0].problem.precision, Precision::fp32);
  EXPECT_EQ(points[1].cache, CacheState::cold);
  EXPECT_EQ(points[2].problem.precision, Precision::int8) << "precisions of one problem stand together";
}

TEST(KernelPlan, KeepsAProblemsOwnPrecisionUnlessOneIsAsked) {
  auto f = two_products();
  f.problems[0].problem.precision = Precision::bf16;
  EXPECT_EQ(plan_kernels(f)[0].problem.precision, Precision::bf16);
  f.precisions = {Precision::int8};
  EXPECT_EQ(plan_kernels(f)[0].problem.precision, Precision::int8);
}

TEST(KernelPlan, TakesPassesAndFiltersTogether) {
  KernelFactors f;
  f.problems = {chosen("conv:w=8,h=8,c=1,n=4,k=2,fw=3,fh=3"),
                chosen("conv:w=8,h=8,c=1,n=4,k=2,fw=3,fh=3", Pass::backward_data)};
  f.passes = {Pass::backward_data};
  const auto points = plan_kernels(f);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].problem.pass, Pass::backward_data);
  f.filter = ProblemFilter("n=5");
  EXPECT_THROW(plan_kernels(f), core::UsageError);
}

TEST(KernelPlan, SweepsOverTheBatch) {
  auto f = two_products();
  f.batches = {1, 2, 4};
  const auto points = plan_kernels(f);
  EXPECT_THAT(texts(points), testing::ElementsAre("gemm:m=16,n=1,k=8,a=N,b=N", "gemm:m=16,n=2,k=8,a=N,b=N",
                                                  "gemm:m=16,n=4,k=8,a=N,b=N"))
      << "problems that differ in the batch alone are one curve";
  EXPECT_EQ(points[2].batch, 4u);
  EXPECT_EQ(core::to_text(to_factors(points[2], {})[core::Factor::batch_per_rank]), "4");
  f.problems = {{.problem = {.shape = kernels::PointwiseShape{.elements = 8}}}};
  EXPECT_THROW(plan_kernels(f), core::UsageError);
}

TEST(KernelPlan, PacksTheRightOperandOfProducts) {
  auto f = two_products();
  f.packed = true;
  EXPECT_EQ(texts(plan_kernels(f))[0], "gemm:m=16,n=160,k=8,a=N,b=N,packed=yes");
}

/// The columns of B are the mini-batch there, and packing is for weights.
TEST(KernelPlan, PacksNoMiniBatch) {
  auto f = two_products();
  f.batches = {1, 2};
  f.packed = true;
  EXPECT_THROW(plan_kernels(f), core::UsageError);
  f.packed = false;
  f.problems = {chosen("gemm:m=16,k=8,packed=yes")};
  EXPECT_THROW(plan_kernels(f), core::UsageError);
}

TEST(KernelFactors, TellPointsApart) {
  auto f = two_products();
  f.precisions = {Precision::fp32, Precision::bf16};
  f.caches = {CacheState::hot, CacheState::cold};
  std::set<std::string> keys;
  for (const auto& p : plan_kernels(f)) {
    keys.insert(to_factors(p, {.ranks = 2, .nodes = 1, .ranks_per_node = 2, .threads = 1}).key());
    keys.insert(to_factors(p, {.ranks = 1}).key());
  }
  EXPECT_EQ(keys.size(), 16u);
}

TEST(KernelFactors, TellRepeatedMeasurementsApart) {
  auto f = two_products();
  EXPECT_TRUE(core::is_null(to_factors(plan_kernels(f)[0], {})[core::Factor::repeat]));
  f.repeats = 2;
  const auto points = plan_kernels(f);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(core::to_text(to_factors(points[0], {})[core::Factor::repeat]), "1");
  EXPECT_EQ(core::to_text(to_factors(points[1], {})[core::Factor::repeat]), "2") << "in turn with its equal";
}

TEST(ProblemFilter, HoldsWholeValuesAndPartsOfTexts) {
  const auto p = chosen("gemm:m=16,n=160,k=8", Pass::forward, "DeepSpeech").problem;
  EXPECT_TRUE(ProblemFilter("").matches(p));
  EXPECT_TRUE(ProblemFilter("m=16,k=8").matches(p));
  EXPECT_FALSE(ProblemFilter("n=16").matches(p)) << "n is 160";
  EXPECT_FALSE(ProblemFilter("m=16,k=9").matches(p)) << "all must hold";
  EXPECT_TRUE(ProblemFilter("Speech").matches(p));
  EXPECT_TRUE(ProblemFilter("gemm,forward,m=16").matches(p));
  EXPECT_FALSE(ProblemFilter("conv").matches(p));
}

TEST(OperandSets, ExceedTwiceTheLastCacheWhenCold) {
  constexpr std::size_t cache = 32u << 20;
  EXPECT_EQ(operand_sets(CacheState::hot, 100, cache), 1u);
  for (const std::size_t bytes : {5000u, 1u << 20, 33u << 20, 100u << 20}) {
    const auto sets = operand_sets(CacheState::cold, bytes, cache);
    EXPECT_GT(sets * bytes, 2 * cache) << bytes;
    EXPECT_GE(sets, 2u);
  }
  EXPECT_EQ(operand_sets(CacheState::cold, 1, cache), 1u << 14) << "bookkeeping must not outgrow the operands";
}

TEST(OperandSets, CountWhatCallsTouch) {
  // A call reads 500 of the 10,000 rows of B.
  const KernelPoint sparse{.problem = {.shape = kernels::parse_shape("sparse:m=1,n=64,k=10000,sparsity=0.95")},
                           .cache = CacheState::cold};
  constexpr std::size_t cache = 32u << 20;
  const std::size_t set = kernels::kernel_case_bytes(sparse.problem), touched = touched_bytes(sparse.problem);
  EXPECT_LT(touched, set / 10);
  const std::size_t sets = operand_sets(CacheState::cold, touched, cache);
  EXPECT_GT(sets * touched, 2 * cache);
  EXPECT_GT(kernel_memory(sparse, cache).host, sets * set) << "the sets need memory whole";
}

TEST(AllCaches, AreTheLastOnesAndTheThreadsOwn) {
  EXPECT_EQ(all_cache_bytes(100, 10, 4), 140u);
  EXPECT_EQ(all_cache_bytes(0, 10, 4), 0u) << "unknown is not small";
}

TEST(ShareOut, GivesEachItsLeastAndAnEqualPartOfTheRest) {
  const std::vector<double> least{1, 2, 3};
  const auto share = share_out(core::Seconds{12}, least);
  EXPECT_FALSE(share.skip);
  EXPECT_DOUBLE_EQ(share.seconds, 1 + 6.0 / 3);
}

TEST(ShareOut, SkipsTheLongestUntilTheRestFits) {
  EXPECT_FALSE(share_out(core::Seconds{3}, std::vector<double>{1, 100, 2}).skip);
  EXPECT_TRUE(share_out(core::Seconds{3}, std::vector<double>{100, 1, 2}).skip);
  EXPECT_TRUE(share_out(core::Seconds{2.5}, std::vector<double>{2, 1, 1}).skip) << "two short ones go before";
  EXPECT_TRUE(share_out(core::Seconds{0}, std::vector<double>{1e-9}).skip);
  EXPECT_TRUE(share_out(core::Seconds{1}, {}).skip);
}

TEST(ShareOut, LetsLongOnesHaveHalfOfTheTime) {
  EXPECT_FALSE(share_out(core::Seconds{10}, std::vector<double>{4, 0.5, 0.4}).skip);
  EXPECT_TRUE(share_out(core::Seconds{10}, std::vector<double>{4, 1, 1}).skip)
      << "4 is over a third of 10, 6 over half";
  EXPECT_FALSE(share_out(core::Seconds{10}, std::vector<double>{1, 4, 1}).skip);
}

TEST(ShareOut, NeverGivesOutMoreThanThereIs) {
  std::vector<double> least;
  for (int i = 0; i < 200; ++i) least.push_back(0.001 * ((i * 7919) % 997));
  double rest = 30, spent = 0;
  std::size_t measured = 0;
  for (std::size_t i = 0; i < least.size(); ++i) {
    const auto share = share_out(core::Seconds{rest}, std::span(least).subspan(i));
    if (share.skip) continue;
    EXPECT_GE(share.seconds, least[i]);
    rest -= share.seconds;
    spent += share.seconds;
    ++measured;
  }
  EXPECT_LE(spent, 30 + 1e-9);
  EXPECT_GT(measured, 60u) << "most are short";
}

TEST(Slowness, MovesFromTheGuessToWhatIsMeasured) {
  Slowness s(1);
  EXPECT_DOUBLE_EQ(s.of("a"), 1);
  s.learn("a", 5);
  EXPECT_GT(s.of("a"), 1);
  EXPECT_LT(s.of("a"), 5) << "the first pays what is paid once";
  for (int i = 0; i < 50; ++i) s.learn("a", 5);
  EXPECT_NEAR(s.of("a"), 5, 0.01);
  EXPECT_DOUBLE_EQ(s.of("b"), 1);
}

constexpr std::size_t mib = std::size_t{1} << 20, gib = std::size_t{1} << 30;

/// A machine with eight caches of the last level, of 32 MiB each.
MemoryPassFacts eight_caches(std::size_t reached, int ranks, int threads) {
  return {.one_cache_bytes = 32 * mib,
          .reached_cache_bytes = reached * 32 * mib,
          .all_cache_bytes = 8 * 32 * mib,
          .usual_pass_bytes = 128 * mib,
          .free_memory = 256 * gib,
          .ranks_per_node = ranks,
          .threads = threads};
}

TEST(PassesOverMemory, TouchFourTimesTheCachesThatHoldThem) {
  EXPECT_EQ(memory_pass_bytes(eight_caches(8, 1, 64)), 8 * 128 * mib) << "one rank on all cores";
  EXPECT_EQ(memory_pass_bytes(eight_caches(8, 1, 1)), 128 * mib) << "a thread uses one cache at a time";
  EXPECT_EQ(memory_pass_bytes(eight_caches(1, 8, 8)), 128 * mib) << "a rank for each cache";
  EXPECT_EQ(memory_pass_bytes(eight_caches(1, 32, 1)), 32 * mib) << "four ranks share a cache";
  EXPECT_EQ(memory_pass_bytes(eight_caches(8, 32, 1)), 32 * mib) << "ranks that are not bound";
}

TEST(PassesOverMemory, LeaveHalfOfTheFreeMemory) {
  auto little = eight_caches(8, 1, 64);
  little.free_memory = gib;
  EXPECT_EQ(memory_pass_bytes(little), gib / 8 * 3) << "the memory needed is a third more than a pass";
  little.free_memory = 0;
  EXPECT_EQ(memory_pass_bytes(little), 128 * mib) << "as usual";
}

TEST(PassesOverMemory, AreAsLongAsUsualWhereCachesAreNotKnown) {
  EXPECT_EQ(memory_pass_bytes({.usual_pass_bytes = 64 * mib, .free_memory = gib}), 64 * mib);
  EXPECT_EQ(memory_pass_bytes({.usual_pass_bytes = 64 * mib, .free_memory = gib, .ranks_per_node = 64}), 16 * mib);
}

}  // namespace
}  // namespace gradmeter::bench
