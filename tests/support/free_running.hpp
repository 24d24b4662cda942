// SPDX-License-Identifier: Apache-2.0
// Training in virtual time in which every worker takes the next mini-batch when it is free, so that a slow one takes
// fewer. Evaluation meanwhile stops nobody and takes no virtual time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "dataparallel/assembly.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "kernels/host/threads.hpp"
#include "model/data/dataset.hpp"
#include "model/registry.hpp"
#include "support/held_weights.hpp"

namespace gradmeter::test {

/// A model on a data set, from the flat buffer of its weights. Cost: a copy of all samples.
class Evaluator {
 public:
  Evaluator(const std::string& model, const model::Dataset& data)
      : model_(model::make_model(model, {.features = data.features(), .classes = data.classes()})),
        inputs_(data.size() * data.features()),
        labels_(data.size()) {
    std::vector<std::uint64_t> all(data.size());
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    model::gather(data, all, inputs_, labels_);
  }
  std::size_t elements() const { return model_->element_count(); }
  /// The share of samples whose label is found.
  double accuracy(std::vector<float>& weights) {
    constexpr std::size_t at_once = 1000;
    const std::size_t features = inputs_.size() / labels_.size();
    std::size_t correct = 0;
    for (std::size_t first = 0; first < labels_.size(); first += at_once) {
      const std::size_t n = std::min(at_once, labels_.size() - first);
      const model::Batch batch{std::span(inputs_).subspan(first * features, n * features),
                               std::span(labels_).subspan(first, n)};
      correct +=
          model_->forward(queue_, {.parameters = weights, .gradients = runtime::empty_buffer}, batch).get().correct;
    }
    return static_cast<double>(correct) / static_cast<double>(labels_.size());
  }

 private:
  runtime::HostQueue queue_;
  std::unique_ptr<model::Model> model_;
  std::vector<float> inputs_;
  std::vector<std::int32_t> labels_;
};

struct FreeRun {
  dataparallel::StrategyPtr strategy;
  std::string model = "mlp:784-64-10", optimizer = "sgd";
  int ranks = 8;  ///< with those that only serve
  dataparallel::SimMachine machine = {};
  std::size_t batch = 16;  ///< of a worker
  float step_size = 0.1f;
  std::uint64_t seed = 1;  ///< of weights and order
  /// Of all workers' samples: after how many it ends, and how often it is evaluated. Whole numbers of mini-batches.
  std::size_t samples = 16384, evaluate_every = 512;
  double target = 2;  ///< accuracy at which it ends; above 1: never
};

/// A run at an evaluation.
struct Moment {
  double seconds = 0, accuracy = 0;
  std::size_t samples = 0;                           ///< whose steps have ended
  std::vector<std::size_t> steps = {};               ///< that have ended, by rank
  std::vector<dataparallel::Observations> observed;  ///< by rank

  /// Updates between a read and the update made from it; NaN where nobody counted any.
  double mean_staleness() const {
    double sum = 0, updates = 0;
    for (const auto& o : observed) {
      for (std::size_t k = 0; k < o.staleness.size(); ++k) {
        sum += static_cast<double>(k) * static_cast<double>(o.staleness[k]);
        updates += static_cast<double>(o.staleness[k]);
      }
    }
    return sum / updates;
  }
};

class FreeTraining {
 public:
  /// What is passed by reference must outlive it.
  FreeTraining(const FreeRun& run, const model::Dataset& data, Evaluator& evaluator)
      : run_(run),
        data_(data),
        evaluator_(evaluator),
        sampler_(data.size(), run.batch, run.seed),
        assemblies_(static_cast<std::size_t>(run.ranks)) {
    if (run.batch == 0 || run.samples % run.evaluate_every != 0 || run.evaluate_every % run.batch != 0)
      throw core::UsageError("samples must be a multiple of those between evaluations, and these of the mini-batch");
    moment_.steps.resize(assemblies_.size());
    moment_.observed.resize(assemblies_.size());
  }

  /// At the last evaluation: the first at which it has the target, or after all samples. Once.
  /// Errors: UsageError where the strategy cannot be used so, or its evaluation weights are not known meanwhile.
  Moment train() {
    try {
      dataparallel::SimWorld(run_.ranks, run_.machine).run([this](dataparallel::Fabric& f) { work(f); });
    } catch (const Ended&) {
    }
    return moment_;
  }

 private:
  /// Ends all workers where they are: some wait for steps of others that nobody needs any more.
  struct Ended {};

  void work(dataparallel::Fabric& fabric) {
    kernels::set_compute_threads(1);
    dataparallel::Assembly assembly(
        fabric, {.model =
                     [&](auto&, auto&) {
                       return model::make_model(run_.model, {.features = data_.features(), .classes = data_.classes()});
                     },
                 .seed = run_.seed,
                 .optimizer = run_.optimizer,
                 .strategy = run_.strategy,
                 .strategy_options = {.optimizer = run_.optimizer, .seed = run_.seed}});
    assemblies_[static_cast<std::size_t>(fabric.rank())] = &assembly;
    dataparallel::Strategy& strategy = assembly.strategy();
    dataparallel::Worker& worker = assembly.worker();
    const auto optimizer = dataparallel::make_optimizer(run_.optimizer, {});
    if (const std::string why = strategy.refusal(*optimizer, run_.ranks); !why.empty()) throw core::UsageError(why);
    strategy.begin(worker);
    if (fabric.rank() >= strategy.workers(run_.ranks)) return strategy.end(worker);  // it only serves
    train(assembly, fabric);
  }

  void train(dataparallel::Assembly& assembly, dataparallel::Fabric& fabric) {
    std::vector<std::uint64_t> indices(run_.batch);
    std::vector<float> inputs(run_.batch * data_.features());
    std::vector<std::int32_t> labels(run_.batch);
    for (std::uint64_t step = 1;; ++step) {
      sampler_.indices(begun_++, 0, indices);
      model::gather(data_, indices, inputs, labels);
      assembly.probe().begin_step();
      assembly.strategy().step(assembly.worker(), {inputs, labels}, {.step_size = run_.step_size, .number = step});
      assembly.probe().end_step();
      end_step(fabric);
    }
  }

  void end_step(const dataparallel::Fabric& fabric) {
    if (ended_) throw Ended();
    ++moment_.steps[static_cast<std::size_t>(fabric.rank())];
    moment_.samples += run_.batch;
    if (moment_.samples % run_.evaluate_every != 0) return;
    moment_.seconds = fabric.now();
    evaluate();
    ended_ = moment_.accuracy >= run_.target || moment_.samples >= run_.samples;
    if (ended_) throw Ended();
  }

  void evaluate() {
    std::vector<std::vector<dataparallel::WeightsInPlace>> held;
    for (std::size_t r = 0; r < assemblies_.size(); ++r) {
      held.push_back(assemblies_[r]->strategy().held_weights(assemblies_[r]->worker()));
      moment_.observed[r] = assemblies_[r]->strategy().observed();
    }
    std::vector<float> weights = mean_of_held(held, evaluator_.elements());
    if (weights.empty())
      throw core::UsageError("of " + run_.strategy->name + " evaluation weights are known by communication alone");
    moment_.accuracy = evaluator_.accuracy(weights);
  }

  const FreeRun run_;
  const model::Dataset& data_;
  Evaluator& evaluator_;
  const model::Sampler sampler_;
  std::vector<dataparallel::Assembly*> assemblies_;  ///< by rank
  std::size_t begun_ = 0;                            ///< mini-batches
  bool ended_ = false;
  Moment moment_;
};

}  // namespace gradmeter::test
