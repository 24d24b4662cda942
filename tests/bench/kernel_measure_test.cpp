// SPDX-License-Identifier: Apache-2.0
// Checks of timed calls: how often the set under check has run, on the host and in graphs of a device, and that ranks
// check data of their own.
#include "bench/kernels/measure.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <vector>

#include "kernels/pointwise/case.hpp"
#include "runtime/clock.hpp"
#include "runtime/process/signals.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::bench {
namespace {

using kernels::CheckedCall;
using kernels::KernelCaseCheck;

/// The seeds that the cases of all ranks were given.
struct Asked {
  std::mutex mutex;
  std::set<std::uint64_t> seeds;
  std::size_t redraws = 0, checks = 0, checks_of_several_runs = 0;
};
Asked asked;

/// A case that computes nothing. Its check is right if it is told how often the set has run.
class CountingCase final : public kernels::KernelCase {
 public:
  void run(std::size_t set) override { runs_ += set == checked_; }
  void redraw(std::size_t, std::uint64_t seed) override {
    const std::lock_guard lock(asked.mutex);
    asked.seeds.insert(seed), ++asked.redraws;
  }
  void prepare_check(const CheckedCall& call) override { checked_ = call.set, runs_ = 0; }
  KernelCaseCheck finish_check(const CheckedCall& call) override {
    const std::lock_guard lock(asked.mutex);
    ++asked.checks, asked.checks_of_several_runs += call.runs > 1;
    return {.worst = call.runs == runs_ && runs_ > 0 ? 0.0 : 2.0};
  }
  std::string implementation() const override { return "counts"; }

 private:
  std::size_t checked_ = 0, runs_ = 0;
};

/// No backend of the host has updates in int8.
const KernelPoint counted{
    .problem = {.shape = kernels::PointwiseShape{.elements = 8}, .precision = kernels::Precision::int8}};

void expect_right_checks(std::size_t sets) {
  asked.seeds.clear();
  asked.redraws = asked.checks = asked.checks_of_several_runs = 0;
  constexpr int ranks = 2;
  runtime::SignalWatch signals;
  runtime::Watchdog watchdog;
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    Session session(world, {signals, watchdog}, core::Seconds{60}, "test");
    KernelPoint point = counted;
    point.cache = sets > 1 ? CacheState::cold : CacheState::hot;
    KernelBenchmark benchmark(session, world, point, 1, sets, 1);
    ASSERT_EQ(benchmark.prepare(), "");
    benchmark.probe(true);
    benchmark.start({}, 0.2, true, 1e6, 1);
    while (!benchmark.turn()) {
    }
    KernelResults found{.point = point, .ranks = ranks};
    benchmark.finish(found);
    ASSERT_TRUE(found.timed_checks.has_value());
    EXPECT_EQ(found.timed_checks->wrong_rank, -1) << found.timed_checks->worst;
  });
  EXPECT_GE(asked.checks, 2u);
  EXPECT_EQ(asked.seeds.size(), asked.redraws) << "two checks, or two ranks, had the same data";
}

class CheckedSamples : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    kernels::add_kernel_case({"counts", "for tests", kernels::KernelKind::pointwise, kernels::Precision::int8,
                              [](const kernels::Problem&) { return std::string(); },
                              [](const kernels::Problem&) { return std::size_t{8}; },
                              [](const kernels::Problem&, const kernels::KernelCaseOptions&) {
                                return std::unique_ptr<kernels::KernelCase>(std::make_unique<CountingCase>());
                              }});
  }
};

TEST_F(CheckedSamples, OfOneSetAreToldItsRunsAndHaveTheRanksOwnData) {
  expect_right_checks(1);
  EXPECT_GE(asked.redraws, 2u);
  EXPECT_GT(asked.checks_of_several_runs, 0u);
}

TEST_F(CheckedSamples, OfManySetsAreToldTheRunsOfOneAlone) { expect_right_checks(7); }

/// A device of the host's memory whose queue captures work, as a GPU's does, and has a clock of its own.
class CapturingDevice final : public runtime::Device, public runtime::DeviceAccess {
 public:
  std::string_view name() const override { return "capturing"; }
  runtime::OwnedBuffer allocate(core::Element e, std::size_t count) override {
    return runtime::host_device().allocate(e, count);
  }
  runtime::OwnedBuffer allocate_beside(core::Element e, std::span<std::byte> memory) override {
    return runtime::host_device().allocate_beside(e, memory);
  }
  std::byte* transport_address(const runtime::Buffer& b) const override { return b.host(); }
  const std::byte* transport_address(const runtime::ConstBuffer& b) const override { return b.host(); }
  std::byte* host_address(const std::byte* at, std::size_t, bool) const override { return const_cast<std::byte*>(at); }
  runtime::EventPtr mark() const override { return std::make_shared<Mark>(); }
  std::size_t last_cache_bytes() const override { return 1024; }
  std::unique_ptr<runtime::Queue> make_queue() override { return std::make_unique<CapturingQueue>(*this); }

 private:
  struct Mark final : runtime::Event {
    double at = runtime::host_clock();
    bool reached() const override { return true; }
    double until(const runtime::Event& later) const override { return dynamic_cast<const Mark&>(later).at - at; }
  };

  class CapturingQueue final : public runtime::Queue {
   public:
    explicit CapturingQueue(CapturingDevice& device) : device_(device) {}
    runtime::Device& device() override { return device_; }
    void submit(std::string_view, runtime::Cost, const runtime::Work& work) override {
      if (captured_) return captured_->push_back(work.stored());
      run(work);
    }
    std::unique_ptr<runtime::CapturedWork> capture(const std::function<void()>& body) override {
      auto graph = std::make_unique<Graph>(*this);
      captured_ = &graph->work;
      body();
      captured_ = nullptr;
      return graph;
    }

   private:
    struct Graph final : runtime::CapturedWork {
      explicit Graph(CapturingQueue& q) : queue(q) {}
      void submit() const override {
        for (const runtime::StoredWork& w : work) queue.run(w);
      }
      CapturingQueue& queue;
      std::vector<runtime::StoredWork> work;
    };
    void run(const auto& work) {
      const auto* before = std::exchange(runtime::device_access, &device_);
      work();
      runtime::device_access = before;
    }

    CapturingDevice& device_;
    std::vector<runtime::StoredWork>* captured_ = nullptr;
  };
};

/// A graph is captured once and submitted twice: before the first sample, which brings the operands back, and as it.
TEST(DeviceClock, CountsTheCallsOfGraphsThatAreSubmittedAgain) {
  CapturingDevice device;
  DeviceClock clock(device);
  const kernels::PointwiseShape shape{.elements = 100};
  const auto c = kernels::make_device_pointwise_case({.shape = shape}, {.seed = 3, .device = &device},
                                                     kernels::update_fp32_on_device, "own");
  for (const bool cold : {false, true}) {
    const std::size_t before = clock.calls_made();
    CheckedCall call{.flops_at_most = 1e9};
    clock.time(
        *c->queue(), 1, 5, cold, [&] { c->run(0); }, [&] { c->prepare_check(call); });
    call.runs = clock.calls_made() - before;
    EXPECT_EQ(call.runs, cold ? 5u : 10u);
    EXPECT_TRUE(c->finish_check(call).right());
  }
}

}  // namespace
}  // namespace gradmeter::bench
