// SPDX-License-Identifier: Apache-2.0
// A layer table as a model: its operations are those of its rows, their gradients are right, and become ready in order.
#include "model/table/table_network.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/op.hpp"
#include "model/network/inference.hpp"
#include "model/registry.hpp"
#include "model/table/table_layers.hpp"
#include "support/deferred.hpp"

namespace gradmeter::model {
namespace {

using kernels::Precision;
using testing::HasSubstr;
using Floats = kernels::AlignedVector<float>;

constexpr const char* head =
    "layer,kind,shape,params,forward_flops_per_sample,input,stride,padding,groups,steps,heads\n";
/// Sizes agree from layer to layer: each reads what the one before wrote.
constexpr const char* chain =
    "c1,conv,16x3x3x3,432,55296,3x8x8,1,1,,,\n"
    "c1b,bias,16,16,0,,,,,,\n"
    "c2,conv,32x16x3x3,4608,147456,16x8x8,2,1,,,\n"
    "f1,linear,24x512,12288,24576,512,,,,,\n"
    "f2,linear,10x24,240,480,24,,,,,\n";
/// One of each kind.
constexpr const char* all_kinds =
    "e,embedding,40x24,960,0,,,,,6,\n"
    "l.ih,lstm,64x24,1536,18432,24,,,,6,\n"
    "l.hh,lstm,64x16,1024,12288,,,,,6,\n"
    "l.b1,bias,64,64,0,,,,,,\n"
    "l.b2,bias,64,64,0,,,,,,\n"
    "g,gru,32x48,1536,18432,16,,,,6,\n"
    "g.b,bias,48,48,0,,,,,,\n"
    "norm,norm,16,16,0,,,,,,\n"
    "q,linear,24x16,384,4608,16,,,,6,\n"
    "a,attention_matmul,-,0,3456,24,,,,6,4\n"
    "conv1d,conv1d,3x24x8,576,6912,24x6,1,1,,,\n"
    "v,vector,8,8,96,,,,,6,\n"
    "top(tied e),linear_tied,40x24,0,11520,24,,,,6,\n"
    "top.b,bias,40,40,0,,,,,,\n";
/// A recurrent layer whose matrix has both weights, with a bias that its operation writes and one that nothing writes.
constexpr const char* fused_with_two_biases =
    "l,lstm,32x96,3072,30720,8,,,,5,\n"
    "b1,bias,96,96,0,,,,,,\n"
    "b2,bias,96,96,0,,,,,,\n";

LayerTable table(const std::string& rows) { return parse_layer_table(head + rows, "t.csv"); }

TableNetworkOptions options(Precision p = Precision::fp32, std::uint64_t worker = 0) {
  return {.name = "t", .features = 5, .classes = 3, .precision = p, .worker = worker};
}

/// A model with its buffers.
struct Trial {
  explicit Trial(const std::string& rows, const TableNetworkOptions& o = options(), std::size_t samples = 2)
      : network(make_table_network(table(rows), o)),
        model(*network),
        parameters(model.element_count()),
        gradients(model.element_count()),
        inputs(5 * samples),
        labels(samples) {
    kernels::set_compute_threads(1);
    model.initialise(queue, buffers(), 1);
  }
  Buffers buffers() { return {parameters, gradients}; }
  Outcome pass(Queue& on) {
    ready.clear();
    return model.pass(on, buffers(), {inputs, labels}, [&](std::size_t t) { ready.push_back(t); }).get();
  }
  const Tensor& tensor(std::string_view name) const { return *std::ranges::find(model.tensors(), name, &Tensor::name); }
  std::span<float> weight(std::string_view name) {
    return std::span(parameters).subspan(tensor(name).offset, tensor(name).count);
  }
  std::span<float> gradient(std::string_view name) {
    return std::span(gradients).subspan(tensor(name).offset, tensor(name).count);
  }
  /// What the sum of outputs, weighted with the gradient from above, is: the same by each weight of a linear chain.
  double sum_of_outputs(std::string_view name) {
    const auto w = weight(name), g = gradient(name);
    return std::inner_product(w.begin(), w.end(), g.begin(), 0.0);
  }

  std::unique_ptr<Network> network;
  Network& model;
  Floats parameters, gradients;
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  std::vector<std::size_t> ready;
  runtime::HostQueue queue;
};

constexpr std::array precisions{Precision::fp32, Precision::bf16};

TEST(TableNetwork, GradientsOfAChainOfLinearLayersAgreeWithEachOther) {
  for (const Precision p : precisions) {
    Trial run(chain, options(p));
    for (int pass = 0; pass < 3; ++pass) {
      run.pass(run.queue);
      const double top = run.sum_of_outputs("f2");
      EXPECT_NE(top, 0);
      // In bf16 each layer rounds what it writes: the sum of 20 outputs is off by some units.
      const double size = p == Precision::fp32 ? 1e-4 : 0.1;
      for (const auto* const name : {"c1", "c2", "f1"})
        EXPECT_NEAR(run.sum_of_outputs(name), top, size * std::fabs(top)) << name << kernels::name(p);
    }
  }
}

TEST(TableNetwork, ALayersGradientGrowsWithTheWeightsOfTheOthers) {
  Trial once(chain), twice(chain);
  for (const auto* const name : {"c1", "f2"})
    for (float& w : twice.weight(name)) w *= 2;
  once.pass(once.queue), twice.pass(twice.queue);
  for (std::size_t i = 0; i < once.gradient("c2").size(); ++i)
    EXPECT_NEAR(twice.gradient("c2")[i], 4 * once.gradient("c2")[i], 1e-5 * std::fabs(once.gradient("c2")[i]) + 1e-10);
}

TEST(TableNetwork, AnnouncesEachTensorOnceInOrderWithAGradientOfItsOwn) {
  for (const Precision p : precisions) {
    for (const char* const rows : {chain, all_kinds, fused_with_two_biases}) {
      Trial run(rows, options(p), 3);
      const Outcome outcome = run.pass(run.queue);
      EXPECT_EQ(outcome.labels, 3U);
      ASSERT_EQ(run.ready.size(), run.model.tensors().size());
      for (std::size_t t = 0; t < run.ready.size(); ++t) {
        EXPECT_EQ(run.ready[t], t);
        const Tensor& tensor = run.model.tensors()[t];
        const auto g = run.gradient(tensor.name);
        EXPECT_TRUE(std::ranges::all_of(g, [](float x) { return std::isfinite(x); })) << tensor.name;
        EXPECT_TRUE(std::ranges::any_of(g, [](float x) { return x != 0; })) << tensor.name;
      }
    }
  }
}

/// Counts the operations that are asked of it.
struct Counter final : Queue {
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    if (cost.flops > 0) ++counts[cost.flops];
    EXPECT_TRUE(label.starts_with("forward.") || label.starts_with("backward.")) << label;
    work();
  }
  std::map<double, std::size_t> counts;
};

TEST(TableNetwork, NamesTheOperationsThatItRuns) {
  for (const char* const rows : {chain, all_kinds}) {
    Trial run(rows);
    Counter counter;
    run.pass(counter);
    std::map<double, std::size_t> named;
    double flops = 0;
    for (const RepeatedProblem& p : run.model.pass_problems(2)) {
      named[kernels::run_flops(p.problem)] += p.times;
      flops += static_cast<double>(p.times) * kernels::run_flops(p.problem);
    }
    EXPECT_EQ(counter.counts, named);
    EXPECT_EQ(run.model.step_flops(2), flops);
  }
}

TEST(TableNetwork, AShippedTablesOperationsHaveItsFlopsAlsoWhenItIsShrunk) {
  for (const std::string_view name : shipped_layer_tables()) {
    for (const std::size_t shrink : {1U, 2U}) {
      LayerTable t = shipped_layer_table(name);
      if (shrink > 1) t = shrunk(t, shrink);
      const auto model = make_table_network(t, options());
      double flops = 0;
      for (const RepeatedProblem& p : model->forward_problems(2))
        flops += static_cast<double>(p.times) * kernels::full_flops(p.problem);
      EXPECT_NEAR(flops, 2 * t.forward_flops(), 1e-9 * flops) << name << " " << shrink;
      std::size_t sent = 0;
      for (const Tensor& tensor : model->tensors()) sent += tensor.count;
      EXPECT_EQ(sent, t.parameters()) << name;
      EXPECT_EQ(model->note(), "") << name;
      EXPECT_GT(model->step_flops(1), 2 * t.forward_flops()) << name;
    }
  }
}

TEST(TableNetwork, WorkersHaveDataOfTheirOwn) {
  Trial first(chain), again(chain), other(chain, options(Precision::fp32, 1));
  for (Trial* run : {&first, &again, &other}) run->pass(run->queue);
  EXPECT_TRUE(first.gradients == again.gradients);
  EXPECT_TRUE(first.parameters == other.parameters) << "replicas start alike";
  for (const Tensor& t : first.model.tensors())
    EXPECT_FALSE(std::ranges::equal(first.gradient(t.name), other.gradient(t.name))) << t.name;
}

TEST(TableNetwork, WeightsStayWhereTheyAreHoweverLongItRuns) {
  Trial run(chain);
  const Floats before = run.parameters;
  for (int step = 0; step < 400; ++step) {
    run.pass(run.queue);
    for (std::size_t i = 0; i < run.parameters.size(); ++i) run.parameters[i] -= 0.05F * run.gradients[i];
  }
  double moved = 0, size = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    moved += std::pow(run.parameters[i] - before[i], 2);
    size += std::pow(before[i], 2);
  }
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 1e-4 * size);
}

TEST(TableNetwork, ATiedProductAddsToTheEmbeddingsGradient) {
  Trial run(all_kinds);
  run.pass(run.queue);
  const auto g = run.gradient("e");
  // 12 of 40 rows at most are looked up; the product gives a gradient to all.
  EXPECT_TRUE(std::ranges::all_of(g, [](float x) { return x != 0; }));
  Trial alone("e,embedding,40x24,960,0,,,,,6,\nf,linear,24x24,576,6912,24,,,,6,\n");
  alone.pass(alone.queue);
  const auto only_looked_up = alone.gradient("e");
  std::size_t rows = 0;
  for (std::size_t row = 0; row < 40; ++row)
    rows += std::ranges::any_of(only_looked_up.subspan(row * 24, 24), [](float x) { return x != 0; }) ? 1 : 0;
  EXPECT_GT(rows, 0U);
  EXPECT_LE(rows, 12U);
}

/// The embedding that a product shares need not be the first layer, nor the only one of its size.
TEST(TableNetwork, ATiedProductHasTheWeightOfItsEmbedding) {
  Trial run(
      "before,linear,40x24,960,1920,24,,,,1,\n"
      "word,embedding,40x24,960,0,,,,,6,\n"
      "f,linear,24x24,576,6912,24,,,,6,\n"
      "top(tied word),linear_tied,40x24,0,11520,24,,,,6,\n");
  std::vector<double> sizes;
  for (int pass = 0; pass < 20; ++pass) {
    run.pass(run.queue);
    double size = 0;
    for (const float x : run.gradient("word")) size += std::fabs(x);
    sizes.push_back(size);
  }
  EXPECT_GT(sizes.front(), 0);
  EXPECT_LT(sizes.back(), 3 * sizes.front()) << "gradients of passes must not add up";
  EXPECT_TRUE(std::ranges::all_of(run.gradient("word"), [](float x) { return x != 0; })) << "the product gives to all";
}

TEST(TableNetwork, TakesSentencesTooSinceItReadsNoData) {
  Trial run(chain);
  run.labels.resize(2 * 7);
  const Outcome outcome =
      run.model.pass(run.queue, run.buffers(), {run.inputs, run.labels, 7}, [](std::size_t) {}).get();
  EXPECT_EQ(outcome.labels, 2U);
}

TEST(TableNetwork, RunsOnADeviceThatWorksLaterWithTheHostsBits) {
  for (const char* const rows : {chain, all_kinds}) {
    Trial host(rows);
    for (int pass = 0; pass < 3; ++pass) host.pass(host.queue);
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      test::DeferredDevice device;
      test::DeferredQueue queue(device, {.seed = seed});
      Trial run(rows);
      const auto parameters = device.allocate(core::Element::f32, run.parameters.size()),
                 gradients = device.allocate(core::Element::f32, run.parameters.size());
      queue.run_and_wait([&] { std::ranges::copy(run.parameters, parameters.buffer.values<float>().begin()); });
      for (int pass = 0; pass < 3; ++pass)
        (void)run.model.pass(queue, {parameters.buffer, gradients.buffer}, {run.inputs, run.labels}, [](std::size_t) {})
            .get();
      queue.run_and_wait([&] { std::ranges::copy(gradients.buffer.values<float>(), run.gradients.begin()); });
      EXPECT_TRUE(run.gradients == host.gradients) << "seed " << seed;
    }
  }
}

/// Weights are packed from memory that goes.
TEST(ForwardOperations, ArePackedOnADeviceThatWorksLater) {
  test::DeferredDevice device;
  test::DeferredQueue queue(device, {});
  const RepeatedProblem packed{.problem = {.shape = kernels::GemmShape{.m = 9, .n = 8, .k = 16, .packed = true}},
                               .times = 2};
  ForwardOperations all({&packed, 1}, queue, 3);
  all.run(queue);
  EXPECT_NO_THROW(queue.synchronise());
}

std::string refusal_of_table(const std::string& rows, Precision p = Precision::fp32, std::size_t shrink = 1) {
  try {
    const LayerTable t = table(rows);
    (void)make_table_network(shrink > 1 ? shrunk(t, shrink) : t, options(p));
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(TableNetwork, RefusesWhatItCannotRunInOneLine) {
  EXPECT_EQ(refusal_of_table(chain), "accepted");
  EXPECT_THAT(refusal_of_table(chain, Precision::int8), HasSubstr("run in fp32 and bf16, not in int8"));
  EXPECT_THAT(refusal_of_table("w,lstm,64x24,1536,18432,24,,,,6,\nb,bias,64,64,0,,,,,,\n"),
              HasSubstr("t.csv:2: w is not followed"));
  EXPECT_THAT(refusal_of_table("a,linear,24x24,576,1152,24,,,,,\nt,linear_tied,40x24,0,1920,24,,,,,\n"),
              HasSubstr("no embedding of its shape above"));
  EXPECT_THAT(refusal_of_table(all_kinds, Precision::fp32, 3), HasSubstr("that 3 does not divide"));
  EXPECT_THAT(refusal_of_table("i,lstm,256x64,16384,163840,,,,,5,\nh,lstm,256x64,16384,163840,,,,,5,\n"),
              HasSubstr("i has no input"));
}

TEST(TableNetwork, AFusedRecurrentRowShrinksByItsInputAndItsState) {
  const LayerTable t = table("l,lstm,32x96,3072,30720,8,,,,5,\nb,bias,96,96,0,,,,,,\n");
  const LayerTable half = shrunk(t, 2);  // 8 inputs are too few to shrink; 24 of the state become 12
  EXPECT_THAT(half.rows.at(0).shape, ElementsAre(20, 48));
  EXPECT_THAT(half.rows.at(0).input, ElementsAre(8));
  EXPECT_EQ(half.rows.at(0).parameters, 960U);
  EXPECT_EQ(half.rows.at(1).parameters, 48U);
  EXPECT_NO_THROW((void)make_table_network(half, options()));
  EXPECT_THROW((void)shrunk(t, 5), core::UsageError);
}

TEST(TableNetwork, ARowWithoutGeometryRunsAsTheProductThatItsShapeImplies) {
  const LayerTable t =
      parse_layer_table("layer,kind,shape,params,forward_flops_per_sample\nc,conv,8x4x3x3,288,14400\n", "t.csv");
  const auto model = make_table_network(t, options());
  EXPECT_THAT(model->note(), HasSubstr("1 of 1 layers run as the product that their shape implies"));
  const auto forward = model->forward_problems(2);
  ASSERT_EQ(forward.size(), 1U);
  const auto& s = std::get<kernels::GemmShape>(forward.front().problem.shape);
  EXPECT_EQ(s.m, 50U);  // 25 rows a sample
  EXPECT_EQ(s.n, 8U);
  EXPECT_EQ(s.k, 36U);
}

TEST(ModelRegistry, KnowsTheTablesByNameAndByFile) {
  const ModelRequest r{.features = 784, .classes = 10};
  EXPECT_EQ(make_model("resnet50", r)->name(), "resnet50");
  EXPECT_EQ(make_model("resnet50:shrink=4", r)->name(), "resnet50:shrink=4");
  EXPECT_FALSE(make_model("ptb_lstm_small", r)->learns());
  EXPECT_THROW((void)make_model("resnet50:shrink=0", r), core::UsageError);
  EXPECT_THROW((void)make_model("resnet50:widths=4", r), core::UsageError);
  EXPECT_THROW((void)make_model("nowhere/table.csv", r), core::UsageError);
  EXPECT_THROW(
      (void)make_model("resnet50", {.features = 784, .classes = 10, .part = {.tensor_ranks = 2, .largest_batch = 4}}),
      core::UsageError);
}

}  // namespace
}  // namespace gradmeter::model
