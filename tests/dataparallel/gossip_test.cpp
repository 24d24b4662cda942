// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "support/machines.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::farthest;
using test::run_workers;
using test::StrategyEnd;
using test::StrategyRun;

/// What all ranks sent in one step: half of everything that there is.
struct Mass {
  double weight = 0;
  std::vector<double> x = {};  ///< element by element: what one loses another must not make up for
  std::vector<int> hops = {};
  std::map<int, std::pair<std::vector<float>, float>> sent = {};  ///< by rank: x and its weight
};

/// Reads every message, and can drop the weight that travels in it.
class Watch final : public ForwardingFabric {
 public:
  Watch(Fabric& inner, std::map<int, Mass>& masses, bool weightless)
      : ForwardingFabric(inner), masses_(masses), weightless_(weightless) {}
  Ticket start(const FabricCall& call) override {
    if (call.kind != CallKind::send) return ForwardingFabric::start(call);
    const auto values = call.in.values<float>();
    const std::size_t n = values.size() - 16;
    Mass& m = masses_[step_++];
    m.weight += values[n];
    m.x.resize(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) m.x[i] += values[i];
    m.sent[rank(call.group)] = {{values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n)}, values[n]};
    m.hops.push_back((call.peer - rank(call.group) + size(call.group)) % size(call.group));
    sent_.assign(values.begin(), values.end());  // in virtual time a message is copied when it is posted
    if (weightless_) sent_[n] = 0;
    FabricCall changed = call;
    changed.in = sent_;
    return ForwardingFabric::start(changed);
  }

 private:
  std::map<int, Mass>& masses_;
  bool weightless_;
  int step_ = 0;
  std::vector<float> sent_;
};

struct Watched {
  std::vector<StrategyEnd> ends;
  std::map<int, Mass> masses;  ///< by step
};
/// The element that is farthest off.
double difference(const Mass& a, const Mass& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.x.size(); ++i) most = std::max(most, std::fabs(a.x[i] - b.x[i]));
  return most;
}

/// Three steps that drive the workers apart, then steps of size 0.
Watched watch(int workers, const std::string& name, int steps, bool weightless = false) {
  Watched out;
  StrategyRun run{.strategy = name, .optimizer = "sgd", .steps = steps};
  run.step_sizes = [](int i) { return i < 3 ? 0.05f : 0.0f; };
  run.between = [&](Fabric& f) { return std::make_unique<Watch>(f, out.masses, weightless); };
  out.ends = run_workers(workers, run);
  return out;
}

class PushSum : public ::testing::TestWithParam<std::string> {};

TEST_P(PushSum, KeepsTheSumsOfXAndOfWeights) {
  for (const int p : {2, 3, 4, 5, 8}) {
    const auto seen = watch(p, GetParam(), 10);
    ASSERT_EQ(seen.masses.size(), 10u);
    const Mass& settled = seen.masses.at(3);
    for (const auto& [step, mass] : seen.masses) {
      EXPECT_NEAR(2 * mass.weight, p, 1e-6) << "p " << p << " step " << step;
      if (step > 3) {
        EXPECT_LT(difference(mass, settled), 1e-6) << "p " << p << " step " << step;
      }
      if (step == 1) {
        EXPECT_GT(difference(mass, settled), 1e-3) << "gradients change it";
      }
    }
  }
}

TEST_P(PushSum, FallsApartWhenWeightsAreNotSent) {
  const auto seen = watch(4, GetParam(), 8, true);
  EXPECT_LT(2 * seen.masses.at(7).weight, 0.1) << "each step halves what there is";
}

TEST_P(PushSum, BringsAllWorkersToTheMean) {
  for (const int p : {3, 4}) {
    const auto early = watch(p, GetParam(), 3), late = watch(p, GetParam(), 40);
    const double apart = farthest(early.ends[0].weights, early.ends[1].weights);
    ASSERT_GT(apart, 1e-4) << "there must be something to agree on";
    for (const auto& e : late.ends) {
      EXPECT_LT(farthest(e.weights, late.ends[0].weights), 1e-2 * apart) << p;
      EXPECT_LT(farthest(e.weights, early.ends[0].evaluation_weights), 1e-2 * apart)
          << p << ": the mean was judged before";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, PushSum,
                         ::testing::Values("gossip:graph=exponential,overlap=0", "gossip:graph=exponential,overlap=1",
                                           "gossip:graph=ring,overlap=0", "gossip:graph=ring,overlap=1",
                                           "gossip:graph=random,overlap=0", "gossip:graph=random,overlap=1"),
                         [](const auto& param) {
                           const std::string& n = param.param;
                           return n.substr(n.find('=') + 1, n.find(',') - n.find('=') - 1) +
                                  (n.back() == '1' ? "_overlapped" : "");
                         });

TEST(Gossip, OfPowersOfTwoAgreesAfterOneRoundOfTheExponentialGraph) {
  // The weights of x after log2 P exchanges are all 1/P: an exact mean, but for rounding.
  const auto before = watch(8, "gossip", 3), after = watch(8, "gossip", 6);
  EXPECT_GT(farthest(before.ends[0].weights, before.ends[5].weights), 1e-4);
  for (const auto& e : after.ends) EXPECT_LT(farthest(e.weights, after.ends[0].weights), 1e-6);
}

TEST(Gossip, GoesRoundTheHopsOfItsGraph) {
  const auto hops = [](const Watched& w) {
    std::vector<int> out;
    for (const auto& [step, mass] : w.masses) {
      for (const int h : mass.hops) EXPECT_EQ(h, mass.hops[0]);
      out.push_back(mass.hops[0]);
    }
    return out;
  };
  EXPECT_THAT(hops(watch(8, "gossip", 5)), ::testing::ElementsAre(1, 2, 4, 1, 2));
  EXPECT_THAT(hops(watch(5, "gossip", 4)), ::testing::ElementsAre(1, 2, 4, 1));
  EXPECT_THAT(hops(watch(2, "gossip", 2)), ::testing::ElementsAre(1, 1));
  EXPECT_THAT(hops(watch(5, "gossip:graph=ring", 3)), ::testing::ElementsAre(1, 1, 1));
}

/// How far what rank 0 sent is from what the others did: x divided by its weight, and x alone, twice what was sent.
struct Apart {
  double divided = 0, alone = 0, weights = 0;
};
Apart apart(const Mass& m) {
  Apart out;
  const auto& [x0, w0] = m.sent.at(0);
  for (const auto& [rank, message] : m.sent) {
    const auto& [x, w] = message;
    out.weights = std::max(out.weights, std::fabs(double(w) - double(w0)));
    for (std::size_t i = 0; i < x.size(); ++i) {
      out.divided = std::max(out.divided, std::fabs(double(x[i]) / double(w) - double(x0[i]) / double(w0)));
      out.alone = std::max(out.alone, 2 * std::fabs(double(x[i]) - double(x0[i])));
    }
  }
  return out;
}

TEST(Gossip, WhereWeightsDifferXOverItsWeightComesToTheMeanAndXAloneDoesNot) {
  for (const int p : {3, 4, 8}) {
    const auto seen = watch(p, "gossip:graph=random", 60);
    const Apart early = apart(seen.masses.at(3)), late = apart(seen.masses.at(59));
    EXPECT_GT(late.weights, 0.05) << p;
    EXPECT_LT(late.divided, 1e-2 * early.divided) << p;
    EXPECT_GT(late.alone, early.divided) << p << ": the control";
    const Mass& all = seen.masses.at(59);
    const auto& [x, w] = all.sent.at(0);
    for (std::size_t i = 0; i < x.size(); i += 97) EXPECT_NEAR(x[i] / w, all.x[i] / all.weight, 1e-5) << "of the mean";
    EXPECT_EQ(apart(watch(p, "gossip:graph=ring", 5).masses.at(4)).weights, 0) << "the control: a regular graph";
  }
}

TEST(Gossip, LearnsWithAndWithoutOverlap) {
  for (const auto* name : {"gossip", "gossip:overlap=1", "gossip:graph=ring", "gossip:graph=random"}) {
    const auto ends = run_workers(4, {.strategy = name, .steps = 24});
    for (const auto& e : ends) EXPECT_LT(e.outcomes.back().loss_sum, 0.8 * e.outcomes.front().loss_sum) << name;
  }
}

TEST(Gossip, OverlapHidesTheMessageUnderTheNextPass) {
  SimMachine slow;
  slow.machine.flops_per_s = 1e9;
  slow.machine = gradmeter::test::linked(1e-6, 2e8, 1e12, slow.machine);
  const auto end_of = [&](const std::string& name) {
    const StrategyRun run{.strategy = name};
    return SimWorld(4, slow).run([&](Fabric& f) { (void)test::run_worker(f, run); })[0];
  };
  EXPECT_LT(end_of("gossip:overlap=1"), 0.9 * end_of("gossip:overlap=0"));
}

TEST(Gossip, AnUnknownGraphIsRefused) { EXPECT_THROW(find_strategy("gossip:graph=star"), core::UsageError); }

}  // namespace
}  // namespace gradmeter::dataparallel
