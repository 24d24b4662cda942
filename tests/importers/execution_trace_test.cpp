// SPDX-License-Identifier: Apache-2.0
// A trace that PyTorch 2.15 wrote of two ranks over gloo, and one by the format strings of pytorch/pytorch,
// torch/csrc/profiler/standalone/execution_trace_observer.cpp, schema 1.1.1, as eight ranks of NCCL would fill it.
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

std::string nccl() { return log_file("execution_trace_nccl.json"); }

std::string events_of(const dataparallel::TracedStep& s) {
  std::string out;
  for (const ReplayEvent& e : s.events)
    out += fmt::format("{}{} ", e.kind == ReplayEvent::Kind::start ? 's' : 'w', e.call);
  return out;
}

TEST(ExecutionTrace, CollectivesOfAStepAreInTheOrderOfTheirBegins) {
  const auto trace = read_trace(nccl(), 0).trace;
  ASSERT_EQ(trace.steps.size(), 2u);  // the broadcast before the first step is in none
  const auto& calls = trace.steps[1].calls;
  ASSERT_EQ(calls.size(), 4u);  // and barriers are left out
  EXPECT_EQ(calls[0].collective, "allreduce");
  EXPECT_EQ(calls[0].bytes, 2097152u);
  EXPECT_EQ(calls[0].element, core::Element::bf16);
  EXPECT_EQ(calls[2].collective, "all_gather");
  EXPECT_EQ(calls[2].bytes, 32768u);  // the whole buffer, which is the output
  EXPECT_EQ(calls[3].bytes, 1u);      // of a type that is none of ours
  EXPECT_EQ(calls[3].element, core::Element::i8);
  EXPECT_EQ(trace.ranks, 8);
  EXPECT_EQ(trace.device, "cuda");
}

TEST(ExecutionTrace, CollectivesAreWaitedForWhereTheTraceSaysSoElseAtTheEnd) {
  const auto trace = read_trace(nccl(), 0).trace;
  EXPECT_EQ(events_of(trace.steps[0]), "s0 s1 w0 s2 w2 w1 ");
  EXPECT_EQ(events_of(trace.steps[1]), "s0 s1 w0 s2 w2 s3 w1 w3 ");
}

TEST(ExecutionTrace, OfGlooLabelsAreCollectives) {
  const auto t = read_trace(log_file("execution_trace_gloo.json"), 0);
  ASSERT_EQ(t.trace.steps.size(), 3u);
  const auto& calls = t.trace.steps[2].calls;
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].collective, "allreduce");
  EXPECT_EQ(calls[0].bytes, 1071144u);
  EXPECT_EQ(calls[2].bytes, 4u);  // the loss
  EXPECT_EQ(calls[0].element, core::Element::f32);
  EXPECT_EQ(t.trace.device, "cpu");
  EXPECT_EQ(t.trace.ranks, 2);
  // As many bytes as the profiler's trace of this program has.
  EXPECT_EQ(text(read(log_file("execution_trace_gloo.json")).run.points.at(0), Factor::problem),
            text(read(log_file("kineto_gloo.json")).run.points.at(0), Factor::problem));
}

TEST(ExecutionTrace, WithoutStepsAllIsOne) {
  std::string log = nccl();
  for (const char* step : {"ProfilerStep#4", "ProfilerStep#5"}) log = replaced(log, step, "main");
  EXPECT_EQ(read_trace(log, 0).trace.steps.size(), 1u);
  EXPECT_EQ(read_trace(log, 0).trace.steps.at(0).calls.size(), 8u);  // with the broadcast
}

TEST(ExecutionTrace, ARowHasNoTimes) {
  const auto log = read(nccl());
  ASSERT_EQ(log.run.points.size(), 1u);
  const auto& p = log.run.points[0];
  EXPECT_EQ(p.experiment, "replay");
  EXPECT_EQ(text(p, Factor::problem), "trace:steps=2,calls=7,bytes=5308417");
  EXPECT_EQ(text(p, Factor::ranks), "8");
  for (const Metric m : {Metric::time_s, Metric::compute_s, Metric::comm_s})
    EXPECT_TRUE(core::is_null(p.metrics[m])) << core::name(m);
  EXPECT_THAT(log.not_stated, HasSubstr("how long anything took"));
}

/// Schema 1.0.2 has no attributes of collectives, and 1.0.1 has inputs, shapes and types beside each other.
TEST(ExecutionTrace, OlderSchemasSayItByTheirTensors) {
  constexpr const char* head = R"({"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [)";
  constexpr const char* gather =
      R"({"id": 30, "name": "record_param_comms", "ctrl_deps": 24,
          "inputs": {"values": [[[14, 15, 0, 6, 4, "cuda:0"]], 12, 82149104, 0, "all_gather", [], [], 2],
                     "types": ["GenericList[Tensor(float)]", "Int", "Int", "Int", "String", "GenericList[]"]},
          "outputs": {"values": [[[[19, 20, 0, 6, 4, "cuda:0"], [5, 23, 0, 6, 4, "cuda:0"]]]]},
          "attrs": [{"name": "fw_parent", "type": "uint64", "value": 0}]})";
  const auto trace = read_trace(fmt::format("{}{}]}}", head, gather), 0).trace;
  ASSERT_EQ(trace.steps.at(0).calls.size(), 1u);
  EXPECT_EQ(trace.steps[0].calls[0].collective, "all_gather");
  EXPECT_EQ(trace.steps[0].calls[0].bytes, 48u);
  EXPECT_EQ(trace.steps[0].calls[0].element, core::Element::f32);
  EXPECT_EQ(trace.ranks, 2);
  constexpr const char* older =
      R"json({"schema": "1.0.1", "pid": 1, "nodes": [{"id": 3, "name": "record_param_comms", "parent": 2, "fw_parent": 0,
              "inputs": [[7, 8, 0, 10, 8, "cpu"], 5, 1, 0, "all_reduce", 4],
              "input_types": ["Tensor(long int)", "Int"], "outputs": []}]})json";
  const auto first = read_trace(older, 0).trace;
  ASSERT_EQ(first.steps.at(0).calls.size(), 1u);
  EXPECT_EQ(first.steps[0].calls[0].bytes, 80u);
  EXPECT_EQ(first.steps[0].calls[0].element, core::Element::i64);
  EXPECT_EQ(first.device, "cpu");
}

TEST(ExecutionTrace, WhatIsWrongIsNamedWithItsPlace) {
  const std::string log = nccl();
  EXPECT_THAT(refusal(log.substr(0, log.size() / 2)), AllOf(HasSubstr("x.log: line "), HasSubstr("no whole JSON")));
  EXPECT_THAT(refusal(replaced(log, "1.1.1-chakra", "2.0.0-chakra")), HasSubstr("schema is '2.0.0-chakra.0.0.4'"));
  const char* count = R"("in_msg_nelems", "type": "uint64", "value": 1048576)";
  for (const char* other : {"-5", "\"many\"", "1e300", "99999999999999999999", "18446744073709551615", "null"}) {
    const std::string changed = fmt::format(R"("in_msg_nelems", "type": "uint64", "value": {})", other);
    EXPECT_THAT(refusal(replaced(log, count, changed)),
                AllOf(HasSubstr("x.log: node 9: its 'in_msg_nelems'"), HasSubstr("no count")))
        << other;
  }
  EXPECT_THAT(refusal(replaced(log, "\"id\": 9,", "\"id\": -9,")), HasSubstr("nodes[4] is no node"));
  EXPECT_THAT(refusal(replaced(log, "\"id\": 9,", "\"id\": 8,")), HasSubstr("node 8: another node has this id"));
  EXPECT_THAT(refusal(replaced(log, "\"nodes\": [", "\"nodes\": 3, \"x\": [")), HasSubstr("no 'nodes'"));
  EXPECT_THAT(refusal(replaced(log, "\"ctrl_deps\": 1,", "\"ctrl_deps\": 7,")), HasSubstr("form a cycle"));
  EXPECT_THAT(refusal(replaced(log, "\"ctrl_deps\": 1,", "\"ctrl_deps\": [1],")),
              HasSubstr("node 2: its 'ctrl_deps' is no node"));
}

}  // namespace
}  // namespace gradmeter::importers
