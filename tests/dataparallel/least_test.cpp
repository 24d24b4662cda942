// SPDX-License-Identifier: Apache-2.0
// Compares the least that a strategy must send with its forecast, for every algorithm and codec: a limit made from it
// may never be above the step.
#include <gtest/gtest.h>

#include <algorithm>

#include "allreduce/schedule/slices.hpp"
#include "dataparallel/strategy.hpp"
#include "support/mlp.hpp"

namespace gradmeter::dataparallel {
namespace {

using allreduce::CollectiveKind;

const model::Mlp& network() {
  static const model::Mlp model({784, 16, 10});
  return model;
}

/// Rank-ordered nodes of equal size. Bytes are seconds.
ForecastInput forecast_input_of(std::uint32_t ranks, std::uint32_t ranks_per_node, const std::string& algorithm,
                                const std::string& codec = "none") {
  return {.ranks = ranks,
          .tensors = network().tensors(),
          .elements = network().element_count(),
          .steps = 12,
          .ranks_per_node = ranks_per_node,
          .algorithm = allreduce::find_algorithm(algorithm),
          .codec = compression::find_codec(codec)};
}

Forecast forecast(const ForecastInput& s, const StrategyInfo& info) {
  const bool by_client_server = info.communication == CommunicationPattern::client_server;
  ForecastInput forecast_input = s;
  if (by_client_server) forecast_input.codec = nullptr;
  return find_strategy(info.name)
      ->make({.bucket_bytes = 16 << 10, .codec = by_client_server ? s.codec : nullptr})
      ->predict(forecast_input);
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names{"none", "qsgd8:min=1", "topk:min=1", "powersgd:min=1"};
  for (const auto& c : compression::codecs()) names.emplace_back(c.name);
  return names;
}

TEST(MinimumSent, IsNoMoreThanTheForecastOfAnyAlgorithmCodecAndStrategy) {
  std::size_t compared = 0;
  for (const StrategyInfo& info : strategies()) {
    for (const auto& codec : codec_names()) {
      const bool encodes = info.communication == CommunicationPattern::all_reduce ||
                           info.communication == CommunicationPattern::client_server;
      if (!encodes && codec != "none") continue;
      for (const auto& row : allreduce::algorithms()) {
        if (row.backend != allreduce::Backend::schedule) continue;
        for (const std::uint32_t p : {1u, 2u, 3u, 4u, 8u}) {
          const ForecastInput s = forecast_input_of(p, p % 2 == 0 ? p / 2 : p, std::string(row.name), codec);
          if (!s.algorithm->refusal(shape_of(s)).empty()) continue;
          const Forecast f = forecast(s, info);
          if (!f.bounds_from_above()) continue;
          ++compared;
          EXPECT_LE(f.least, f.bytes) << info.name << " " << codec << " " << row.name << " p " << p;
          EXPECT_LE(static_cast<double>(f.least_of_one), f.seconds) << info.name << " " << codec << " " << row.name;
          EXPECT_LE(f.least_between_nodes, f.least);
        }
      }
    }
  }
  EXPECT_GT(compared, 1000u);
}

TEST(MinimumSent, DoesNotDependOnTheAlgorithm) {
  for (const std::string codec : {"none", "qsgd8", "fp16", "topk", "powersgd", "terngrad"}) {
    const auto least = [&](const std::string& algorithm) {
      return forecast(forecast_input_of(4, 2, algorithm, codec), find_strategy("sync")->info());
    };
    const Forecast ring = least("ring");
    for (const std::string other : {"one-shot", "direct", "recursive-doubling"}) {
      const Forecast f = least(other);
      if (f.bounds_from_above()) {
        EXPECT_EQ(f.least, ring.least) << codec << " " << other;
      }
    }
    EXPECT_GT(ring.least, 0u) << codec;
  }
  const Forecast vendor = forecast(forecast_input_of(4, 2, "mpi"), find_strategy("sync")->info());
  EXPECT_FALSE(vendor.exact);
  EXPECT_EQ(vendor.least, forecast(forecast_input_of(4, 2, "ring"), find_strategy("sync")->info()).least);
}

TEST(MinimumSent, IsTheClosedForm) {
  const std::uint64_t m = network().element_count() * sizeof(float), p = 4, steps = 12;
  const std::vector<std::pair<std::string, std::uint64_t>> expected{
      {"independent", 0},
      {"sync", 2 * (p - 1) * m * steps},
      {"sharded", 2 * (p - 1) * m * steps},
      {"model-averaging:every=4", 2 * (p - 1) * m * steps / 4},
      {"gossip", p * (m + 64) * steps},
      {"d-psgd", 2 * p * m * steps},
      {"ad-psgd", p / 2 * 2 * m * steps},
      {"es:pairs=4", p * (p - 1) * sizeof(float) * steps},
      // How many models travel depends on the losses; the ranking is sent three times over.
      {"population:size=8,survivors=2", (8 + 3 * 2) * (p - 1) * sizeof(float) * steps},
      {"ps-sync", 2 * (p - 1) * m * steps},
  };
  for (const auto& [name, least] : expected) {
    for (const std::string algorithm : {"recursive-doubling", "mpi"}) {
      const Forecast f = find_strategy(name)->make({})->predict(forecast_input_of(4, 2, algorithm));
      EXPECT_EQ(f.least, least) << name << " " << algorithm;
    }
  }
}

TEST(MinimumSent, HasTheBitsOfTheCodec) {
  const auto& sync = find_strategy("sync")->info();
  const auto& servers = find_strategy("ps-sync")->info();
  const auto dense = static_cast<double>(forecast(forecast_input_of(4, 4, "direct"), sync).least);
  const auto coded = static_cast<double>(forecast(forecast_input_of(4, 4, "direct", "qsgd8:min=1"), sync).least);
  EXPECT_NEAR(coded / dense, 0.25, 0.01);
  const auto half = static_cast<double>(forecast(forecast_input_of(4, 4, "direct", "fp16:min=1"), servers).least);
  EXPECT_NEAR(half / dense, 0.5, 0.01);
  const auto variable =
      static_cast<double>(forecast(forecast_input_of(4, 4, "direct", "qsgd-elias:min=1"), sync).least);
  EXPECT_LT(variable / dense, 0.01) << "its length depends on the data: only the lengths themselves must be sent";
}

TEST(MinimumSent, TheBusiestOfDedicatedServersAndWorkersIsKnown) {
  const std::uint64_t m = network().element_count() * sizeof(float);
  ForecastInput s = forecast_input_of(5, 5, "ring");
  s.steps = 1;
  EXPECT_EQ(find_strategy("ps-sync:servers=1")->make({})->predict(s).least_of_one, 4 * m) << "the server takes it all";
}

TEST(Forecast, BytesTakeTheBandwidthBetweenNodesWhereTheAxisIsOnSeveral) {
  ForecastInput s = forecast_input_of(4, 4, "ring");
  s.machine.within_node.bandwidth = {{.bytes_per_s = 8}};
  s.machine.between_nodes.bandwidth = {{.bytes_per_s = 2}};
  const auto seconds = [&] { return forecast_collective(s, CollectiveKind::all_reduce, 100).seconds; };
  EXPECT_DOUBLE_EQ(seconds(), 1.5 * 400 / 8);
  s.ranks_per_node = 2;
  EXPECT_DOUBLE_EQ(seconds(), 1.5 * 400 / 2);
}

/// Elements that cross nodes in one run of the schedules over `layout`.
std::uint64_t crossing(const allreduce::Schedule& s, std::uint32_t ranks_per_node, std::size_t elements) {
  const auto begin = [&](std::uint32_t b) { return allreduce::block_begin(elements, s.blocks(), b); };
  std::uint64_t all = 0;
  allreduce::Steps steps;
  for (std::uint32_t rank = 0; rank < s.ranks(); ++rank) {
    for (std::uint32_t round = 0; round < s.rounds(); ++round) {
      steps.clear();
      s.steps(round, rank, steps);
      for (const auto& step : steps) {
        if (step.kind != allreduce::StepKind::send || step.peer / ranks_per_node == rank / ranks_per_node) continue;
        all += begin(step.blocks.first + step.blocks.count) - begin(step.blocks.first);
      }
    }
  }
  return all;
}

TEST(MinimumSent, BetweenNodesNoScheduleSendsLess) {
  constexpr std::size_t elements = 4800;
  std::size_t compared = 0;
  for (const auto& row : allreduce::algorithms()) {
    if (row.backend != allreduce::Backend::schedule) continue;
    const auto algorithm = allreduce::find_algorithm(row.name);
    for (const auto& [ranks, per_node] : {std::pair{4u, 1u}, {4u, 2u}, {8u, 4u}, {8u, 2u}, {6u, 3u}, {6u, 2u}}) {
      for (const CollectiveKind collective_kind :
           {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
        if (!algorithm->refusal({ranks, per_node}, collective_kind).empty()) continue;
        const auto schedule = algorithm->make({ranks, per_node}, collective_kind).front();
        ++compared;
        const auto sent = crossing(*schedule, per_node, elements);
        const auto least =
            forecast_collective(forecast_input_of(ranks, per_node, std::string(row.name)), collective_kind, elements);
        EXPECT_EQ(least.least_between_nodes, least_sent(collective_kind, ranks / per_node, elements * sizeof(float)));
        EXPECT_LE(least.least_between_nodes, sent * sizeof(float))
            << row.name << " " << name(collective_kind) << " " << ranks;
      }
    }
  }
  EXPECT_GT(compared, 30u);
}

TEST(MinimumSent, RanksInNoOrderOfNodesMayBeOnOne) {
  EXPECT_EQ(forecast_collective(forecast_input_of(4, 0, "ring"), CollectiveKind::all_reduce, 100).least_between_nodes,
            0u);
}

}  // namespace
}  // namespace gradmeter::dataparallel
