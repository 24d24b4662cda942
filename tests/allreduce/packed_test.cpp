// SPDX-License-Identifier: Apache-2.0
// A buffer's tensors with a codec: what they send travels together, and each has the bits that it has by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <span>
#include <string>
#include <vector>

#include "allreduce/coded/coded.hpp"
#include "allreduce/registry.hpp"
#include "compression/registry.hpp"
#include "core/format.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/threads/thread_group.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t first_place = 100;  // of the buffer in all that is exchanged
constexpr std::size_t calls = 3;

/// Matrices, and vectors of which none is long enough to be encoded, with elements between them that no tensor has.
std::vector<TensorPart> tensors() {
  std::vector<TensorPart> out;
  std::size_t at = 0;
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>{40, 31}, {1, 7}, {64, 25}, {1, 50}, {33, 47}}) {
    const bool matrix = rows > 1;
    out.push_back({.offset = at,
                   .count = rows * columns,
                   .rows = matrix ? rows : std::size_t{0},
                   .columns = matrix ? columns : std::size_t{0}});
    at += rows * columns + 5;
  }
  return out;
}
std::size_t buffer_elements() { return tensors().back().offset + tensors().back().count; }

float value_at(int rank, std::size_t call, std::size_t i) {
  const auto x = static_cast<float>(i + 7919 * call);
  return std::sin(0.37f * x + 1.7f * static_cast<float>(rank)) * (1 + static_cast<float>(i % 97));
}

struct PackedCase {
  std::string codec, algorithm;
  int ranks;
  Op op;
};

/// Of one rank.
struct PackedOutcome {
  std::vector<float> out;  ///< of all calls
  std::vector<float> difference;
  double squares = 0;
  runtime::Traffic sent;
};

struct RankPlace {
  explicit RankPlace(const runtime::Communicator& c)
      : world(c),
        network(c, {.transport = runtime::TransportKind::automatic, .memory_bytes = std::size_t{16} << 20}),
        link(network.connect(c, most_lanes(c.size()))) {}
  const runtime::Communicator& world;
  runtime::Network network;
  std::unique_ptr<runtime::Transport> link;
};

class PackedRunner {
 public:
  PackedRunner(RankPlace& place, const PackedCase& c)
      : place_(place),
        case_(c),
        codec_(compression::find_codec(c.codec + (c.codec.find(':') == std::string::npos ? ":" : ",") + "min=100")),
        algorithm_(find_algorithm(c.algorithm)),
        spec_{.placement = Placement::in_place,
              .max_bytes = buffer_elements() * sizeof(float),
              .algorithm = algorithm_,
              .codec = codec_,
              .shape = shape_of(place.network.nodes_of(place.world))} {}

  bool refused() const { return !codec_refusal(spec_, CollectiveKind::all_reduce, {}).empty(); }
  InnerCalls parts() const { return inner_calls_of(spec_, buffer_elements(), tensors()); }

  /// All tensors in one call.
  PackedOutcome together() {
    const auto bound = bind();
    PackedOutcome o;
    for (std::size_t call = 0; call < calls; ++call) {
      std::vector<float> v = drawn(call);
      const auto layout = tensors();
      run(*bound, o, v, {.offset_in_step = first_place, .tensors = layout});
      o.out.insert(o.out.end(), v.begin(), v.end());
    }
    o.sent = *bound->sent();
    return o;
  }

  /// Each tensor by a collective of its own, since a collective counts its calls.
  PackedOutcome one_by_one() {
    std::vector<std::unique_ptr<Collective>> bound;
    for (std::size_t i = 0; i < tensors().size(); ++i) bound.push_back(bind());
    PackedOutcome o;
    for (std::size_t call = 0; call < calls; ++call) {
      std::vector<float> v = drawn(call), differences(v.size());
      for (std::size_t i = 0; i < tensors().size(); ++i) {
        TensorPart t = tensors()[i];
        const auto values = std::span(v).subspan(t.offset, t.count);
        const std::size_t place = first_place + t.offset, at = t.offset;
        t.offset = 0;
        PackedOutcome own;
        run(*bound[i], own, values, {.offset_in_step = place, .tensors = {&t, 1}});
        std::ranges::copy(own.difference, differences.begin() + static_cast<std::ptrdiff_t>(at));
        o.squares += own.squares;
      }
      o.difference.insert(o.difference.end(), differences.begin(), differences.end());
      o.out.insert(o.out.end(), v.begin(), v.end());
    }
    for (const auto& b : bound) o.sent.bytes += b->sent()->bytes, o.sent.messages += b->sent()->messages;
    return o;
  }

 private:
  std::unique_ptr<Collective> bind() { return bind_coded(spec_, {place_.world, place_.network, *place_.link}, 5); }
  std::vector<float> drawn(std::size_t call) const {
    std::vector<float> v(buffer_elements());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = value_at(place_.world.rank(), call, i);
    return v;
  }
  void run(Collective& c, PackedOutcome& o, std::span<float> v, TensorLayout layout) {
    std::vector<float> values(v.size());
    CodingDifference difference{.values = values};
    layout.difference = &difference;
    Call call{v, v, case_.op};
    call.tensor_layout = layout;
    c.start(call);
    runtime::Backoff backoff({.spins = 20, .yields = 0});
    while (!c.advance()) backoff.wait();
    o.difference.insert(o.difference.end(), values.begin(), values.end());
    o.squares += difference.term_squares;
  }

  RankPlace& place_;
  PackedCase case_;
  decltype(compression::find_codec("")) codec_;
  AlgorithmPtr algorithm_;
  ExchangeSpec spec_;
};

void expect_equal_bits(std::span<const float> a, std::span<const float> b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0) << what << " at " << i << ": " << a[i] << " and " << b[i];
  }
}

class Packed : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

// `direct` adds the ranks' numbers in the same order wherever they lie in the buffer.
TEST_P(Packed, EachTensorHasTheBitsOfACallOfItsOwn) {
  const auto& [codec, ranks] = GetParam();
  for (const Op op : {Op::sum, Op::average}) {
    runtime::run_thread_ranks(ranks, [&, codec = codec](const runtime::Communicator& c) {
      SCOPED_TRACE(fmt::format("rank {} op {}", c.rank(), name(op)));
      RankPlace place(c);
      PackedRunner runner(place, {.codec = codec, .algorithm = "direct", .ranks = c.size(), .op = op});
      const PackedOutcome packed = runner.together(), single = runner.one_by_one();
      expect_equal_bits(packed.out, single.out, "sum");
      expect_equal_bits(packed.difference, single.difference, "difference");
      EXPECT_NEAR(packed.squares, single.squares, 1e-9 * single.squares);
      c.barrier();
    });
  }
}

TEST_P(Packed, ManyTensorsTakeAsManyMessagesAsOne) {
  const auto& [codec, ranks] = GetParam();
  runtime::run_thread_ranks(ranks, [&, codec = codec](const runtime::Communicator& c) {
    RankPlace place(c);
    PackedRunner runner(place, {.codec = codec, .algorithm = "ring", .ranks = c.size(), .op = Op::sum});
    const auto packed = runner.together().sent, single = runner.one_by_one().sent;
    std::uint64_t rounds = 0;
    for (const InnerCall& part : runner.parts()) {
      rounds += part.algorithm->cost(shape_of(place.network.nodes_of(c)), part.collective_kind).rounds;
    }
    EXPECT_LE(packed.messages, calls * rounds) << "one a round";
    EXPECT_LT(packed.messages, single.messages);
    // A ring's chunks have a few numbers more or less.
    const auto bytes = static_cast<double>(single.bytes);
    EXPECT_NEAR(static_cast<double>(packed.bytes), bytes, 0.02 * bytes + 64 * calls);
    const bool two_rounds = codec == "qsgd-elias" || codec == "terngrad:exchange=sum";
    EXPECT_EQ(runner.parts().size(), two_rounds ? 3u : 2u)
        << "the dense ones are one, and with PowerSGD's factors none";
    c.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Packed,
                         ::testing::Combine(::testing::Values("powersgd", "powersgd:ef=off", "topk", "topk:density=0.4",
                                                              "dgc:warmup=0", "dgc:warmup=2", "randomk", "terngrad",
                                                              "terngrad:exchange=sum", "qsgd-elias"),
                                            ::testing::Values(2, 3, 4)),
                         [](const auto& param) {
                           std::string text = fmt::format("{}_p{}", std::get<0>(param.param), std::get<1>(param.param));
                           for (char& x : text) x = std::isalnum(static_cast<unsigned char>(x)) != 0 ? x : '_';
                           return text;
                         });

}  // namespace
}  // namespace gradmeter::allreduce
