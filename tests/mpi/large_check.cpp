// Buffers of more than 2^31 elements: MPI's counts are int, ours are not. Skipped, visibly, where memory is short.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <vector>

#include "mpi/ranks.hpp"
#include "runtime/host/host.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/transport/network.hpp"
#include "support/collectives.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t elements = (std::size_t{1} << 31) + 100'003;  // int8: 2.0 GiB and a little

/// Values differ by rank and place and repeat after a length that is no multiple of a message's, so that a part that
/// went astray shows. They are copied and compared in stretches: so many would take long one by one.
constexpr std::size_t period = std::size_t{251} * 61;

std::vector<std::int8_t> values_of(int rank) {
  std::vector<std::int8_t> values(period);
  for (std::size_t i = 0; i < period; ++i) {
    values[i] = static_cast<std::int8_t>((i * 7 + i / 251 + static_cast<std::size_t>(rank) * 13) % 61);
  }
  return values;
}

std::vector<std::int8_t> sums_of(int ranks) {
  std::vector<std::int8_t> sums(period);
  for (int r = 0; r < ranks; ++r) {
    const auto values = values_of(r);
    for (std::size_t i = 0; i < period; ++i) sums[i] = static_cast<std::int8_t>(sums[i] + values[i]);
  }
  return sums;
}

/// Calls each(first, count) for the stretches of the buffer.
void for_stretches(const std::function<void(std::size_t, std::size_t)>& each) {
  for (std::size_t i = 0; i < elements; i += period) each(i, std::min(period, elements - i));
}

class Large : public ::testing::TestWithParam<std::tuple<runtime::TransportKind, std::string>> {};

TEST_P(Large, BuffersAreSummedInFull) {
  const auto& [kind, algorithm] = GetParam();
  const auto world = runtime::MpiSession::world();
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
  const auto link = network.connect(world, most_lanes(world.size()));
  const auto buffer = network.arena().take_of<std::int8_t>(elements);
  const auto mine = values_of(world.rank()), sums = sums_of(world.size());
  for_stretches([&](std::size_t first, std::size_t n) { std::copy_n(mine.begin(), n, buffer.begin() + first); });
  const auto collective = find_algorithm(algorithm)->bind({world, network, *link},
                                                          {.placement = Placement::in_place, .max_bytes = elements});
  collective->start({buffer, buffer});
  runtime::Backoff backoff(test::spin_policy_of(world, 1));
  while (!collective->advance()) backoff.wait();
  std::size_t wrong = 0;
  for_stretches([&](std::size_t first, std::size_t n) {
    wrong += !std::equal(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(n), buffer.begin() + first);
  });
  EXPECT_EQ(wrong, 0u) << "stretches";
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
