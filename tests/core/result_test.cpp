#include "core/result.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support.hpp"

namespace gradmeter::core {
namespace {

TEST(Result, EveryFactorAndMetricHasANameOfItsOwn) {
  std::set<std::string_view> factors, metrics;
  for (std::size_t i = 0; i < factor_count; ++i) factors.insert(name(static_cast<Factor>(i)));
  for (std::size_t i = 0; i < metric_count; ++i) metrics.insert(name(static_cast<Metric>(i)));
  EXPECT_EQ(factors.size(), factor_count);
  EXPECT_EQ(metrics.size(), metric_count);
  // The places where a shifted table would show.
  EXPECT_EQ(name(Factor::ranks), "ranks");
  EXPECT_EQ(name(Factor::strategy), "strategy");
  EXPECT_EQ(name(Factor::in_place), "in_place");
  EXPECT_EQ(name(Factor::cache), "cache");
  EXPECT_EQ(name(Metric::time_s), "time_s");
  EXPECT_EQ(name(Metric::bytes_predicted), "bytes_predicted");
  EXPECT_EQ(name(Metric::noise_run_delay), "noise_run_delay");
  EXPECT_EQ(name(Metric::epoch), "epoch");
  EXPECT_EQ(name(Status::mistrusted), "mistrusted");
}

TEST(Result, ValuesAreShownAsTheFileHasThem) {
  EXPECT_EQ(to_text(Value{}), "null");
  EXPECT_EQ(to_text(Value{true}), "true");
  EXPECT_EQ(to_text(Value{std::int64_t{-12}}), "-12");
  EXPECT_EQ(to_text(Value{0.5}), "0.5");
  EXPECT_EQ(to_text(Value{0.1 + 0.2}), "0.30000000000000004");
  EXPECT_EQ(to_text(Value{NAN}), "null");
  EXPECT_EQ(to_text(Value{std::string("ring")}), "ring");
  EXPECT_EQ(to_text(Value{Summary{.median = 2.5}}), "2.5");
}

TEST(Result, TheKeyNamesWhatWasSetInTheEnumsOrder) {
  Factors factors;
  EXPECT_EQ(factors.key(), "");
  factors[Factor::model] = std::string("mlp:784-1024-1024-10");
  factors[Factor::ranks] = std::int64_t{4};
  factors[Factor::in_place] = false;
  EXPECT_EQ(factors.key(), "ranks=4 model=mlp:784-1024-1024-10 in_place=false");
}

TEST(Result, FactorsAreEqualOnlyInValueAndKind) {
  Factors a, b;
  EXPECT_EQ(a, b);
  a[Factor::threads] = std::int64_t{4};
  EXPECT_FALSE(a == b);
  b[Factor::threads] = std::string("4");
  EXPECT_FALSE(a == b);
  b[Factor::threads] = std::int64_t{4};
  EXPECT_EQ(a, b);
}

TEST(Result, AMetricsNumberIsTheValueOrTheMedian) {
  const Metrics metrics = sample_point().metrics;
  EXPECT_EQ(metrics.number(Metric::time_s), 0.1);
  EXPECT_EQ(metrics.number(Metric::baseline_ranks), 1);
  EXPECT_EQ(metrics.number(Metric::oversubscribed), 0);
  EXPECT_TRUE(std::isnan(metrics.number(Metric::implementation)));
  EXPECT_TRUE(std::isnan(metrics.number(Metric::loss)));
}

}  // namespace
}  // namespace gradmeter::core
