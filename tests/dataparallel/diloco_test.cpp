// SPDX-License-Identifier: Apache-2.0
// diloco against its rule, written again for numbers in fp64: fragments, overlap, and what is exchanged when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "dataparallel/fabric/fabric.hpp"
#include "support/quadratic.hpp"
#include "support/strategy_runs.hpp"

namespace gradmeter::dataparallel {
namespace {

struct DilocoRun {
  std::size_t every = 4, fragments = 1, overlap = 0;
  double mix = 0.5;
  std::string name() const {
    return "diloco:every=" + std::to_string(every) + ",fragments=" + std::to_string(fragments) +
           ",mix=" + std::to_string(mix) + ",mu=0.6,overlap=" + std::to_string(overlap) + ",step=0.8";
  }
};

constexpr std::size_t elements = 60;
constexpr std::size_t steps = 23;
constexpr float step_size = 0.1f;

/// What rank r's sample asks of element i in step t, from 1.
float target(std::size_t r, std::size_t t, std::size_t i) {
  return std::sin(static_cast<float>(7 * r + 3 * t + i)) + static_cast<float>(r);
}

/// All ranks' weights after every step, [step][rank · elements + element].
std::vector<std::vector<double>> by_the_rule(const DilocoRun& run, std::size_t ranks) {
  constexpr double mu = 0.6, step = 0.8;
  std::vector<double> x(ranks * elements), anchor(elements), v(elements), sent(ranks * elements);
  for (std::size_t i = 0; i < elements; ++i) anchor[i] = 1 + 0.01 * static_cast<double>(i % 50);  // of seed 0
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = anchor[k % elements];
  std::vector<std::vector<double>> all;
  for (std::size_t t = 1; t <= steps; ++t) {
    for (std::size_t k = 0; k < x.size(); ++k)
      x[k] -= double{step_size} * (x[k] - double{target(k / elements, t, k % elements)});
    for (std::size_t i = 0; i < elements; ++i) {
      const std::size_t fragment = i * run.fragments / elements;
      const std::size_t late =
          run.every * fragment / run.fragments;  // its blocks end so many steps before every-th ones
      if ((t + late) % run.every == 0)
        for (std::size_t r = 0; r < ranks; ++r) sent[r * elements + i] = x[r * elements + i] - anchor[i];
      if (t <= run.overlap || (t - run.overlap + late) % run.every != 0) continue;
      double mean = 0;
      for (std::size_t r = 0; r < ranks; ++r) mean += sent[r * elements + i] / static_cast<double>(ranks);
      v[i] = mu * v[i] + mean;
      anchor[i] += step * (mean + mu * v[i]);
      const double own = run.overlap > 0 ? run.mix : 0;
      for (std::size_t r = 0; r < ranks; ++r) x[r * elements + i] = own * x[r * elements + i] + (1 - own) * anchor[i];
    }
    all.push_back(x);
  }
  return all;
}

struct Watched {
  std::vector<std::vector<double>> weights;  ///< as by_the_rule
  std::vector<std::uint64_t> bytes;          ///< that rank 0 sent in each step
};

/// Does not send what it is asked to: the ranks stay alone.
class Silent final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  Ticket start(const FabricCall& call) override {
    FabricCall alone = call;
    if (call.kind == CallKind::all_reduce) alone.group = own_;
    return ForwardingFabric::start(alone);
  }
  void separate() { own_ = split(rank(everybody), 0); }

 private:
  Group own_;
};

Watched watch(const DilocoRun& run, std::size_t ranks, bool silent = false) {
  Watched out{.weights = std::vector(steps, std::vector<double>(ranks * elements)),
              .bytes = std::vector<std::uint64_t>(steps)};
  SimWorld(static_cast<int>(ranks), {}).run([&](Fabric& f) {
    Silent without(f);
    if (silent) without.separate();
    Fabric& fabric = silent ? static_cast<Fabric&>(without) : f;
    const auto r = static_cast<std::size_t>(f.rank());
    Assembly assembly(fabric, {.model = [](auto&, auto&) { return std::make_unique<test::Quadratic>(elements); },
                               .seed = r,
                               .optimizer = "sgd",
                               .strategy = find_strategy(run.name()),
                               .strategy_options = {.optimizer = "sgd"}});
    assembly.strategy().begin(assembly.worker());
    for (std::size_t t = 1; t <= steps; ++t) {
      std::vector<float> targets(elements);
      for (std::size_t i = 0; i < elements; ++i) targets[i] = target(r, t, i);
      const std::vector<std::int32_t> labels(1);
      assembly.probe().begin_step();
      assembly.strategy().step(assembly.worker(),
                               {.inputs = std::span<const float>(targets), .labels = std::span(labels)},
                               {.step_size = step_size, .number = t});
      const auto record = assembly.probe().end_step();
      const auto weights = test::values_of(fabric, assembly.buffers().parameters);
      std::copy(weights.begin(), weights.end(), out.weights[t - 1].begin() + static_cast<std::ptrdiff_t>(r * elements));
      if (r == 0) {
        for (const auto& call : record.calls) out.bytes[t - 1] += call.completion.bytes_sent;
      }
    }
    assembly.strategy().end(assembly.worker());
  });
  return out;
}

double farthest_apart(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double most = 0;
  for (std::size_t t = 0; t < a.size(); ++t)
    for (std::size_t k = 0; k < a[t].size(); ++k) most = std::max(most, std::fabs(a[t][k] - b[t][k]));
  return most;
}

const DilocoRun runs[] = {{},
                          {.every = 1},
                          {.every = 4, .overlap = 1},
                          {.every = 4, .overlap = 3, .mix = 0},
                          {.every = 4, .overlap = 2, .mix = 0.75},
                          {.every = 6, .fragments = 3},
                          {.every = 6, .fragments = 4, .overlap = 4},
                          {.every = 2, .fragments = 5, .overlap = 1}};

TEST(Diloco, FollowsItsRuleInEveryStepWithEachKindOfOverlapAndFragments) {
  for (const DilocoRun& run : runs) {
    for (const std::size_t ranks : {1u, 2u, 3u})
      EXPECT_LT(farthest_apart(watch(run, ranks).weights, by_the_rule(run, ranks)), 2e-5) << run.name() << " " << ranks;
  }
}

TEST(Diloco, AChangeThatIsNotExchangedAnotherMixAndAnotherOverlapShow) {
  for (const DilocoRun& run : runs)
    EXPECT_GT(farthest_apart(watch(run, 3, true).weights, by_the_rule(run, 3)), 0.1) << run.name();
  const DilocoRun run{.every = 4, .overlap = 1};
  EXPECT_GT(farthest_apart(watch(run, 3).weights, by_the_rule({.every = 4, .overlap = 2}, 3)), 1e-2);
  EXPECT_GT(farthest_apart(watch(run, 3).weights, by_the_rule({.every = 4, .overlap = 1, .mix = 0.25}, 3)), 1e-2);
  EXPECT_GT(farthest_apart(watch({.fragments = 2}, 3).weights, by_the_rule({.fragments = 4}, 3)), 1e-2);
}

TEST(Diloco, FragmentsDivideTheMostThatAStepSends) {
  const auto most = [](std::size_t fragments) {
    const auto bytes = watch({.every = 6, .fragments = fragments}, 2).bytes;
    return *std::max_element(bytes.begin(), bytes.end());
  };
  EXPECT_EQ(most(1), elements * sizeof(float));
  for (const std::size_t fragments : {2u, 3u, 6u}) EXPECT_EQ(most(fragments), most(1) / fragments);
}

TEST(Diloco, CodecsThatCannotEncodeItsChangesAreRefused) {
  const auto refusal = [](std::string_view name, std::string_view codec) {
    const auto strategy = find_strategy(name)->make({.codec = compression::find_codec(codec)});
    return strategy->refusal(*make_optimizer("sgd", {.elements = 1}), 2);
  };
  EXPECT_THAT(refusal("diloco", "dgc"), ::testing::HasSubstr("topk"));
  EXPECT_THAT(refusal("diloco:fragments=2", "powersgd"), ::testing::HasSubstr("fragments=1"));
  for (const auto* codec : {"none", "qsgd4", "topk", "powersgd"}) EXPECT_EQ(refusal("diloco", codec), "") << codec;
  EXPECT_EQ(refusal("diloco:fragments=2", "topk"), "");
}

TEST(Diloco, AnOverlapThatDoesNotEndBeforeTheNextBlockIsRefused) {
  for (const auto* name :
       {"diloco:every=4,overlap=4", "diloco:every=1,overlap=1", "diloco:mix=1", "diloco:fragments=0"})
    EXPECT_THROW(find_strategy(name), core::UsageError) << name;
  EXPECT_NO_THROW(find_strategy("diloco:every=4,overlap=3"));
}

}  // namespace
}  // namespace gradmeter::dataparallel
