// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/shared_memory_transport.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <numeric>

#include "core/error.hpp"
#include "runtime/threads/backoff.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::runtime {
namespace {

using test::run_ranks;
using test::ThreadGroup;

constexpr std::size_t in_flight = 4;

std::span<const std::byte> bytes_of(const std::vector<int>& v) { return std::as_bytes(std::span(v)); }
std::span<std::byte> landing(std::vector<int>& v) { return std::as_writable_bytes(std::span(v)); }

int first_int(const std::byte* at) {
  int out = 0;
  std::memcpy(&out, at, sizeof out);
  return out;
}

/// Two ranks in one thread.
class SharedMemory : public ::testing::Test {
 protected:
  ThreadGroup group_{2, 2};
  std::unique_ptr<SharedMemoryTransport> a_ = group_.transport(0), b_ = group_.transport(1);
  std::vector<int> unused_ = std::vector<int>(1);
};

TEST_F(SharedMemory, TheReceiverSeesTheSendersOwnMemory) {
  const std::vector<int> data{1, 2, 3};
  auto receiving = b_->receive(0, 0, landing(unused_));
  EXPECT_EQ(b_->try_receive(receiving), nullptr);
  (void)a_->send(1, 0, bytes_of(data));
  EXPECT_EQ(b_->try_receive(receiving), reinterpret_cast<const std::byte*>(data.data()));
  EXPECT_TRUE(a_->zero_copy_from(1));
}

TEST_F(SharedMemory, ASendHasLeftOnlyOnceTheReceiverLetsItGo) {
  const std::vector<int> data{1};
  auto sending = a_->send(1, 0, bytes_of(data));
  EXPECT_FALSE(a_->send_done(sending));
  auto receiving = b_->receive(0, 0, landing(unused_));
  EXPECT_NE(b_->try_receive(receiving), nullptr);
  EXPECT_FALSE(a_->send_done(sending)) << "seen, but still being read";
  b_->release(receiving);
  EXPECT_TRUE(a_->send_done(sending));
}

TEST_F(SharedMemory, ADefaultTicketIsAMessageThatHasLeft) {
  MessageHandle none;
  EXPECT_TRUE(a_->send_done(none));
}

TEST_F(SharedMemory, MessagesOfAChannelArriveInTheOrderOfTheirPosting) {
  std::vector<std::vector<int>> data;
  for (int i = 0; i < 3; ++i) data.push_back({i});
  for (const auto& d : data) (void)a_->send(1, 0, bytes_of(d));
  std::vector<MessageHandle> receiving;
  for (int i = 0; i < 3; ++i) receiving.push_back(b_->receive(0, 0, landing(unused_)));
  for (const int i : {2, 0, 1}) EXPECT_EQ(first_int(b_->try_receive(receiving[static_cast<std::size_t>(i)])), i);
}

TEST_F(SharedMemory, ChannelsAndDirectionsAreIndependent) {
  const std::vector<int> zero{10}, one{11}, back{12};
  (void)a_->send(1, 1, bytes_of(one));
  auto on_zero = b_->receive(0, 0, landing(unused_)), on_one = b_->receive(0, 1, landing(unused_));
  auto reverse = a_->receive(1, 0, landing(unused_));
  EXPECT_EQ(b_->try_receive(on_zero), nullptr);
  EXPECT_EQ(a_->try_receive(reverse), nullptr);
  EXPECT_EQ(first_int(b_->try_receive(on_one)), 11);
  (void)a_->send(1, 0, bytes_of(zero));
  (void)b_->send(0, 0, bytes_of(back));
  EXPECT_EQ(first_int(b_->try_receive(on_zero)), 10);
  EXPECT_EQ(first_int(a_->try_receive(reverse)), 12);
}

TEST_F(SharedMemory, MessagesBeyondTheCellsWaitForThoseBeforeThem) {
  std::vector<std::vector<int>> data;
  std::vector<MessageHandle> sending, receiving;
  for (int i = 0; i < 3 * int(in_flight); ++i) data.push_back({i});
  for (const auto& d : data) sending.push_back(a_->send(1, 0, bytes_of(d)));
  for (std::size_t i = 0; i < data.size(); ++i) receiving.push_back(b_->receive(0, 0, landing(unused_)));
  EXPECT_NE(b_->try_receive(receiving[in_flight - 1]), nullptr);
  a_->progress();
  EXPECT_EQ(b_->try_receive(receiving[in_flight]), nullptr) << "its cell is still in use";
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto* at = b_->try_receive(receiving[i]);
    ASSERT_NE(at, nullptr) << i;
    EXPECT_EQ(first_int(at), int(i));
    EXPECT_FALSE(a_->send_done(sending[i]));
    b_->release(receiving[i]);
    EXPECT_TRUE(a_->send_done(sending[i]));
    a_->progress();
  }
}

TEST_F(SharedMemory, CellsMayBeLetGoInAnyOrder) {
  std::vector<std::vector<int>> data;
  std::vector<MessageHandle> sending, receiving;
  for (int i = 0; i < 8; ++i) data.push_back({i});
  for (const auto& d : data) sending.push_back(a_->send(1, 0, bytes_of(d)));
  for (std::size_t i = 0; i < 8; ++i) receiving.push_back(b_->receive(0, 0, landing(unused_)));
  b_->release(receiving[2]);
  a_->progress();
  EXPECT_EQ(first_int(b_->try_receive(receiving[6])), 6) << "in the cell of message 2";
  EXPECT_EQ(b_->try_receive(receiving[4]), nullptr) << "the cell of message 0 is in use";
  EXPECT_TRUE(a_->send_done(sending[2]));
  EXPECT_FALSE(a_->send_done(sending[6]));
}

TEST_F(SharedMemory, TrafficCountsWhatWasOffered) {
  const std::vector<int> data(25);
  (void)a_->send(1, 0, bytes_of(data));
  (void)a_->send(1, 1, bytes_of(data));
  EXPECT_EQ(a_->traffic(), (Traffic{.bytes = 200, .messages = 2, .bytes_between_nodes = 0}));
  EXPECT_EQ(b_->traffic(), Traffic{});
}

TEST_F(SharedMemory, TooFewCellsAreRefused) {
  std::vector<SharedMemoryCell> cells(shared_memory_cell_count(3, 2) - 1);
  EXPECT_THROW(SharedMemoryTransport("thread", 0, 3, 2, cells, {}), core::BackendError);
}

/// The same memory at two addresses, as two processes see a shared window.
class TwoViews {
 public:
  TwoViews() : file_(memfd_create("mailbox", 0)) {
    EXPECT_EQ(ftruncate(file_, size), 0);
    for (auto& v : views_) v = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  ~TwoViews() {
    for (auto* v : views_) munmap(v, size);
    close(file_);
  }
  TwoViews(const TwoViews&) = delete;
  TwoViews& operator=(const TwoViews&) = delete;
  /// Rank r's half as process `viewer` sees it.
  std::span<std::byte> part(std::size_t viewer, std::size_t rank) const {
    return {static_cast<std::byte*>(views_[viewer]) + rank * size / 2, size / 2};
  }
  std::vector<std::span<std::byte>> memory(std::size_t viewer) const { return {part(viewer, 0), part(viewer, 1)}; }

 private:
  static constexpr std::size_t size = 8192;
  int file_;
  std::array<void*, 2> views_{};
};

TEST(SharedMemoryOverAWindow, APlaceIsFoundAtTheReceiversOwnAddress) {
  const TwoViews window;
  std::vector<SharedMemoryCell> cells(shared_memory_cell_count(2, 1));
  SharedMemoryTransport a("shm", 0, 2, 1, cells, window.memory(0)), b("shm", 1, 2, 1, cells, window.memory(1));
  for (int sender = 0; sender < 2; ++sender) {
    SharedMemoryTransport &from = sender == 0 ? a : b, &to = sender == 0 ? b : a;
    const auto me = static_cast<std::size_t>(sender);
    const auto data = window.part(me, me).subspan(100, 8);
    const int value = 42 + sender;
    std::memcpy(data.data(), &value, sizeof value);
    (void)from.send(1 - sender, 0, data);
    auto receiving = to.receive(sender, 0, {});
    const auto* at = to.try_receive(receiving);
    EXPECT_EQ(at, window.part(1 - me, me).data() + 100);
    EXPECT_NE(at, data.data());
    EXPECT_EQ(first_int(at), value);
  }
}

TEST(SharedMemoryOverAWindow, ReachesOnlyItsOwnPart) {
  const TwoViews window;
  std::vector<SharedMemoryCell> cells(shared_memory_cell_count(2, 1));
  const SharedMemoryTransport a("shm", 0, 2, 1, cells, window.memory(0));
  const auto own = window.part(0, 0);
  EXPECT_TRUE(a.can_send_from(own));
  EXPECT_TRUE(a.can_send_from(own.last(1)));
  EXPECT_TRUE(a.can_send_from({}));
  EXPECT_FALSE(a.can_send_from(window.part(0, 1))) << "a peer's";
  EXPECT_FALSE(a.can_send_from(std::span<const std::byte>(own.data() + 1, own.size()))) << "runs over the end";
  const std::vector<std::byte> heap(4);
  EXPECT_FALSE(a.can_send_from(heap));
  ThreadGroup group(1, 1);
  EXPECT_TRUE(group.transport(0)->can_send_from(heap)) << "threads share all memory";
}

/// Every rank sends numbered messages of changing length to every other on two channels, and overwrites a buffer as
/// soon as it has left; every word is checked.
TEST(SharedMemoryBetweenThreads, EveryWordArrivesThoughBuffersAreReusedAtOnce) {
  constexpr int ranks = 4, channels = 2, messages = 400;
  constexpr std::size_t longest = 64;
  ThreadGroup group(ranks, channels);
  auto length = [](int i) { return 1 + static_cast<std::size_t>(i * 7) % longest; };
  auto word = [](int from, int to, int channel, int i, std::size_t k) {
    return static_cast<int>(k) + 100 * i + 100'000 * (channel + 2 * (to + 4 * from));
  };
  struct Stream {
    int peer, channel, sent = 0, received = 0;
    std::vector<int> buffer = std::vector<int>(longest);
    MessageHandle sending = {}, receiving = {};
    bool posted = false;
  };
  run_ranks(ranks, [&](int me) {
    const auto transport = group.transport(me);
    std::vector<Stream> streams;
    for (int peer = 0; peer < ranks; ++peer) {
      for (int c = 0; c < channels && peer != me; ++c) streams.push_back({.peer = peer, .channel = c});
    }
    long wrong = 0;
    auto send_next = [&](Stream& s) {
      if (s.sent == messages || !transport->send_done(s.sending)) return false;
      for (std::size_t k = 0; k < length(s.sent); ++k) s.buffer[k] = word(me, s.peer, s.channel, s.sent, k);
      s.sending = transport->send(s.peer, s.channel, std::as_bytes(std::span(s.buffer)).first(4 * length(s.sent)));
      ++s.sent;
      return true;
    };
    auto receive_next = [&](Stream& s) {
      if (s.received == messages) return false;
      if (!s.posted) s.receiving = transport->receive(s.peer, s.channel, {}), s.posted = true;
      const auto* at = transport->try_receive(s.receiving);
      if (!at) return false;
      for (std::size_t k = 0; k < length(s.received); ++k) {
        wrong += first_int(at + 4 * k) != word(s.peer, me, s.channel, s.received, k);
      }
      transport->release(s.receiving);
      s.posted = false;
      ++s.received;
      return true;
    };
    auto over = [&](Stream& s) {
      return s.sent == messages && s.received == messages && transport->send_done(s.sending);
    };
    Backoff backoff({.spins = 20, .yields = 0});
    while (!std::all_of(streams.begin(), streams.end(), over)) {
      transport->progress();
      bool moved = false;
      for (Stream& s : streams) moved = send_next(s) || moved, moved = receive_next(s) || moved;
      if (moved) {
        backoff.reset();
      } else {
        backoff.wait();
      }
    }
    EXPECT_EQ(wrong, 0);
  });
}

/// As above, but as many messages under way as the sender likes: offers queue behind full cells.
TEST(SharedMemoryBetweenThreads, AThousandMessagesAtOnceArriveInOrder) {
  constexpr int messages = 1000;
  ThreadGroup group(2, 1);
  run_ranks(2, [&](int me) {
    const auto transport = group.transport(me);
    std::vector<int> data(messages);
    std::iota(data.begin(), data.end(), me * messages);
    std::vector<MessageHandle> sending;
    for (const int& d : data) sending.push_back(transport->send(1 - me, 0, std::as_bytes(std::span(&d, 1))));
    long wrong = 0;
    Backoff backoff({.spins = 20, .yields = 0});
    for (int i = 0; i < messages; ++i) {
      auto receiving = transport->receive(1 - me, 0, {});
      const std::byte* at = nullptr;
      while (!(at = transport->try_receive(receiving))) transport->progress(), backoff.wait();
      wrong += first_int(at) != (1 - me) * messages + i;
      transport->release(receiving);
    }
    for (auto& t : sending) {
      while (!transport->send_done(t)) transport->progress(), backoff.wait();
    }
    EXPECT_EQ(wrong, 0);
  });
}

}  // namespace
}  // namespace gradmeter::runtime
