// SPDX-License-Identifier: Apache-2.0
// Buffers of more than 2^31 elements: MPI's counts are int, ours are not. Skipped, visibly, where memory is short.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
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

constexpr std::size_t scratch = std::size_t{64} << 20;

struct LargeBuffer {
  explicit LargeBuffer(runtime::TransportKind kind)
      : network(world, {.transport = kind, .memory_bytes = elements + scratch}) {}
  runtime::Communicator world = runtime::MpiSession::world();
  runtime::Network network;
  std::unique_ptr<runtime::Transport> link = network.connect(world, most_lanes(world.size()));
  std::span<std::int8_t> buffer = network.arena().take_of<std::int8_t>(elements);
  runtime::Arena::Mark mark = network.arena().mark();
};

class Large : public ::testing::TestWithParam<std::tuple<runtime::TransportKind, std::string>> {
 protected:
  static void TearDownTestSuite() { place_.reset(); }  // while MPI is up
  /// The cases of a transport, which follow each other, share its memory: its pages take seconds to come. Null where
  /// memory is short.
  static LargeBuffer* place(runtime::TransportKind kind) {
    if (place_ && kind == kind_) return place_.get();
    place_.reset();
    const auto world = runtime::MpiSession::world();
    // Open MPI keeps shared windows in /dev/shm, which containers like to make small.
    std::error_code none;
    const std::size_t shared = std::filesystem::space("/dev/shm", none).available;
    const std::size_t free = std::min<std::size_t>(runtime::read_host().available_memory_bytes, shared);
    const auto ranks = static_cast<std::size_t>(world.size());
    if (world.any(free < ranks * (elements + 2 * scratch) * 5 / 4)) return nullptr;
    place_ = std::make_unique<LargeBuffer>(kind);
    kind_ = kind;
    return place_.get();
  }

 private:
  static inline std::unique_ptr<LargeBuffer> place_;
  static inline runtime::TransportKind kind_{};
};

TEST_P(Large, BuffersAreSummedInFull) {
  const auto& [kind, algorithm] = GetParam();
  LargeBuffer* const here = place(kind);
  if (!here) GTEST_SKIP() << "needs 2.5 GiB of free memory a rank, also in /dev/shm";
  auto& [world, network, link, buffer, mark] = *here;
  network.arena().rewind(mark);
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
                                           std::tuple{runtime::TransportKind::shm, "shm-direct"},
                                           std::tuple{runtime::TransportKind::shm, "mpi"},
                                           std::tuple{runtime::TransportKind::mpi, "ring"}),
                         [](const auto& param) {
                           return test::test_name(
                               fmt::format("{}_{}", runtime::name(std::get<0>(param.param)), std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace gradmeter::allreduce
