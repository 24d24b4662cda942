// SPDX-License-Identifier: Apache-2.0
#include "core/result_file.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "core/format.hpp"
#include "core/json.hpp"
#include "core/random.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string head() { return to_json_line(sample_run()) + "\n"; }
std::string reason(const std::string& text) {
  return refusal([&] { parse_results(text, "r.jsonl"); });
}
Point only_point(const ResultFile& file) { return file.runs.at(0).points.at(0); }

TEST(ResultFile, ARunLineRoundTrips) {
  const RunInfo before = sample_run();
  const RunInfo after = parse_results(head(), "r.jsonl").runs.at(0).info;
  EXPECT_EQ(to_json_line(after), to_json_line(before));
  EXPECT_EQ(after.environment, before.environment);
  EXPECT_EQ(after.hosts, before.hosts);
  EXPECT_EQ(after.memory_bytes_per_node, before.memory_bytes_per_node);
  EXPECT_EQ(after.fingerprint, "machine-a");
}

TEST(ResultFile, APointRoundTripsExactly) {
  const Point before = sample_point();
  const ResultFile file = parse_results(head() + to_json_line(before, "r1") + "\n", "r.jsonl");
  EXPECT_EQ(file.note, "");
  const Point after = only_point(file);
  EXPECT_EQ(after.experiment, before.experiment);
  EXPECT_EQ(after.factors, before.factors);
  EXPECT_EQ(after.raw_times_s, before.raw_times_s);
  EXPECT_EQ(after.metrics[Metric::efficiency].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(after.metrics[Metric::baseline_ranks].get<std::int64_t>(), 1);
  EXPECT_EQ(after.metrics[Metric::oversubscribed].get<bool>(), false);
  EXPECT_EQ(after.metrics[Metric::implementation], before.metrics[Metric::implementation]);
  EXPECT_TRUE(std::isnan(after.metrics[Metric::wait_s].get<double>()));
  EXPECT_TRUE(is_null(after.metrics[Metric::loss]));
  const auto summary = after.metrics[Metric::time_s].get<Summary>();
  EXPECT_EQ(summary.q3, 1.0 / 7.0);
  EXPECT_EQ(summary.max, 1e22);
  EXPECT_TRUE(std::isnan(summary.ci95_low));
  EXPECT_EQ(summary.n, 5u);
  EXPECT_EQ(summary.stop, Stop::budget);
  EXPECT_EQ(to_json_line(after, "r1"), to_json_line(before, "r1"));
}

TEST(ResultFile, DoublesOfAllMagnitudesRoundTripToTheBit) {
  const Random random(11, 0);
  Point point = sample_point();
  point.raw_times_s.clear();
  for (std::uint64_t i = 0; point.raw_times_s.size() < 20000; ++i) {
    const std::uint64_t bits = random.bits(i);
    double x;
    std::memcpy(&x, &bits, sizeof x);
    if (std::isfinite(x)) point.raw_times_s.push_back(x);
  }
  const Point after = only_point(parse_results(head() + to_json_line(point, "r1") + "\n", "r.jsonl"));
  ASSERT_EQ(after.raw_times_s.size(), point.raw_times_s.size());
  EXPECT_EQ(std::memcmp(after.raw_times_s.data(), point.raw_times_s.data(), 8 * point.raw_times_s.size()), 0);
}

TEST(ResultFile, NumbersThatAreNotFiniteBecomeNullAndAreNamed) {
  Point point = sample_point();
  point.raw_times_s = {1, INFINITY};
  const Json json = Json::parse(to_json_line(point, "r1"));
  EXPECT_TRUE(json["metrics"]["wait_s"].is_null());
  EXPECT_TRUE(json["metrics"]["time_s"]["ci95_low"].is_null());
  EXPECT_EQ(json["nonfinite"], Json({"metrics.time_s.ci95_low", "metrics.time_s.ci95_high", "metrics.wait_s",
                                     "metrics.timeline_exchange.0.end_s", "raw_times_s.1"}));
  EXPECT_TRUE(std::isnan(only_point(parse_results(head() + json.dump() + "\n", "r.jsonl")).raw_times_s.at(1)));
}

TEST(ResultFile, EveryFactorIsWrittenAndOnlyMeasuredMetrics) {
  const Json json = Json::parse(to_json_line(sample_point(), "r1"));
  EXPECT_EQ(json["factors"].size(), factor_count);
  EXPECT_TRUE(json["factors"]["codec"].is_null());
  EXPECT_EQ(json["metrics"].size(), 7u);
  EXPECT_FALSE(Json::parse(to_json_line(Point{}, "r1")).contains("nonfinite"));
}

TEST(ResultFile, TextThatIsNotUtf8DoesNotLoseThePoint) {
  Point point = sample_point();
  point.reason = "bad \xff byte";
  EXPECT_EQ(only_point(parse_results(head() + to_json_line(point, "r1") + "\n", "r.jsonl")).reason,
            "bad \xEF\xBF\xBD byte");
}

TEST(ResultFile, UnknownKeysNotesAndAbsentFactorsAreFine) {
  const ResultFile file = parse_results(
      R"({"kind":"note","text":"copied by hand"})"
      "\n"
      R"({"kind":"run","schema":2,"run_id":"x","colour":"blue","ranks":2})"
      "\n"
      R"({"kind":"point","run_id":"x","experiment":"scale","status":"ok","new":[1],"factors":{"ranks":2,"moon":1}})"
      "\n",
      "r.jsonl");
  EXPECT_EQ(file.runs.at(0).info.ranks, 2);
  EXPECT_EQ(only_point(file).factors.key(), "ranks=2 ranks_as=processes");  // from before the key
}

TEST(ResultFile, RawTimesAreReadAsTheParserReadsThem) {
  const auto line = [](const std::string& raw) {
    return fmt::format(R"({{"kind":"point","run_id":"r1","experiment":"scale","status":"ok","raw_times_s"{}}})", raw);
  };
  const auto times = [&](const std::string& raw) {
    return only_point(parse_results(head() + line(raw) + "\n", "r.jsonl")).raw_times_s;
  };
  EXPECT_EQ(times(":[]"), std::vector<double>());
  EXPECT_EQ(times(": [ 1, -0.5 ,2.5e-3,1E+2, 0 ] "), (std::vector<double>{1, -0.5, 2.5e-3, 100, 0}));
  EXPECT_EQ(times(":[0.1],\"reason\":\"raw_times_s\""), std::vector<double>{0.1});
  EXPECT_TRUE(std::isnan(times(":[null,1]").at(0)));
  for (const char* bad :
       {":[01]", ":[1.]", ":[.5]", ":[1,]", ":[,1]", ":[1 2]", ":[inf]", ":[nan]", ":[1e]", ":[1", ":[-]"})
    EXPECT_NE(refusal([&] { times(bad); }).find("not JSON from byte"), std::string::npos) << bad;
  EXPECT_NE(refusal([&] { times(":[1e999]"); }).find("too large"), std::string::npos);
  EXPECT_NE(refusal([&] { times(":[true]"); }).find("'raw_times_s' is true or false"), std::string::npos);
  EXPECT_NE(refusal([&] { times(":7"); }).find("a list of numbers"), std::string::npos);
  // The place of an error behind them is that in the whole line.
  EXPECT_NE(refusal([&] { times(":[1,2,3] x"); }).find(fmt::format("byte {} on", line(":[1,2,3] x").size() - 1)),
            std::string::npos);
}

TEST(ResultFile, RawTimesAreLeftOutWhereTheyAreNotWanted) {
  const Folder folder;
  write_file(folder / "r.jsonl", head() + to_json_line(sample_point(), "r1") + "\n");
  EXPECT_FALSE(only_point(read_results(folder / "r.jsonl")).raw_times_s.empty());
  const Point point = only_point(read_results(folder / "r.jsonl", Reading::strict, RawTimes::left_out));
  EXPECT_TRUE(point.raw_times_s.empty());
  EXPECT_EQ(point.factors, sample_point().factors);
}

TEST(ResultFile, PointsShareTheirTexts) {
  const std::string line = to_json_line(sample_point(), "r1") + "\n";
  const auto points = parse_results(head() + line + line, "r.jsonl").runs.at(0).points;
  const auto* text = points.at(0).factors[Factor::model].as<std::string>();
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text, points.at(1).factors[Factor::model].as<std::string>());
}

TEST(ResultFile, SeveralRunsKeepTheirPointsApart) {
  const std::string text = head() + to_json_line(sample_run("r2")) + "\n" + to_json_line(sample_point(), "r1") + "\n" +
                           to_json_line(sample_point(), "r2") + "\n" + to_json_line(sample_point(), "r2") + "\n";
  const ResultFile file = parse_results(text, "r.jsonl");
  EXPECT_EQ(file.runs.at(0).points.size(), 1u);
  EXPECT_EQ(file.runs.at(1).points.size(), 2u);
}

TEST(ResultFile, ATornLastLineIsLeftOutWithANoteWhereverItBreaks) {
  const std::string whole = head() + to_json_line(sample_point(), "r1") + "\n";
  const std::string last = to_json_line(sample_point(), "r1");
  for (std::size_t cut = 1; cut < last.size(); cut += 7) {
    const ResultFile file = parse_results(whole + last.substr(0, cut), "r.jsonl");
    EXPECT_EQ(file.runs.at(0).points.size(), 1u) << cut;
    EXPECT_THAT(file.note, StartsWith("r.jsonl:3: the last line is torn")) << cut;
  }
}

TEST(ResultFile, ALastLineWithoutNewlineButWholeIsKept) {
  const ResultFile file = parse_results(head() + to_json_line(sample_point(), "r1"), "r.jsonl");
  EXPECT_EQ(file.runs.at(0).points.size(), 1u);
  EXPECT_EQ(file.note, "");
}

TEST(ResultFile, AFileOfOneTornRunLineHoldsNothing) {
  const ResultFile file = parse_results(head().substr(0, 40), "r.jsonl");
  EXPECT_TRUE(file.runs.empty());
  EXPECT_THAT(file.note, HasSubstr("torn"));
}

TEST(ResultFile, AnyOtherBadLineIsRefusedWithFileAndLine) {
  EXPECT_THAT(reason(head() + "{\"kind\":\"point\"\n" + head()), StartsWith("r.jsonl:2: not JSON from byte"));
  EXPECT_THAT(reason(head() + "\n"), StartsWith("r.jsonl:2: not JSON"));
  EXPECT_THAT(reason(head() + "[1]\n"), StartsWith("r.jsonl:2: not a line of a gradmeter result file"));
  EXPECT_THAT(reason(head() + "{\"kind\":\"pont\"}\n"), StartsWith("r.jsonl:2: kind 'pont' is not known"));
  EXPECT_THAT(reason(head() + head()), StartsWith("r.jsonl:2: run 'r1' is in the file twice"));
  EXPECT_THAT(reason(to_json_line(sample_point(), "r1") + "\n"),
              HasSubstr("r.jsonl:1: a point of run 'r1' stands before"));
  EXPECT_THAT(reason(head() + to_json_line(sample_point(), "r9") + "\n"), HasSubstr("r.jsonl:2: a point of run 'r9'"));
  EXPECT_THAT(reason(head() + "{\"kind\":\"point\",\"x\":1e999}\n"), HasSubstr("r.jsonl:2: a number is too large"));
}

TEST(ResultFile, AForeignFileIsRefused) {
  EXPECT_THAT(reason("ranks,time\n1,2\n"), StartsWith("r.jsonl:1: not JSON"));
  EXPECT_THAT(reason("hello"), StartsWith("r.jsonl:1: not JSON"));
  EXPECT_THAT(reason("{\"name\": \"something else\""), StartsWith("r.jsonl:1: not JSON"));
  EXPECT_THAT(reason("{\"name\":1}\n"), StartsWith("r.jsonl:1: not a line of a gradmeter result file"));
  EXPECT_THAT(reason(std::string("\x7f"
                                 "ELF\0\0",
                                 6)),
              StartsWith("r.jsonl:1: "));
}

TEST(ResultFile, AnotherSchemaNumberIsRefused) {
  EXPECT_EQ(reason("{\"kind\":\"run\",\"schema\":1,\"run_id\":\"x\"}\n"),
            "r.jsonl:1: schema 1 is not known; this gradmeter reads schema 2");
  EXPECT_THAT(reason("{\"kind\":\"run\",\"run_id\":\"x\"}\n"), HasSubstr("'schema' is missing"));
}

TEST(ResultFile, AKeyOfTheWrongKindIsNamed) {
  const auto point = [](const std::string& rest) {
    return head() + R"({"kind":"point","run_id":"r1","experiment":"scale",)" + rest + "}\n";
  };
  EXPECT_THAT(reason(point(R"("status":"fine")")),
              HasSubstr("'status' is 'fine'; it should be one of ok, unsupported"));
  EXPECT_THAT(reason(point(R"("factors":{})")), HasSubstr("'status' is missing"));
  EXPECT_THAT(reason(point(R"("status":"ok","factors":[])")), HasSubstr("'factors' is a list; it should be an object"));
  EXPECT_THAT(reason(point(R"("status":"ok","factors":{"ranks":{}})")), HasSubstr("'ranks' is an object"));
  EXPECT_THAT(reason(point(R"("status":"ok","metrics":{"loss":[1]})")), HasSubstr("'loss' is a list"));
  EXPECT_THAT(reason(point(R"("status":"ok","metrics":{"time_s":{"median":"x"}})")), HasSubstr("'time_s.median'"));
  EXPECT_THAT(reason(point(R"("status":"ok","metrics":{"time_s":{"n":-1}})")), HasSubstr("should be a count"));
  EXPECT_THAT(reason(point(R"("status":"ok","factors":{"ranks":18446744073709551615})")), HasSubstr("below 2^63"));
  EXPECT_THAT(reason(point(R"("status":"ok","raw_times_s":[true])")), HasSubstr("'raw_times_s' is true or false"));
  EXPECT_THAT(reason("{\"kind\":\"run\",\"schema\":2,\"run_id\":\"x\",\"hosts\":[1]}\n"),
              HasSubstr("'hosts' is a number"));
}

TEST(ResultFile, AMissingFileAndADirectoryAreRefused) {
  const Folder folder;
  EXPECT_THAT(refusal([&] { read_results(folder / "none.jsonl"); }), HasSubstr("No such file"));
  EXPECT_THAT(refusal([&] { read_results(folder / ""); }), HasSubstr("is a directory"));
}

TEST(FinishedPoints, AreThoseOfTheSameMachineAndExperimentThatNeedNotBeMeasuredAgain) {
  ResultFile file;
  const auto add = [&](const std::string& fingerprint, const std::string& experiment, std::int64_t ranks, Status status,
                       const std::string& why) {
    Point point{
        .experiment = experiment, .status = status, .reason = why, .factors = {}, .metrics = {}, .raw_times_s = {}};
    point.factors[Factor::ranks] = ranks;
    file.runs.push_back({sample_run("r" + std::to_string(file.runs.size()), fingerprint), {point}});
  };
  add("a", "scale", 1, Status::ok, "first");
  add("a", "scale", 1, Status::ok, "second");
  add("b", "scale", 2, Status::ok, "other machine");
  add("a", "train", 3, Status::ok, "other experiment");
  add("a", "scale", 4, Status::unsupported, "");
  add("a", "scale", 5, Status::skipped, "");
  add("a", "scale", 6, Status::failed, "");
  add("a", "scale", 7, Status::wrong, "");
  add("a", "scale", 8, Status::mistrusted, "");
  add("a", "scale", 9, Status::ok, "spoilt later");
  add("a", "scale", 9, Status::wrong, "");
  const auto [finished, not_comparable] = finished_points(file, sample_run("now", "a"), "scale", false);
  EXPECT_EQ(not_comparable.size(), 1u) << "the other machine";
  std::vector<std::string> keys;
  for (const auto& [key, point] : finished) keys.push_back(key);
  EXPECT_THAT(keys, testing::ElementsAre("ranks=1", "ranks=4"));
  EXPECT_EQ(finished.at("ranks=1").reason, "second");
}

// There was no time for a point; --resume measured it, and its file then has two rows of it.
TEST(FinishedPoints, ASkippedPointThatAResumedRunMeasuredIsLeftOut) {
  const auto with_points = [](const std::string& command,
                              std::initializer_list<std::pair<std::int64_t, Status>> points) {
    core::Run run{.info = sample_run(command), .points = {}};
    run.info.command = command;
    for (const auto& [ranks, status] : points) {
      Point p{.experiment = "scale", .status = status, .reason = "", .factors = {}, .metrics = {}, .raw_times_s = {}};
      p.factors[Factor::ranks] = ranks;
      run.points.push_back(p);
    }
    return run;
  };
  const core::Run first =
      with_points("gradmeter scale --out a.jsonl",
                  {{1, Status::ok}, {2, Status::skipped}, {3, Status::skipped}, {4, Status::wrong}});
  std::vector<core::Run> resumed{
      first, with_points("gradmeter scale --out a.jsonl --resume", {{2, Status::ok}, {4, Status::ok}})};
  erase_superseded_points(resumed);
  ASSERT_EQ(resumed[0].points.size(), 3u);
  EXPECT_EQ(resumed[0].points[1].factors.key(), "ranks=3") << "nothing took its place";
  EXPECT_EQ(resumed[0].points[2].status, Status::wrong) << "nothing wrong is hidden";
  EXPECT_EQ(resumed[1].points.size(), 2u);
  std::vector<core::Run> appended{first, with_points("gradmeter scale --out a.jsonl --append", {{2, Status::ok}})};
  erase_superseded_points(appended);
  EXPECT_EQ(appended[0].points.size(), 4u) << "another launch is no part of the first";
}

// One table had rows over shared memory and over TCP.
TEST(FinishedPoints, AreMeasuredUnderTheSameConditions) {
  Point point{
      .experiment = "scale", .status = Status::ok, .reason = "", .factors = {}, .metrics = {}, .raw_times_s = {}};
  const RunInfo now = sample_run("now");
  const auto kept = [&](auto change, bool any = false) {
    RunInfo then = sample_run("then");
    change(then);
    ResultFile file;
    file.runs.push_back({then, {point}});
    return finished_points(file, now, "scale", any);
  };
  EXPECT_EQ(kept([](RunInfo&) {}).points.size(), 1u);
  EXPECT_EQ(kept([](RunInfo& r) { r.environment["SLURM_JOB_ID"] = "another"; }).points.size(), 1u);
  EXPECT_EQ(kept([](RunInfo& r) { r.commit = ""; }).points.size(), 1u) << "not known is not another";
  const auto tcp = [](RunInfo& r) { r.environment["OMPI_MCA_btl"] = "tcp,self"; };
  EXPECT_EQ(kept(tcp).points.size(), 0u);
  EXPECT_EQ(kept(tcp).not_comparable.begin()->first, "environment OMPI_MCA_btl tcp,self (now not set)");
  EXPECT_EQ(kept(tcp, true).points.size(), 1u);
  EXPECT_EQ(kept([](RunInfo& r) { r.commit = "another"; }).points.size(), 0u);
  EXPECT_EQ(kept([](RunInfo& r) { r.libraries["oneDNN"] = "another"; }).points.size(), 0u);
  EXPECT_EQ(kept([](RunInfo& r) { r.binding = "5-6"; }).points.size(), 0u);
  EXPECT_EQ(kept([](RunInfo& r) { r.fingerprint = "other"; }, true).points.size(), 0u)
      << "of any conditions, not of any machine";
}

}  // namespace
}  // namespace gradmeter::core
