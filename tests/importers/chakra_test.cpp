// SPDX-License-Identifier: Apache-2.0
// A trace that Chakra's own text converter and jsonizer wrote (mlcommons/chakra 21585d8), and small ones in the JSON of
// its protocol buffers, in which numbers of 64 bits are text and zeros are absent.
#include <gmock/gmock.h>

#include "core/format.hpp"
#include "importers/support.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Factor;
using core::Metric;
using dataparallel::ReplayEvent;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Written {
  int id;
  std::string type;
  int us = 0;
  std::string depends_on;       ///< "\"1\", \"2\""
  std::string attributes = {};  ///< further ones
};
std::string node(const Written& w) {
  return fmt::format(R"({{
  "id": "{}",
  "name": "n{}",
  "type": "{}",
  "dataDeps": [{}],
  "durationMicros": "{}",
  "attr": [{{"name": "is_cpu_op", "boolVal": false}}{}]
}})",
                     w.id, w.id, w.type, w.depends_on, w.us, w.attributes);
}
std::string collective(int id, int type, const std::string& bytes, int us, const std::string& depends_on) {
  return node(
      {.id = id,
       .type = "COMM_COLL_NODE",
       .us = us,
       .depends_on = depends_on,
       .attributes = fmt::format(
           R"(, {{"name": "comm_type", "int64Val": "{}"}}, {{"name": "comm_size", "int64Val": "{}"}})", type, bytes)});
}
const std::string head = "{\n  \"version\": \"0.0.4\"\n}";

/// Two computations, of which the first is exchanged beside the second, and a third that needs the exchange.
std::string overlapped(int exchange_us) {
  return head + node({.id = 1, .type = "COMP_NODE", .us = 1000, .depends_on = ""}) +
         node({.id = 2, .type = "COMP_NODE", .us = 2000, .depends_on = "\"1\""}) +
         collective(3, 0, "4096", exchange_us, "\"1\"") +
         node({.id = 4, .type = "COMP_NODE", .us = 500, .depends_on = "\"2\", \"3\""});
}

std::string described(const dataparallel::TracedStep& s) {
  std::string out;
  for (const ReplayEvent& e : s.events) {
    using enum ReplayEvent::Kind;
    if (e.kind == compute) out += fmt::format("c{:.1f} ", 1e3 * e.seconds);
    if (e.kind == start) out += fmt::format("s{} ", e.call);
    if (e.kind == wait) out += fmt::format("w{} ", e.call);
  }
  return out;
}

/// Two passes of data-parallel training on three layers: an exchange beside what is left of backward, needed by its
/// layer's next forward pass.
TEST(Chakra, ATraceOfItsConverterIsRead) {
  const auto t = read_trace(log_file("chakra.json"), 0);
  const auto& step = t.trace.steps.at(0);
  std::string order;
  for (const ReplayEvent& e : step.events)
    if (e.kind != ReplayEvent::Kind::compute)
      order += fmt::format("{}{} ", e.kind == ReplayEvent::Kind::start ? 's' : 'w', e.call);
  EXPECT_EQ(order, "s0 s1 s2 w2 w1 w0 s3 s4 s5 w3 w4 w5 ");
  EXPECT_EQ(step.calls.at(1).bytes, 1048576u);
  EXPECT_FALSE(t.trace.timed);
  const auto log = read(log_file("chakra.json"));
  ASSERT_EQ(log.run.points.size(), 1u);
  EXPECT_EQ(text(log.run.points[0], Factor::problem), "trace:steps=1,calls=6,bytes=18556416");
  EXPECT_NEAR(number(log.run.points[0], Metric::compute_s), 2 * 4.7e-3, 1e-9);
  EXPECT_TRUE(core::is_null(log.run.points[0].metrics[Metric::time_s]));
  EXPECT_THAT(log.not_stated, HasSubstr("how long collectives took"));
}

TEST(Chakra, NodesBeginWhenWhatTheyDependOnHasEnded) {
  const auto step = read_trace(overlapped(4000), 0).trace.steps.at(0);
  EXPECT_NEAR(step.seconds, 5.5e-3, 1e-9);
  const auto parts = dataparallel::parts_of(step);
  EXPECT_NEAR(parts.compute, 3.5e-3, 1e-9);
  EXPECT_NEAR(parts.communication, 4e-3, 1e-9);
  EXPECT_NEAR(parts.overlap, 2e-3, 1e-9);
  EXPECT_EQ(described(step), "c1.0 s0 c2.0 w0 c0.5 ");
}

/// The host computes 3 ms and calls the collective after the first of them, while the device works 10 ms.
TEST(Chakra, ACollectiveIsStartedAmidstAComputation) {
  const std::string host = R"("name": "is_cpu_op", "boolVal": true)",
                    device = R"("name": "is_cpu_op", "boolVal": false)";
  const auto on_host = [&](const Written& w) { return replaced(node(w), device, host); };
  const std::string log = head + node({.id = 1, .type = "COMP_NODE", .us = 10000, .depends_on = ""}) +
                          on_host({.id = 2, .type = "COMP_NODE", .us = 1000, .depends_on = ""}) +
                          on_host({.id = 3, .type = "COMP_NODE", .us = 2000, .depends_on = "\"2\""}) +
                          collective(4, 0, "4096", 100, "\"2\"");
  EXPECT_EQ(described(read_trace(log, 0).trace.steps.at(0)), "c1.0 s0 c9.0 w0 ");
}

TEST(Chakra, CollectivesGoOneAfterAnother) {
  const std::string log = head + collective(1, 0, "4096", 100, "") + collective(2, 7, "8192", 200, "");
  const auto step = read_trace(log, 0).trace.steps.at(0);
  EXPECT_NEAR(step.calls.at(1).when.begin, 100e-6, 1e-12);
  EXPECT_NEAR(step.calls[1].when.end, 300e-6, 1e-12);
  EXPECT_EQ(step.calls[1].collective, "reduce_scatter");
}

TEST(Chakra, AnAllGathersSizeIsOneRanksPart) {
  const std::string log = head + collective(1, 2, "4096", 100, "");
  EXPECT_EQ(read_trace(log, 3).trace.steps.at(0).calls.at(0).bytes, 12288u);
  EXPECT_EQ(read_trace(log, 0).calls_without_size, 1u);
  EXPECT_THAT(read(log).not_stated,
              HasSubstr("1 collectives are of no or unknown size (all-gathers, gathers and scatters need --ranks)"));
}

TEST(Chakra, ARowPerStepAndPerCollective) {
  const auto log = read(overlapped(4000), {.ranks = 4, .collective = "", .interconnect = ""});
  ASSERT_EQ(log.run.points.size(), 2u);
  EXPECT_EQ(text(log.run.points[0], Factor::problem), "trace:steps=1,calls=1,bytes=4096");
  EXPECT_NEAR(number(log.run.points[0], Metric::time_s), 5.5e-3, 1e-9);
  EXPECT_EQ(text(log.run.points[1], Factor::collective), "allreduce");
  EXPECT_NEAR(number(log.run.points[1], Metric::time_s), 4e-3, 1e-9);
  EXPECT_TRUE(core::is_null(log.run.points[1].factors[Factor::dtype]));
  EXPECT_TRUE(core::is_null(log.run.points[1].factors[Factor::device]));
}

TEST(Chakra, WithoutTimesOfCollectivesTheStepHasNone) {
  const auto log = read(overlapped(0));
  ASSERT_EQ(log.run.points.size(), 1u);
  EXPECT_TRUE(core::is_null(log.run.points[0].metrics[Metric::time_s]));
  EXPECT_NEAR(number(log.run.points[0], Metric::compute_s), 3.5e-3, 1e-9);
  EXPECT_EQ(described(read_trace(overlapped(0), 0).trace.steps.at(0)), "c1.0 s0 c2.0 w0 c0.5 ");
}

TEST(Chakra, WhatIsWrongIsNamedWithItsLine) {
  const std::string log = overlapped(4000);
  EXPECT_THAT(refusal(log.substr(0, log.size() - 20)),
              AllOf(HasSubstr("x.log: line "), HasSubstr("the file may be cut")));
  EXPECT_THAT(refusal(replaced(log, "\"id\": \"3\"", "\"id\": \"2\"")), HasSubstr("node 2 is there twice"));
  EXPECT_THAT(refusal(replaced(log, "[\"1\"]", "[\"4\"]")),
              AllOf(HasSubstr("x.log: line "), HasSubstr("form a cycle")));
  EXPECT_THAT(refusal(replaced(log, "[\"1\"]", "[\"2\"]")), HasSubstr("node 2: its dependencies form a cycle"));
  EXPECT_THAT(refusal(replaced(log, "[\"1\"]", "1")), HasSubstr("'dataDeps' is no list"));
  for (const char* number : {"-1", "1.5", "99999999999999999999", "1e3", ""})
    EXPECT_THAT(refusal(replaced(log, "\"2000\"", fmt::format("\"{}\"", number))),
                HasSubstr("line 10: 'durationMicros' is "))
        << number;
  EXPECT_THAT(refusal(replaced(log, "\"2000\"", "18446744073709551615")), HasSubstr("beyond all times"));
  EXPECT_THAT(refusal(replaced(log, "\"4096\"", "\"18446744073709551615\"")), HasSubstr("beyond all buffers"));
  EXPECT_THAT(refusal(replaced(log, "\"int64Val\": \"0\"", "\"int64Val\": \"77\"")),
              HasSubstr("comm_type 77 is no collective"));
  EXPECT_THAT(refusal(replaced(log, "\"COMP_NODE\"", "4")), HasSubstr("line 3: 4 is no type of nodes"));
  EXPECT_THAT(refusal(replaced(log, "COMP_NODE", "OTHER_NODE")), HasSubstr("'OTHER_NODE' is no type of nodes"));
}

}  // namespace
}  // namespace gradmeter::importers
