// SPDX-License-Identifier: Apache-2.0
// What the host asks of a GPU in a training step, as the emulated runtime counts it: no wait, and so many launches as
// docs/cuda.md says; and the times of steps whose marks are read after many of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "bench/codecs/measure.hpp"
#include "bench/engine/session.hpp"
#include "bench/kernels/limits.hpp"
#include "bench/train/training.hpp"
#include "compression/registry.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/loops.hpp"
#include "model/data/dataset.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::bench {
namespace {

struct Network {
  std::string model, data;
  std::uint64_t kernels = 0, products = 0, copies = 0, memsets = 0;  ///< of a step; products: cuBLASLt's
};
std::ostream& operator<<(std::ostream& to, const Network& n) { return to << n.model; }

const Network networks[] = {
    {.model = "mlp:784-32-24-10", .data = {}, .kernels = 8, .products = 8, .copies = 3, .memsets = 2},
    {.model = "cnn:convolutions=2,filters=4,hidden=16",
     .data = {},
     .kernels = 20,
     .products = 6,
     .copies = 3,
     .memsets = 4},
    {.model = "transformer-lm:ff=20,heads=3,hidden=12,layers=1",
     .data = "language:steps=6",
     .kernels = 36,
     .products = 21,
     .copies = 6,
     .memsets = 11},
};

/// Calls the body with a training on the GPU.
void train(const Network& n, const std::function<void(Training&)>& body) {
  kernels::add_cuda_ops();
  const auto data = model::make_data({.source = n.data, .train_samples = 256, .validation_samples = 8});
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  runtime::run_thread_ranks(1, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    session.compute_on(std::make_shared<runtime::CudaDevice>(0), {}, nullptr);
    Training training(session, world, data,
                      {.model = n.model,
                       .batch_per_rank = 4,
                       .device = "cuda",
                       .strategy = dataparallel::find_strategy("sync"),
                       .optimizer = "momentum"});
    body(training);
    training.finish();
  });
}

constexpr std::size_t steps = 4;

void submit_steps(Training& training, std::size_t first) {
  for (std::size_t step = first; step < first + steps; ++step) training.step(step);
}

class DeviceStep : public ::testing::TestWithParam<Network> {};

#ifdef GRADMETER_CUDA_EMULATED
TEST_P(DeviceStep, IsSubmittedWithoutAWait) {
  const Network& n = GetParam();
  test::each_device_seed([&] {
    train(n, [&](Training& training) {
      // Passes are recorded, and pinned memory is there for as many batches as may be under way.
      for (std::size_t first = 0; first < 5 * steps; first += steps) submit_steps(training, first);
      training.take_records();
      const auto before = cuda_emulator::counts();
      submit_steps(training, 5 * steps);
      const auto after = cuda_emulator::counts();
      EXPECT_EQ(after.waits - before.waits, 0U);
      EXPECT_EQ(after.allocations - before.allocations, 0U) << "a device may wait there for its work";
      EXPECT_EQ(after.host_functions - before.host_functions, 0U) << "kernels behind them wait";
      EXPECT_EQ(after.kernels - before.kernels, steps * n.kernels);
      EXPECT_EQ(after.products - before.products, steps * n.products);
      EXPECT_EQ(after.copies - before.copies, steps * n.copies);
      EXPECT_EQ(after.memsets - before.memsets, steps * n.memsets);
      // The control: who asks for the records waits.
      training.take_records();
      EXPECT_GT(cuda_emulator::counts().waits, after.waits);
    });
  });
}

TEST(DevicePool, KeepsWhatStepsGiveBack) {
  const runtime::CudaDevice device(0);
  EXPECT_EQ(cuda_emulator::pool_threshold(), UINT64_MAX);
}
#endif

/// A sample of many short calls is one submission; where the host has to do some of a call, they are made one by one.
TEST(DeviceClock, CapturesTheCallsOfASample) {
  test::each_device_seed([] {
    runtime::CudaDevice device(0);
    const auto queue = device.make_queue();
    const auto from = device.allocate(core::Element::f32, 64), to = device.allocate(core::Element::f32, 64);
    constexpr std::size_t samples = 5, calls = 10;
    std::size_t made = 0;
    DeviceClock clock(device);
    const auto times = clock.time(*queue, samples, calls, false, [&] {
      ++made;
      queue->copy("copy", from.buffer, to.buffer);
    });
    EXPECT_EQ(times.size(), samples);
    EXPECT_EQ(made, calls);
    std::vector<float> host(64);
    made = 0;
    const auto pageable = [&] {
      ++made;
      queue->copy("copy", from.buffer, host);
    };
    EXPECT_EQ(clock.time(*queue, samples, calls, false, pageable).size(), samples);
    EXPECT_GE(made, samples * calls);
    made = 0;
    EXPECT_EQ(clock.time(*queue, samples, calls, false, pageable).size(), samples);
    EXPECT_EQ(made, samples * calls) << "no more is tried";
  });
}

#ifdef GRADMETER_CUDA_EMULATED
/// No launch of a sample waits for room in its stream, which would give the host's pace as the call's time.
TEST(DeviceClock, FillsNoStream) {
  kernels::add_cuda_ops();
  cuda_emulator::set_seed(0);  // work runs as late as it may
  runtime::CudaDevice device(0);
  const auto queue = device.make_queue();
  const auto memory = device.allocate(core::Element::f32, 64);
  const auto call = [&] { queue->submit("fill", {}, [&] { kernels::loops().fill(memory.buffer, 1); }); };
  constexpr std::size_t calls = 3000;
  DeviceClock clock(device);
  const auto before = cuda_emulator::counts();
  clock.time(*queue, 3, calls, false, call);
  EXPECT_EQ(cuda_emulator::counts().kernels - before.kernels, calls) << "it fills by a kernel";
  EXPECT_EQ(cuda_emulator::counts().full_streams, before.full_streams);
  // The control: as many calls, one by one.
  for (std::size_t i = 0; i < calls; ++i) call();
  queue->synchronise();
  EXPECT_GT(cuda_emulator::counts().full_streams, before.full_streams);
}
#endif

#ifdef GRADMETER_CUDA_EMULATED
/// The calls of `codecs` are timed as those of `kernels` are: launched one by one between two marks, short ones would
/// seem to take as long as the host takes to launch them.
TEST(DeviceCodecCalls, AreCapturedForTheirSamples) {
  kernels::add_cuda_ops();
  runtime::CudaDevice device(0);
  const auto choice = compression::find_codec("qsgd8");
  const std::vector<float> gradient(1024, 1.0f);
  const auto calls = make_device_calls({.choice = *choice, .codec = *choice->codec, .gradient = gradient}, device);
  constexpr std::size_t samples = 500;
  for (const auto call : {CodecCall::copy, CodecCall::encode, CodecCall::decode_add}) {
    calls->time(call, 1);
    const auto before = cuda_emulator::counts();
    EXPECT_EQ(calls->time(call, samples).size(), samples);
    const auto after = cuda_emulator::counts();
    EXPECT_LT(after.kernels + after.copies - before.kernels - before.copies, samples);
  }
}
#endif

/// Times by the device's clock, step after step, with all computations of a step within it.
TEST_P(DeviceStep, HasItsTimesWhenManyWereSubmitted) {
  test::each_device_seed([&] {
    train(GetParam(), [&](Training& training) {
      submit_steps(training, 0);
      training.take_records();
      submit_steps(training, steps);
      const auto records = training.take_records();
      ASSERT_EQ(records.size(), steps);
      constexpr double rounding = 1e-6;  // of events, whose times are floats
      double end = 0;
      for (const dataparallel::StepRecord& r : records) {
        EXPECT_GE(r.step.begin, end - rounding);
        EXPECT_GT(r.step.length(), 0);
        ASSERT_EQ(r.computations.size(), r.submitted);
        double before = r.step.begin;
        for (const auto& c : r.computations) {
          EXPECT_GE(c.when.begin, before - rounding) << c.label;
          EXPECT_GE(c.when.length(), 0) << c.label;
          before = c.when.end;
        }
        EXPECT_GE(r.step.end, before - rounding);
        end = r.step.end;
      }
      EXPECT_TRUE(training.take_records().empty());
    });
  });
}

/// A batch is not overwritten while earlier ones are being copied: outcomes are those of steps that are waited for.
TEST_P(DeviceStep, OfManySubmittedTrainsOnItsOwnBatch) {
  std::vector<double> waited, submitted;
  test::each_device_seed([&] {
    waited.clear(), submitted.clear();
    train(GetParam(), [&](Training& training) {
      for (std::size_t step = 0; step < 5 * steps; ++step) waited.push_back(training.step(step).get().loss_sum);
    });
    train(GetParam(), [&](Training& training) {
      std::vector<model::PendingOutcome> outcomes;
      for (std::size_t step = 0; step < 5 * steps; ++step) outcomes.push_back(training.step(step));
      for (const auto& outcome : outcomes) submitted.push_back(outcome.get().loss_sum);
    });
    EXPECT_EQ(submitted, waited);
  });
}

INSTANTIATE_TEST_SUITE_P(Networks, DeviceStep, ::testing::ValuesIn(networks),
                         [](const auto& n) { return n.param.model.substr(0, n.param.model.find_first_of(":-")); });

}  // namespace
}  // namespace gradmeter::bench
