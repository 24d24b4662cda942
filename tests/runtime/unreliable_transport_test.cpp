// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/decorators.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "core/format.hpp"
#include "core/injection.hpp"
#include "runtime/clock.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::runtime {
namespace {

/// Two ranks in one thread; the receiver is rank 7 of the world, the sender rank 3.
class Unreliable : public ::testing::Test {
 protected:
  void connect(const char* faults) {
    connected_ = host_clock();
    const auto messages = core::parse_injection(faults).messages;
    from_ = std::make_unique<UnreliableTransport>(group_.transport(0), messages, std::vector{3, 7}, connected_);
    to_ = std::make_unique<UnreliableTransport>(group_.transport(1), messages, std::vector{3, 7}, connected_);
  }
  void send(int n) {
    for (int i = 0; i < n; ++i)
      (void)from_->send(1, 0, std::as_bytes(std::span(&data_[static_cast<std::size_t>(i)], 1)));
  }
  MessageHandle receive() { return to_->receive(0, 0, std::as_writable_bytes(std::span(&unused_, 1))); }
  /// When it was handed on [s since the ranks were connected].
  double wait_for(MessageHandle& h, int value) {
    const std::byte* at = nullptr;
    while ((at = to_->try_receive(h)) == nullptr) to_->progress();
    const double when = host_clock() - connected_;
    int got = 0;
    std::memcpy(&got, at, sizeof got);
    EXPECT_EQ(got, value);
    to_->release(h);
    return when;
  }

  test::ThreadGroup group_{2, 2};
  std::unique_ptr<Transport> from_, to_;
  std::vector<int> data_{10, 11, 12, 13};
  int unused_ = 0;
  double connected_ = 0;
};

TEST_F(Unreliable, EachMessageIsHeldBackAsLongAsDrawn) {
  connect("delay:time=4ms,jitter=3ms");
  const auto faults = core::parse_injection("delay:time=4ms,jitter=3ms").messages;
  for (std::uint64_t n = 0; n < 4; ++n) {
    const double begin = host_clock() - connected_;
    (void)from_->send(1, 0, std::as_bytes(std::span(&data_[n], 1)));
    auto h = receive();
    EXPECT_GE(wait_for(h, data_[n]) - begin, faults.extra_s({.from = 3, .to = 7, .channel = 0, .number = n})) << n;
  }
  EXPECT_EQ(from_->traffic().messages, 4u);
  EXPECT_EQ(from_->traffic().bytes, 4 * sizeof(int));
}

TEST_F(Unreliable, ADelayBeginsWhenTheMessageIsSentAndNotWhenItIsAskedFor) {
  connect("delay:time=20ms");
  send(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto h = receive();
  ASSERT_NE(to_->try_receive(h), nullptr) << "the delay was over before the message was asked for";
  to_->release(h);
}

TEST_F(Unreliable, ASenderIsDoneWhileItsMessageIsHeldBack) {
  connect("delay:time=100s");
  auto sent = from_->send(1, 0, std::as_bytes(std::span(&data_[0], 1)));
  auto h = receive();
  to_->progress();
  EXPECT_TRUE(from_->send_done(sent)) << "the receiver reads no more of the sender's memory";
  EXPECT_EQ(to_->try_receive(h), nullptr);
}

/// Looks at all that are awaited again and again, as executors do.
TEST_F(Unreliable, NoMessageIsHandedOnBeforeAnEarlierOne) {
  // The first of these is lost more often than the others.
  const auto faults = core::parse_injection("drop:p=0.5,timeout=2ms,seed=9").messages;
  std::uint64_t seed = 0;
  core::MessageFaults::Drop d = *faults.drop;
  const auto losses = [&](std::uint64_t n) { return d.losses({.from = 3, .to = 7, .channel = 0, .number = n}); };
  for (d.seed = 0; losses(0) <= losses(1) || losses(0) <= losses(2); ++d.seed) seed = d.seed + 1;
  connect(fmt::format("drop:p=0.5,timeout=2ms,seed={}", seed).c_str());
  send(3);
  std::vector<MessageHandle> awaited{receive(), receive(), receive()};
  const auto came = [&](std::size_t i) { return to_->try_receive(awaited[i]) != nullptr; };
  for (std::size_t there = 0; there < 3;) {
    there = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      if (!came(i)) continue;
      ++there;
      // Those before it are there by now, even if they were not when they were looked at last.
      for (std::size_t earlier = 0; earlier < i; ++earlier) ASSERT_TRUE(came(earlier)) << earlier << " of " << i;
    }
  }
  EXPECT_GE(host_clock() - connected_, 2e-3) << "the first was lost";
  for (auto& h : awaited) to_->release(h);
}

TEST_F(Unreliable, AMessageWaitsUntilTheLinkIsBack) {
  connect("cut:rank=3,at=0s,for=20ms");
  send(1);
  auto h = receive();
  EXPECT_GE(wait_for(h, 10), 20e-3);
  connect("cut:rank=6,at=0s");
  send(1);
  auto other = receive();
  EXPECT_LT(wait_for(other, 10), 10) << "of another rank";
}

}  // namespace
}  // namespace gradmeter::runtime
