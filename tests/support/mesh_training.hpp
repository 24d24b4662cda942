// SPDX-License-Identifier: Apache-2.0
// A short training run of one rank of a mesh over any fabric, and of all of them in virtual time.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataparallel/fabric/simulation/world.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/strategy.hpp"
#include "model/data/sources.hpp"
#include "model/registry.hpp"
#include "support/losses.hpp"
#include "support/training.hpp"

namespace gradmeter::test {

/// Three layers: the last one is whole on every tensor rank.
inline constexpr const char* odd_mlp = "mlp:784-32-16-10";

struct MeshTraining {
  std::string mesh = "data";
  std::string model = "mlp:784-32-24-16-10";
  std::size_t accumulate = 1;
  kernels::Precision precision = kernels::Precision::fp32;
  Training training = {.batch_global = 24, .steps = 12, .own_start = false};
  bool wrong_shard = false;                    ///< every tensor rank takes the first one's part
  bool local_norms = false;                    ///< optimizers take the norms of parts for those of tensors
  std::optional<std::size_t> forgotten = {};   ///< of every pass, this one of the sums over tensor ranks
  std::optional<model::OtherStage> lost = {};  ///< what is sent there comes as zeros
};

/// With an optimizer that takes norms of whole tensors.
inline MeshTraining norm_training(const char* rule, std::string mesh, std::string_view strategy = "sync") {
  return {.mesh = std::move(mesh),
          .model = odd_mlp,
          .training = {.strategy = strategy,
                       .optimizer = rule,
                       .batch_global = 24,
                       .steps = 8,
                       .step_size = std::string(rule) == "lamb" ? 0.01f : 0.3f,
                       .own_start = false}};
}

/// Sentences for language models, else images.
inline const model::Dataset& data_of(std::string_view model) {
  static const auto digits = training_digits(), language = model::make_language("language:steps=6", {.samples = 480});
  return model.find("-lm") == std::string_view::npos ? *digits : *language;
}

inline model::ModelRequest request_of(const MeshTraining& t, const model::Part& part) {
  const model::Dataset& data = data_of(t.model);
  return {.features = data.features(),
          .classes = data.classes(),
          .labels = data.labels(),
          .precision = t.precision,
          .part = part};
}

/// The ranks of the mesh; one replica where it does not say how many.
inline int ranks_of(std::string_view mesh) {
  const auto shape = dataparallel::parse_mesh(mesh);
  return std::max(1, shape.data) * shape.replica_ranks();
}

/// What one rank saw.
struct MeshTrace {
  dataparallel::MeshPlace place = {};
  std::vector<model::Outcome> outcomes = {};       ///< by step
  std::vector<std::vector<float>> gradients = {};  ///< of the last step, by tensor
  std::vector<std::string> names = {};             ///< of the tensors
  std::vector<float> weights = {};                 ///< the evaluation weights at the end
  std::vector<double> step_times = {};             ///< [s]
  std::uint64_t bytes_sent = 0;                    ///< in the last step
  model::Outcome validation = {};
};

/// Forwards everything but one of a pass's sums, and what is lost.
class ForgetfulPeers final : public model::Peers {
 public:
  ForgetfulPeers(model::Peers& inner, std::size_t sums, const MeshTraining& t)
      : inner_(inner), sums_(sums), forgotten_(t.forgotten), lost_(t.lost) {}
  std::size_t tensor_rank() const override { return inner_.tensor_rank(); }
  std::size_t tensor_ranks() const override { return inner_.tensor_ranks(); }
  std::size_t stage() const override { return inner_.stage(); }
  std::size_t stages() const override { return inner_.stages(); }
  void sum(runtime::Buffer v) override {
    if (!forgotten_ || calls_++ % sums_ != *forgotten_) inner_.sum(v);
  }
  model::TransferPtr send(model::OtherStage n, runtime::ConstBuffer v) override {
    return inner_.send(n, n == lost_ ? runtime::ConstBuffer(inner_.memory(v.count())) : v);
  }
  model::TransferPtr receive(model::OtherStage n, runtime::Buffer v, runtime::EventPtr ready) override {
    return inner_.receive(n, v, std::move(ready));
  }
  runtime::Buffer memory(std::size_t floats) override { return inner_.memory(floats); }

 private:
  model::Peers& inner_;
  std::size_t sums_;
  std::optional<std::size_t> forgotten_;
  std::optional<model::OtherStage> lost_;
  std::size_t calls_ = 0;
};

inline MeshTrace train(dataparallel::Fabric& fabric, const MeshTraining& t) {
  const model::Dataset& data = data_of(t.model);
  kernels::set_compute_threads(1);
  std::optional<ForgetfulPeers> peers;
  const auto part_of_model = [&](const dataparallel::Mesh& mesh, model::Peers& honest) {
    const std::size_t batch = t.training.batch_global / static_cast<std::size_t>(mesh.shape().data);
    model::Part part = mesh.shape().part(mesh.place(), t.accumulate, batch);
    const std::size_t sums = model::make_model(t.model, request_of(t, part))->pass_traffic(batch).sums.size();
    part.peers = &peers.emplace(honest, sums, t);
    if (t.wrong_shard) part.tensor_rank = 0;
    return model::make_model(t.model, request_of(t, part));
  };
  const std::string optimizer(t.training.optimizer);
  dataparallel::Assembly assembly(
      fabric, {.mesh = dataparallel::parse_mesh(t.mesh),
               .model = part_of_model,
               .seed = 100,
               .optimizer = optimizer,
               .strategy = dataparallel::find_strategy(t.training.strategy),
               .strategy_options = {.bucket_bytes = t.training.bucket_bytes, .optimizer = optimizer},
               .sums_norms_over_ranks = !t.local_norms});
  const auto& mesh = assembly.mesh();
  dataparallel::Probe& probe = assembly.probe();
  dataparallel::Worker& worker = assembly.worker();
  dataparallel::Strategy& strategy = assembly.strategy();
  model::Model& model = assembly.model();
  Samples samples(fabric, data, t.training.batch_global, mesh.place().data, mesh.shape().data);
  MeshTrace trace{.place = mesh.place()};
  strategy.begin(worker);
  for (int i = 0; i < t.training.steps; ++i) {
    const auto micro = samples.batch(i);
    probe.begin_step();
    const auto outcome =
        strategy.step(worker, micro, {.step_size = t.training.step_size, .number = static_cast<std::uint64_t>(i) + 1});
    const auto& record = probe.end_step();
    trace.step_times.push_back(record.step.end - record.step.begin);
    trace.bytes_sent = decompose(record, {}).bytes_sent;
    trace.outcomes.push_back(outcome.get());
  }
  strategy.settle(worker);
  const runtime::Buffer barrier_word = fabric.memory(1);  // evaluation needs all ranks settled
  fabric.wait(fabric.all_reduce(dataparallel::everybody, barrier_word, allreduce::Op::sum, fabric.record()));
  const runtime::Buffer evaluation_weights = fabric.memory(model.element_count());
  strategy.evaluation_weights(worker, evaluation_weights);
  trace.weights = values_of(fabric, evaluation_weights);
  for (const model::Tensor& tensor : model.tensors()) {
    trace.names.push_back(tensor.name);
    trace.gradients.push_back(values_of(fabric, worker.gradients(tensor.offset, tensor.count)));
  }
  Samples held(fabric, data, 110, 0, 1);  // more than the part has memory for, and no multiple of it
  trace.validation = model.forward(worker.queue(), {evaluation_weights, runtime::empty_buffer}, held.batch(0)).get();
  strategy.end(worker);
  return trace;
}

/// Every rank's trace, on as many ranks as the mesh says.
inline std::vector<MeshTrace> run_mesh(const MeshTraining& t, const dataparallel::SimMachine& m = {}) {
  std::vector<MeshTrace> traces(static_cast<std::size_t>(ranks_of(t.mesh)));
  dataparallel::SimWorld(ranks_of(t.mesh), m).run([&](dataparallel::Fabric& f) {
    traces[static_cast<std::size_t>(f.rank())] = train(f, t);
  });
  return traces;
}

inline std::vector<double> losses_of(const std::vector<MeshTrace>& traces) {
  return mean_losses(traces, &MeshTrace::outcomes);
}

/// By all ranks, in the last step.
inline std::uint64_t bytes_sent(const std::vector<MeshTrace>& traces) {
  std::uint64_t bytes = 0;
  for (const MeshTrace& t : traces) bytes += t.bytes_sent;
  return bytes;
}

/// The forecast of one step for all ranks of a mesh together.
inline std::uint64_t forecast_of(const MeshTraining& t) {
  const dataparallel::MeshShape shape = dataparallel::parse_mesh(t.mesh).complete(ranks_of(t.mesh));
  const auto strategy =
      dataparallel::find_strategy(t.training.strategy)
          ->make({.bucket_bytes = t.training.bucket_bytes, .optimizer = std::string(t.training.optimizer)});
  std::uint64_t bytes = 0;
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    const std::size_t batch = t.training.batch_global / static_cast<std::size_t>(shape.data);
    const auto model = model::make_model(t.model, request_of(t, shape.part({.stage = stage}, t.accumulate, batch)));
    const dataparallel::ForecastInput forecast_input{.ranks = static_cast<std::uint32_t>(shape.data),
                                                     .tensors = model->tensors(),
                                                     .elements = model->element_count()};
    dataparallel::ReplicaWork work = strategy->replica_work(forecast_input);
    work.shares_norms = dataparallel::make_optimizer(t.training.optimizer, {})->needs_whole_tensors();
    bytes += strategy->predict(forecast_input).bytes * static_cast<std::uint64_t>(shape.tensor);
    bytes += dataparallel::forecast_replica(forecast_input, shape, stage, *model, batch, work).bytes *
             static_cast<std::uint64_t>(shape.data);
  }
  return bytes;
}

}  // namespace gradmeter::test
