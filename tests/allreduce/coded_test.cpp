// SPDX-License-Identifier: Apache-2.0
// The executor with a codec: all ranks end with equal bits although an encoding depends on the rank that makes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "allreduce/coded/coded.hpp"
#include "allreduce/executor/executor.hpp"
#include "allreduce/registry.hpp"
#include "core/error.hpp"
#include "support/collectives.hpp"
#include "support/run_to_end.hpp"
#include "support/sanitized.hpp"
#include "support/schedule_shapes.hpp"
#include "support/thread_ranks.hpp"

namespace gradmeter::allreduce {
namespace {

using test::HeapArena;
using test::run_ranks;
using test::run_to_end;
using test::ThreadGroup;
using ::testing::HasSubstr;

/// Changes every value by up to `error` of it, by a draw of its own for each rank, step, phase and place. A rank that
/// encodes something twice, or with a wrong key, ends with other bits than its peers.
class Noisy final : public compression::Codec {
 public:
  static constexpr double error = 1e-3;
  explicit Noisy(std::size_t grain) : Codec("noisy"), grain_(grain) {}
  std::size_t grain() const override { return grain_; }
  std::size_t wire_bytes(std::size_t n) const override { return compression::padded(4 * n); }
  std::size_t encode(std::span<const float> x, std::byte* wire, const compression::RandomDraw& draw) const override {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint64_t h = (draw.key() ^ (draw.first + i) * 0x9e3779b97f4a7c15) >> 40;
      const float value = x[i] * static_cast<float>(1 + error * (static_cast<double>(h) * 0x1p-23 - 1));
      std::memcpy(wire + 4 * i, &value, 4);
    }
    std::fill(wire + 4 * x.size(), wire + wire_bytes(x.size()), std::byte{});
    return wire_bytes(x.size());
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    if (!out.empty()) std::memcpy(out.data(), wire.data(), 4 * out.size());
  }
  void decode_add(std::span<const std::byte> wire, std::span<const float> addend, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      float value;
      std::memcpy(&value, wire.data() + 4 * i, 4);
      out[i] = addend[i] + value;
    }
  }

 private:
  std::size_t grain_;
};

compression::CodecChoicePtr noisy(std::size_t grain) {
  compression::CodecChoice choice;
  choice.codec = std::make_shared<Noisy>(grain);
  return std::make_shared<compression::CodecChoice>(std::move(choice));
}

RankShape shape_of_ranks(int p) {
  const auto ranks = static_cast<std::uint32_t>(p);
  return {ranks, ranks > 2 && ranks % 2 == 0 ? 2u : 1u};
}

float value_at(int rank, std::size_t i) {
  return std::sin(0.37f * static_cast<float>(i) + 1.7f * static_cast<float>(rank));
}

struct Case {
  std::string algorithm;
  int ranks;
  std::size_t count;
  Placement placement = Placement::in_place;
  std::size_t message_bytes = 512;
  Op op = Op::sum;
  std::size_t grain = 7;
  bool feedback = false;
  int calls = 2;
};

/// By rank.
struct Outcome {
  std::vector<std::vector<float>> out;                    ///< of the last call
  std::vector<std::vector<double>> total, worker, owner;  ///< over all calls, and what is left in the residuals
};

Outcome run(const Case& c) {
  const auto ranks = static_cast<std::size_t>(c.ranks);
  const auto algorithm = find_algorithm(c.algorithm);
  ThreadGroup group(c.ranks, most_lanes(c.ranks));
  Outcome o{.out = std::vector<std::vector<float>>(ranks), .total = {}, .worker = {}, .owner = {}};
  o.total.assign(ranks, std::vector<double>(c.count));
  o.worker = o.owner = o.total;
  run_ranks(c.ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    auto transport = group.transport(rank);
    HeapArena arena(std::size_t{4} << 20);
    const ExchangeSpec options{
        .placement = c.placement, .max_bytes = c.count * 4, .message_bytes = c.message_bytes, .codec = noisy(c.grain)};
    Executor executor({algorithm->name, algorithm->make(shape_of_ranks(c.ranks))}, *transport, arena, options);
    std::vector<float> in(c.count), out(c.count), worker(c.count), owner(c.count);
    for (int call = 0; call < c.calls; ++call) {
      for (std::size_t i = 0; i < c.count; ++i) in[i] = value_at(rank, i);
      if (c.placement == Placement::in_place) out = in;
      Call x{c.placement == Placement::in_place ? out : in, out, c.op};
      x.encoding.draw.step = static_cast<std::uint64_t>(call);
      if (c.feedback) x.encoding.worker_residual = worker.data(), x.encoding.owner_residual = owner.data();
      executor.start(x);
      run_to_end(executor);
      for (std::size_t i = 0; i < c.count; ++i) o.total[r][i] += static_cast<double>(out[i]);
    }
    if (c.placement == Placement::out_of_place) {
      for (std::size_t i = 0; i < c.count; ++i) EXPECT_EQ(in[i], value_at(rank, i)) << "the input has changed";
    }
    EXPECT_EQ(executor.sent()->bytes, *executor.bytes_required())
        << c.algorithm << " p " << c.ranks << " n " << c.count;
    EXPECT_TRUE(executor.coding().has_value());
    o.out[r] = out;
    std::copy(worker.begin(), worker.end(), o.worker[r].begin());
    std::copy(owner.begin(), owner.end(), o.owner[r].begin());
  });
  return o;
}

testing::Message describe(const Case& c) {
  return testing::Message() << c.algorithm << " p " << c.ranks << " n " << c.count << " in place "
                            << (c.placement == Placement::in_place) << " message " << c.message_bytes << " op "
                            << name(c.op) << " grain " << c.grain;
}

void expect_right(const Case& c) {
  const Outcome o = run(c);
  for (std::size_t i = 0; i < c.count; ++i) {
    double exact = 0, magnitude = 0;
    for (int r = 0; r < c.ranks; ++r) {
      exact += static_cast<double>(value_at(r, i)), magnitude += std::fabs(static_cast<double>(value_at(r, i)));
    }
    if (c.op == Op::average) exact /= c.ranks, magnitude /= c.ranks;
    // Each contribution is encoded at most once a round.
    ASSERT_NEAR(o.out[0][i], exact, 1.1 * Noisy::error * magnitude * c.ranks + 1e-6) << describe(c) << " at " << i;
  }
  for (const auto& out : o.out) {
    ASSERT_TRUE(std::ranges::equal(std::as_bytes(std::span(o.out[0])), std::as_bytes(std::span(out)))) << describe(c);
  }
}

constexpr std::size_t long_length = test::sanitized ? 701 : 3001;
std::vector<int> rank_counts() {
  if (test::sanitized) return {2, 4};
  return {1, 2, 3, 4, 5, 8};
}

std::vector<std::tuple<std::string, int>> coded_all_reduces() {
  std::vector<std::tuple<std::string, int>> cases;
  for (const auto& algorithm : test::scheduled_algorithms()) {
    const auto choice = find_algorithm(algorithm);
    for (int p : rank_counts()) {
      if (!choice->refusal(shape_of_ranks(p)).empty()) continue;
      if (coded_refusal(*choice->make(shape_of_ranks(p)).front()).empty()) cases.emplace_back(algorithm, p);
    }
  }
  return cases;
}

class CodedExecutor : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(CodedExecutor, GivesAllRanksTheSameBitsNearTheSumForTheBytesItStates) {
  const auto& [algorithm, p] = GetParam();
  const std::vector<std::size_t> lengths =
      test::sanitized ? std::vector<std::size_t>{static_cast<std::size_t>(p) + 1, long_length / 2}
                      : std::vector<std::size_t>{0, 1, static_cast<std::size_t>(p) + 1, long_length};
  for (const std::size_t n : lengths) {
    for (const auto placement : {Placement::in_place, Placement::out_of_place}) {
      expect_right({.algorithm = algorithm, .ranks = p, .count = n, .placement = placement});
      expect_right({.algorithm = algorithm, .ranks = p, .count = n, .placement = placement, .op = Op::average});
      expect_right({.algorithm = algorithm, .ranks = p, .count = n, .placement = placement, .grain = 1});
    }
  }
  expect_right({.algorithm = algorithm,
                .ranks = p,
                .count = (test::sanitized ? 4 : 13) * long_length,
                .message_bytes = 4096,
                .grain = 512});
}

TEST_P(CodedExecutor, LosesNothingWithErrorFeedback) {
  const auto& [algorithm, p] = GetParam();
  const Case c{.algorithm = algorithm, .ranks = p, .count = long_length / 2, .feedback = true, .calls = 12};
  const Outcome o = run(c);
  double kept = 0;
  for (std::size_t i = 0; i < c.count; ++i) {
    double given = 0, left = 0, scale = 0;
    for (std::size_t r = 0; r < o.out.size(); ++r) {
      const double value = static_cast<double>(value_at(static_cast<int>(r), i));
      given += c.calls * value, scale += c.calls * std::fabs(value);
      left += o.worker[r][i] + o.owner[r][i];
    }
    kept += std::fabs(left);
    ASSERT_NEAR(o.total[0][i] + left, given, 2e-6 * scale + 1e-6) << describe(c) << " at " << i;
  }
  EXPECT_EQ(kept > 0, p > 1) << "nothing is kept where nothing is encoded, and nowhere else";
}

INSTANTIATE_TEST_SUITE_P(Threads, CodedExecutor, ::testing::ValuesIn(coded_all_reduces()), [](const auto& param) {
  return test::test_name(fmt::format("{}_p{}", std::get<0>(param.param), std::get<1>(param.param)));
});

TEST(CodedExecutor, AWholeTensorGoesInOnePieceHoweverShortTheMessages) {
  expect_right(
      {.algorithm = "one-shot", .ranks = 3, .count = 5000, .message_bytes = 64, .grain = compression::whole_tensor});
}

TEST(CodedRefusal, IsForSchedulesInWhichSeveralRanksFinishASum) {
  EXPECT_THAT(coded_refusal(*find_algorithm("recursive-doubling")->make({4, 1}).front()), HasSubstr("several ranks"));
  EXPECT_THAT(coded_refusal(*find_algorithm("ring")->make({4, 1}, CollectiveKind::all_gather).front()),
              HasSubstr("no codec"));
  EXPECT_EQ(coded_refusal(*find_algorithm("direct")->make({4, 1}).front()), "");
  EXPECT_EQ(coded_refusal(*find_algorithm("one-shot")->make({4, 1}).front()), "");
}

TEST(CodedExecutor, RefusesWhatIsNoSumOfFp32) {
  ThreadGroup group(1, most_lanes(1));
  auto transport = group.transport(0);
  HeapArena arena(std::size_t{1} << 20);
  Executor executor({"ring", find_algorithm("ring")->make({1, 1})}, *transport, arena,
                    {.max_bytes = 64, .codec = noisy(1)});
  std::array<double, 8> doubles{};
  std::array<float, 8> floats{};
  EXPECT_THROW(executor.start({doubles, doubles}), core::BackendError);
  EXPECT_THROW(executor.start({floats, floats, Op::max}), core::BackendError);
}

TEST(TernGrad, SendsTwoBitsANumberUnlessItsCodesAreSummed) {
  constexpr std::size_t n = 1 << 16;
  const TensorPart whole{.offset = 0, .count = n, .rows = 1, .columns = n};
  const auto parts_of = [&](std::string_view name) {
    const auto codec = compression::find_codec(name);
    const auto ring = find_algorithm("ring");
    const ExchangeSpec r{.max_bytes = n * sizeof(float), .algorithm = ring, .codec = codec, .shape = {4, 1}};
    return inner_calls_of(r, n, {&whole, 1});
  };
  const auto gathered = parts_of("terngrad"), summed = parts_of("terngrad:exchange=sum");
  ASSERT_EQ(gathered.size(), 1u);
  EXPECT_EQ(gathered[0].collective_kind, CollectiveKind::all_gather);
  EXPECT_EQ(gathered[0].count * gathered[0].element_bytes, 4 * (16 + n / 4)) << "all ranks' codes and scales";
  ASSERT_EQ(summed.size(), 2u);
  EXPECT_EQ(summed[1].collective_kind, CollectiveKind::all_reduce);
  EXPECT_EQ(summed[1].count * summed[1].element_bytes, n) << "a byte each";
}

}  // namespace
}  // namespace gradmeter::allreduce
