// SPDX-License-Identifier: Apache-2.0
// Messages between workers and servers on real ranks: order, room, the own rank, programs beside, endings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/error.hpp"
#include "dataparallel/fabric/decorators/probe.hpp"
#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "support/departures.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::Op;
using runtime::Communicator;

constexpr PortOptions small_messages{.payload_bytes = 4096, .in_flight = 2};

struct MessengerSite {
  explicit MessengerSite(TransportKind transport, ProgressMode progress = ProgressMode::thread)
      : fabric(world,
               {.exchange = {.max_bytes = std::size_t{1} << 20, .algorithm = allreduce::find_algorithm("ring")},
                .transport = transport,
                .progress = progress,
                .spin_policy = test::spin_policy_of(world, 3),
                .memory_bytes = std::size_t{8} << 20,
                .uses_reduce_scatter = true},
               activity) {}
  int rank() const { return world.rank(); }
  int size() const { return world.size(); }
  const Communicator world = runtime::MpiSession::world();
  runtime::Activity activity;
  RankFabric fabric;
};

/// A message that was read, with its content.
struct ReceivedMessage {
  int from = 0;
  MessageHeader header = {};
  std::vector<float> values = {};
};

/// Sends whatever the room, and loses no message that comes while it waits for some.
class Writer {
 public:
  explicit Writer(Port& port) : port_(port) {}
  void send(int to, std::uint16_t operation, std::span<const float> values, std::uint64_t sequence = 0) {
    std::optional<std::span<std::byte>> room;
    while (!(room = port_.draft(to, values.size_bytes()))) keep(port_.next("room"));
    if (!values.empty()) std::memcpy(room->data(), values.data(), values.size_bytes());
    (void)port_.post(to, {.operation = operation, .sequence = sequence, .bytes = values.size_bytes()}, "messages");
  }
  ReceivedMessage get() {
    while (kept_.empty()) keep(port_.next("messages"));
    ReceivedMessage first = std::move(kept_.front());
    kept_.pop_front();
    return first;
  }

 private:
  void keep(const std::optional<Message>& m) {
    if (!m) return;
    ReceivedMessage l{
        .from = m->from, .header = m->header, .values = std::vector<float>(m->payload.size() / sizeof(float))};
    if (!l.values.empty()) std::memcpy(l.values.data(), m->payload.data(), m->payload.size());
    kept_.push_back(std::move(l));
  }
  Port& port_;
  std::deque<ReceivedMessage> kept_;
};

enum Operation : std::uint16_t { add = 1, sum, bye };

/// Adds up what workers send, answers with its sum, ends when all have said so.
void adding_server(Port& port, int workers, double& total) {
  Writer writer(port);
  for (int left = workers; left > 0;) {
    const ReceivedMessage l = writer.get();
    if (l.header.operation == bye) --left;
    if (l.header.operation != add) continue;
    for (float v : l.values) total += v;
    const std::vector<float> answer{static_cast<float>(l.from), static_cast<float>(l.header.sequence)};
    writer.send(l.from, sum, answer, l.header.sequence);
  }
}

class MessengerOver : public ::testing::TestWithParam<TransportKind> {};

TEST_P(MessengerOver, EveryWorkerSpeaksWithEveryServerInOrder) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  double total = 0;
  auto background_task =
      site.fabric.launch([&](ExecutionContext&) { adding_server(*ports.server, site.size(), total); });
  constexpr std::uint64_t rounds = 20;
  Writer writer(*ports.worker);
  std::vector<float> mine(1000, static_cast<float>(site.rank() + 1));
  for (std::uint64_t i = 0; i < rounds; ++i) {
    for (int to = 0; to < site.size(); ++to) writer.send(to, add, mine, i);
    std::vector<int> heard;
    while (heard.size() < static_cast<std::size_t>(site.size())) {
      const ReceivedMessage l = writer.get();
      EXPECT_EQ(l.header.sequence, i) << "in order";
      EXPECT_EQ(l.values.at(0), static_cast<float>(site.rank()));
      heard.push_back(l.from);
    }
    std::sort(heard.begin(), heard.end());
    for (int r = 0; r < site.size(); ++r) EXPECT_EQ(heard[static_cast<std::size_t>(r)], r);
  }
  for (int to = 0; to < site.size(); ++to) writer.send(to, bye, {});
  background_task->join();
  const double ranks = site.size();
  EXPECT_EQ(total, 1000.0 * double(rounds) * ranks * (ranks + 1) / 2);
}

TEST_P(MessengerOver, ManyMessagesAtOnceKeepTheirOrderAndNoneIsLost) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  constexpr std::uint64_t messages = 200;
  std::vector<std::uint64_t> expected(static_cast<std::size_t>(site.size()), 0);
  auto background_task = site.fabric.launch([&](ExecutionContext&) {
    Writer reader(*ports.server);
    for (int left = site.size(); left > 0;) {
      const ReceivedMessage l = reader.get();
      auto& next = expected[static_cast<std::size_t>(l.from)];
      EXPECT_EQ(l.header.sequence, next++);
      for (float v : l.values) ASSERT_EQ(v, static_cast<float>(l.header.sequence));
      left -= l.header.sequence + 1 == messages;
    }
  });
  Writer writer(*ports.worker);
  for (std::uint64_t i = 0; i < messages; ++i) {
    const std::vector<float> values((i * 37) % 1024, static_cast<float>(i));
    for (int to = 0; to < site.size(); ++to) writer.send(to, add, values, i);
  }
  background_task->join();
  for (auto n : expected) EXPECT_EQ(n, messages);
}

TEST_P(MessengerOver, OnlyPayloadToOthersCounts) {
  MessengerSite site(GetParam());
  Probe probe(site.fabric);
  Ports ports = probe.open(everybody, small_messages);
  double total = 0;
  auto background_task = probe.launch([&](ExecutionContext&) { adding_server(*ports.server, site.size(), total); });
  const std::vector<float> values(100, 1.0f);
  Writer writer(*ports.worker);
  probe.begin_step();
  for (int to = 0; to < site.size(); ++to) writer.send(to, add, values);
  for (int heard = 0; heard < site.size(); ++heard) (void)writer.get();
  for (int to = 0; to < site.size(); ++to) writer.send(to, bye, {});
  background_task->join();
  ports = {};  // what was read last has left its sender then
  site.fabric.wait(site.fabric.all_reduce(everybody, site.fabric.memory(1), Op::sum, {}, {}));
  (void)probe.end_step();
  probe.begin_step();
  (void)probe.end_step();
  test::await_departures(probe);
  const auto others = static_cast<std::uint64_t>(site.size() - 1);
  EXPECT_EQ(probe.totals().bytes_sent, others * 400 + others * 8);
  EXPECT_EQ(probe.totals().bytes_required, probe.totals().bytes_sent);
}

TEST_P(MessengerOver, AFullSenderWaitsForRoomAndGoesOn) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  const int to = (site.rank() + 1) % site.size();
  int drafts = 0;
  while (ports.worker->draft(to, 8)) {
    const std::vector<float> v{1, 2};
    (void)ports.worker->post(to, {.sequence = static_cast<std::uint64_t>(drafts), .bytes = 0}, "messages");
    if (++drafts == 64) break;  // what leaves at once makes room at once
  }
  int got = 0;
  const int from = (site.rank() + site.size() - 1) % site.size();
  auto background_task = site.fabric.launch([&](ExecutionContext&) {
    while (got < 100) {
      const auto message = ports.server->next("messages");
      if (!message) continue;
      EXPECT_EQ(message->from, from);
      EXPECT_EQ(message->header.sequence, static_cast<std::uint64_t>(got++));
    }
  });
  for (; drafts < 100; ++drafts) {
    while (!ports.worker->draft(to, 0)) (void)ports.worker->next("room");
    (void)ports.worker->post(to, {.sequence = static_cast<std::uint64_t>(drafts), .bytes = 0}, "messages");
  }
  background_task->join();
  EXPECT_EQ(got, 100);
}

TEST_P(MessengerOver, ADeadlineEndsAWait) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  EXPECT_FALSE(ports.worker->poll());
  const double begin = site.fabric.now();
  EXPECT_FALSE(ports.worker->next("nothing", begin + 0.02));
  EXPECT_GE(site.fabric.now(), begin + 0.02);
}

TEST_P(MessengerOver, WhatAProgramBesideThrowsReachesItsWorker) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  auto background_task = site.fabric.launch([](ExecutionContext&) { throw core::WrongResult("as expected"); });
  EXPECT_THROW((void)ports.worker->next("an answer that will not come"), core::WrongResult);
  EXPECT_THROW(background_task->join(), core::WrongResult);
  site.world.barrier();
}

TEST_P(MessengerOver, AProgramThatIsNotJoinedEndsWithItsWorker) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  auto background_task = site.fabric.launch([&](ExecutionContext&) {
    for (;;) (void)ports.server->next("a message that never comes");
  });
  background_task.reset();
  site.world.barrier();
}

// The last rank waits for rank 0's server before it comes to the barrier in which rank 0 waits already.
TEST_P(MessengerOver, ServersAnswerWhileTheirRankWaitsInMpi) {
  MessengerSite site(GetParam());
  Ports ports = site.fabric.open(everybody, small_messages);
  double total = 0;
  auto background_task =
      site.fabric.launch([&](ExecutionContext&) { adding_server(*ports.server, site.size(), total); });
  Writer writer(*ports.worker);
  const std::vector<float> one{1};
  for (int i = 0; i < 20; ++i) {
    if (site.rank() == site.size() - 1) {
      writer.send(0, add, one);
      (void)writer.get();
    }
    switch (i % 5) {
      case 0:
        site.world.barrier();
        break;
      case 1:
        EXPECT_EQ(site.world.sum(1), site.size());
        break;
      case 2:
        EXPECT_EQ(site.world.broadcast_value(site.rank(), site.size() - 1), site.size() - 1);
        break;
      case 3:
        EXPECT_EQ(site.world.all_gather_value(site.rank()).back(), site.size() - 1);
        break;
      default:
        EXPECT_EQ(site.world.split(0, 0).size(), site.size());
    }
  }
  for (int to = 0; to < site.size(); ++to) writer.send(to, bye, {});
  background_task->join();
  EXPECT_EQ(total, site.rank() == 0 ? 20 : 0);
}

TEST_P(MessengerOver, InAPauseNothingMoves) {
  MessengerSite site(GetParam());
  if (site.size() == 1) GTEST_SKIP() << "a message to the own rank travels nowhere";
  Ports ports = site.fabric.open(everybody, small_messages);
  Writer writer(*ports.worker);
  {
    const auto progress_pause = site.fabric.pause_progress();
    writer.send((site.rank() + 1) % site.size(), add, {});
    site.world.barrier();
    EXPECT_FALSE(ports.server->next("a message in the pause", site.fabric.now() + 0.02));
    site.world.barrier();
  }
  std::optional<Message> message;
  while (!message) message = ports.server->next("the message after it");
  EXPECT_EQ(message->header.operation, add);
}

TEST_P(MessengerOver, BlocksAreReducedToTheirOwnersAndGatheredFromThem) {
  for (const auto progress : {ProgressMode::thread, ProgressMode::on_wait}) {
    MessengerSite site(GetParam(), progress);
    const std::size_t n = 10'007;
    const auto v = site.fabric.memory(n).values<float>();
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>((i % 13) * static_cast<std::size_t>(site.rank() + 1));
    site.fabric.wait(site.fabric.reduce_scatter(everybody, v, Op::sum, {}));
    const auto p = static_cast<std::uint32_t>(site.size()), me = static_cast<std::uint32_t>(site.rank());
    const float ranks = static_cast<float>(p * (p + 1) / 2);
    for (std::size_t i = allreduce::block_begin(n, p, me); i < allreduce::block_begin(n, p, me + 1); ++i) {
      ASSERT_EQ(v[i], static_cast<float>(i % 13) * ranks);
    }
    site.fabric.wait(site.fabric.all_gather(everybody, v, {}));
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(v[i], static_cast<float>(i % 13) * ranks);
  }
}

TEST(Message, WithoutAProgressThreadIsRefused) {
  MessengerSite site(TransportKind::automatic, ProgressMode::on_wait);
  EXPECT_THROW((void)site.fabric.open(everybody, small_messages), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(World, MessengerOver, ::testing::Values(TransportKind::automatic, TransportKind::mpi),
                         [](const auto& param) { return std::string(runtime::name(param.param)); });

}  // namespace
}  // namespace gradmeter::dataparallel
