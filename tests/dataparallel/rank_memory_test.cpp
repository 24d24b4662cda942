// SPDX-License-Identifier: Apache-2.0
// What a rank of a thousand needs beside the model, for messages and servers. A program of its own, because it counts
// what all of it allocates.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>

#include "core/format.hpp"
#include "core/units.hpp"
#include "dataparallel/fabric/ranks/messenger.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/server/protocol.hpp"
#include "dataparallel/strategy.hpp"
#include "runtime/transport/shared_memory_transport.hpp"
#include "support/linear_model.hpp"

namespace {

std::atomic<std::size_t> allocated{0};  ///< now [bytes]

}  // namespace

void* operator new(std::size_t bytes) {
  void* p = std::malloc(bytes);
  if (!p) throw std::bad_alloc();
  allocated += malloc_usable_size(p);
  return p;
}
void operator delete(void* p) noexcept {
  allocated -= malloc_usable_size(p);
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace gradmeter::dataparallel {
namespace {

using namespace core::literals;

constexpr int ranks = 1024;
constexpr std::size_t elements = (8_MiB).value / sizeof(float);  ///< of the weights
constexpr std::size_t most = (64_MiB).value;

/// Copies what it receives, as MPI does. Nothing that it sends ever leaves; what comes is what the test says.
class CrowdTransport final : public runtime::Transport {
 public:
  explicit CrowdTransport(int rank) : rank_(rank), sent_(ranks) {}
  /// What each other rank sends to the server of this one.
  void expect(std::vector<MessageHeader> pushes) { pushes_ = std::move(pushes); }
  std::size_t payloads_read() const { return payloads_read_; }

  std::string_view name() const override { return "crowd"; }
  int rank() const override { return rank_; }
  int size() const override { return ranks; }
  int channels() const override { return Messenger::channels; }
  bool zero_copy_from(int) const override { return false; }
  std::size_t message_bytes() const override { return runtime::longest_usual_message; }
  runtime::MessageHandle send(int, int, std::span<const std::byte>) override { return {}; }
  bool send_done(runtime::MessageHandle&) override { return false; }
  runtime::MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override {
    if (channel == header_channel(Role::server)) return {static_cast<std::uint64_t>(peer), landing.data()};
    return {channel == payload_channel(Role::server) ? payload : nothing, landing.data()};
  }
  const std::byte* try_receive(runtime::MessageHandle& t) override {
    if (t.id == payload) return static_cast<const std::byte*>(t.address);
    if (t.id == nothing) return nullptr;
    std::size_t& sent = sent_[t.id];
    if (sent == pushes_.size()) return nullptr;
    return static_cast<const std::byte*>(std::memcpy(t.address, &pushes_[sent++], sizeof(MessageHeader)));
  }
  void release(runtime::MessageHandle& t) override { payloads_read_ += t.id == payload; }

 private:
  static constexpr std::uint64_t payload = 1 << 20, nothing = payload + 1;  ///< instead of a peer
  int rank_;
  std::vector<MessageHeader> pushes_;
  std::vector<std::size_t> sent_;  ///< of those, by peer
  std::atomic<std::size_t> payloads_read_{0};
};

class NoTask final : public BackgroundTask {
  void join() override {}
};

/// One rank of a job that is not there: it has messages alone, and its server's program is the test's to run.
class LoneFabric final : public Fabric {
 public:
  explicit LoneFabric(int rank) : rank_(rank), arena_((16_GiB).value) {
    std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
  }
  int rank(Group) const override { return rank_; }
  int size(Group) const override { return ranks; }
  Group split(int, int) override { return everybody; }
  Ticket start(const FabricCall&) override { return nullptr; }
  void wait(const Ticket&) override {}
  Ports open(Group, const PortOptions& o) override {
    auto link = std::make_unique<CrowdTransport>(rank_);
    transport = link.get();
    messenger = std::make_unique<Messenger>(std::move(link), arena_, o, activity_, world_ranks_,
                                            runtime::SpinPolicy{.spins = 1, .yields = 1});
    return {.worker = messenger->port(Role::worker), .server = messenger->port(Role::server)};
  }
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram p) override {
    server = std::move(p);
    return std::make_unique<NoTask>();
  }
  Buffer memory(std::size_t floats) override { return arena_.take_of<float>(floats); }
  void submit(std::string_view, runtime::Cost, const runtime::Work& work) override { work(); }
  void log_to(ComputeLog*) override {}
  double now() const override { return runtime::host_clock(); }

  std::size_t bytes_of_arena() const { return arena_.mark(); }
  CrowdTransport* transport = nullptr;
  std::unique_ptr<Messenger> messenger;
  BackgroundProgram server;

 private:
  int rank_;
  runtime::PrivateArena arena_;
  runtime::Activity activity_;
  std::vector<int> world_ranks_ = std::vector<int>(ranks);
};

struct Enough {};

/// A rank of a strategy after `begin`. Weights and gradients are not counted; the client's copy of the weights is, and
/// both of the server's.
class Rank {
 public:
  Rank(std::string_view strategy, int rank)
      : fabric_(rank), before_(allocated), strategy_(find_strategy(strategy)->make({})) {
    strategy_->begin(worker_);
  }
  std::size_t bytes() const { return allocated - before_ + fabric_.bytes_of_arena() + cells_bytes; }

  /// Where every rank serves: all other workers push a change of each of the server's chunks and ask for weights.
  void serve_all() {
    const Sharding sharding(elements, ranks, 1);
    const auto server = static_cast<std::uint32_t>(fabric_.rank(everybody));
    std::vector<MessageHeader> pushes;
    for (std::size_t i = 0; i < sharding.chunks(server); ++i) {
      const Range chunk = sharding.chunk(server, i);
      pushes.push_back({.operation = static_cast<std::uint16_t>(Opcode::push),
                        .server_number = server,
                        .sequence = 1,
                        .first = chunk.first,
                        .count = chunk.count,
                        .bytes = chunk.count * sizeof(float),
                        .value = 0.1});
    }
    const std::size_t last = (ranks - 1) * pushes.size() - 1;  // is read until the next is asked for
    fabric_.transport->expect(std::move(pushes));
    std::thread thread([this] { EXPECT_THROW(fabric_.server(fabric_), Enough); });
    while (fabric_.transport->payloads_read() < last) fabric_.messenger->poll();
    fabric_.messenger->fail(std::make_exception_ptr(Enough{}));
    thread.join();
  }

 private:
  /// Its part of what the ports' transport needs over shared memory.
  static inline const std::size_t cells_bytes =
      runtime::shared_memory_cell_count(ranks, Messenger::channels) / ranks * sizeof(runtime::SharedMemoryCell);
  LoneFabric fabric_;
  std::vector<float> weights_ = std::vector<float>(elements), gradients_ = weights_;
  test::LinearModel model_ = test::LinearModel(elements);
  std::unique_ptr<Optimizer> optimizer_ = make_optimizer("sgd", {});
  Worker worker_ = Worker(fabric_, everybody, model_, {weights_, gradients_}, *optimizer_);
  std::size_t before_;
  std::unique_ptr<Strategy> strategy_;
};

class RankMemory : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Strategies, RankMemory, ::testing::Values("ps-sync", "ps-async", "ps-ssp"),
                         [](const auto& p) { return std::string(p.param).replace(2, 1, "_"); });

TEST_P(RankMemory, StaysBoundedAmongAThousandRanks) {
  for (const int servers : {0, 8}) {
    const Sharding sharding(elements, static_cast<std::uint32_t>(servers > 0 ? servers : ranks), 1,
                            Sharding::dense_payload_bytes);
    const std::size_t landing_buffers = held_payloads * sharding.payload_bytes();  // made when they are needed
    for (const int rank : {0, ranks - 1}) {
      const Rank me(fmt::format("{}:servers={}", GetParam(), servers), rank);
      EXPECT_LT(me.bytes() + landing_buffers, most) << servers << " servers, rank " << rank;
      if (rank == 0) {
        EXPECT_GT(me.bytes(), elements * sizeof(float)) << "the client's copy of the weights is counted";
      }
    }
  }
}

/// With ps-sync no change's turn comes, since the first worker pushes none: the server keeps all of them.
TEST_P(RankMemory, StaysBoundedWhenAllHavePushedAndNobodyReads) {
  Rank me(GetParam(), 0);
  me.serve_all();
  EXPECT_LT(me.bytes(), most);
}

}  // namespace
}  // namespace gradmeter::dataparallel
