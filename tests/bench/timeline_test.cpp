// SPDX-License-Identifier: Apache-2.0
#include "bench/train/trace.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::bench {
namespace {

using core::Json;
using dataparallel::CallRecord;
using dataparallel::StepRecord;
using runtime::DriftModel;

CallRecord call(double posted, double started, double finished, std::uint64_t bytes = 0) {
  CallRecord c{.label = "all_reduce", .completion = {}};
  c.completion.posted = posted;
  c.completion.started = started;
  c.completion.finished = finished;
  c.completion.bytes_sent = bytes;
  return c;
}

/// Two steps of a second each, with calls that overlap one another and computations that do not.
void fill(RankEvents& t, double begin) {
  for (std::size_t s = 0; s < 2; ++s) {
    const double at = begin + static_cast<double>(s);
    t.add(s, {.step = {at, at + 0.9},
              .computations = {{"forward.gemm", {at, at + 0.2}}, {"backward.gemm", {at + 0.2, at + 0.6}}},
              .calls = {call(at + 0.3, at + 0.3, at + 0.5, 100), call(at + 0.35, at + 0.4, at + 0.7, 200),
                        call(at + 0.5, at + 0.5, at + 0.55, 300)}});
  }
}

std::vector<Json> of(const Json& events, const char* phase) {
  std::vector<Json> out;
  for (const Json& e : events) {
    if (e.at("ph") == phase) out.push_back(e);
  }
  return out;
}

struct Span {
  double begin, end;
};
/// By lane, steps apart: they hold the computations of their lane.
std::map<int, std::vector<Span>> spans(const Json& events) {
  std::map<int, std::vector<Span>> out;
  for (const Json& e : of(events, "X")) {
    if (e.at("cat") == "step") continue;
    const double ts = e.at("ts");
    out[e.at("tid")].push_back({ts, ts + e.at("dur").get<double>()});
  }
  return out;
}

/// Spans of one lane that overlap, pairs counted.
int overlaps(const Json& events) {
  int found = 0;
  for (auto& [lane, list] : spans(events)) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        found += list[k].begin < list[i].end - 1e-6 && list[i].begin < list[k].end - 1e-6;
      }
    }
  }
  return found;
}

TEST(RankEvents, EveryEventIsThereWithItsTimesInMicroseconds) {
  RankEvents t(3, "node7");
  EXPECT_TRUE(t.empty());
  fill(t, 100);
  EXPECT_DOUBLE_EQ(t.first_begin({}), 100);
  const Json events = t.events(t.first_begin({}), {});
  const auto complete = of(events, "X");
  ASSERT_EQ(complete.size(), 12u);
  for (const Json& e : complete) EXPECT_EQ(e.at("pid"), 3);
  EXPECT_EQ(complete[0].at("name"), "step 0");
  EXPECT_DOUBLE_EQ(complete[0].at("dur"), 900000);
  EXPECT_EQ(complete[2].at("name"), "backward.gemm");
  EXPECT_DOUBLE_EQ(complete[2].at("ts"), 200000);
  EXPECT_DOUBLE_EQ(complete[2].at("dur"), 400000);
  EXPECT_EQ(complete[4].at("args").at("bytes"), 200);
  EXPECT_DOUBLE_EQ(complete[4].at("args").at("queued_us"), 50000);
  EXPECT_EQ(complete[6].at("args").at("step"), 1);
  EXPECT_DOUBLE_EQ(complete[6].at("ts"), 1000000);
}

TEST(RankEvents, RanksAndLanesHaveNames) {
  RankEvents t(3, "node7");
  fill(t, 0);
  DriftModel clock;  // synchronised before and after: what happened outside is twice as uncertain
  clock.add({.at = 0, .offset = 1, .uncertainty = 2e-6});
  clock.add({.at = 2, .offset = 1, .uncertainty = 2e-6});
  std::map<std::string, std::set<std::string>> names;
  for (const Json& e : of(t.events(0, clock), "M")) {
    for (const auto& [key, value] : e.at("args").items()) {
      if (value.is_string()) names[e.at("name")].insert(value);
    }
  }
  EXPECT_EQ(names["process_name"], (std::set<std::string>{"rank 3 on node7"}));
  EXPECT_EQ(names["process_labels"], (std::set<std::string>{"clock within 4.0 us"}));
  EXPECT_EQ(names["thread_name"], (std::set<std::string>{"compute", "communication 1", "communication 2"}));
}

TEST(RankEvents, CallsThatOverlapHaveDifferentLanesAndTouchingOnesShareOne) {
  RankEvents t(0, "a");
  fill(t, 0.1);
  const Json events = t.events(0, {});
  EXPECT_EQ(overlaps(events), 0);
  const auto lanes = spans(events);
  EXPECT_EQ(lanes.size(), 3u);
  EXPECT_EQ(lanes.at(1).size(), 4u);  // the third call begins where the first ends
  EXPECT_EQ(lanes.at(2).size(), 2u);
  Json one_lane = events;  // the control: with all calls on one lane the same count finds them
  for (Json& e : one_lane) {
    if (e.at("ph") == "X" && e.at("tid") != 0) e["tid"] = 1;
  }
  EXPECT_EQ(overlaps(one_lane), 4);
}

TEST(RankEvents, ManyCallsNeverOverlapOnALane) {
  RankEvents t(0, "a");
  StepRecord r{.step = {0, 100}, .computations = {}, .calls = {}};
  for (int i = 0; i < 200; ++i) {
    const double begin = (i * 37 % 101) * 0.9, length = 0.1 + (i * 53 % 17);
    r.calls.push_back(call(begin, begin, begin + length));
  }
  t.add(0, r);
  const Json events = t.events(0, {});
  EXPECT_EQ(of(events, "X").size(), 201u);
  EXPECT_EQ(overlaps(events), 0);
}

TEST(RankEvents, ServersBesideWorkersHaveLanesOfTheirOwn) {
  RankEvents t(0, "a");
  fill(t, 0);
  t.add_background(
      1, {.step = {}, .computations = {{"apply", {0.1, 0.4}}}, .calls = {call(0.1, 0.2, 0.5), call(0.3, 0.3, 0.6)}});
  const Json events = t.events(0, {});
  const auto lanes = spans(events);
  EXPECT_EQ(lanes.at(RankEvents::server_lane).size(), 1u);
  EXPECT_EQ(lanes.at(RankEvents::first_server_call_lane).size(), 1u);
  EXPECT_EQ(lanes.at(RankEvents::first_server_call_lane + 1).size(), 1u);
  EXPECT_EQ(overlaps(events), 0);
}

// A rank that only serves has no steps: none of its events may be at time zero.
TEST(RankEvents, ARankWithoutStepsShowsItsServerAlone) {
  RankEvents t(1, "a");
  t.add(0, {});
  EXPECT_TRUE(t.empty());
  EXPECT_EQ(t.first_begin({}), std::numeric_limits<double>::infinity());
  t.add_background(0, {.step = {}, .computations = {{"apply", {5, 6}}}, .calls = {}});
  EXPECT_DOUBLE_EQ(t.first_begin({}), 5);
  EXPECT_EQ(of(t.events(5, {}), "X").size(), 1u);
}

TEST(RankEvents, WaitsStandBetweenTheComputations) {
  RankEvents t(0, "a");
  t.add(4, {.step = {0, 3},
            .computations = {{"backward", {0, 1}}, {"update", {2, 3}}},
            .calls = {},
            .waits = {{"all_reduce", {1, 2}}}});
  const auto complete = of(t.events(0, {}), "X");
  ASSERT_EQ(complete.size(), 4u);
  EXPECT_EQ(complete[3].at("name"), "wait: all_reduce");
  EXPECT_EQ(complete[3].at("cat"), "wait");
  EXPECT_EQ(complete[3].at("tid"), RankEvents::compute_lane);
  EXPECT_EQ(overlaps(t.events(0, {})), 0);
}

TEST(RankEvents, ClocksAreRankZeros) {
  RankEvents ahead(0, "a"), behind(1, "b");
  DriftModel behind_clock;
  behind_clock.add({.at = 60, .offset = 40, .uncertainty = 1e-6});
  fill(ahead, 100);
  fill(behind, 60);
  EXPECT_DOUBLE_EQ(behind.first_begin(behind_clock), ahead.first_begin({}));
  const auto a = of(ahead.events(100, {}), "X"), b = of(behind.events(100, behind_clock), "X");
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].at("ts"), b[i].at("ts"));
  RankEvents uncorrected(1, "b");
  fill(uncorrected, 60);
  EXPECT_NE(of(uncorrected.events(100, {}), "X")[0].at("ts"), a[0].at("ts"));
}

std::string own_path(const char* name) {
  return (std::filesystem::path(testing::TempDir()) / fmt::format("{}-{}.json", name, ::getpid())).string();
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(RankEvents, TheFileIsOneObjectOfJson) {
  const std::string path = own_path("object");
  TraceFile trace(path, true);
  for (int r = 0; r < 3; ++r) {
    RankEvents t(r, "host \"x\"");
    if (r != 1) fill(t, r);
    trace.add(t.events(0, {}).dump());
  }
  trace.close();
  const Json file = Json::parse(text_of(path));
  std::set<int> ranks;
  for (const Json& e : file.at("traceEvents")) ranks.insert(e.at("pid").get<int>());
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(of(file.at("traceEvents"), "X").size(), 24u);
  std::filesystem::remove(path);
}

TEST(RankEvents, AFileIsWholeAndReplacedOnlyWhenAsked) {
  const std::string path = own_path("trace");
  const auto write = [&](const char* event, bool replace) {
    TraceFile trace(path, replace);
    trace.add(event);
    EXPECT_TRUE(std::filesystem::exists(path + ".part"));
    trace.close();
  };
  { TraceFile(path, false).add(R"([{"name": "never closed"}])"); }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  write(R"([{"name": "one"}])", false);
  EXPECT_THROW(TraceFile(path, false), core::UsageError);
  EXPECT_NE(text_of(path).find("one"), std::string::npos);
  write(R"([{"name": "two"}])", true);
  EXPECT_NE(text_of(path).find("two"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  const auto folder = std::filesystem::path(testing::TempDir());
  EXPECT_THROW(check_trace_path((folder / "no" / "folder.json").string(), true), core::UsageError);
  EXPECT_THROW(check_trace_path(folder.string(), true), core::UsageError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace gradmeter::bench
