// SPDX-License-Identifier: Apache-2.0
// Training by a GPU's own operations and loops against the host: the same losses within rounding, and the same again at
// every seed; and what of it the host still does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/backends.hpp"
#include "support/device_seeds.hpp"
#include "support/gpu_queues.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::RunCase;

void expect_the_hosts_losses(const RunCase& c) {
  if (const std::string why = test::host_refusal(c); !why.empty()) GTEST_SKIP() << why;
  kernels::add_cuda_ops();
  const auto host = test::run(c, nullptr);
  std::vector<test::RunEnd> first;
  // The host's library adds products in an order of its instruction set. A last bit may round a weight of few bits the
  // other way: with AVX2 a loss of adam:update=lns16-f7 differs by 2.4e-5 of itself, with SSE4.1 by less than 1e-5.
  const double tolerance = std::string_view(c.optimizer).find("update=") == std::string_view::npos ? 1e-5 : 2e-4;
  test::each_device_seed([&] {
    const auto gpu = test::run_on_gpu(c);
    ASSERT_EQ(gpu.size(), host.size());
    for (std::size_t r = 0; r < host.size(); ++r) {
      ASSERT_EQ(gpu[r].losses.size(), host[r].losses.size());
      for (std::size_t i = 0; i < host[r].losses.size(); ++i)
        EXPECT_NEAR(gpu[r].losses[i], host[r].losses[i], tolerance * (1 + std::fabs(host[r].losses[i])))
            << c.text() << ", rank " << r << ", pass " << i;
    }
    if (first.empty()) first = gpu;
    EXPECT_TRUE(gpu == first) << c.text() << ": another seed has other bits";
  });
}

class DeviceLosses : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceLosses, AreTheHosts) { expect_the_hosts_losses({.strategy = GetParam(), .ranks = 2}); }

INSTANTIATE_TEST_SUITE_P(Synchronous, DeviceLosses,
                         ::testing::Values("sync", "sharded", "independent", "model-averaging:every=2", "bmuf:every=2",
                                           "diloco:every=2", "slowmo:buffers=average,every=2",
                                           "adacomm:every=2,interval=2", "gossip", "d-psgd", "es:pairs=2"),
                         [](const auto& strategy) { return test::name_of_text(strategy.param); });

TEST(DeviceLossesOfNetworks, AreTheHosts) {
  for (const char* model :
       {"cnn:convolutions=2,filters=4,hidden=16", "lstm:hidden=12,layers=2", "gru-lm:hidden=10,layers=2",
        "lstm-lm:hidden=10,tied=1", "transformer-lm:ff=20,heads=3,hidden=12"})
    expect_the_hosts_losses({.strategy = "sync", .ranks = 2, .model = model});
}

/// Weights in other formats, and losses in logarithms.
TEST(DeviceLossesOfFormats, AreTheHosts) {
  for (const char* optimizer : {"sgd:update=bf16", "momentum:update=bf16-kahan", "lamb:update=bf16-sr",
                                "sgd:update=lns16", "sgd:update=lns16-f6-kahan", "adam:update=lns16-f7"})
    expect_the_hosts_losses({.strategy = "sync", .optimizer = optimizer, .ranks = 2});
  expect_the_hosts_losses(
      {.strategy = "sync", .optimizer = "sgd:update=lns16", .ranks = 2, .precision = kernels::Precision::lns16});
}

TEST(DeviceLossesWithAScale, AreTheHosts) {
  for (const auto& [strategy, optimizer] : {std::pair{"sync", "adam"}, {"sharded", "lamb"}, {"independent", "lars"}})
    expect_the_hosts_losses(
        {.strategy = strategy, .optimizer = optimizer, .ranks = 2, .loss_scale = "dynamic:grow=1,start=1024"});
}

bool are_finite(const std::vector<float>& v) {
  return std::ranges::all_of(v, [](float x) { return std::isfinite(x); });
}

/// In fp16 a scale this large makes gradients infinite in every step, and no weight changes.
TEST(DeviceSteps, OfInfiniteGradientsChangeNothing) {
  for (const char* strategy : {"sync", "sharded", "independent"}) {
    RunCase c{.strategy = strategy, .optimizer = "lamb", .ranks = 2, .precision = kernels::Precision::fp16};
    c.loss_scale = "dynamic:grow=1,start=1073741824";
    kernels::add_cuda_ops();
    const auto host = test::run(c, nullptr);
    test::each_device_seed<1>([&] {
      const auto gpu = test::run_on_gpu(c);
      for (std::size_t r = 0; r < host.size(); ++r) {
        EXPECT_FALSE(are_finite(gpu[r].gradients)) << c.text();
        EXPECT_TRUE(are_finite(host[r].weights));
        EXPECT_EQ(gpu[r].weights, host[r].weights) << c.text();
      }
    });
  }
}

/// Labels of work that touched the host's copies, other than the test's own reading and writing.
std::vector<std::string> work_of_the_host(const RunCase& c) {
  kernels::add_cuda_ops();
  std::vector<std::shared_ptr<test::GpuQueues>> ranks(static_cast<std::size_t>(c.ranks));
  test::run(c, [&](int rank) { return ranks[static_cast<std::size_t>(rank)] = std::make_shared<test::GpuQueues>(); });
  std::vector<std::string> labels;
  for (const auto& rank : ranks)
    for (const auto& [label, times] : rank->host_work())
      if (label != "host") labels.push_back(label);
  return labels;
}

TEST(DeviceSteps, AreLeftToNoHost) {
  const std::vector<std::string> nothing;
  for (const char* optimizer :
       {"sgd", "nesterov", "adam", "adamw", "lars", "lamb", "momentum:update=bf16", "sgd:update=bf16-kahan",
        "lamb:update=bf16-sr", "sgd:update=lns16-kahan", "adam:update=lns16"})
    for (const char* scale : {"none", "dynamic"}) {
      const RunCase c{.strategy = "independent", .optimizer = optimizer, .ranks = 1, .loss_scale = scale};
      EXPECT_EQ(work_of_the_host(c), nothing) << c.text();
    }
  const RunCase logarithms{
      .strategy = "independent", .ranks = 1, .precision = kernels::Precision::lns16, .gradients = "bf16"};
  if (const std::string why = test::host_refusal(logarithms); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(work_of_the_host(logarithms), nothing);
}
/// The control: a strategy whose own sums are the host's.
TEST(DeviceSteps, TellOfTheHostsWork) {
  EXPECT_THAT(work_of_the_host({.strategy = "es:pairs=1", .ranks = 2}), ::testing::Not(::testing::IsEmpty()));
}

TEST(DeviceLossesOfOptimizers, AreTheHosts) {
  for (const char* optimizer : {"sgd", "nesterov", "adam", "adamw", "lars", "lamb"})
    expect_the_hosts_losses({.strategy = "sync", .optimizer = optimizer, .ranks = 2});
}

}  // namespace
}  // namespace gradmeter::dataparallel
