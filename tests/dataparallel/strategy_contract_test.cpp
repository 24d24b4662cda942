// SPDX-License-Identifier: Apache-2.0
// Compares what every strategy states with what it does: bytes, messages, equal bits, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/format.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "support/held_weights.hpp"
#include "support/sanitized.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::run_workers;
using test::sanitized;
using test::StrategyRun;

ForecastInput forecast_input_of(const model::Model& m, int ranks, int steps) {
  return {.ranks = static_cast<std::uint32_t>(ranks),
          .tensors = m.tensors(),
          .elements = m.element_count(),
          .steps = static_cast<std::uint64_t>(steps)};
}

class StrategyContract : public ::testing::TestWithParam<std::string> {
 protected:
  StrategyPtr choice() const { return find_strategy(GetParam()); }
};

TEST_P(StrategyContract, BytesAndMessagesAreTheForecast) {
  const StrategyRun run{.strategy = GetParam(), .steps = 5};
  const auto strategy = choice()->make({.bucket_bytes = run.bucket_bytes, .optimizer = run.optimizer});
  const auto model = run.model();
  for (const int p : {1, 2, 3, 4, 7}) {
    std::uint64_t bytes = 0;
    std::size_t sends = 0;
    for (const auto& e : run_workers(p, run)) bytes += e.totals.bytes_sent, sends += e.sends;
    const Forecast f = strategy->predict(forecast_input_of(*model, p, run.steps));
    if (f.exact) {
      EXPECT_EQ(bytes, f.bytes) << "p " << p;
    } else {
      EXPECT_LE(bytes, f.bytes) << "p " << p;
      EXPECT_GT(bytes, 0u);
    }
    if (choice()->info().communication == CommunicationPattern::messages ||
        choice()->info().communication == CommunicationPattern::overlapped_messages) {
      EXPECT_EQ(sends, f.messages) << "p " << p;
    }
    EXPECT_EQ(f.bytes > 0, p > 1 && choice()->communicates());
  }
}

TEST_P(StrategyContract, ForecastsOfStretchesAddUp) {
  const auto model = StrategyRun{}.model();
  const auto strategy = choice()->make({});
  const Forecast all = strategy->predict(forecast_input_of(*model, 4, 50));
  Forecast sum;
  for (std::uint64_t first = 1; first <= 50; first += 5) {
    ForecastInput s = forecast_input_of(*model, 4, 5);
    s.first_step = first;
    sum += strategy->predict(s);
  }
  EXPECT_EQ(sum.bytes, all.bytes);
  EXPECT_EQ(sum.messages, all.messages);
  EXPECT_NEAR(sum.seconds, all.seconds, 1e-9 * all.seconds);
}

TEST_P(StrategyContract, AllWorkersHoldEqualBitsWhereItIsSaid) {
  for (const int p : {2, 3, 4}) {
    const auto ends = run_workers(p, {.strategy = GetParam()});
    bool equal = true;
    for (const auto& e : ends) equal &= e.hashes == ends[0].hashes;
    if (choice()->info().keeps_workers_equal) {
      EXPECT_TRUE(equal) << p;
    } else if (p > 2 && GetParam() != "model-averaging:every=1,start=0" && GetParam() != "ps-backup") {
      // Two that gossip agree in each step, and at even speeds no backup worker is late.
      EXPECT_FALSE(equal) << p << ": then it may say so";
    }
  }
}

TEST_P(StrategyContract, JudgingChangesNothing) {
  // It takes time, and where who comes first decides, several workers go on in another order: one alone does not.
  const bool races = uses_ports(choice()->info().communication) && !choice()->info().keeps_workers_equal;
  const int p = races ? 1 : 3;
  const auto once = run_workers(p, {.strategy = GetParam()});
  const auto often = run_workers(p, {.strategy = GetParam(), .judge_often = true});
  for (std::size_t r = 0; r < once.size(); ++r) {
    EXPECT_EQ(once[r].hashes, often[r].hashes);
    EXPECT_EQ(once[r].evaluation_weights, often[r].evaluation_weights);
  }
}

TEST_P(StrategyContract, WhatIsJudgedIsTheSameOnAllRanksUnlessNobodySpeaks) {
  const auto ends = run_workers(3, {.strategy = GetParam()});
  for (std::size_t r = 1; r < 3; ++r)
    EXPECT_EQ(ends[r].evaluation_weights == ends[0].evaluation_weights, choice()->communicates()) << r;
}

TEST_P(StrategyContract, WhatRanksHoldAreTheEvaluationWeightsWhenAllHaveSettled) {
  for (const int p : {1, 2, 4}) {
    std::vector<std::vector<WeightsInPlace>> held(static_cast<std::size_t>(p));
    std::vector<float> seen;
    StrategyRun run{.strategy = GetParam()};
    run.before_end = [&](Fabric& f, const Worker& worker, const Strategy& strategy) {
      const Buffer word = f.memory(1);
      const auto meet = [&] { f.wait(f.all_reduce(everybody, word, allreduce::Op::sum)); };
      if (p > 1) meet();
      held[static_cast<std::size_t>(f.rank())] = strategy.held_weights(worker);
      if (p > 1) meet();
      if (f.rank() == 0) seen = test::mean_of_held(held, worker.parameters().count());
      if (p > 1) meet();
    };
    const auto ends = run_workers(p, run);
    if (GetParam().starts_with("gossip")) {
      EXPECT_TRUE(seen.empty()) << "they are not known without communication";
      continue;
    }
    ASSERT_EQ(seen.size(), ends[0].weights.size()) << p;
    if (choice()->communicates()) {
      EXPECT_LT(test::farthest(seen, ends[0].evaluation_weights), 1e-6) << p;
    } else if (p > 1) {
      EXPECT_GT(test::farthest(seen, ends[0].evaluation_weights), 1e-3) << p << ": every rank has its own";
    }
  }
}

TEST_P(StrategyContract, RunsRepeatToTheBit) {
  const auto a = run_workers(4, {.strategy = GetParam()}), b = run_workers(4, {.strategy = GetParam()});
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(a[r].hashes, b[r].hashes);
}

/// Counts what is taken from the fabric.
class MemoryCounter final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  Buffer memory(std::size_t floats) override {
    taken_ += floats * sizeof(float);
    return ForwardingFabric::memory(floats);
  }
  std::size_t taken() const { return taken_; }

 private:
  std::size_t taken_ = 0;
};

TEST_P(StrategyContract, BeginTakesNoMoreMemoryThanStated) {
  for (const int p : {1, 2, 3}) {
    SimWorld(p, {}).run([&](Fabric& f) {
      MemoryCounter memory_counter(f);
      const auto model = StrategyRun{}.model();
      const std::size_t n = model->element_count();
      const model::Buffers buffers{f.memory(n), f.memory(n)};
      model->initialise(f, buffers, 1);
      const auto rule = make_optimizer("sgd", {.elements = n});
      Worker worker(memory_counter, everybody, *model, buffers, *rule);
      const auto strategy = choice()->make({});
      strategy->begin(worker);
      EXPECT_LE(memory_counter.taken(), strategy->fabric_bytes(*model, p)) << p;
    });
  }
}

TEST_P(StrategyContract, HoldsWithManyWorkers) {
  const int workers = sanitized ? 16 : 65;
  StrategyRun run{.strategy = GetParam(), .steps = 2, .batch_per_rank = 1};
  run.model = [] { return std::make_unique<model::Mlp>(std::vector<std::size_t>{784, 10}); };
  std::uint64_t bytes = 0;
  const auto ends = run_workers(workers, run);
  for (const auto& e : ends) bytes += e.totals.bytes_sent;
  const auto model = run.model();
  const Forecast f = choice()
                         ->make({.bucket_bytes = run.bucket_bytes, .optimizer = run.optimizer})
                         ->predict(forecast_input_of(*model, workers, 2));
  if (f.exact) {
    EXPECT_EQ(bytes, f.bytes);
  } else {
    EXPECT_LE(bytes, f.bytes);
  }
}

/// Strategies with parameters that repeat within a short run, and several forms of one. Those that are not here run by
/// their plain names.
const std::vector<std::string> with_parameters{
    "independent",
    "sync",
    "sharded",
    "model-averaging:every=2,start=2",
    "model-averaging:every=4,start=0",
    "model-averaging:every=1,start=0",
    "bmuf:every=2",
    "diloco:every=2",
    "diloco:every=2,overlap=1",
    "diloco:every=4,fragments=3,overlap=2",
    "adacomm:every=2",
    "adacomm:every=2,interval=2",
    "slowmo:every=2",
    "slowmo:buffers=average,every=2",
    "gossip",
    "gossip:overlap=1",
    "gossip:graph=random,overlap=1",
    "gossip:graph=ring",
    "d-psgd",
    "d-psgd:graph=hypercube",
    "ad-psgd",
    "es",
    "es:pairs=9",
    "population:size=7,survivors=2",
    "population:breeding=0",
    "ps-sync",
    "ps-async",
    "ps-async:push=2,fetch=3",
    "ps-ssp",
    "ps-backup",
    "ps-softsync:n=2",
    "dc-asgd",
    "easgd:every=2",
};

bool has_strategy(std::span<const std::string> names, std::string_view strategy) {
  return std::ranges::any_of(names, [&](const std::string& n) { return n.substr(0, n.find(':')) == strategy; });
}

std::vector<std::string> promising() {
  std::vector<std::string> out = with_parameters;
  for (const StrategyInfo& s : strategies()) {
    if (!has_strategy(with_parameters, s.name)) out.emplace_back(s.name);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Strategies, StrategyContract, ::testing::ValuesIn(promising()),
                         test::name_of_run<std::string>);

// A strategy that sends everything twice and forecasts it twice keeps its promise: these are written down by hand.
TEST(StrategyContracts, TheForecastsAreTheClosedForms) {
  const auto model = StrategyRun{}.model();
  const std::uint64_t m = model->element_count() * sizeof(float), steps = 12;
  for (const std::uint64_t p : {1u, 2u, 3u, 4u, 7u, 16u}) {
    const std::uint64_t twice = 2 * (p - 1) * m;  // 2(P-1)/P·M for each of P ranks
    const std::map<std::string, std::uint64_t> bytes{
        {"independent", 0},
        {"sync", twice * steps},
        {"sharded", twice * steps},
        {"model-averaging:every=4", twice * steps / 4},
        {"model-averaging:every=4,start=4", twice * (4 + 2)},
        {"bmuf:every=4", twice * steps / 4},
        {"diloco:every=4", twice * steps / 4},
        {"diloco:every=4,fragments=2,overlap=1", twice * steps / 4},
        {"adacomm:every=4", twice * steps / 4},
        {"slowmo:every=4", twice * steps / 4},
        {"gossip", p > 1 ? p * (m + 64) * steps : 0},
        {"d-psgd", p * std::min(p - 1, std::uint64_t{2}) * m * steps},
        {"d-psgd:graph=hypercube", (p - p % 2) * m * steps},  // of 3 and 7 ranks one has no neighbour, always another
        {"ad-psgd", p > 1 ? (p + 1) / 2 * 2 * m * steps : 0},
        {"es:pairs=1", (p - 1) * sizeof(float) * p * steps},  // rounded up to one of every rank
        {"population:size=16,survivors=4", (p - 1) * (4 * m + sizeof(float) * ((15 + p) / p * p + 3 * 4)) * steps},
        {"ps-sync", twice * steps},
        {"ps-async", twice * steps},
        {"ps-async:push=2,fetch=3", (p - 1) * m * (steps / 2 + steps / 3)},
        {"ps-ssp", twice * steps},
        {"ps-backup", twice * steps},
        {"ps-softsync", twice * steps},
        {"dc-asgd", twice * steps},
        {"easgd:every=4", twice * steps / 4},
    };
    for (const auto& [name, all] : bytes) {
      const Forecast f = find_strategy(name)->make({})->predict(forecast_input_of(*model, int(p), int(steps)));
      EXPECT_EQ(f.bytes, all) << name << " p " << p;
      EXPECT_EQ(f.exact, p == 1 || !name.starts_with("population")) << name << ": there it is the most";
    }
    for (const StrategyInfo& s : strategies()) {
      const auto is_of = [&s](std::string_view text) { return text.substr(0, text.find(':')) == s.name; };
      EXPECT_TRUE(std::ranges::any_of(bytes, is_of, [](const auto& b) { return std::string_view(b.first); })) << s.name;
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
