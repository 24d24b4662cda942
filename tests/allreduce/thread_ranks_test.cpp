// SPDX-License-Identifier: Apache-2.0
// Algorithms bound over a network whose ranks are threads.
#include <gtest/gtest.h>

#include <numeric>

#include "allreduce/registry.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/threads/thread_group.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {
namespace {

class ThreadRanks : public ::testing::TestWithParam<int> {};

TEST_P(ThreadRanks, SumOverTheirSharedMemoryByAnyAlgorithm) {
  const int ranks = GetParam();
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& c) {
    runtime::Network network(c, {.transport = runtime::TransportKind::automatic, .memory_bytes = std::size_t{8} << 20});
    EXPECT_EQ(network.transport(), runtime::TransportKind::shm);
    const auto link = network.connect(c, 4);
    for (const char* name : {"ring", "shm-direct", "recursive-doubling"}) {
      const auto values = network.arena().take_of<float>(5000);
      std::iota(values.begin(), values.end(), static_cast<float>(c.rank()));
      const GroupConnection connection{c, network, *link};
      const auto bound = find_algorithm(name)->bind(connection, {.max_bytes = values.size_bytes()});
      bound->start({values, values});
      runtime::Backoff backoff({.spins = 20, .yields = 0});
      while (!bound->advance()) backoff.wait();
      EXPECT_EQ(values[4999], static_cast<float>(4999 * ranks + ranks * (ranks - 1) / 2)) << name;
      c.barrier();  // nobody reads this rank's buffer any more
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadRanks, ::testing::Values(1, 2, 3, 4, 7));

TEST(ThreadRanksOfMpi, AreNoneSoItsCollectivesAreRefused) {
  for (const char* name : {"mpi", "mpi-nonblocking", "mpi-v", "ompi-ring"}) {
    const auto kind = std::string_view(name) == "mpi-v" ? CollectiveKind::all_gather : CollectiveKind::all_reduce;
    runtime::run_thread_ranks(2, [&](const runtime::Communicator&) {
      EXPECT_NE(find_algorithm(name)->refusal({2, 2}, kind).find("mpirun"), std::string::npos) << name;
    });
    EXPECT_TRUE(find_algorithm(name)->refusal({2, 2}, kind).empty()) << name;
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
