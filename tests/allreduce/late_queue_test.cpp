// SPDX-License-Identifier: Apache-2.0
// Collectives whose work goes to queues that run as late as polls require: they end with the host's bits, and no event
// is recorded that could be left out. One thread plays all ranks, in an order drawn by the seed.
#include "support/late_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "allreduce/executor/executor.hpp"
#include "allreduce/registry.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "support/sanitized.hpp"
#include "support/schedule_shapes.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using test::HeapArena;
using test::LateDevice;
using test::LateQueue;
using test::sanitized;
using test::ThreadGroup;

/// Copies as early as it may: on sending, and into a landing as soon as that is posted. For ranks on one thread.
class Mail {
 public:
  class Member;
  std::unique_ptr<runtime::Transport> transport(int rank, int size);

 private:
  struct Channel {
    std::deque<std::vector<std::byte>> sent;
    std::deque<std::span<std::byte>> posted;
    std::size_t landed = 0;
  };
  static void deliver(Channel& c) {
    for (; !c.sent.empty() && !c.posted.empty(); ++c.landed, c.sent.pop_front(), c.posted.pop_front()) {
      std::ranges::copy(c.sent.front(), c.posted.front().begin());
    }
  }
  std::map<std::array<int, 3>, Channel> channels_;  ///< by source, destination and number
};

class Mail::Member final : public runtime::Transport {
 public:
  Member(Mail& mail, int rank, int size) : mail_(mail), rank_(rank), size_(size) {}
  std::string_view name() const override { return "mail"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int channels() const override { return 3; }
  bool zero_copy_from(int) const override { return false; }
  std::size_t message_bytes() const override { return 4096; }
  runtime::MessageHandle send(int peer, int channel, std::span<const std::byte> data) override {
    Channel& c = mail_.channels_[{rank_, peer, channel}];
    c.sent.emplace_back(data.begin(), data.end());
    deliver(c);
    traffic_.bytes += data.size();
    return {};
  }
  runtime::MessageHandle receive(int peer, int channel, std::span<std::byte> landing) override {
    Channel& c = mail_.channels_[{peer, rank_, channel}];
    c.posted.push_back(landing);
    landings_.push_back({&c, c.landed + c.posted.size(), landing.data()});
    deliver(c);
    return {landings_.size(), nullptr};
  }
  bool send_done(runtime::MessageHandle&) override { return true; }
  const std::byte* try_receive(runtime::MessageHandle& t) override {
    const Landing& x = landings_[t.id - 1];
    return x.channel->landed >= x.number ? x.data : nullptr;
  }

 private:
  struct Landing {
    Channel* channel;
    std::size_t number;
    const std::byte* data;
  };
  Mail& mail_;
  int rank_, size_;
  std::vector<Landing> landings_;
};

std::unique_ptr<runtime::Transport> Mail::transport(int rank, int size) {
  return std::make_unique<Member>(*this, rank, size);
}

/// Of each case: 5, or GRADMETER_SEEDS.
std::uint64_t seeds() {
  const char* given = std::getenv("GRADMETER_SEEDS");
  return given ? std::strtoull(given, nullptr, 10) : 5;
}

struct Case {
  std::string algorithm;
  int ranks = 4;
  std::size_t count = 1003;
  Placement placement = Placement::in_place;
  CollectiveKind kind = CollectiveKind::all_reduce;
  Op op = Op::sum;
  std::string codec = "none";
  std::size_t message_bytes = 256;
};

/// How it is run. Late: on queues.
struct Course {
  bool late = false;
  std::uint64_t seed = 0;
  std::optional<std::size_t> dropped = {};  ///< event of one rank's queue
  int drops = 0;                            ///< the rank
  bool lands = false;                       ///< messages are copied; else the receiver reads the sender's memory
};

constexpr int calls = 3;

/// Distinct on every rank, at every place and in every call.
float value_at(int rank, int call, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(rank) + 0.9f * static_cast<float>(call));
}

std::string describe(const Case& c) {
  return fmt::format("{} {} of {} on {} ranks, codec {}, op {}, {}", c.algorithm, name(c.kind), c.count, c.ranks,
                     c.codec, name(c.op), c.placement == Placement::in_place ? "in place" : "out of place");
}

/// One rank's calls, one after the other.
class Rank {
 public:
  Rank(const Case& c, const Course& course, int rank, std::unique_ptr<runtime::Transport> transport)
      : case_(c),
        course_(course),
        rank_(rank),
        queue_(device_, course.seed * 64 + static_cast<std::uint64_t>(rank) * (course.seed > 0),
               rank == course.drops ? course.dropped : std::nullopt),
        transport_(std::move(transport)),
        arena_(std::size_t{1} << 20),
        executor_(algorithm(c), *transport_, arena_, options(c)),
        in_(c.count),
        out_(c.count),
        worker_(c.count),
        owner_(c.count) {}

  /// Polls once. True once all calls are complete.
  bool advance() {
    if (!under_way_ && results.size() < calls) start();
    if (under_way_ && executor_.advance()) {
      under_way_ = false;
      results.push_back(out_);  // as a caller who knows that the call is complete
      if (results.size() < calls) std::ranges::fill(out_, -7.0f), std::ranges::fill(in_, -7.0f);
    }
    return results.size() == calls;
  }
  std::size_t events() const { return queue_.events(); }

  std::vector<std::vector<float>> results;

 private:
  static ScheduledAlgorithm algorithm(const Case& c) {
    const auto ranks = static_cast<std::uint32_t>(c.ranks);
    return {c.algorithm, find_algorithm(c.algorithm)->make({ranks, 1}, c.kind)};
  }
  ExchangeSpec options(const Case& c) {
    return {.placement = c.placement,
            .max_bytes = c.count * sizeof(float),
            .message_bytes = c.message_bytes,
            .codec = compression::find_codec(c.codec),
            .queue = course_.late ? &queue_ : nullptr};
  }

  void start() {
    const int number = static_cast<int>(results.size());
    std::vector<float>& given = case_.placement == Placement::in_place ? out_ : in_;
    Call call{given, out_, case_.op};
    call.encoding = {.draw = {.seed = 5, .step = results.size()},
                     .worker_residual = worker_.data(),
                     .owner_residual = owner_.data()};
    for (std::size_t i = 0; i < given.size(); ++i) given[i] = value_at(rank_, number, i);
    if (course_.late) {
      call.in = device_.allocate_beside(core::Element::f32, std::as_writable_bytes(std::span(given))).buffer;
      call.out = device_.allocate_beside(core::Element::f32, std::as_writable_bytes(std::span(out_))).buffer;
    }
    executor_.start(call);
    under_way_ = true;
  }

  const Case& case_;
  const Course& course_;
  int rank_;
  LateDevice device_;
  LateQueue queue_;
  std::unique_ptr<runtime::Transport> transport_;
  HeapArena arena_;
  Executor executor_;
  std::vector<float> in_, out_, worker_, owner_;
  bool under_way_ = false;
};

struct Outcome {
  bool ended = false;
  std::vector<std::vector<std::vector<float>>> results = {};  ///< by rank and call
  std::vector<std::size_t> events = {};                       ///< by rank
  bool operator==(const Outcome& o) const { return ended == o.ended && results == o.results; }
};

/// Every rank is the slow one for some seeds: it gets one turn in twenty.
Outcome run(const Case& c, const Course& course) {
  ThreadGroup group(c.ranks, 3);
  Mail mail;
  std::deque<Rank> ranks;
  for (int r = 0; r < c.ranks; ++r) {
    if (course.lands) {
      ranks.emplace_back(c, course, r, mail.transport(r, c.ranks));
    } else {
      ranks.emplace_back(c, course, r, group.transport(r));
    }
  }
  const core::Random random(course.seed, 1);
  const auto all = static_cast<std::uint64_t>(c.ranks);
  const std::uint64_t slow = course.seed % all;
  Outcome o;
  for (std::uint64_t turn = 0; turn < 400'000 && !o.ended; ++turn) {
    std::uint64_t r = random.below(2 * turn, all);
    if (r == slow && random.below(2 * turn + 1, 20) > 0) r = (r + 1) % all;
    (void)ranks[r].advance();
    if (turn % 64 == 0) o.ended = std::ranges::all_of(ranks, [](Rank& x) { return x.results.size() == calls; });
  }
  for (Rank& r : ranks) {
    o.results.push_back(std::move(r.results));
    o.events.push_back(r.events());
  }
  return o;
}

Outcome on_host(const Case& c) {
  const Course host;
  Outcome o = run(c, host);
  EXPECT_TRUE(o.ended) << describe(c);
  return o;
}

void expect_host_bits(const Case& c) {
  const Outcome host = on_host(c);
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    for (const bool lands : {false, true}) {
      const Course late{.late = true, .seed = seed, .lands = lands};
      EXPECT_TRUE(run(c, late) == host) << describe(c) << ", seed " << seed << (lands ? ", lands" : "");
    }
  }
}

class LateQueueContract : public ::testing::TestWithParam<std::string> {};

TEST_P(LateQueueContract, CollectivesHaveTheHostsBits) {
  const auto choice = find_algorithm(GetParam());
  for (const CollectiveKind kind : test::all_goals) {
    for (const int p : {2, 3, 4, 5}) {
      const auto ranks = static_cast<std::uint32_t>(p);
      if (!choice->refusal({ranks, 1}, kind).empty()) continue;
      for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
        Case c{.algorithm = GetParam(), .ranks = p, .placement = placement, .kind = kind};
        if (kind == CollectiveKind::all_to_all) c.count = 256 * ranks;
        if (reduces(kind)) c.op = Op::average;
        expect_host_bits(c);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LateQueueContract, ::testing::ValuesIn(test::scheduled_algorithms()),
                         [](const auto& param) {
                           std::string n = param.param;
                           std::ranges::replace_if(
                               n, [](unsigned char ch) { return !std::isalnum(ch); }, '_');
                           return n;
                         });

TEST(LateQueue, CodecsHaveTheHostsBits) {
  for (const auto& row : compression::codecs()) {
    if (row.default_exchange != compression::Exchange::schedule) continue;
    for (const char* algorithm : {"ring", "direct", "one-shot"}) {
      for (const Op op : {Op::sum, Op::average}) {
        const auto placement = op == Op::sum ? Placement::in_place : Placement::out_of_place;
        expect_host_bits(
            {.algorithm = algorithm, .ranks = 3, .placement = placement, .op = op, .codec = std::string(row.name)});
      }
    }
  }
}

/// Without each event in turn, some order of ranks must show it. One slice: of slices side by side, the end of one is
/// often implied by that of another.
void expect_every_event_needed(const Case& c) {
  const Outcome host = on_host(c);
  for (const bool lands : {false, true}) {
    const Course latest{.late = true, .lands = lands};
    const auto events = run(c, latest).events;
    for (const int rank : {0, c.ranks - 1}) {
      for (std::size_t e = 0; e < events[static_cast<std::size_t>(rank)]; ++e) {
        bool found = false;
        for (std::uint64_t seed = 0; seed < 40 && !found; ++seed) {
          const Course without{.late = true, .seed = seed, .dropped = e, .drops = rank, .lands = lands};
          found = !(run(c, without) == host);
        }
        EXPECT_TRUE(found) << describe(c) << (lands ? ", lands" : "") << ": event " << e << " of rank " << rank;
      }
    }
  }
}

TEST(LateQueue, EveryEventIsNeeded) {
  for (const auto& algorithm : test::scheduled_algorithms()) {
    for (const int p : sanitized ? std::vector{3} : std::vector{2, 3, 4}) {
      if (!find_algorithm(algorithm)->refusal({static_cast<std::uint32_t>(p), 1}).empty()) continue;
      for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
        expect_every_event_needed({.algorithm = algorithm,
                                   .ranks = p,
                                   .count = 60,
                                   .placement = placement,
                                   .op = Op::average,
                                   .message_bytes = 4096});
      }
    }
  }
}

TEST(LateQueue, EveryEventIsNeededWithACodec) {
  for (const char* algorithm : {"ring", "direct", "one-shot"}) {
    for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
      expect_every_event_needed({.algorithm = algorithm,
                                 .ranks = 3,
                                 .count = 500,
                                 .placement = placement,
                                 .op = Op::average,
                                 .codec = "qsgd8",
                                 .message_bytes = 65536});
    }
  }
}

}  // namespace
}  // namespace gradmeter::allreduce
