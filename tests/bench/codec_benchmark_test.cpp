// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/measure.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Metric;

/// The row of one check, of a gradient of n normal numbers.
core::Point checked(const char* codec, std::size_t n) {
  CodecFactors f;
  f.codecs = {compression::find_codec(codec)};
  f.sizes = {n * sizeof(float)};
  f.distributions = {std::make_shared<compression::GradientSource>("gaussian")};
  const auto points = plan_codecs(f);
  EXPECT_EQ(points.front().unsupported, "") << codec;
  std::vector<float> x(n);
  points.front().distribution->draw(7, 0, x);
  core::Point row;
  CodecBenchmark benchmark(points.front(), f, x, 7, runtime::host_device());
  EXPECT_TRUE(benchmark.check(row)) << row.reason;
  return row;
}

TEST(CodecBenchmark, CodecsMadeOfCollectivesAreTheStepsOfOneRank) {
  constexpr std::size_t n = 1 << 16;
  const auto top = checked("topk", n), dgc = checked("dgc", n), random = checked("randomk:density=0.25", n),
             thin = checked("powersgd:rank=4", n);
  EXPECT_EQ(dgc.metrics.number(Metric::wire_bits), top.metrics.number(Metric::wire_bits));
  EXPECT_DOUBLE_EQ(dgc.metrics.number(Metric::error), top.metrics.number(Metric::error))
      << "the first step has no momentum yet, and each encoding is a first one";
  EXPECT_DOUBLE_EQ(random.metrics.number(Metric::wire_bits), 8);
  EXPECT_NEAR(random.metrics.number(Metric::error), 0.75, 0.01);
  EXPECT_DOUBLE_EQ(thin.metrics.number(Metric::wire_bits), 32.0 * 4 * (256 + 256) / n);
  EXPECT_GT(thin.metrics.number(Metric::error), 0.9) << "noise has no low rank";
  EXPECT_LT(thin.metrics.number(Metric::error), 1);
}

/// A gradient of two tensors: a matrix of rank 1, which is far from square, and a vector that is too short for a codec.
class RecordedTensors : public testing::Test {
 protected:
  static constexpr std::size_t rows = 64, columns = 1024, biases = 100, all = rows * columns + biases;

  RecordedTensors() : path_(std::filesystem::temp_directory_path() / fmt::format("gradmeter-tensors-{}", ::getpid())) {
    compression::RecordedGradient g{
        "mlp:1024-64",
        0,
        {{"weight", {rows, columns}, 0, rows * columns}, {"bias", {biases}, rows * columns, biases}},
        std::vector<float>(all, 1.0f)};
    std::vector<float> row(rows), column(columns);
    const compression::GradientSource gaussian("gaussian");
    gaussian.draw(1, 0, row);
    gaussian.draw(1, 1, column);
    for (std::size_t i = 0; i < rows * columns; ++i) g.values[i] = row[i / columns] * column[i % columns];
    compression::write_gradient(path_, g, g.values, true);
  }
  ~RecordedTensors() override { std::filesystem::remove(path_); }

  /// The row of one check; without a size, of the whole file.
  core::Point checked(const char* codec, std::size_t n = 0) const {
    CodecFactors f;
    f.codecs = {compression::find_codec(codec)};
    f.sizes = {n > 0 ? n * sizeof(float) : 4096};
    f.takes_recorded_size = n == 0;
    f.distributions = {std::make_shared<compression::GradientSource>("file:" + path_.string())};
    const auto points = plan_codecs(f);
    std::vector<float> x(points.front().elements());
    points.front().distribution->draw(7, 0, x);
    core::Point row;
    CodecBenchmark benchmark(points.front(), f, x, 7, runtime::host_device());
    EXPECT_TRUE(benchmark.check(row)) << row.reason;
    return row;
  }

  std::filesystem::path path_;
};

TEST_F(RecordedTensors, AreEncodedOneByOneInTheirShapes) {
  const auto thin = checked("powersgd:rank=2");
  EXPECT_LT(thin.metrics.number(Metric::error), 1e-9) << "the matrix has rank 1";
  EXPECT_DOUBLE_EQ(thin.metrics.number(Metric::wire_bits), 32.0 * (2 * (rows + columns) + biases) / all);
  const auto top = checked("topk:density=0.5");
  EXPECT_DOUBLE_EQ(top.metrics.number(Metric::wire_bits), (rows * columns * (1 + 16.0) + 32 * biases) / all)
      << "a bitmap and half of the matrix; the short tensor is sent as it is";
  EXPECT_GT(top.metrics.number(Metric::error_expected), 0);
  for (const auto* codec : {"qsgd4", "lns4", "onebit", "dgc", "randomk", "terngrad", "qsgd-elias", "bf16"})
    EXPECT_GT(checked(codec).metrics.number(Metric::error), 0) << codec;
}

TEST_F(RecordedTensors, OfACutOrRepeatedGradientAreCutOrRepeated) {
  EXPECT_LT(checked("powersgd:rank=2", 40 * columns).metrics.number(Metric::error), 1e-9);
  const auto twice = checked("powersgd:rank=2", 2 * all);
  EXPECT_LT(twice.metrics.number(Metric::error), 1e-9);
  EXPECT_DOUBLE_EQ(twice.metrics.number(Metric::wire_bits), 32.0 * (2 * (rows + columns) + biases) / all);
}

TEST(CodecBenchmark, ASumMayDifferInTheSignOfZero) {
  CodecFactors f;
  f.codecs = compression::find_codecs("qsgd4,natural8,topk,onebit,terngrad,bf16");
  f.sizes = {4096 * sizeof(float)};
  f.distributions = {std::make_shared<compression::GradientSource>("gaussian")};
  std::vector<float> x(4096, -0.0f);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = i % 2 ? 0.0f : -1e-20f;
  for (const auto& p : plan_codecs(f)) {
    core::Point row;
    CodecBenchmark benchmark(p, f, x, 7, runtime::host_device());
    EXPECT_TRUE(benchmark.check(row)) << p.codec->label << ": " << row.reason;
  }
}

TEST(CodecBenchmark, ATensorThatWouldNotShrinkHasTheReason) {
  CodecFactors f;
  f.codecs = {compression::find_codec("powersgd:rank=32")};
  f.sizes = {4096};
  f.distributions = {std::make_shared<compression::GradientSource>("gaussian")};
  EXPECT_NE(plan_codecs(f).front().unsupported.find("goes dense"), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::bench
