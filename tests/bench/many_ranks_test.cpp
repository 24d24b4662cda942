// SPDX-License-Identifier: Apache-2.0
// What one rank among 16,384 does and holds before, around and after the steps: nothing may grow with the square of the
// ranks, and only schedules that have as many steps may grow with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <numeric>
#include <string>

#include "allreduce/executor/executor.hpp"
#include "allreduce/schedule/slices.hpp"
#include "allreduce/test_data.hpp"
#include "bench/engine/link_probe.hpp"
#include "bench/engine/node_map.hpp"
#include "bench/engine/rounds.hpp"
#include "bench/scale/plan.hpp"
#include "bench/train/config.hpp"
#include "bench/train/memory.hpp"
#include "dataparallel/forecast.hpp"
#include "model/data/dataset.hpp"
#include "model/data/sources.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::bench {
namespace {

using allreduce::CollectiveKind;

constexpr int ranks = 16'384, ranks_per_node = 128, rank = 5'000;
constexpr std::size_t batch = 64, count = std::size_t{1} << 18;  // 1 MiB of fp32
constexpr DataFacts digits{.features = std::size_t{28} * 28, .classes = 10};

NodeMap many_nodes() {
  NodeMap map;
  for (int r = 0; r < ranks; ++r) map.node_of.push_back(r / ranks_per_node * ranks_per_node);
  return map;
}

/// This thread's processor time, which other programs do not stretch, and the process's largest resident memory, since
/// this was made.
class Footprint {
 public:
  Footprint() : begin_s_(now_s()) {
    std::ofstream("/proc/self/clear_refs") << "5";  // the largest is forgotten
    begin_bytes_ = status("VmRSS:");
  }
  void expect_small(const std::string& of) const {
    const double seconds = now_s() - begin_s_, bytes = status("VmHWM:") - begin_bytes_;
    if (test::sanitized) return;
    EXPECT_LT(seconds, 2) << of;
    EXPECT_LT(bytes, 256.0 * (1 << 20)) << of;
    ::testing::Test::RecordProperty("cpu_ms", static_cast<int>(1e3 * seconds));
    ::testing::Test::RecordProperty("peak_kib", static_cast<int>(bytes / 1024));
  }

 private:
  static double now_s() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  static double status(const std::string& key) {
    std::ifstream file("/proc/self/status");
    double kib = 0;
    for (std::string word; file >> word;) {
      if (word == key) file >> kib;
    }
    return 1024 * kib;
  }
  double begin_s_, begin_bytes_ = 0;
};

/// A transport of the job's size on which nothing is ever sent.
class Silent final : public runtime::Transport {
 public:
  std::string_view name() const override { return "silent"; }
  int rank() const override { return bench::rank; }
  int size() const override { return ranks; }
  int channels() const override { return 64; }
  bool zero_copy_from(int) const override { return false; }
  std::size_t message_bytes() const override { return std::size_t{64} << 10; }
  runtime::MessageHandle send(int, int, std::span<const std::byte>) override { return {}; }
  runtime::MessageHandle receive(int, int, std::span<std::byte>) override { return {}; }
  bool send_done(runtime::MessageHandle&) override { return true; }
  const std::byte* try_receive(runtime::MessageHandle&) override { return nullptr; }
};

/// What a fabric makes ready for one collective.
void bind(const allreduce::ScheduledAlgorithm& a, compression::CodecChoicePtr codec) {
  const allreduce::ExchangeSpec options{
      .max_bytes = count * sizeof(float), .message_bytes = std::size_t{64} << 10, .codec = std::move(codec)};
  runtime::PrivateArena arena(allreduce::Executor::arena_bytes(a, rank, options));
  Silent transport;
  const allreduce::Executor executor(a, transport, arena, options);
  EXPECT_GE(allreduce::Executor::slices(a, options, count, sizeof(float)).count(), 1u);
}

class ManyRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(ManyRanks, SetUpAndForecastOfOneAlgorithmStaySmall) {
  const Footprint footprint;
  const NodeMap map = many_nodes();
  const auto shape = allreduce::shape_of(map.node_of);
  EXPECT_EQ(shape.ranks_per_node, static_cast<std::uint32_t>(ranks_per_node));
  const auto algorithm = allreduce::find_algorithm(GetParam());
  const TrainingConfig config{.model = "mlp:784-1024-1024-10",
                              .batch_per_rank = batch,
                              .strategy = dataparallel::find_strategy("sync"),
                              .algorithm = algorithm};
  EXPECT_EQ(refusal(config, digits, map), "");
  EXPECT_GT(resident_bytes(config, digits, ranks), 0u);

  for (const CollectiveKind collective_kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    if (algorithm->refusal(shape, collective_kind).empty())
      bind({algorithm->name, algorithm->make(shape, collective_kind)}, nullptr);
  }
  const auto schedules = algorithm->make(shape);
  if (allreduce::coded_refusal(*schedules.front()).empty()) {
    bind({algorithm->name, schedules}, compression::find_codec("qsgd4"));
  }

  const dataparallel::ForecastInput forecast_input{
      .ranks = ranks, .elements = count, .ranks_per_node = ranks_per_node, .algorithm = algorithm};
  const auto forecast = dataparallel::forecast_collective(forecast_input, CollectiveKind::all_reduce, count);
  EXPECT_EQ(forecast.bytes, algorithm->cost(shape).sent * count * sizeof(float));
  footprint.expect_small(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ManyRanks,
                         ::testing::Values("ring", "recursive-doubling", "rabenseifner", "hierarchical-lane",
                                           "hierarchical-leader", "double-tree", "torus2d", "swing", "direct"),
                         [](const auto& param) {
                           std::string n = param.param;
                           std::replace(n.begin(), n.end(), '-', '_');
                           return n;
                         });

TEST(ManyRanksBookkeeping, NodesPlacementsAndPlansStaySmall) {
  const Footprint footprint;
  const NodeMap map = many_nodes();
  EXPECT_EQ(map.nodes(), ranks / ranks_per_node);
  EXPECT_EQ(map.ranks_per_node(), ranks_per_node);
  EXPECT_EQ(map.of(map.ranks_for(ranks / 2, Placement::spread)).ranks_per_node(), ranks_per_node / 2);
  ScaleFactors f{.models = {"mlp:784-1024-1024-10"},
                 .batches = {batch},
                 .ranks = {},
                 .strategies = {dataparallel::find_strategy("sync")},
                 .algorithms = {allreduce::find_algorithm("ring")},
                 .overlaps = {Overlap::none},
                 .transports = {dataparallel::TransportKind::automatic},
                 .scalings = {Scaling::weak, Scaling::strong},
                 .threads = {1},
                 .cadences = {runtime::Cadence::barrier},
                 .interconnect = "",
                 .map = map};
  for (int r = 1; r <= ranks; r *= 2) f.ranks.push_back(r);
  f.placements = {Placement::packed, Placement::spread};
  EXPECT_GT(plan_scale(f).size(), 50u);
  footprint.expect_small("plan");
}

/// Rank 0's own share of a sweep of a hundred points: names of hosts, slow ranks, whom the wire is measured with.
TEST(ManyRanksBookkeeping, WhatTheFirstRankKnowsOfAllOthersStaysSmall) {
  const Footprint footprint;
  const NodeMap map = many_nodes();
  const NodeIndices indices(map.node_of);
  for (int r = 0; r < ranks; ++r) {
    EXPECT_EQ(indices.index_of(map.node_of[static_cast<std::size_t>(r)]), static_cast<std::size_t>(r / ranks_per_node));
  }
  std::vector<OwnTime> times(ranks, {.median = 1e-3, .low = 0.9e-3, .high = 1.05e-3});
  times[rank] = {.median = 2e-3, .low = 1.9e-3, .high = 2.1e-3};
  for (int point = 0; point < 100; ++point) EXPECT_EQ(straggler(times), rank);
  EXPECT_EQ(partners_on_next_node(map.node_of)[rank], rank + ranks_per_node);
  footprint.expect_small("rank 0");
}

TEST(ManyRanksBookkeeping, TheForecastsOfAllStrategiesStaySmall) {
  const Footprint footprint;
  const model::Tensor tensor{.name = "w", .shape = {count}, .offset = 0, .count = count};
  for (const auto& info : dataparallel::strategies()) {
    const auto strategy = dataparallel::find_strategy(info.name)->make({});
    (void)strategy->predict(
        {.ranks = ranks, .tensors = std::span(&tensor, 1), .elements = count, .ranks_per_node = ranks_per_node});
  }
  footprint.expect_small("forecasts");
}

/// The share of an all-reduce's result that a rank checks, worked out on its own.
std::vector<float> right_share(const allreduce::KnownCollective& k, std::size_t first, std::size_t n) {
  std::vector<float> next(n), sum(n, 0);  // whole numbers: exact in fp32
  for (std::size_t r = 0; r < k.data.ranks; ++r) {
    allreduce::fill(k.data, r, first, std::as_writable_bytes(std::span(next)));
    for (std::size_t i = 0; i < n; ++i) sum[i] += next[i];
  }
  return sum;
}

TEST(ManyRanksCheck, AShareIsHeldAgainstTheSumOfAllRanksInAMoment) {
  const Footprint footprint;
  const allreduce::KnownCollective k{
      .collective_kind = CollectiveKind::all_reduce, .data = {.ranks = ranks, .seed = 3}, .count = count};
  std::vector<float> result(count, 0.25f);
  const std::size_t first = allreduce::block_begin(count, ranks, rank), n = count / ranks;
  const auto right = right_share(k, first, n);
  std::copy(right.begin(), right.end(), result.begin() + static_cast<std::ptrdiff_t>(first));
  EXPECT_EQ(check_share(k, rank, std::as_bytes(std::span(result))).wrong, 0u);
  result[first + n / 2] += 1;
  EXPECT_EQ(check_share(k, rank, std::as_bytes(std::span(result))).wrong, 1u);
  EXPECT_EQ(check_share(k, rank + 1, std::as_bytes(std::span(result))).wrong, n) << "0.25 is no sum of whole numbers";
  footprint.expect_small("share");
}

TEST(ManyRanksCheck, BitsThatDifferAreLookedAtInBoundedSamples) {
  const Footprint footprint;
  allreduce::KnownCollective k{
      .collective_kind = CollectiveKind::all_reduce, .data = {.ranks = ranks, .seed = 3}, .count = count};
  const std::vector<float> result(count, 0.25f);
  EXPECT_EQ(check_sample(k, rank, std::as_bytes(std::span(result))).wrong, (std::size_t{1} << 26) / ranks);
  k.count = 2'000;  // few enough to be checked in full
  EXPECT_EQ(check_sample(k, rank, std::as_bytes(std::span(result).first(k.count))).wrong, k.count);
  k.count = count;
  k.data.pattern = allreduce::Pattern::random;
  (void)check_share(k, rank, std::as_bytes(std::span(result)));
  footprint.expect_small("samples");
}

TEST(ManyRanksCheck, WhatIsCopiedOrScatteredStaysSmall) {
  const Footprint footprint;
  const std::vector<float> result(count, 0.25f);
  for (const CollectiveKind collective_kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather,
                                               CollectiveKind::broadcast, CollectiveKind::all_to_all}) {
    const allreduce::KnownCollective k{.collective_kind = collective_kind, .data = {.ranks = ranks}, .count = count};
    EXPECT_EQ(check(k, rank, std::as_bytes(std::span(result))).wrong,
              collective_kind == CollectiveKind::reduce_scatter ? count / ranks : count);
  }
  footprint.expect_small("copies");
}

TEST(ManyRanksData, ARankDrawsAndHoldsItsOwnPartOfTheGlobalBatch) {
  const Footprint footprint;
  constexpr std::size_t batch_global = batch * ranks;
  const auto data = model::make_data({.train_samples = batch_global, .validation_samples = 1});
  const model::Sampler sampler(data.train->size(), batch_global, 1);
  std::array<std::uint64_t, batch> indices{};
  std::vector<float> inputs(batch * data.train->features());
  std::array<std::int32_t, batch> labels{};
  sampler.indices(0, rank, indices);
  gather(*data.train, indices, inputs, labels);
  std::array<std::uint8_t, 28 * 28> alone{};
  EXPECT_EQ(labels[7], model::draw_digit(1, indices[7], alone));
  footprint.expect_small("data");
}

}  // namespace
}  // namespace gradmeter::bench
