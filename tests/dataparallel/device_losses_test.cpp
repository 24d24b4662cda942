// Training by a GPU's own operations and loops against the host: the same losses within rounding, and the same again at
// every seed.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/ops.hpp"
#include "support/device_seeds.hpp"
#include "support/gpu_queues.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::RunCase;

void expect_the_hosts_losses(const RunCase& c) {
  kernels::add_cuda_ops();
  const auto host = test::run(c, nullptr);
  std::vector<test::RunEnd> first;
  test::each_device_seed([&] {
    const auto gpu = test::run_on_gpu(c);
    ASSERT_EQ(gpu.size(), host.size());
    for (std::size_t r = 0; r < host.size(); ++r) {
      ASSERT_EQ(gpu[r].losses.size(), host[r].losses.size());
      for (std::size_t i = 0; i < host[r].losses.size(); ++i)
        EXPECT_NEAR(gpu[r].losses[i], host[r].losses[i], 1e-5 * (1 + std::fabs(host[r].losses[i])))
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

TEST(DeviceLossesOfOptimizers, AreTheHosts) {
  for (const char* optimizer : {"sgd", "nesterov", "adam", "adamw", "lars", "lamb"})
    expect_the_hosts_losses({.strategy = "sync", .optimizer = optimizer, .ranks = 2});
}

}  // namespace
}  // namespace gradmeter::dataparallel
