// SPDX-License-Identifier: Apache-2.0
// Servers write weights to the memory of workers that they reach: the same bits as by messages.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "runtime/process/watchdog.hpp"
#include "support/served.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::Seen;
using test::Served;

/// A fabric whose ports count weights that were written in place, or reach nobody's memory. A worker's memory that was
/// offered is filled with NaNs when the worker ends.
class Reaching final : public ForwardingFabric {
 public:
  Reaching(Fabric& inner, bool reaches) : ForwardingFabric(inner), reaches_(reaches) {}
  Ports open(Group g, const PortOptions& o) override {
    Ports p = inner_.open(g, o);
    return {.worker = std::make_unique<Counting>(std::move(p.worker), *this),
            .server = std::make_unique<Counting>(std::move(p.server), *this)};
  }
  std::atomic<int> written = 0;

 private:
  class Counting final : public ForwardingPort {
   public:
    Counting(std::unique_ptr<Port> inner, Reaching& owner) : ForwardingPort(std::move(inner)), owner_(owner) {}
    std::uint64_t place_of(std::span<const std::byte> memory) const override {
      offered_.push_back(memory);
      return owner_.reaches_ ? inner_->place_of(memory) : 0;
    }
    /// A worker that has ended does with its memory what it likes.
    void close() override {
      for (const auto& memory : offered_) std::memset(const_cast<std::byte*>(memory.data()), 0xff, memory.size());
      inner_->close();
    }
    Ticket post_written(int to, const MessageHeader& h, std::span<std::byte> payload, const char* label) override {
      Ticket t = inner_->post_written(to, h, payload, label);
      if (t) ++owner_.written;
      return t;
    }

   private:
    Reaching& owner_;
    mutable std::vector<std::span<const std::byte>> offered_;
  };
  bool reaches_;
};

struct Written {
  std::vector<Seen> seen;
  int written = 0;
};

/// Over ranks as threads, which all reach each other's memory.
Written serve_on_threads(const Served& s, bool reaches) {
  Written run{.seen = std::vector<Seen>(static_cast<std::size_t>(s.ranks))};
  std::atomic<int> written = 0;
  runtime::run_thread_ranks(s.ranks, [&](const runtime::Communicator& world) {
    runtime::Activity activity;
    RankFabric ranks(
        world,
        {.exchange = {.max_bytes = 4096}, .progress = ProgressMode::thread, .memory_bytes = std::size_t{8} << 20},
        activity);
    Reaching fabric(ranks, reaches);
    test::serve(fabric, s, run.seen[static_cast<std::size_t>(world.rank())]);
    written += fabric.written;
    world.barrier();  // nobody reads this rank's memory any more
  });
  run.written = written;
  return run;
}

Served workers_of(const char* strategy, int ranks) {
  return {.strategy = strategy, .ranks = ranks, .elements = 1000, .overlap = false, .path = true};
}

TEST(WrittenWeights, AreThoseOfMessagesBitForBit) {
  for (const char* strategy : {"ps-sync", "ps-backup", "ps-ssp:staleness=0"}) {
    for (const int servers : {0, 1}) {
      for (const char* optimizer : {"sgd", "momentum"}) {
        Served s = workers_of(strategy, 3);
        s.servers = servers;
        s.optimizer = optimizer;
        const Written written = serve_on_threads(s, true), sent = serve_on_threads(s, false);
        EXPECT_GT(written.written, 0) << strategy;
        EXPECT_EQ(sent.written, 0);
        if (std::string_view(strategy) == "ps-backup") continue;  // whose gradients count depends on time
        for (int r = 0; r < 3 - servers; ++r) {
          const auto at = static_cast<std::size_t>(r);
          EXPECT_EQ(written.seen[at].path, sent.seen[at].path) << strategy << ' ' << servers << " rank " << r;
          EXPECT_EQ(written.seen[at].totals.bytes_sent, sent.seen[at].totals.bytes_sent)
              << "what is written counts as sent";
        }
      }
    }
  }
}

TEST(WrittenWeights, OfOneAsynchronousWorkerAreThoseOfMessages) {
  for (const char* strategy : {"ps-async", "dc-asgd", "ps-softsync"}) {
    const Served s = workers_of(strategy, 1);
    const Written written = serve_on_threads(s, true), sent = serve_on_threads(s, false);
    EXPECT_GT(written.written, 0) << strategy;
    EXPECT_EQ(written.seen[0].path, sent.seen[0].path) << strategy;
  }
}

TEST(WrittenWeights, AreNotUsedWhereAWorkerChangesItsOwn) {
  for (const char* strategy : {"ps-async:fetch=2", "ps-async:push=2", "ps-async:prefetch=1", "easgd:every=2"}) {
    EXPECT_EQ(serve_on_threads(workers_of(strategy, 2), true).written, 0) << strategy;
  }
}

/// Workers at different steps: all end at the common optimum.
TEST(WrittenWeights, AsynchronousWorkersConverge) {
  for (const char* strategy : {"ps-async", "ps-ssp:staleness=1", "ps-softsync:n=2", "dc-asgd"}) {
    for (const int servers : {0, 1}) {
      Served s = workers_of(strategy, 4);
      s.servers = servers;
      s.steps = test::each(250);
      s.targets = Served::Targets::zero;
      const Written run = serve_on_threads(s, true);
      EXPECT_GT(run.written, 0) << strategy;
      for (int r = 0; r < 4 - servers; ++r) {
        for (const float w : run.seen[static_cast<std::size_t>(r)].path.back())
          ASSERT_LT(std::fabs(w), 1e-3f) << strategy;
      }
    }
  }
}

TEST(WrittenWeights, AWorkerThatEndsTakesNoneWithIt) {
  Served s = workers_of("ps-async", 4);
  s.servers = 1;
  s.steps = [](int rank) { return rank == 0 ? 3 : 250; };
  s.targets = Served::Targets::zero;
  const Written run = serve_on_threads(s, true);
  EXPECT_TRUE(std::isnan(run.seen[0].weights[0])) << "the control: its memory was written over";
  for (int r = 1; r < 3; ++r) {
    for (const float w : run.seen[static_cast<std::size_t>(r)].path.back()) ASSERT_LT(std::fabs(w), 1e-3f);
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
