// SPDX-License-Identifier: Apache-2.0
// Collectives composed of parts, with local work on a late queue: a part begins when the work before it is done, work
// comes after the part before it, and the whole ends with its last work.
#include "allreduce/coded/collective_sequence.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/late_queue.hpp"

namespace gradmeter::allreduce {
namespace {

using test::LateDevice;
using test::LateQueue;

/// Without a queue of its own: reads and writes when it is started, and is complete after two polls.
class Doubling final : public Collective {
 public:
  const std::string& name() const override { return name_; }
  void start(const Call& call) override {
    for (float& x : call.out.values<float>()) x *= 2;
    polls_ = 2;
  }
  bool advance() override { return polls_ == 0 || --polls_ == 0; }

 private:
  std::string name_ = "doubling";
  int polls_ = 0;
};

/// (4 (x + 1) + 1) + 1, by two parts, with a wait between works.
class Composed final : public CollectiveSequence {
 public:
  explicit Composed(runtime::Queue* queue)
      : CollectiveSequence("composed", queue), memory_(4), part_(add_part(std::make_unique<Doubling>())) {}

 private:
  void begin(const Call& call) override { call_ = call; }
  SequenceStep next(std::size_t number) override {
    switch (number) {
      case 0:
        run_local("take", [this] {
          for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = call_.in.values<float>()[i] + 1;
        });
        return part();
      case 1:
        return part();
      case 2:
        run_encoding([this] { add_one(); });
        return wait_for_local_work();
      case 3:
        seen_ = memory_;  // as one who needs to know what the work has found
        run_decoding([this] {
          for (std::size_t i = 0; i < memory_.size(); ++i) call_.out.values<float>()[i] = seen_[i] + 1;
        });
    }
    return {};
  }
  SequenceStep part() { return {&part_, in_place(core::Element::f32, std::as_writable_bytes(std::span(memory_)))}; }
  void add_one() {
    for (float& x : memory_) x += 1;
  }

  std::vector<float> memory_, seen_;
  Collective& part_;
  Call call_;
};

struct Calls {
  std::vector<std::vector<float>> results;
  std::size_t events = 0;
};

/// Two calls, on a late queue or, without a seed, at once.
Calls run(std::optional<std::uint64_t> seed, std::optional<std::size_t> dropped = {}) {
  LateDevice device;
  LateQueue queue(device, seed.value_or(0), dropped);
  Composed c(seed ? &queue : nullptr);
  Calls r;
  for (int call = 0; call < 2; ++call) {
    std::vector<float> in, out(4, -7);
    for (int i = 0; i < 4; ++i) in.push_back(static_cast<float>(10 * call + i));
    if (seed) {
      c.start({.in = device.allocate_beside(core::Element::f32, std::as_writable_bytes(std::span(in))).buffer,
               .out = device.allocate_beside(core::Element::f32, std::as_writable_bytes(std::span(out))).buffer});
    } else {
      c.start({.in = in, .out = out});
    }
    while (!c.advance()) {
    }
    r.results.push_back(out);
    queue.synchronise();  // what is late still has its memory
  }
  r.events = queue.events();
  return r;
}

TEST(CollectiveSequence, HasTheHostsResultsOnALateQueue) {
  const Calls host = run({});
  EXPECT_EQ(host.results.front(), (std::vector<float>{6, 10, 14, 18}));
  EXPECT_EQ(host.events, 0);
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(run(seed).results, host.results) << "seed " << seed;
}

TEST(CollectiveSequence, NeedsEveryEvent) {
  const Calls host = run({}), late = run(0);
  EXPECT_EQ(late.events, 2 * 3);  // before the first part, for the wait, at the end
  for (std::size_t e = 0; e < late.events; ++e) EXPECT_NE(run(0, e).results, host.results) << "event " << e;
}

TEST(CollectiveSequence, TakesMemoryOfADeviceOnlyWithItsQueue) {
  LateDevice device;
  LateQueue queue(device, 0);
  EXPECT_TRUE(Composed(&queue).takes_device_memory());
  EXPECT_FALSE(Composed(nullptr).takes_device_memory());
}

}  // namespace
}  // namespace gradmeter::allreduce
