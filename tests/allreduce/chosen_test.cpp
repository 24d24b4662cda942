// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/selection.hpp"

#include <gtest/gtest.h>

#include "allreduce/executor/executor.hpp"
#include "core/error.hpp"
#include "support/run_to_end.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using test::HeapArena;
using test::run_ranks;
using test::run_to_end;
using test::ThreadGroup;

constexpr int channels = 2;

/// Adds up nothing and counts nothing, like a vendor's collective.
class Uncounted final : public Collective {
 public:
  const std::string& name() const override { return name_; }
  void start(const Call&) override { ++calls; }
  bool advance() override { return true; }
  int calls = 0;

 private:
  std::string name_ = "uncounted";
};

std::uint64_t total(const std::vector<std::uint64_t>& v) {
  std::uint64_t sum = 0;
  for (auto x : v) sum += x;
  return sum;
}

TEST(SelectedCollective, EachCallGoesToTheAlgorithmThatItsBytesName) {
  const int p = 4;
  const auto table = std::make_shared<SizeTable>("0-4000:recursive-doubling,4000-:ring");
  ThreadGroup group(p, channels);
  // By call: payload bytes of all ranks together. Recursive doubling sends n·log2 p a rank, the ring 2n(p-1)/p.
  const std::vector<std::size_t> counts{100, 999, 1000, 5000, 10, 0, 1001};
  std::vector<std::vector<std::uint64_t>> sent(counts.size(), std::vector<std::uint64_t>(p));
  run_ranks(p, [&](int r) {
    auto transport = group.transport(r);
    HeapArena arena(std::size_t{1} << 20);
    std::vector<std::unique_ptr<Collective>> members;
    for (const auto& a : table->candidates()) {
      members.push_back(std::make_unique<Executor>(ScheduledAlgorithm{a->name, a->make({std::uint32_t(p), 1})},
                                                   *transport, arena, ExchangeSpec{Placement::in_place, 20000, 1024}));
    }
    SelectedCollective c(table, std::move(members));
    EXPECT_EQ(c.name(), table->name());
    for (std::size_t k = 0; k < counts.size(); ++k) {
      std::vector<float> v(counts[k], static_cast<float>(r + 1));
      const auto before = c.sent()->bytes;
      c.start({v, v});
      run_to_end(c);
      for (float x : v) EXPECT_EQ(x, 10.0f);
      sent[k][static_cast<std::size_t>(r)] = c.sent()->bytes - before;
      EXPECT_EQ(c.sent()->bytes, *c.bytes_required());
    }
  });
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const std::size_t bytes = counts[k] * sizeof(float), ranks = static_cast<std::size_t>(p);
    EXPECT_EQ(total(sent[k]), bytes < 4000 ? 2 * ranks * bytes : 2 * (ranks - 1) * bytes) << counts[k];
  }
}

TEST(SelectedCollective, CountsNothingOnceAMemberServedThatCountsNothing) {
  const auto table = std::make_shared<SizeTable>("0-4000:ring,4000-:mpi");
  ThreadGroup group(1, channels);
  auto transport = group.transport(0);
  HeapArena arena(std::size_t{1} << 20);
  auto uncounted = std::make_unique<Uncounted>();
  const Uncounted& vendor = *uncounted;
  std::vector<std::unique_ptr<Collective>> members;
  members.push_back(std::make_unique<Executor>(ScheduledAlgorithm{"ring", find_algorithm("ring")->make({1, 1})},
                                               *transport, arena, ExchangeSpec{Placement::in_place, 4000, 1024}));
  members.push_back(std::move(uncounted));
  SelectedCollective c(table, std::move(members));
  std::vector<float> v(1000);
  const auto first = [&](std::size_t n) { return std::span(v).first(n); };
  c.start({first(999), first(999)});
  EXPECT_THROW(c.start({first(999), first(999)}), core::BackendError) << "the last call is not complete";
  run_to_end(c);
  EXPECT_EQ(vendor.calls, 0);
  EXPECT_TRUE(c.sent() && c.bytes_required());
  c.start({v, v});
  run_to_end(c);
  EXPECT_EQ(vendor.calls, 1);
  EXPECT_FALSE(c.sent() || c.bytes_required());
  c.start({first(10), first(10)});
  run_to_end(c);
  EXPECT_FALSE(c.sent() || c.bytes_required()) << "for good";
  EXPECT_TRUE(c.serving(40).sent() && c.serving(40).bytes_required()) << "the one that serves these bytes has counted";
  EXPECT_EQ(&c.serving(4000), &vendor);
}

}  // namespace
}  // namespace gradmeter::allreduce
