// SPDX-License-Identifier: Apache-2.0
// Ports over a network with delivery faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "core/format.hpp"
#include "support/sim_machine.hpp"
#include "support/sim_messages.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::failure;
using test::got;
using test::slow_machine;
using test::write;
using test::written;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Faults = std::function<DeliveryFault(const MessageRoute&)>;
/// What takes so many seconds on the slow machine: header and stamp, a message of 12 bytes with them, and ten messages
/// of 128 bytes, their memory.
constexpr double ack = sizeof(MessageHeader) + 16, sent = ack + 12, wait = 10 * (1 + 128);

SimMachine machine_with(Faults faults) {
  SimMachine m = slow_machine();
  m.delivery_fault = std::move(faults);
  return m;
}
DeliveryFault lost_if(bool yes) { return {.copies = yes ? 0 : 1}; }

using Came = std::tuple<int, std::uint64_t, double>;  ///< from whom, which, when

/// What rank 0's server receives of four messages from each of the other ranks.
std::vector<Came> deliveries(const Faults& faults, int ranks = 2) {
  std::vector<Came> came;
  SimWorld(ranks, machine_with(faults)).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 12, .in_flight = 4});
    if (f.rank() > 0) {
      for (std::uint64_t i = 0; i < 4; ++i) {
        const auto t = write(*ports.worker, 0, {.sequence = i, .bytes = 12}, int(i));
        EXPECT_EQ(t->completion().bytes_sent, 12u + 16u) << "with the stamp; lost ones were sent as well";
      }
      return ports.worker->close();
    }
    while (const auto message = ports.server->next("a push", 20'000)) {
      EXPECT_EQ(message->header.bytes, 12u);
      EXPECT_EQ(got(*message), written(int(message->header.sequence), 12));
      came.emplace_back(message->from, message->header.sequence, f.now());
    }
    ports.server->close();
  });
  return came;
}

/// Who sent and which, one after another.
std::string order(const std::vector<Came>& all) {
  std::string text;
  for (const auto& [from, sequence, when] : all) text += fmt::format("{}{} ", from, sequence);
  return text;
}

TEST(ReliablePort, ALostMessageIsSentAgainAndLaterOnesWaitForIt) {
  EXPECT_THAT(
      deliveries([](const MessageRoute&) { return DeliveryFault{}; }),
      ElementsAre(Came{1, 0, sent + 1}, Came{1, 1, 2 * sent + 1}, Came{1, 2, 3 * sent + 1}, Came{1, 3, 4 * sent + 1}));
  // An acknowledgement arrives ack + 1 after the message; the wait after it ends with the next message's sending.
  const double one = ack + 1 + wait + sent + 1;
  EXPECT_THAT(deliveries([](const MessageRoute& x) { return lost_if(x.to_role == Role::server && x.number == 1); }),
              ElementsAre(Came{1, 0, sent + 1}, Came{1, 1, sent + 1 + one}, Came{1, 2, sent + 1 + 2 * one},
                          Came{1, 3, sent + 1 + 3 * one}));
}

TEST(ReliablePort, TheWaitDoubles) {
  EXPECT_THAT(deliveries([](const MessageRoute& x) { return lost_if(x.to_role == Role::server && x.number < 6); })[0],
              (Came{1, 0, wait * (1 + 2 + 4) + sent + 1}));
}

TEST(ReliablePort, ADoubledMessageComesOnceThoughBothTravel) {
  EXPECT_THAT(
      deliveries([](const MessageRoute& x) { return DeliveryFault{.copies = x.number == 2 ? 2 : 1}; }),
      ElementsAre(Came{1, 0, sent + 1}, Came{1, 1, 2 * sent + 1}, Came{1, 2, 3 * sent + 1}, Came{1, 3, 5 * sent + 1}));
}

TEST(ReliablePort, WhatOvertakesComesAgainInItsTurn) {
  EXPECT_EQ(order(deliveries([](const MessageRoute& x) {
              return x.number == 0 ? DeliveryFault{.copies = 2, .delay_s = {150, 1000}} : DeliveryFault{};
            })),
            "10 11 12 13 ");
}

TEST(ReliablePort, ASenderWaitsForNoOther) {
  const auto lost = [](const MessageRoute& x) { return lost_if(x.from == 1 && x.number == 0); };
  EXPECT_EQ(order(deliveries(lost, 3)), "20 21 22 23 10 11 12 13 ");
}

TEST(ReliablePort, LostAcknowledgementsDoubleNothing) {
  std::uint64_t lost = 0;
  const auto came = deliveries([&](const MessageRoute& x) {
    const bool gone = x.to_role == Role::worker && x.number < 6;
    lost += gone;
    return lost_if(gone);
  });
  EXPECT_THAT(came, ElementsAre(Came{1, 0, sent + 1}, Came{1, 1, 2 * sent + 1}, Came{1, 2, 3 * sent + 1},
                                Came{1, 3, 4 * sent + 1}));
  EXPECT_EQ(lost, 6u);
}

/// Rank 1 asks twice and is answered; both close. When they end.
std::vector<double> conversation(const Faults& faults) {
  return SimWorld(2, machine_with(faults)).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 12});
    Port& own = f.rank() == 1 ? *ports.worker : *ports.server;
    for (std::uint64_t i = 0; i < 2; ++i) {
      if (f.rank() == 1) write(own, 0, {.sequence = i, .bytes = 12}, int(i));
      std::optional<Message> message;
      while (!message) message = own.next("the other");
      ASSERT_EQ(message->header.sequence, i);
      ASSERT_EQ(got(*message), written(int(i) + 5 * f.rank(), 12));
      if (f.rank() == 0) write(own, 1, {.sequence = i, .bytes = 12}, int(i) + 5);
    }
    own.close();
  });
}

TEST(ReliablePort, BothEndsLeaveWhateverHappens) {
  // The first four from either side (two messages and two acknowledgements, unless something is lost) are lost, come,
  // or come late and twice.
  for (int pattern = 0; pattern < 6561; ++pattern) {
    std::array<int, 8> fate;
    for (int i = 0, rest = pattern; i < 8; ++i, rest /= 3) fate[std::size_t(i)] = rest % 3;
    const auto end = conversation([&](const MessageRoute& x) -> DeliveryFault {
      const int now = x.number < 4 ? fate[x.number + (x.to_role == Role::worker ? 4 : 0)] : 1;
      return now == 2 ? DeliveryFault{.copies = 2, .delay_s = {450, 250}} : lost_if(now == 0);
    });
    ASSERT_LT(std::max(end[0], end[1]), 30'000) << "pattern " << pattern;
    if (testing::Test::HasFailure()) FAIL() << "pattern " << pattern;
  }
}

TEST(ReliablePort, WhoIsAloneGivesUpAndTheOtherIsNamed) {
  double end = 0;
  EXPECT_THAT(failure(2, machine_with([](const MessageRoute&) { return lost_if(true); }),
                      [&](Fabric& f) {
                        const Ports ports = f.open(everybody, {.payload_bytes = 12});
                        if (f.rank() == 0) return void(ports.server->next("a push"));
                        write(*ports.worker, 0, {.bytes = 12});
                        ports.worker->close();
                        end = f.now();
                      }),
              HasSubstr("deadlock in virtual time: rank 0 waits for a push"));
  EXPECT_GT(end, wait * 1e12) << "after forty tries";
}

TEST(ReliablePort, TheDeathOfAPeerIsHeardAndWaitedForByNobody) {
  SimMachine m = machine_with([](const MessageRoute&) { return lost_if(true); });
  m.failures = {{.rank = 0, .at_s = 150}};
  std::vector<std::pair<int, bool>> heard;
  const auto end = SimWorld(3, m).run([&](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 12});
    if (f.rank() == 0) write(*ports.server, 1, {.bytes = 12});
    if (f.rank() < 2) {
      while (const auto message = ports.worker->next("news", 9000)) {
        heard.emplace_back(message->from, message->is_failure_notice);
      }
    }
    if (f.rank() == 1) write(*ports.worker, 0, {.bytes = 12});
    if (f.rank() == 2) write(*ports.worker, 0, {.bytes = 12});
    ports.worker->close();
  });
  EXPECT_THAT(heard, ElementsAre(std::pair(0, true)));
  EXPECT_THAT(end, ElementsAre(150, 9000, 151)) << "rank 1 knows already, rank 2 hears it while it closes";
}

TEST(ReliablePort, RoomAndDeadlinesAreThoseOfThePortBelow) {
  SimWorld(2, machine_with([](const MessageRoute&) { return lost_if(true); })).run([](Fabric& f) {
    const Ports ports = f.open(everybody, {.payload_bytes = 12, .in_flight = 2});
    if (f.rank() != 0) return;
    write(*ports.worker, 1, {.bytes = 12});
    write(*ports.worker, 1, {.bytes = 12});
    EXPECT_FALSE(ports.worker->draft(1, 12));
    EXPECT_FALSE(ports.worker->next("room"));
    EXPECT_DOUBLE_EQ(f.now(), sent) << "the first is out";
    EXPECT_FALSE(ports.worker->next("nothing", 500));
    EXPECT_DOUBLE_EQ(f.now(), 500);
    EXPECT_FALSE(ports.worker->next("nothing", 5000));
    EXPECT_DOUBLE_EQ(f.now(), wait) << "when a message is sent again";
    EXPECT_THROW(ports.worker->draft(2, 12), std::logic_error);
    EXPECT_THROW(ports.worker->post(1, {.bytes = 12}, "push"), std::logic_error) << "without a draft";
  });
}

TEST(ReliablePort, AcknowledgementsMayTakeTheRoomOfADraft) {
  EXPECT_THAT(failure(2, machine_with([](const MessageRoute&) { return DeliveryFault{}; }),
                      [](Fabric& f) {
                        const Ports ports = f.open(everybody, {.payload_bytes = 12, .in_flight = 1});
                        if (f.rank() == 1) return void(write(*ports.worker, 0, {.bytes = 12}));
                        EXPECT_TRUE(ports.server->draft(1, 12));
                        EXPECT_TRUE(ports.server->next("a push"));
                        (void)ports.server->post(1, {.bytes = 12}, "weights");
                      }),
              HasSubstr("between a draft and its post"));
}

}  // namespace
}  // namespace gradmeter::dataparallel
