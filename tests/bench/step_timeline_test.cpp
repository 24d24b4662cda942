// SPDX-License-Identifier: Apache-2.0
// The timeline of a step: by hand, and of a step in virtual time, whose every interval follows from FLOP and links.
#include "bench/scale/step_timeline.hpp"

#include <gmock/gmock.h>

#include <numeric>
#include <utility>

#include "core/format.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "model/registry.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/machines.hpp"
#include "support/training.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::StepRecord;
using testing::ElementsAre;

dataparallel::CallRecord timeline_call(double posted, double started, double finished) {
  dataparallel::CallRecord c{.label = "all-gather", .completion = {}};
  c.completion.posted = posted, c.completion.started = started, c.completion.finished = finished;
  return c;
}

/// A step from 100 to 120 of two layers: forward, loss, backward with two operations each, an exchange of messages, an
/// update. All times are exact in binary.
StepRecord two_layers() {
  StepRecord r{
      .step = {100, 120}, .computations = {}, .calls = {timeline_call(107, 108, 111), timeline_call(110, 111, 114)}};
  const auto add = [&r](std::string_view label, double begin, double end, bool is_exchange = false) {
    r.computations.push_back({.label = label, .when = {begin, end}, .is_message_handling = is_exchange});
    r.submitted += !is_exchange;
  };
  const auto enter = [&r](int layer) { r.layers.push_back({.layer = layer, .first = r.submitted}); };
  enter(0), add("forward.gemm", 100, 101);
  enter(1), add("forward.gemm", 101, 102), add("forward.bias", 102.25, 102.5);
  enter(-1), add("forward.softmax", 102.5, 103);
  enter(1), add("backward.gemm", 103, 105), add("backward.bias", 105, 106);
  add("push", 106, 107, true);
  enter(0), add("backward.gemm", 107, 109);
  enter(-1), add("update", 115, 116);
  return r;
}

TEST(StepTimeline, NamesComputationsByPassAndLayer) {
  const auto t = make_timeline(two_layers(), std::vector<std::string>{"conv", "dense"}, {});
  EXPECT_DOUBLE_EQ(t.step_s, 20);
  EXPECT_THAT(t.compute, ElementsAre(core::Span{"forward 0 conv", 0, 1}, core::Span{"forward 1 dense", 1, 2.5},
                                     core::Span{"forward.softmax", 2.5, 3}, core::Span{"backward 1 dense", 3, 6},
                                     core::Span{"backward 0 conv", 7, 9}, core::Span{"update", 15, 16}));
}

TEST(StepTimeline, PartsUpdatesBetweenWhichAnExchangeEnded) {
  StepRecord r{.step = {0, 10}, .computations = {}, .calls = {timeline_call(1, 1, 2), timeline_call(1, 2, 5)}};
  for (const double begin : {2.0, 3.0, 5.0, 6.25})
    r.computations.push_back({.label = "update", .when = {begin, begin + 1}, .is_message_handling = false});
  EXPECT_THAT(make_timeline(r, {}, {}).compute, ElementsAre(core::Span{"update", 2, 4}, core::Span{"update", 5, 7.25}));
}

TEST(StepTimeline, ExposesWhatNeitherComputationNorAnEarlierCallHides) {
  const core::Spans buckets{{.name = "0 fc2", .bytes = 64}, {.name = "1 fc1", .bytes = 128}};
  const auto t = make_timeline(two_layers(), {}, buckets);
  EXPECT_THAT(t.exchange, ElementsAre(core::Span{"0 fc2", 8, 11, 7, 64}, core::Span{"1 fc1", 11, 14, 10, 128}));
  EXPECT_THAT(t.exposed, ElementsAre(core::Span{"0 fc2", 9, 11}, core::Span{"1 fc1", 11, 14}));
}

TEST(StepTimeline, CountsWhatTwoCallsExposeForTheFirst) {
  const StepRecord r{.step = {0, 10}, .computations = {}, .calls = {timeline_call(1, 1, 4), timeline_call(1, 3, 6)}};
  EXPECT_THAT(make_timeline(r, {}, {}).exposed,
              ElementsAre(core::Span{"all-gather 0", 1, 4}, core::Span{"all-gather 1", 4, 6}));
}

TEST(StepTimeline, OtherCallsThanBucketsHaveTheirLabels) {
  const auto t = make_timeline(two_layers(), {}, core::Spans{{.name = "0 all"}});
  ASSERT_EQ(t.exchange.size(), 2u);
  EXPECT_EQ(t.exchange[1].name, "all-gather 1");
  EXPECT_FALSE(t.exchange[1].bytes);
}

// A call's name is the fabric's, and a step is kept for longer than the fabric.
TEST(StepTimeline, NamesCallsOfAFabricThatIsGone) {
  StepRecord r = two_layers();
  std::string name = "all-reduce ring";
  r.calls[0].label = name;
  name.assign(name.size(), '?');
  EXPECT_EQ(make_timeline(r, {}, {}).exchange[0].name, "all-reduce ring 0");
}

TEST(StepTimeline, GivesNoLayersToALogThatIsNotWhatWasSubmitted) {
  StepRecord r = two_layers();
  ++r.submitted;
  const auto t = make_timeline(r, std::vector<std::string>{"conv", "dense"}, {});
  EXPECT_EQ(t.compute.front().name, "forward.gemm");
}

TEST(BucketSpans, AreNamedByTheirTensors) {
  const std::vector<model::Tensor> tensors{{.name = "b", .shape = {4}, .offset = 0, .count = 4},
                                           {.name = "a.bias", .shape = {4}, .offset = 4, .count = 4},
                                           {.name = "a", .shape = {4}, .offset = 8, .count = 8}};
  const core::Spans spans = bucket_spans(tensors, dataparallel::make_buckets(tensors, 16, 32));
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "0 b … a.bias");
  EXPECT_EQ(spans[0].bytes, 32);
  EXPECT_EQ(spans[1].name, "1 a");
}

TEST(SampleNextTo, SkipsThoseThatAreLate) {
  const std::vector<double> none(4), late{1, 0, 1, 0, 0};
  EXPECT_EQ(sample_next_to(2.2, none, std::vector<double>{1, 3, 2, 4}), 2u);
  EXPECT_EQ(sample_next_to(2.2, late, std::vector<double>{1, 3, 2}), 4u);
  EXPECT_EQ(sample_next_to(0, late, std::vector<double>{1, 3, 2}), 1u);
}

/// Whether the waits of two ranks are known whose clocks differ by an uncertainty and which did not wait.
bool is_wait_known(bool lock_step) {
  bool known = true;
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  runtime::run_thread_ranks(2, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    runtime::SharedClock clock(world, world.rank());  // as on two nodes
    MeasureOptions options;
    options.rule.min_blocks = 1;
    options.warmup_budget = core::Seconds{0.01};
    std::vector<StepRecord> made;
    StepMeter meter(session, world, clock, options,
                    {.prepare = [] {},
                     .step =
                         [&made] {
                           const double begin = runtime::host_clock();
                           made.push_back({.step = {begin, begin + 0.05}, .computations = {}, .calls = {}});
                         },
                     .take_records = [&made] { return std::exchange(made, {}); },
                     .lock_step = lock_step});
    meter.warm_up();
    (void)meter.round();
    if (world.rank() == 0) known = meter.result().wait_known;
  });
  return known;
}

TEST(StepMeter, OnlyWaitsForRanksInLockStepNeedACommonClock) {
  EXPECT_FALSE(is_wait_known(true));
  EXPECT_TRUE(is_wait_known(false)) << "a worker's wait begins and ends on its own clock";
}

/// On three ranks; block b takes steps[b], and rank r computed longest in block b where (b + r) % 3 = 0.
/// Each rank's step has a length of its own.
Measurement blocks_of(int rank, const std::vector<double>& steps) {
  Measurement m;
  for (std::size_t b = 0; b < steps.size(); ++b) {
    StepBlock block{.round = b, .step = steps[b]};
    block.longest_rank = static_cast<int>((3 - b % 3) % 3);
    block.typical.step = {10, 10 + steps[b] + 0.125 * rank};
    block.typical.computations.push_back({.label = "update", .when = {11, 12}});
    block.typical.calls.push_back(timeline_call(12, 12 + 0.25 * rank, 13));
    block.has_typical = true;
    m.blocks.push_back(std::move(block));
  }
  return m;
}

TEST(FillTimeline, TakesTheBlockInTheMiddleFromTheRankThatComputedLongest) {
  std::vector<core::Metrics> told(3);
  runtime::run_thread_ranks(3, [&](const runtime::Communicator& world) {
    fill_timeline(world, blocks_of(world.rank(), {9, 4, 7}), {}, {}, told[static_cast<std::size_t>(world.rank())]);
  });
  using core::Metric;
  EXPECT_DOUBLE_EQ(told[0].number(Metric::timeline_step_s), 7.125);  // block 2, on rank 1
  EXPECT_EQ(told[0][Metric::timeline_rank].get<std::int64_t>(), 1);
  EXPECT_THAT(told[0][Metric::timeline_compute].get<core::Spans>(), ElementsAre(core::Span{"update", 1, 2}));
  const auto exchange = told[0][Metric::timeline_exchange].get<core::Spans>();
  EXPECT_THAT(exchange, ElementsAre(core::Span{"all-gather 0", 2.25, 3, 2}));
  EXPECT_TRUE(core::is_null(told[1][Metric::timeline_step_s])) << "only the first rank has the row";
}

TEST(FillTimeline, TellsNothingOfStepsThatWereNotKeptOrAreTooLong) {
  core::Metrics unkept, whole, crowded;
  runtime::run_thread_ranks(1, [&](const runtime::Communicator& world) {
    Measurement m = blocks_of(0, {1});
    m.blocks[0].has_typical = false;
    fill_timeline(world, m, {}, {}, unkept);
    m = blocks_of(0, {1});
    fill_timeline(world, m, {}, {}, whole);
    for (int i = 0; i < 1000; ++i) m.blocks[0].typical.calls.push_back(timeline_call(12, 12, 13));
    fill_timeline(world, m, {}, {}, crowded);
  });
  EXPECT_TRUE(core::is_null(unkept[core::Metric::timeline_step_s]));
  EXPECT_FALSE(core::is_null(whole[core::Metric::timeline_step_s]));
  for (const auto m : {core::Metric::timeline_step_s, core::Metric::timeline_rank, core::Metric::timeline_compute})
    EXPECT_TRUE(core::is_null(crowded[m])) << core::name(m);
}

constexpr double flops_per_s = 1e9, bytes_per_s = 1e6;
constexpr std::size_t batch = 8;
const std::vector<std::size_t> widths{64, 32, 16, 10};

/// Timelines of the first steps of a worker in virtual time: only FLOP, and bytes on the link, take time.
std::vector<StepTimeline> virtual_steps(int steps, double link_bytes_per_s) {
  dataparallel::SimMachine m;
  m.machine.flops_per_s = flops_per_s;
  m.machine.memory_bytes_per_s = 1e30;
  m.machine = gradmeter::test::linked(0, link_bytes_per_s, 1e30, m.machine);
  std::vector<StepTimeline> timelines;
  dataparallel::SimWorld(2, m).run([&](dataparallel::Fabric& fabric) {
    kernels::set_compute_threads(1);
    dataparallel::Assembly all(
        fabric, {.model = [](const auto&,
                             auto&) { return model::make_model("mlp:64-32-16-10", {.features = 64, .classes = 10}); },
                 .strategy = dataparallel::find_strategy("sync"),
                 .strategy_options = {.bucket_bytes = 1024}});
    const std::vector<float> inputs(64 * batch, 0.1f);
    const std::vector<std::int32_t> labels(batch, 3);
    all.strategy().begin(all.worker());
    all.probe().keep_ready(all.model().tensors().size());
    for (int i = 0; i < steps; ++i) {
      all.probe().begin_step();
      (void)all.strategy().step(all.worker(), {inputs, labels},
                                {.step_size = 0.01f, .number = static_cast<std::uint64_t>(i) + 1});
      const auto& record = all.probe().end_step();
      const auto& model = all.model();
      if (fabric.rank() == 0)
        timelines.push_back(make_timeline(
            record, model.layer_names(),
            bucket_spans(model.tensors(), dataparallel::make_buckets(model.tensors(), model.element_count(), 1024))));
      EXPECT_TRUE(std::ranges::is_sorted(record.ready));
      EXPECT_EQ(record.ready.size(), model.tensors().size());
      EXPECT_DOUBLE_EQ(record.ready.back(), record.calls.back().completion.posted) << "the last tensor ends its bucket";
    }
    all.strategy().end(all.worker());
  });
  return timelines;
}

const core::Span& span_of(const core::Spans& spans, const std::string& begin) {
  const auto found = std::ranges::find_if(spans, [&](const core::Span& s) { return s.name.starts_with(begin); });
  if (found == spans.end()) throw std::runtime_error("no span " + begin);
  return *found;
}

double length(const core::Span& s) { return s.end_s - s.begin_s; }

// The second pass is recorded, the third submits the recorded work: the layers stay the same.
TEST(StepTimeline, InVirtualTimeEachLayerTakesItsFlop) {
  for (const StepTimeline& t : virtual_steps(4, bytes_per_s)) {
    for (std::size_t layer = 0; layer < 3; ++layer) {
      const auto in = static_cast<double>(widths[layer]), out = static_cast<double>(widths[layer + 1]);
      const double product = 2 * batch * in * out, bias = batch * out;
      EXPECT_NEAR(length(span_of(t.compute, fmt::format("forward {} ", layer))), product / flops_per_s, 1e-12);
      EXPECT_NEAR(length(span_of(t.compute, fmt::format("backward {} ", layer))),
                  ((layer > 0 ? 2 : 1) * product + bias) / flops_per_s, 1e-12);
    }
  }
}

TEST(StepTimeline, InVirtualTimeABucketIsReadyWithItsLastGradient) {
  const StepTimeline t = virtual_steps(3, bytes_per_s).back();
  ASSERT_EQ(t.exchange.size(), 5u) << "the last layer, and tensors that are larger than a bucket with what follows";
  for (std::size_t i = 0; i < 5; i += 2) {  // those that end with the last tensor of a layer
    const std::size_t layer = 2 - i / 2;
    const core::Span &backward = span_of(t.compute, fmt::format("backward {} ", layer)), &bucket = t.exchange[i];
    const auto in = static_cast<double>(widths[layer]), out = static_cast<double>(widths[layer + 1]);
    const double until = (2 * batch * in * out + batch * out) / flops_per_s;  // before the gradients by its input
    ASSERT_TRUE(bucket.ready_s && bucket.bytes);
    EXPECT_NEAR(*bucket.ready_s, backward.begin_s + until, 1e-12) << bucket.name;
    EXPECT_GE(bucket.begin_s, *bucket.ready_s);
  }
  // Of two ranks each sends half of it, and then the sum of its half.
  const core::Span& first = t.exchange[0];
  EXPECT_NEAR(length(first), static_cast<double>(*first.bytes) / bytes_per_s, 0.02 * length(first));
}

TEST(StepTimeline, InVirtualTimeASlowLinkIsExposedAndAFastOneIsHidden) {
  const auto exposed = [](const StepTimeline& t) {
    return std::accumulate(t.exposed.begin(), t.exposed.end(), 0.0,
                           [](double sum, const core::Span& s) { return sum + length(s); });
  };
  const StepTimeline slow = virtual_steps(3, bytes_per_s).back(), fast = virtual_steps(3, 1e12).back();
  const double sent =
      std::accumulate(slow.exchange.begin(), slow.exchange.end(), 0.0,
                      [](double sum, const core::Span& s) { return sum + static_cast<double>(*s.bytes); });
  EXPECT_GT(exposed(slow), 0.95 * sent / bytes_per_s);
  EXPECT_LT(exposed(fast), 0.05 * fast.step_s);
  EXPECT_NEAR(slow.step_s - fast.step_s, exposed(slow) - exposed(fast), 1e-9);
}

}  // namespace
}  // namespace gradmeter::bench
