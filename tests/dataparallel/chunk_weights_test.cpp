// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/served_chunk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "dataparallel/fabric/simulation/world.hpp"

namespace gradmeter::dataparallel {
namespace {

class Departing final : public PendingCall {
 public:
  bool done() const override { return left; }
  const Completion& completion() const override { return completion_; }
  std::string_view label() const override { return "weights"; }
  bool left = false;

 private:
  Completion completion_;
};

constexpr std::size_t n = 3;
constexpr int workers = 3, nearest = 1;

/// A chunk at a server on worker 1's rank, whose steps add 1.
struct Chunk {
  std::vector<float> own = std::vector<float>(2 * n), first = std::vector<float>(n, 10.0f);
  std::vector<std::vector<float>> of_worker = std::vector<std::vector<float>>(workers, std::vector<float>(n, -1.0f));
  ChunkWeights weights{own, first, workers, nearest};

  void push(int worker) {
    weights.offer(worker, of_worker[static_cast<std::size_t>(worker)]);
    weights.join_step(worker);
  }
  void step() {
    const ChunkWeights::Step s = weights.begin_step();
    for (std::size_t i = 0; i < n; ++i) s.to[i] = s.from[i] + 1;
    for (const auto& copy : s.copies) std::ranges::copy(s.to, copy.begin());
    weights.end_step(s);
  }
  bool holds(int worker, float value) const {
    const auto& memory = of_worker[static_cast<std::size_t>(worker)];
    return std::ranges::count(memory, value) == static_cast<std::ptrdiff_t>(n);
  }
  bool are(float value) const { return std::ranges::count(weights.values(), value) == static_cast<std::ptrdiff_t>(n); }
};

/// With a context to copy in.
template <class Body>
void with_context(const Body& body) {
  SimWorld(1, {}).run([&](Fabric& f) { body(f); });
}

TEST(ChunkWeights, AStepIsWrittenWhereItsWorkersRead) {
  Chunk c;
  c.push(0);
  c.push(1);
  c.step();
  EXPECT_TRUE(c.are(11));
  EXPECT_EQ(c.weights.values().data(), c.of_worker[nearest].data()) << "the server's own rank has the nearest memory";
  EXPECT_TRUE(c.holds(0, 11) && c.holds(1, 11));
  EXPECT_TRUE(c.holds(2, -1)) << "it sent no change";
  EXPECT_EQ(c.weights.end_offer(0).data(), c.of_worker[0].data());
  EXPECT_TRUE(c.weights.end_offer(2).empty());
}

TEST(ChunkWeights, TheNextStepBeginsWithTheNewestWhereverTheyAre) {
  Chunk c;
  c.push(0);
  c.step();
  (void)c.weights.end_offer(0);
  c.push(2);
  c.step();
  EXPECT_TRUE(c.are(12) && c.holds(2, 12));
  EXPECT_TRUE(c.holds(0, 11)) << "a worker that computes keeps what it read";
  c.weights.offer(1, {});
  c.weights.join_step(1);
  c.step();
  EXPECT_TRUE(c.are(13) && c.holds(2, 12)) << "a worker whose memory cannot be reached: the server's own";
}

TEST(ChunkWeights, NothingIsWrittenToAWorkerThatWasAnswered) {
  Chunk c;
  c.push(0);
  EXPECT_TRUE(c.weights.end_offer(0).empty()) << "no step was made: it gets a message";
  c.push(1);
  c.step();
  EXPECT_TRUE(c.holds(0, -1));
}

TEST(ChunkWeights, AnOlderStepIsNoAnswer) {
  Chunk c;
  c.push(0);
  c.step();
  c.push(1);
  c.step();
  EXPECT_TRUE(c.holds(0, 11));
  EXPECT_TRUE(c.weights.end_offer(0).empty()) << "its read had to wait, and the weights went on";
}

TEST(ChunkWeights, MessagesLeaveFromTheServersMemory) {
  with_context([](Fabric& f) {
    Chunk c;
    c.push(0);
    c.step();
    ASSERT_TRUE(c.weights.can_send());
    const auto sent = c.weights.weights_to_send(f);
    EXPECT_GE(sent.data(), c.own.data());
    EXPECT_LT(sent.data(), c.own.data() + c.own.size());
    EXPECT_EQ(sent.front(), 11);
    const auto message = std::make_shared<Departing>();
    c.weights.note_message(message);
    c.weights.offer(2, {});
    c.weights.join_step(2);
    c.step();
    EXPECT_EQ(sent.front(), 11) << "it is being read";
    EXPECT_TRUE(c.are(12));
    EXPECT_FALSE(c.weights.can_send()) << "a step would have no copy";
    message->left = true;
    EXPECT_TRUE(c.weights.can_send());
  });
}

TEST(ChunkWeights, AnAnswerByMessageLeavesTheWorkersMemoryToIt) {
  with_context([](Fabric& f) {
    Chunk c;
    c.push(0);
    c.step();
    (void)c.weights.end_offer(0);
    c.push(0);  // no step: the weights of before still lie there
    EXPECT_TRUE(c.weights.end_offer(0).empty());
    EXPECT_EQ(c.weights.values().data(), c.of_worker[0].data());
    c.weights.forget(f, 0);
    EXPECT_NE(c.weights.values().data(), c.of_worker[0].data());
    EXPECT_TRUE(c.are(11));
  });
}

TEST(ChunkWeights, AWorkerThatEndsTakesNothingWithIt) {
  with_context([](Fabric& f) {
    Chunk c;
    c.push(0);
    c.step();
    c.weights.forget(f, 0);
    std::ranges::fill(c.of_worker[0], -7.0f);
    EXPECT_TRUE(c.are(11));
    c.push(1);
    c.step();
    EXPECT_TRUE(c.are(12) && c.holds(1, 12));
  });
}

}  // namespace
}  // namespace gradmeter::dataparallel
