#include "dataparallel/mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.hpp"
#include "dataparallel/simulation/world.hpp"
#include "dataparallel/strategy.hpp"
#include "support/losses.hpp"
#include "support/mesh_training.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::largest_difference;
using test::MeshTrace;
using test::MeshTraining;
using test::ranks_of;
using ::testing::HasSubstr;

constexpr const char* odd = "mlp:784-32-16-10";  // three layers: the last one is whole on every tensor rank

const model::Dataset& digits() {
  static const auto data = test::training_digits();
  return *data;
}

/// Every rank's trace, on as many ranks as the mesh says.
std::vector<MeshTrace> run(const MeshTraining& t, const SimMachine& m = {}) {
  std::vector<MeshTrace> traces(static_cast<std::size_t>(ranks_of(t.mesh)));
  SimWorld(ranks_of(t.mesh), m).run([&](Fabric& f) {
    traces[static_cast<std::size_t>(f.rank())] = test::train(f, t, digits());
  });
  return traces;
}

SimMachine machine_with(std::string_view algorithm) {
  SimMachine m;
  m.algorithm = allreduce::find_algorithm(algorithm);
  return m;
}

std::vector<double> losses(const std::vector<MeshTrace>& traces) {
  return test::mean_losses(traces, &MeshTrace::outcomes);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "no refusal";
}

TEST(MeshShape, TextsThatMeanTheSameAreWrittenInOneWay) {
  const std::map<std::string, std::string> texts{{"data", "data"},
                                                 {"data=1", "data"},
                                                 {"data=8", "data=8"},
                                                 {"tensor=2,data=4", "data=4,tensor=2"},
                                                 {"tensor=1,pipeline=2,schedule=1f1b", "pipeline=2"},
                                                 {"data,pipeline=3,schedule=gpipe", "pipeline=3,schedule=gpipe"}};
  for (const auto& [given, canonical] : texts) {
    EXPECT_EQ(parse_mesh(given).text(), canonical);
    EXPECT_EQ(parse_mesh(canonical).text(), canonical);
  }
}

TEST(MeshShape, WhatIsNoMeshIsRefused) {
  EXPECT_THAT(refusal([] { (void)parse_mesh(""); }), HasSubstr("no axis"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor"); }), HasSubstr("no axis with its ranks"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=0"); }), HasSubstr("an axis has 1 to"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2x"); }), HasSubstr("an axis has 1 to"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2,tensor=2"); }), HasSubstr("twice"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensors=2"); }), HasSubstr("did you mean"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2,"); }), HasSubstr("comma"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=2,schedule=gpipe"); }), HasSubstr("no pipeline"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("pipeline=2,schedule=zb"); }), HasSubstr("1f1b, gpipe"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("tensor=4").complete(6); }), HasSubstr("multiple of 4"));
  EXPECT_THAT(refusal([] { (void)parse_mesh("data=2,tensor=4").complete(4); }), HasSubstr("made of 8 ranks"));
}

TEST(MeshShape, TheDataAxisTakesWhatIsLeft) {
  EXPECT_EQ(parse_mesh("tensor=2,pipeline=2").complete(12).text(), "data=3,tensor=2,pipeline=2");
  EXPECT_EQ(parse_mesh("data").complete(5).text(), "data=5");
}

TEST(MeshShape, EveryRankHasOnePlaceAndTensorRanksAreNeighbours) {
  const MeshShape s = parse_mesh("data=2,tensor=3,pipeline=2").complete(12);
  std::set<std::tuple<int, int, int>> places;
  for (int r = 0; r < 12; ++r) {
    EXPECT_EQ(s.rank(s.place(r)), r);
    places.insert({s.place(r).data, s.place(r).stage, s.place(r).tensor});
  }
  EXPECT_EQ(places.size(), 12u);
  EXPECT_EQ(s.place(1), (MeshPlace{.data = 0, .stage = 0, .tensor = 1}));
  EXPECT_EQ(s.place(3), (MeshPlace{.data = 0, .stage = 1, .tensor = 0}));
  EXPECT_EQ(s.place(6), (MeshPlace{.data = 1, .stage = 0, .tensor = 0}));
}

TEST(Mesh, GroupsRunAlongTheAxes) {
  SimWorld(12, {}).run([](Fabric& f) {
    const Mesh mesh(f, parse_mesh("tensor=3,pipeline=2"));
    const MeshPlace p = mesh.place();
    EXPECT_EQ(f.size(mesh.data()), 2);
    EXPECT_EQ(f.rank(mesh.data()), p.data);
    EXPECT_EQ(f.size(mesh.tensor()), 3);
    EXPECT_EQ(f.rank(mesh.tensor()), p.tensor);
    EXPECT_EQ(f.size(mesh.pipeline()), 2);
    EXPECT_EQ(f.rank(mesh.pipeline()), p.stage);
    // The sum of all places along an axis: only its own members are in it.
    std::vector<float> v{static_cast<float>(f.rank())};
    f.wait(f.all_reduce(mesh.data(), std::span<float>(v), allreduce::Op::sum));
    EXPECT_EQ(v[0], static_cast<float>(2 * (f.rank() % 6) + 6));
  });
  EXPECT_EQ(Mesh::groups(parse_mesh("tensor=3,pipeline=2")), 3);
  EXPECT_EQ(Mesh::groups(parse_mesh("data")), 0);
}

struct Case {
  std::string mesh, model;
  std::size_t accumulate;
};
class MeshEqualsOneRank : public ::testing::TestWithParam<Case> {};

TEST_P(MeshEqualsOneRank, InTheLossOfEveryStepAndInValidation) {
  const auto& [mesh, model, accumulate] = GetParam();
  const auto one = run({.model = model});
  ASSERT_LT(losses(one).back(), 0.9 * losses(one).front()) << "the run must learn, or it shows nothing";
  const auto many = run({.mesh = mesh, .model = model, .accumulate = accumulate});
  EXPECT_LT(largest_difference(losses(many), losses(one)), 1e-5);
  const MeshShape shape = parse_mesh(mesh);
  for (const MeshTrace& t : many) {
    const bool reports = t.place.tensor == 0 && t.place.stage + 1 == shape.pipeline;
    EXPECT_EQ(t.validation.samples, reports ? 110u : 0u);
    if (!reports) continue;
    EXPECT_NEAR(t.validation.loss_sum, one[0].validation.loss_sum, 1e-3);
    EXPECT_EQ(t.validation.correct, one[0].validation.correct);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Virtual, MeshEqualsOneRank,
    ::testing::Values(Case{"tensor=2", "mlp:784-32-24-16-10", 1}, Case{"tensor=4", "mlp:784-32-24-16-10", 1},
                      Case{"tensor=2", odd, 1}, Case{"tensor=4", odd, 2}, Case{"pipeline=2", "mlp:784-32-24-16-10", 1},
                      Case{"pipeline=2", "mlp:784-32-24-16-10", 4}, Case{"pipeline=3", odd, 6},
                      Case{"pipeline=3,schedule=gpipe", odd, 4}, Case{"data=2,tensor=2", "mlp:784-32-24-16-10", 1},
                      Case{"data=3,tensor=2", odd, 1}, Case{"data=2,pipeline=2", "mlp:784-32-24-16-10", 3},
                      Case{"data=2,pipeline=3", odd, 1},
                      // Stages of one layer: their borders lie inside the pairs.
                      Case{"tensor=2,pipeline=4", "mlp:784-32-24-16-10", 2},
                      Case{"data=2,tensor=2,pipeline=2", "mlp:784-32-24-16-10", 3},
                      Case{"data=2,tensor=2,pipeline=2", "mlp:784-64-64-10", 2}),
    [](const auto& instance) {
      std::string n =
          instance.param.mesh + "_" + instance.param.model + "_k" + std::to_string(instance.param.accumulate);
      std::replace_if(
          n.begin(), n.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return n;
    });

constexpr const char* norm_rules[] = {"lars:eta=0.1", "lamb"};

MeshTraining norm_training(const char* rule, std::string mesh, std::string_view strategy = "sync") {
  return {.mesh = std::move(mesh),
          .model = odd,
          .training = {.strategy = strategy,
                       .optimizer = rule,
                       .batch_global = 24,
                       .steps = 8,
                       .step_size = std::string(rule) == "lamb" ? 0.01f : 0.3f,
                       .own_start = false}};
}

TEST(Mesh, RulesOfWholeTensorsTakeTheNormsOfAllTheirParts) {
  for (const char* rule : norm_rules) {
    const auto one = losses(run(norm_training(rule, "data")));
    ASSERT_LT(one.back(), 0.95 * one.front()) << rule << " must learn, or it shows nothing";
    for (const auto* mesh : {"tensor=2", "tensor=4", "pipeline=2", "data=2,tensor=2", "tensor=2,pipeline=3"}) {
      for (const auto* strategy : {"sync", "sharded", "gossip"}) {
        if (strategy == std::string("gossip") && mesh != std::string("tensor=2")) continue;
        EXPECT_LT(largest_difference(losses(run(norm_training(rule, mesh, strategy))), one), 1e-5)
            << rule << " " << mesh << " " << strategy;
      }
    }
    auto local = norm_training(rule, "tensor=2");
    local.local_norms = true;
    EXPECT_GT(largest_difference(losses(run(local)), one), 1e-3) << rule << ": norms of parts are others";
  }
}

TEST(Mesh, RulesOfWholeTensorsKeepEqualWhatAllTensorRanksHold) {
  for (const char* rule : norm_rules) {
    const auto traces = run(norm_training(rule, "tensor=4"));
    // The last layer, which comes first, is on all ranks: 10 x 16 weights and 10 biases, padded.
    constexpr std::size_t shared = 160 + 16;
    ASSERT_EQ(traces[0].names[1], "layer3.bias");
    for (std::size_t r = 1; r < 4; ++r) {
      EXPECT_TRUE(std::equal(traces[r].weights.begin(), traces[r].weights.begin() + shared, traces[0].weights.begin()));
      EXPECT_NE(traces[r].weights, traces[0].weights) << "the rest are shards";
    }
  }
}

/// The forecast of one step for all ranks of a mesh together.
std::uint64_t forecast_of(const MeshTraining& t) {
  const MeshShape shape = parse_mesh(t.mesh).complete(ranks_of(t.mesh));
  const auto strategy =
      find_strategy(t.training.strategy)
          ->make({.bucket_bytes = t.training.bucket_bytes, .optimizer = std::string(t.training.optimizer)});
  std::uint64_t bytes = 0;
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    const std::size_t batch = t.training.batch_global / static_cast<std::size_t>(shape.data);
    const auto model = model::make_model(
        t.model, {.features = 784, .classes = 10, .part = shape.part({.stage = stage}, t.accumulate, batch)});
    const ForecastInput forecast_input{.ranks = static_cast<std::uint32_t>(shape.data),
                                       .tensors = model->tensors(),
                                       .elements = model->element_count()};
    ReplicaWork work = strategy->replica_work(forecast_input);
    work.shares_norms = make_optimizer(t.training.optimizer, {})->needs_whole_tensors();
    bytes += strategy->predict(forecast_input).bytes * static_cast<std::uint64_t>(shape.tensor);
    bytes += forecast_replica(forecast_input, shape, stage, *model, batch, work).bytes *
             static_cast<std::uint64_t>(shape.data);
  }
  return bytes;
}

std::uint64_t sent(const std::vector<MeshTrace>& traces) {
  std::uint64_t bytes = 0;
  for (const MeshTrace& t : traces) bytes += t.bytes_sent;
  return bytes;
}

TEST(Mesh, TheForecastKnowsTheNormsThatTravel) {
  for (const auto* strategy : {"sync", "sharded", "independent", "model-averaging:every=1"}) {
    for (const auto* mesh : {"data=3", "tensor=2", "tensor=4", "data=2,tensor=2", "data=2,tensor=2,pipeline=3"}) {
      auto t = norm_training("lars:eta=0.1", mesh, strategy);
      t.training.steps = 1;
      const std::uint64_t bytes = sent(run(t));
      EXPECT_EQ(bytes, forecast_of(t)) << strategy << " " << mesh;
      t.training.optimizer = "sgd";
      const bool shares = strategy == std::string("sharded") || mesh != std::string("data=3");
      EXPECT_EQ(sent(run(t)) != bytes, shares) << strategy << " " << mesh;
    }
  }
}

TEST(Mesh, NetworksOfLayersHaveOneCurveOnAnyNumberOfRanks) {
  for (const auto* const model : {"cnn:convolutions=2,filters=4,hidden=16", "lstm:hidden=12,layers=1",
                                  "gru:hidden=10,layers=2", "rnn:hidden=12,layers=1"}) {
    const test::Training training{.batch_global = 16, .steps = 100, .own_start = false};
    const auto one = losses(run({.mesh = "data=1", .model = model, .training = training}));
    EXPECT_LT(one.back(), 0.98 * one.front()) << model;
    for (const auto* const mesh : {"data=2", "data=4"})
      EXPECT_LT(largest_difference(losses(run({.mesh = mesh, .model = model, .training = training})), one), 1e-5)
          << model << " " << mesh;
    const auto wrong =
        losses(run({.mesh = "data=2",
                    .model = model,
                    .training = {.strategy = "independent", .batch_global = 16, .steps = 100, .own_start = false}}));
    EXPECT_GT(largest_difference(wrong, one), 1e-5) << model << ": without an exchange they differ";
  }
}

TEST(Mesh, EveryStrategyOfTheTableGoesWithIt) {
  for (const StrategyInfo& info : strategies()) {
    const bool judges = info.optimizer.empty();
    test::Training training{.strategy = info.name, .batch_global = 24, .steps = 8, .own_start = false};
    if (judges) training.step_size = info.step_size;
    const auto flat = losses(run({.mesh = "data=2", .training = training}));
    // Time decides what an asynchronous worker reads, and a split model takes another time.
    const bool by_time = info.name == "ps-async" || info.name == "ps-ssp" || info.name == "easgd";
    for (const auto* mesh : {"data=2,tensor=2", "data=2,pipeline=2"}) {
      const auto split = losses(run({.mesh = mesh, .training = training}));
      EXPECT_LT(largest_difference(split, flat), by_time ? 0.2 : 1e-5) << info.name << " " << mesh;
      if (judges) continue;  // so few steps without gradients may not show
      EXPECT_LT(split.back(), split.front()) << info.name << " " << mesh;
    }
  }
}

TEST(Mesh, StrategiesWithoutGradientsSearchAsOneRankDoes) {
  for (const auto* strategy : {"es:pairs=4", "population:size=6,survivors=2,mutation=0.02"}) {
    const test::Training training{
        .strategy = strategy, .batch_global = 24, .steps = 10, .step_size = 0.002f, .own_start = false};
    const auto one = losses(run({.model = odd, .training = training}));
    EXPECT_GT(std::fabs(one.back() - one.front()), 1e-3) << strategy << " must move, or it shows nothing";
    for (const auto* mesh : {"tensor=2", "tensor=4", "pipeline=3", "tensor=2,pipeline=2"}) {
      for (const std::size_t accumulate : {1u, 2u}) {
        if (test::sanitized && accumulate > 1) continue;
        const MeshTraining t{.mesh = mesh, .model = odd, .accumulate = accumulate, .training = training};
        const auto many = run(t);
        EXPECT_LT(largest_difference(losses(many), one), 1e-5) << strategy << " " << mesh;
        EXPECT_EQ(sent(many), forecast_of(t)) << strategy << " " << mesh;
      }
    }
    const auto broken = run({.mesh = "tensor=2", .model = odd, .training = training, .wrong_shard = true});
    EXPECT_GT(largest_difference(losses(broken), one), 1e-3) << strategy << ": the wrong part must show";
  }
}

TEST(Mesh, TheForecastOfSearchesHoldsOnCopiesToo) {
  for (const auto* strategy : {"es:pairs=4", "population:size=6,survivors=2"}) {
    for (const auto* mesh : {"data=2,tensor=2", "data=2,tensor=2,pipeline=3"}) {
      const MeshTraining t{.mesh = mesh,
                           .model = odd,
                           .training = {.strategy = strategy, .batch_global = 24, .steps = 2, .own_start = false}};
      const std::uint64_t bytes = sent(run(t)), most = forecast_of(t);
      EXPECT_LE(bytes, most) << strategy << " " << mesh;
      EXPECT_TRUE(bytes == most || std::string(strategy).starts_with("population")) << strategy << " " << mesh;
    }
  }
}

TEST(Mesh, AForgottenSumShows) {
  const auto one = losses(run({}));
  for (const std::size_t forgotten : {0u, 1u, 2u}) {  // two forward, one backward
    EXPECT_GT(largest_difference(losses(run({.mesh = "tensor=2", .forgotten = forgotten})), one), 1e-2) << forgotten;
  }
}

TEST(Mesh, TheWrongShardShows) {
  const auto one = run({}), broken = run({.mesh = "tensor=2", .wrong_shard = true});
  EXPECT_GT(largest_difference(losses(broken), losses(one)), 1e-2);
}

TEST(Mesh, WhatAllTensorRanksHoldHasEqualGradientsOnThem) {
  for (const auto* algorithm : {"ring", "recursive-doubling"}) {
    const auto traces = run({.mesh = "tensor=4", .model = odd}, machine_with(algorithm));
    const std::set<std::string> shared{"layer2.bias", "layer3.weight", "layer3.bias"};
    for (std::size_t i = 0; i < traces[0].names.size(); ++i) {
      for (std::size_t r = 1; r < 4; ++r) {
        if (shared.contains(traces[0].names[i])) {
          EXPECT_EQ(traces[r].gradients[i], traces[0].gradients[i]) << traces[0].names[i];
        } else {
          EXPECT_NE(traces[r].gradients[i], traces[0].gradients[i]) << traces[0].names[i] << " is a shard";
        }
      }
    }
  }
}

TEST(Mesh, APipelineHasTheBitsOfOneRankThatAccumulates) {
  for (const std::size_t k : {1u, 4u}) {
    const auto one = run({.model = odd, .accumulate = k});
    for (const auto* mesh : {"pipeline=3", "pipeline=3,schedule=gpipe"}) {
      const auto many = run({.mesh = mesh, .model = odd, .accumulate = k});
      EXPECT_EQ(losses(many), losses(one)) << mesh;
      // Stages come in the order of layers, tensors in the other.
      std::vector<float> weights;
      for (std::size_t s = 3; s-- > 0;) weights.insert(weights.end(), many[s].weights.begin(), many[s].weights.end());
      EXPECT_EQ(weights, one[0].weights) << mesh;
    }
  }
  EXPECT_NE(run({.model = odd, .accumulate = 4})[0].weights, run({.model = odd})[0].weights)
      << "sums in another order must show";
}

TEST(Accumulation, OfKMicroBatchesEqualsKRanksToTheBit) {
  for (const int ranks : {2, 3, 4}) {
    const auto k = static_cast<std::size_t>(ranks);
    const auto mesh = "data=" + std::to_string(ranks);
    const auto one = run({.accumulate = k}), many = run({.mesh = mesh}, machine_with("direct"));
    for (const MeshTrace& t : many) EXPECT_EQ(t.weights, one[0].weights) << ranks;
    EXPECT_NE(run({.accumulate = 6})[0].weights, one[0].weights) << "another number of micro-batches must show";
  }
  EXPECT_NE(run({.mesh = "data=4"}, machine_with("recursive-doubling"))[0].weights, run({.accumulate = 4})[0].weights)
      << "another order of sums must show";
}

TEST(Mesh, EachRankSendsTheClosedForm) {
  for (const auto* text : {"tensor=2", "tensor=4", "pipeline=2", "tensor=2,pipeline=2"}) {
    const MeshTraining t{.mesh = text, .accumulate = 2};
    const MeshShape shape = parse_mesh(text).complete(ranks_of(text));
    std::map<int, std::uint64_t> sent;  // by stage
    for (const MeshTrace& trace : run(t)) sent[trace.place.stage] += trace.bytes_sent;
    for (int stage = 0; stage < shape.pipeline; ++stage) {
      const auto part = shape.part({.stage = stage}, t.accumulate, t.training.batch_global);
      const auto traffic = model::make_model(t.model, {.features = 784, .classes = 10, .part = part})
                               ->pass_traffic(t.training.batch_global);
      EXPECT_EQ(sent[stage], forecast_stage({}, shape.tensor, traffic).bytes) << text << " stage " << stage;
    }
  }
}

TEST(Mesh, APairIsSummedOnceForwardAndOnceBackwardButForTheFirst) {
  const auto model = model::make_model("mlp:784-32-24-16-10",
                                       {.features = 784, .classes = 10, .part = {.tensor_ranks = 2, .batch = 5}});
  EXPECT_EQ(model->pass_traffic(5).sums, (std::vector<std::size_t>{120, 50, 120}));
  EXPECT_EQ(model->peer_needs().largest_sum_bytes, 120u * 4);
  // Ring: 2(T-1)/T of each from every rank.
  EXPECT_EQ(forecast_stage({}, 2, model->pass_traffic(5)).bytes, 2u * (120 + 50 + 120) * 4);
}

TEST(Mesh, OneRankOfEachCopyReports) {
  const auto traces = run({.mesh = "data=2,tensor=2,pipeline=2", .accumulate = 2});
  for (const MeshTrace& t : traces) {
    const bool reports = t.place.tensor == 0 && t.place.stage == 1;
    for (const auto& o : t.outcomes) {
      EXPECT_EQ(o.samples, reports ? 12u : 0u);
      EXPECT_EQ(o.loss_sum > 0, reports);
      EXPECT_TRUE(reports || o.correct == 0);
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
