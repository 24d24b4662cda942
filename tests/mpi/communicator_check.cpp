// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>

#include "core/error.hpp"
#include "mpi/ranks.hpp"
#include "runtime/communicator.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::runtime {
namespace {

class CommunicatorCheck : public ::testing::Test {
 protected:
  const Communicator world_ = runtime::MpiSession::world();
  const int rank_ = world_.rank(), size_ = world_.size();
};

TEST_F(CommunicatorCheck, TheWorldKnowsItsRanks) {
  EXPECT_GE(rank_, 0);
  EXPECT_LT(rank_, size_);
  EXPECT_EQ(world_.sum(1), size_);
  EXPECT_EQ(world_.sum(rank_), size_ * (size_ - 1) / 2);
  EXPECT_TRUE(MpiSession::running());
  EXPECT_FALSE(world_.is_null());
}

TEST_F(CommunicatorCheck, AnArrayIsSummedElementByElement) {
  std::array<double, 3> values{1, 10.0 * rank_, -0.5};
  world_.sum(values);
  EXPECT_EQ(values, (std::array<double, 3>{double(size_), 5.0 * size_ * (size_ - 1), -0.5 * size_}));
}

TEST_F(CommunicatorCheck, ASumWhileAMessageIsOnItsWayTakesNoneOfIt) {
  if (size_ == 1) GTEST_SKIP() << "one rank sends nothing";
  const int last = size_ - 1;
  if (rank_ == last) world_.send_value(0, 1e6);
  EXPECT_EQ(world_.sum(rank_), size_ * last / 2);
  if (rank_ == 0) {
    EXPECT_EQ(world_.receive_value<double>(last), 1e6);
  }
}

TEST_F(CommunicatorCheck, OneBitThatDiffersOnOneRankIsADisagreement) {
  constexpr std::uint64_t bits = 0x8000'0000'0000'0000;  // the least of the signed numbers
  const int last = size_ - 1;
  for (const std::uint64_t other : {bits ^ 1, ~bits, std::uint64_t{0}}) {
    EXPECT_EQ(same_on_all(world_, rank_ == last ? other : bits), size_ == 1) << other;
    EXPECT_EQ(same_on_all(world_, rank_ == last ? bits : other), size_ == 1) << other;
    EXPECT_TRUE(same_on_all(world_, other));
    EXPECT_TRUE(same_on_all(world_, rank_ == last ? std::optional(other) : std::nullopt)) << "others have no opinion";
  }
  EXPECT_TRUE(same_on_all(world_, bits));
  EXPECT_TRUE(same_on_all(world_, std::nullopt));
}

TEST_F(CommunicatorCheck, TheLowestRankThatComplainsIsHeardByAll) {
  EXPECT_EQ(first_report(world_, "").text, "");
  const int first = size_ / 2;
  const FirstReport some = first_report(world_, rank_ >= first ? "rank " + std::to_string(rank_) : "");
  EXPECT_EQ(some.text, "rank " + std::to_string(first));
  EXPECT_EQ(some.rank, first);
  EXPECT_EQ(some.by_all, first == 0);
  EXPECT_TRUE(first_report(world_, "all").by_all);
}

TEST_F(CommunicatorCheck, CollectHandsRankZeroOneTextAfterAnother) {
  const auto text = [](int rank) { return rank == 1 ? "" : std::string(100'000, static_cast<char>('a' + rank)); };
  int next = 0;
  collect(world_, text(rank_), [&](const std::string& got) { EXPECT_EQ(got, text(next++)); });
  EXPECT_EQ(next, rank_ == 0 ? size_ : 0);
}

TEST_F(CommunicatorCheck, ASplitGroupsByColourAndOrdersByKey) {
  const Communicator half = world_.split(rank_ % 2, -rank_);
  EXPECT_EQ(half.size(), (size_ + 1 - rank_ % 2) / 2);
  EXPECT_EQ(half.rank(), half.size() - 1 - rank_ / 2) << "highest first";
  double same_half = 0;
  for (int r = rank_ % 2; r < size_; r += 2) same_half += r;
  EXPECT_EQ(half.sum(rank_), same_half);
}

TEST_F(CommunicatorCheck, ANegativeColourGivesANullCommunicator) {
  const Communicator first = world_.split(rank_ == 0 ? 0 : -1, 0);
  EXPECT_EQ(first.is_null(), rank_ != 0);
  EXPECT_EQ(first.size(), rank_ == 0 ? 1 : 0);
}

TEST_F(CommunicatorCheck, OneHostIsOneNode) {
  const Communicator node = world_.split_by_node();
  EXPECT_EQ(node.size(), size_);
  EXPECT_EQ(node.rank(), rank_);
}

TEST_F(CommunicatorCheck, ADuplicateIsAWorldOfItsOwn) {
  const Communicator copy = world_.duplicate();
  EXPECT_EQ(copy.rank(), rank_);
  EXPECT_EQ(copy.size(), size_);
  // A message in the one is not seen in the other.
  const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
  std::array<int, 2> out{rank_, 100 + rank_}, in{-1, -1};
  std::array<MPI_Request, 4> requests{};
  check_mpi(MPI_Irecv(&in[0], 1, MPI_INT, before, 0, mpi_handle(world_), &requests[0]), "MPI_Irecv");
  check_mpi(MPI_Irecv(&in[1], 1, MPI_INT, before, 0, mpi_handle(copy), &requests[1]), "MPI_Irecv");
  check_mpi(MPI_Isend(&out[1], 1, MPI_INT, next, 0, mpi_handle(copy), &requests[2]), "MPI_Isend");
  check_mpi(MPI_Isend(&out[0], 1, MPI_INT, next, 0, mpi_handle(world_), &requests[3]), "MPI_Isend");
  check_mpi(MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  EXPECT_EQ(in[0], before);
  EXPECT_EQ(in[1], 100 + before);
}

TEST_F(CommunicatorCheck, BroadcastsCarryValuesSpansAndTextFromAnyRoot) {
  struct Pack {
    double a;
    int b;
  };
  for (int root = 0; root < size_; ++root) {
    const Pack pack = world_.broadcast_value(Pack{rank_ + 0.5, rank_}, root);
    EXPECT_EQ(pack.a, root + 0.5);
    EXPECT_EQ(pack.b, root);
    std::vector<int> values(1000, rank_);
    world_.broadcast(std::span<int>(values), root);
    EXPECT_EQ(values, std::vector<int>(1000, root));
    world_.broadcast(std::span<int>(), root);
    const std::string mine(static_cast<std::size_t>(rank_) * 100, static_cast<char>('a' + rank_));
    EXPECT_EQ(world_.broadcast_text(mine, root),
              std::string(static_cast<std::size_t>(root) * 100, static_cast<char>('a' + root)));
  }
}

TEST_F(CommunicatorCheck, GathersValuesAndTextInRankOrder) {
  const auto numbers = world_.all_gather_value(10 * rank_);
  const std::array<int, 2> mine{rank_, -rank_};
  const auto two = world_.all_gather(std::span<const int>(mine));
  // Lengths differ, one is empty, and blanks at the end are kept.
  const auto texts = world_.all_gather_text(std::string(static_cast<std::size_t>(rank_), 'x') + (rank_ % 2 ? " " : ""));
  const auto empty = world_.all_gather_text("");
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(size_));
  EXPECT_EQ(two.size(), static_cast<std::size_t>(2 * size_));
  for (int r = 0; r < size_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_EQ(numbers.at(i), 10 * r);
    EXPECT_EQ(two.at(2 * i), r);
    EXPECT_EQ(two.at(2 * i + 1), -r);
    EXPECT_EQ(texts.at(i), std::string(i, 'x') + (r % 2 ? " " : ""));
    EXPECT_EQ(empty.at(i), "");
  }
}

TEST_F(CommunicatorCheck, MaxSumAnyAndAllLookAtEveryRank) {
  EXPECT_EQ(world_.max(-1.0 - rank_), -1.0);
  EXPECT_EQ(world_.max(rank_), size_ - 1);
  for (int odd_one = 0; odd_one < size_; ++odd_one) {
    EXPECT_TRUE(world_.any(rank_ == odd_one));
    EXPECT_EQ(world_.all(rank_ != odd_one), false);
  }
  EXPECT_FALSE(world_.any(false));
  EXPECT_TRUE(world_.all(true));
}

TEST_F(CommunicatorCheck, ABarrierHoldsEveryoneUntilTheLastHasCome) {
  using namespace std::chrono_literals;
  for (const bool patient : {false, true}) {
    world_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (rank_ == size_ - 1) std::this_thread::sleep_for(30ms);
    if (patient) {
      world_.sleeping_barrier();
    } else {
      world_.barrier();
    }
    // The others left the first barrier a little before or after the last rank did.
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 15ms) << patient;
  }
}

template <class T>
void expect_reduction(const Communicator& c, Combine op, bool in_place, std::size_t n) {
  auto value = [](int rank, std::size_t i) {
    return static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 3) % 5 + 1);
  };
  std::vector<T> in(n), out(n);
  for (std::size_t i = 0; i < n; ++i) in[i] = value(c.rank(), i);
  if (in_place) out = in;
  auto* result = reinterpret_cast<std::byte*>(out.data());
  const auto* source = in_place ? result : reinterpret_cast<const std::byte*>(in.data());
  mpi_all_reduce(c, {source, result, n}, Reduction(core::element_of<T>, op), nullptr);
  for (std::size_t i = 0; i < n; ++i) {
    T expected = value(0, i);
    for (int r = 1; r < c.size(); ++r) {
      const T v = value(r, i);
      if (op == Combine::sum) expected += v;
      if (op == Combine::product) expected *= v;
      if (op == Combine::min) expected = std::min(expected, v);
      if (op == Combine::max) expected = std::max(expected, v);
    }
    if (out[i] != expected) {
      ADD_FAILURE() << "op " << int(op) << " in place " << in_place << " n " << n << " at " << i << ": " << out[i]
                    << " instead of " << expected;
      return;
    }
    if (!in_place && in[i] != value(c.rank(), i)) ADD_FAILURE() << "the input has changed at " << i;
  }
}

TEST_F(CommunicatorCheck, AllReduceKnowsEveryTypeAndOperation) {
  for (const auto op : {Combine::sum, Combine::min, Combine::max, Combine::product}) {
    for (const bool in_place : {false, true}) {
      for (const std::size_t n : {0u, 1u, 1001u}) {
        expect_reduction<float>(world_, op, in_place, n);
        expect_reduction<double>(world_, op, in_place, n);
        expect_reduction<std::int32_t>(world_, op, in_place, n);
        expect_reduction<std::int64_t>(world_, op, in_place, n);
        expect_reduction<std::int8_t>(world_, op, in_place, n);
      }
    }
  }
}

TEST_F(CommunicatorCheck, WhatMpiLacksIsRefusedWithoutAnOperatorOfOurOwn) {
  EXPECT_THROW(Reduction(core::Element::bf16, Combine::sum), core::BackendError);
}

TEST_F(CommunicatorCheck, AFailedCallNamesTheCallAndMpisReason) {
  try {
    check_mpi(MPI_Barrier(MPI_COMM_NULL), "MPI_Barrier");
    ADD_FAILURE() << "a barrier over nobody went well";
  } catch (const core::BackendError& e) {
    EXPECT_NE(std::string(e.what()).find("MPI_Barrier"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("communicator"), std::string::npos);
  }
}

TEST(Counts, ThatDoNotFitMpisIntAreRefused) {
  EXPECT_EQ(mpi_count(2147483647), 2147483647);
  EXPECT_THROW((void)mpi_count(2147483648u), core::BackendError);
  EXPECT_THROW((void)mpi_count(std::numeric_limits<std::size_t>::max()), core::BackendError);
}

TEST(SingleCopy, IsTheNameOfAMechanismOfOpenMpiAndElseEmpty) {
  const std::string text = MpiSession::single_copy();
  EXPECT_EQ(MpiSession::single_copy(), text) << "asked again";
  if (!MpiSession::library_version().starts_with("Open MPI")) {
    EXPECT_EQ(text, "");
  } else {
    EXPECT_THAT(text, ::testing::AnyOf("cma", "xpmem", "knem", "emulated", "none", ""));
  }
}

TEST(LibraryVersion, IsTheNameAndTheNumber) {
  const auto text = MpiSession::library_version();
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace gradmeter::runtime
