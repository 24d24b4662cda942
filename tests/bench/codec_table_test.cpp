// SPDX-License-Identifier: Apache-2.0
#include "bench/codecs/codecs.hpp"

#include <gmock/gmock.h>

namespace gradmeter::bench {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using testing::HasSubstr;
using testing::Not;

core::Summary seconds(double median) {
  core::Summary s{.median = median, .ci95_low = 0.5 * median, .ci95_high = 2 * median, .n = 12};
  return s;
}

Point measured() {
  Point p{.experiment = "codecs", .reason = {}, .factors = {}, .metrics = {}, .raw_times_s = {}};
  p.factors[Factor::codec] = std::string("qsgd4:bucket=512,ef=off");
  p.factors[Factor::size_bytes] = std::int64_t{1} << 20;
  p.factors[Factor::distribution] = std::string("gaussian");
  p.factors[Factor::threads] = std::int64_t{1};
  p.factors[Factor::problem] = std::string("parts=4,ranks=8,baseline=bf16");
  p.metrics[Metric::implementation] = std::string("qsgd4");
  p.metrics[Metric::memcpy_s] = seconds(1e-4);
  for (const Metric m : {Metric::encode_s, Metric::decode_s, Metric::decode_add_s, Metric::reduce_encode_s}) {
    p.metrics[m] = seconds(2e-4);
  }
  p.metrics[Metric::wire_bits] = 4.0625;
  p.metrics[Metric::error] = 0.0331;
  p.metrics[Metric::error_expected] = 0.0332;
  p.metrics[Metric::crossover_bytes_per_s] = 1.25e9;
  return p;
}

TEST(CodecTable, ShowsSpeedsAsRatesAndAsSharesOfACopy) {
  const std::string table = codec_tables(std::vector{measured()});
  EXPECT_THAT(table, HasSubstr("1 MiB of fp32 · gaussian · 1 thread · 4 parts · pays below: "
                               "against the dense exchange in bf16 between 8 ranks\n"));
  EXPECT_THAT(table, HasSubstr("qsgd4  4.06"));
  EXPECT_THAT(table, Not(HasSubstr("ef=off"))) << "names are short";
  EXPECT_THAT(table, HasSubstr("5.24  2.62–10.5       50")) << table;  // 1 MiB in 200 us, a copy takes half of that
  EXPECT_THAT(table, HasSubstr("0.0331    0.0332"));
  EXPECT_THAT(table, HasSubstr("10.0")) << "1.25 GB/s are 10 Gbit/s";
}

TEST(CodecTable, SpeedsStayWhereTheTerminalIsNarrow) {
  const std::string table = codec_tables(std::vector{measured()}, 80);
  EXPECT_THAT(table, HasSubstr("left out: expected, 95 %, of copy")) << table;
  for (const char* part : {"encode", "decode-add", "reduce", "pays below", "4.06", "0.0331", "5.24"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
}

TEST(CodecTable, ShowsBoundsNeversAndReasons) {
  Point never = measured(), wrong = measured();
  never.metrics[Metric::error_expected] = {};
  never.metrics[Metric::error_bound] = 0.5;
  never.metrics[Metric::crossover_bytes_per_s] = 0.0;
  wrong.metrics = {};
  wrong.status = core::Status::wrong;
  wrong.reason = "took 5 bytes";
  const std::string table = codec_tables(std::vector{never, wrong});
  EXPECT_THAT(table, HasSubstr("≤0.5"));
  EXPECT_THAT(table, HasSubstr("never"));
  EXPECT_THAT(table, HasSubstr("wrong: took 5 bytes"));
}

TEST(CodecCsv, HasAsManyCellsAsNames) {
  Point p = measured();
  p.factors[Factor::codec] = std::string("plain");
  p.factors[Factor::problem] = std::string("parts=4");
  const auto cells = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(cells(codec_csv().row(p)), cells(codec_csv().header()));
  EXPECT_THAT(codec_csv().header(), HasSubstr("encode_median_s,encode_ci95_low_s,encode_ci95_high_s,encode_samples"));
  EXPECT_THAT(codec_csv().row(measured()), HasSubstr("\"qsgd4:bucket=512,ef=off\""));
}

TEST(ExchangeErrorTable, HasAColumnForEachNumberOfRanks) {
  std::vector<Point> points;
  for (const std::int64_t ranks : {8, 2}) {
    Point p = measured();
    p.factors[Factor::ranks] = ranks;
    p.factors[Factor::algorithm] = std::string("ring");
    p.metrics[Metric::error] = 0.01 * static_cast<double>(ranks);
    points.push_back(p);
  }
  points[0].status = core::Status::unsupported;
  points[0].reason = "ring cannot";
  points[0].metrics[Metric::error] = {};
  const std::string table = exchange_error_tables(points);
  EXPECT_THAT(table, HasSubstr("codec  exchange   P=2  P=8"));
  EXPECT_THAT(table, HasSubstr("qsgd4  ring      0.02    -  unsupported: ring cannot"));
}

}  // namespace
}  // namespace gradmeter::bench
