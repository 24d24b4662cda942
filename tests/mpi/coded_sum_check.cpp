// SPDX-License-Identifier: Apache-2.0
// Coded sums on real ranks are held to what their codec may lose, by every codec over every kind of way: right ones
// pass, and one that lacks a contribution does not.
#include <gtest/gtest.h>

#include <cmath>

#include "allreduce/coded/coded.hpp"
#include "bench/engine/coded_sum.hpp"
#include "core/error.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::size_t length = 40'000;
constexpr std::uint64_t seed = 7;

struct Place {
  runtime::Communicator world = runtime::MpiSession::world();
  runtime::Network network{world, {.transport = runtime::TransportKind::shm, .memory_bytes = std::size_t{32} << 20}};
  std::unique_ptr<runtime::Transport> link{network.connect(world, allreduce::most_lanes(world.size()))};
  runtime::Arena::Mark mark{network.arena().mark()};
};

struct CodedSumCase {
  allreduce::Op op = allreduce::Op::sum;
  CodedData data = CodedData::gradient;
  float factor = 1;  ///< of what the last rank gives
  std::size_t count = length;
};

CodedSum checked_sum(Place& here, const allreduce::ExchangeSpec& r, const CodedSumCase& sum_case) {
  here.network.arena().rewind(here.mark);
  const auto bound = allreduce::bind_coded(r, {here.world, here.network, *here.link});
  const CodedTensor tensor{.codec = *r.codec,
                           .encodings = allreduce::encodings_on_the_way(r, {.offset = 0, .count = sum_case.count}),
                           .seed = seed,
                           .op = sum_case.op,
                           .data = sum_case.data};
  std::vector<float> v(sum_case.count);
  draw_coded(tensor, here.world.rank(), here.world.size(), v);
  if (here.world.rank() == here.world.size() - 1) {
    for (float& x : v) x *= sum_case.factor;
  }
  bound->start({v, v, sum_case.op});
  runtime::Backoff backoff(test::spin_policy_of(here.world, 1));
  while (!bound->advance()) backoff.wait();
  return check_coded_sum(here.world, tensor, v);
}

class CodedSumCheck : public ::testing::TestWithParam<std::string> {
 protected:
  /// Over every algorithm that takes the codec, the sum by one and the average by the next.
  template <class Visit>
  void each_way(Place& here, Visit visit) {
    const auto codec = compression::find_codec(GetParam());
    auto op = allreduce::Op::sum;
    for (const auto* name : {"direct", "ring", "one-shot", "rabenseifner", "mpi"}) {
      const auto algorithm = allreduce::find_algorithm(name);
      const allreduce::ExchangeSpec r{.placement = allreduce::Placement::in_place,
                                      .max_bytes = length * 4,
                                      .algorithm = algorithm,
                                      .codec = codec,
                                      .shape = allreduce::shape_of(here.network.nodes_of(here.world))};
      if (!allreduce::codec_refusal(r, allreduce::CollectiveKind::all_reduce, {}).empty()) continue;
      visit(r, op);
      op = op == allreduce::Op::sum ? allreduce::Op::average : allreduce::Op::sum;
    }
  }
};

TEST_P(CodedSumCheck, RightSumsPassAndOnesThatLackAContributionDoNot) {
  Place here;
  each_way(here, [&](const allreduce::ExchangeSpec& r, allreduce::Op op) {
    const auto& name = r.algorithm->name;
    const auto right = checked_sum(here, r, {.op = op});
    EXPECT_TRUE(right.same_bits);
    EXPECT_EQ(right.fault, "") << name;
    // A rank's own share of the sum is known to so much: what a codec of one bit loses anew on each hop hides any.
    // onebit leaves the signs and a mean: it is held to its error bound alone, within which a contribution is hidden.
    if (r.codec->name.starts_with("onebit")) return;
    const double p = here.world.size(), deviation = std::sqrt(right.error * (p + p * p / 4) / double{length});
    for (const float factor : {0.0f, 0.5f, 2.0f}) {
      if (std::fabs(1 - double{factor}) < 0.25 + 9 * deviation) continue;
      EXPECT_NE(checked_sum(here, r, {.op = op, .factor = factor}).fault, "")
          << name << ": the last contribution times " << factor;
    }
  });
}

TEST_P(CodedSumCheck, SignsShowADroppedContributionWhereverTheCodecKeepsThem) {
  Place here;
  const auto codec = compression::find_codec(GetParam());
  if (!keeps_signs(*codec)) {
    for (const auto* lossy : {"onebit", "terngrad", "qsgd1", "qsgd2", "qsgd4", "qsgd8", "lns4"}) {
      EXPECT_NE(codec->info->name, lossy) << "it can hide a contribution in what it may lose of gradients";
    }
    return;
  }
  each_way(here, [&](const allreduce::ExchangeSpec& r, allreduce::Op op) {
    CodedSumCase sum_case{.op = op, .data = CodedData::signs};
    const auto right = checked_sum(here, r, sum_case);
    EXPECT_EQ(right.fault, "") << r.algorithm->name;
    EXPECT_LT(right.error, 1e-3);
    for (const float factor : {0.0f, 0.5f, 2.0f}) {
      sum_case.factor = factor;
      EXPECT_NE(checked_sum(here, r, sum_case).fault, "")
          << r.algorithm->name << ": the last contribution times " << factor;
    }
  });
}

TEST(CodedSum, OfPowerSgdIsRightWhereTheMatrixHasAShortLastRow) {
  Place here;
  const auto codec = compression::find_codec("powersgd");
  const auto algorithm = allreduce::find_algorithm("ring");
  const allreduce::ExchangeSpec r{.placement = allreduce::Placement::in_place,
                                  .max_bytes = length * 4,
                                  .algorithm = algorithm,
                                  .codec = codec,
                                  .shape = allreduce::shape_of(here.network.nodes_of(here.world))};
  for (const std::size_t count : {1025, 2048, 2049, 3000, 32'768}) {
    for (const auto op : {allreduce::Op::sum, allreduce::Op::average}) {
      EXPECT_EQ(checked_sum(here, r, {.op = op, .count = count}).fault, "") << count;
      EXPECT_NE(checked_sum(here, r, {.op = op, .factor = 0.5f, .count = count}).fault, "") << count;
    }
  }
}

std::vector<std::string> all_codecs() {
  std::vector<std::string> out{"topk:density=0.3",       "terngrad:exchange=sra", "terngrad:clip=0", "randomk:ef=off",
                               "qsgd8:rounding=nearest", "qsgd4:bucket=64",       "onebit:means=2"};
  for (const auto& row : compression::codecs()) out.emplace_back(row.name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Ranks, CodedSumCheck, ::testing::ValuesIn(all_codecs()), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace gradmeter::bench
