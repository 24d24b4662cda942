// SPDX-License-Identifier: Apache-2.0
#include "core/result.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>
#include <variant>

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

TEST(Result, ValuesAreSmallAndCopiesShareWhatIsLarge) {
  EXPECT_EQ(sizeof(Value), 16U);
  const Value text = std::string("a text that is longer than a string holds in place");
  Value copy = text;
  EXPECT_EQ(copy.as<std::string>(), text.as<std::string>());  // the same place
  copy = 0.5;
  EXPECT_EQ(copy.as<std::string>(), nullptr);
  EXPECT_THROW((void)copy.get<std::string>(), std::bad_variant_access);
  EXPECT_EQ(text.get<std::string>(), "a text that is longer than a string holds in place");
}

TEST(Result, ValuesAreKeptByKeyInWhateverOrderTheyAreWritten) {
  Metrics m;
  for (std::size_t i = metric_count; i-- > 0;) m[static_cast<Metric>(i)] = static_cast<std::int64_t>(i);
  for (std::size_t i = 0; i < metric_count; ++i) {
    EXPECT_EQ(m[static_cast<Metric>(i)], Value(static_cast<std::int64_t>(i)));
    if (i % 3 == 0) m[static_cast<Metric>(i)] = {};
  }
  std::size_t visited = 0;
  m.each([&visited](Metric metric, const Value& value) {
    EXPECT_EQ(value.get<std::int64_t>(), static_cast<std::int64_t>(metric));
    ++visited;
  });
  EXPECT_EQ(visited, metric_count - (metric_count + 2) / 3);
  // One from another, which a reference into the same memory would not survive.
  m[Metric::time_s] = std::string("moved");
  m[Metric::compute_s] = m[Metric::time_s];
  m[Metric::comm_s] = m[Metric::wire_s] = m[Metric::compute_s];
  EXPECT_EQ(m[Metric::comm_s].get<std::string>(), "moved");
  m[Metric::comm_s] = m[Metric::loss] = Value();
  EXPECT_TRUE(is_null(m[Metric::comm_s]));
  const Metrics taken(std::move(m));
  EXPECT_EQ(m, Metrics());  // NOLINT(bugprone-use-after-move): that is what is asked
  EXPECT_EQ(taken[Metric::time_s].get<std::string>(), "moved");
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
