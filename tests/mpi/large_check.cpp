// Buffers of more than 2^31 elements: MPI's counts are int, ours are not. Skipped, visibly, where memory is short.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "mpi/ranks.hpp"
#include "runtime/host.hpp"
#include "runtime/network.hpp"
#include "support/collectives.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t elements = (std::size_t{1} << 31) + 100'003;  // int8: 2.0 GiB and a little

std::int8_t value_of(int rank, std::size_t i) {
  return static_cast<std::int8_t>((i * 7 + i / 251 + static_cast<std::size_t>(rank) * 13) % 61);
}

class Large : public ::testing::TestWithParam<std::tuple<runtime::TransportKind, std::string>> {};

TEST_P(Large, BuffersAreSummedInFull) {
  const auto& [kind, algorithm] = GetParam();
  const auto world = runtime::Communicator::world();
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t scratch = std::size_t{64} << 20;
  // Open MPI keeps shared windows in /dev/shm, which containers like to make small.
  std::error_code none;
  const std::size_t shared = std::filesystem::space("/dev/shm", none).available;
  const std::size_t free = std::min<std::size_t>(runtime::read_host().available_memory_bytes, shared);
  if (world.any(free < ranks * (elements + 2 * scratch) * 5 / 4)) {
    GTEST_SKIP() << "needs 2.5 GiB of free memory a rank, also in /dev/shm";
  }
  runtime::Network network(world, {.transport = kind, .memory_bytes = elements + scratch});
  const auto link = network.connect(world, collective_channels);
  const auto buffer = network.arena().take_of<std::int8_t>(elements);
  for (std::size_t i = 0; i < elements; ++i) buffer[i] = value_of(world.rank(), i);
  const auto collective = find_algorithm(algorithm)->bind({world, network, *link},
                                                          {.placement = Placement::in_place, .max_bytes = elements});
  auto* bytes = reinterpret_cast<std::byte*>(buffer.data());
  collective->start({.in = bytes, .out = bytes, .count = elements, .element = core::Element::i8});
  runtime::Backoff backoff(test::patience_of(world, 1));
  while (!collective->advance()) backoff.wait();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    std::int8_t sum = 0;
    for (int r = 0; r < world.size(); ++r) sum = static_cast<std::int8_t>(sum + value_of(r, i));
    wrong += buffer[i] != sum;
  }
  EXPECT_EQ(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Large,
                         ::testing::Values(std::tuple{runtime::TransportKind::shm, "ring"},
                                           std::tuple{runtime::TransportKind::mpi, "ring"},
                                           std::tuple{runtime::TransportKind::shm, "shm-direct"},
                                           std::tuple{runtime::TransportKind::shm, "mpi"}),
                         [](const auto& param) {
                           return test::test_name(
                               fmt::format("{}_{}", runtime::name(std::get<0>(param.param)), std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace gradmeter::allreduce
