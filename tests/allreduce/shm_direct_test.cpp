// SPDX-License-Identifier: Apache-2.0
// The barriers of shm-direct on ranks that are threads, where the thread sanitizer sees every byte they share.
#include "allreduce/shared_memory/shm_direct.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "core/error.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using test::CollectiveCase;
using test::CollectiveOutcome;

constexpr runtime::SpinPolicy spin_policy{.spins = 20, .yields = 0};
constexpr std::size_t room = std::size_t{2} << 20;  // bytes for the buffers of a call

/// `in_arena`: a call that is not small reads the arenas; else it reads private memory, or copies through the arenas.
struct Round {
  CollectiveCase call;
  bool in_arena;
};

Round round_of(const KnownData& data, std::size_t count, Placement placement, bool in_arena) {
  return {{.known = {.data = data, .count = count, .root = 0}, .placement = placement}, in_arena};
}

/// Short and long calls in turn, so that each copy path follows every other one and itself.
std::vector<Round> rounds(std::size_t ranks) {
  std::vector<Round> out;
  for (const auto& [element, op] : test::types_and_ops()) {
    const std::size_t width = core::size_of(element), small = ShmDirect::small / width, tiny = ShmDirect::tiny / width;
    const KnownData data{.pattern = Pattern::random, .element = element, .op = op, .ranks = ranks};
    std::vector<std::size_t> counts{0, 1, ranks - 1, tiny, tiny + 1, small, small + 1, 3 * small + 5};
    // A sum goes over three chunks as well, the last of them short.
    if (op == Op::sum) counts.push_back(2 * ShmDirect::chunk / width + ranks + 1);
    for (const std::size_t count : counts) {
      const auto first = out.size() % 3 == 0 ? Placement::in_place : Placement::out_of_place;
      const auto second = first == Placement::in_place ? Placement::out_of_place : Placement::in_place;
      out.push_back(round_of(data, count, first, true));
      out.push_back(round_of(data, count, second, false));
    }
    if (core::is_small_float(element) && op == Op::sum) {
      out.push_back(round_of(data, 3 * small, Placement::in_place, true));
      out.back().call.accumulate_wide = true;
    }
  }
  return out;
}

class ShmDirectOfThreads : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  ShmDirectOfThreads() {
    const bool reaches_private = std::get<1>(GetParam());
    if (reaches_private) memory_.assign(static_cast<std::size_t>(ranks_), runtime::PeerMemory(::getpid()));
    for (int r = 0; r < ranks_; ++r) {
      arenas_.push_back(std::make_unique<test::HeapArena>(ShmDirect::arena_bytes() + room));
      peers_.push_back(ShmDirect::make_region(*arenas_.back()));
    }
  }
  std::vector<CollectiveOutcome> run(int rank, const std::vector<Round>& rounds) {
    const auto inside = arenas_[static_cast<std::size_t>(rank)]->take(room);
    std::vector<std::byte> outside(room);
    ShmDirect collective(rank, peers_, memory_);
    std::vector<CollectiveOutcome> outcomes;
    for (const Round& r : rounds) {
      const auto memory = r.in_arena ? inside : std::span(outside);
      outcomes.push_back(run_known(collective, r.call, static_cast<std::size_t>(rank), memory, spin_policy));
    }
    return outcomes;
  }

  const int ranks_ = std::get<0>(GetParam());
  std::vector<std::unique_ptr<test::HeapArena>> arenas_;
  std::vector<ShmDirect::Peer> peers_;
  std::vector<runtime::PeerMemory> memory_;
};

TEST_P(ShmDirectOfThreads, EveryTypeOperationAndWayIsRightWithEqualBitsCallAfterCall) {
  const auto all = rounds(static_cast<std::size_t>(ranks_));
  std::vector<std::vector<CollectiveOutcome>> outcomes(static_cast<std::size_t>(ranks_));
  test::run_ranks(ranks_, [&](int r) { outcomes[static_cast<std::size_t>(r)] = run(r, all); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const auto& of : outcomes) {
      EXPECT_EQ(of[i].fault, "");
      EXPECT_EQ(of[i].hash, outcomes[0][i].hash) << describe(all[i].call);
    }
  }
}

TEST_P(ShmDirectOfThreads, ACallThatOverlapsTheLastIsRefused) {
  ShmDirect collective(0, peers_);
  const auto memory = arenas_[0]->take_of<float>(1);
  const Call call{memory, memory};
  collective.start(call);
  EXPECT_THROW(collective.start(call), core::BackendError);
  EXPECT_EQ(collective.advance(), ranks_ == 1) << "the others have not come";
}

TEST_P(ShmDirectOfThreads, UnlikeBuffersOfRanksAreRefused) {
  if (ranks_ == 1) GTEST_SKIP() << "one rank has buffers of one kind";
  std::vector<int> refused(static_cast<std::size_t>(ranks_), 0);
  test::run_ranks(ranks_, [&](int r) {
    const auto inside = arenas_[static_cast<std::size_t>(r)]->take_of<float>(10000);
    std::vector<float> outside(10000);
    ShmDirect collective(r, peers_, memory_);
    const std::span<float> buffer = r == 0 ? inside : std::span(outside);
    collective.start({buffer, buffer});
    try {
      while (!collective.advance()) {
      }
    } catch (const core::BackendError&) {
      refused[static_cast<std::size_t>(r)] = 1;
    }
  });
  EXPECT_EQ(std::count(refused.begin(), refused.end(), 1), ranks_);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmDirectOfThreads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5), ::testing::Bool()));

}  // namespace
}  // namespace gradmeter::allreduce
