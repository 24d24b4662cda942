// A short training run of one rank of a mesh over any fabric.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/registry.hpp"
#include "support/training.hpp"

namespace gradmeter::test {

struct MeshTraining {
  std::string mesh = "data";
  std::string model = "mlp:784-32-24-16-10";
  std::size_t accumulate = 1;
  Training training = {.batch_global = 24, .steps = 12, .own_start = false};
  bool wrong_shard = false;                   ///< every tensor rank takes the first one's part
  bool local_norms = false;                   ///< optimizers take the norms of parts for those of tensors
  std::optional<std::size_t> forgotten = {};  ///< of every pass, this one of the sums over tensor ranks
};

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

/// Forwards everything but one of a pass's sums.
class ForgetfulPeers final : public model::Peers {
 public:
  ForgetfulPeers(model::Peers& inner, std::size_t sums, std::optional<std::size_t> forgotten)
      : inner_(inner), sums_(sums), forgotten_(forgotten) {}
  std::size_t tensor_rank() const override { return inner_.tensor_rank(); }
  std::size_t tensor_ranks() const override { return inner_.tensor_ranks(); }
  std::size_t stage() const override { return inner_.stage(); }
  std::size_t stages() const override { return inner_.stages(); }
  void sum(runtime::Buffer v) override {
    if (!forgotten_ || calls_++ % sums_ != *forgotten_) inner_.sum(v);
  }
  model::TransferPtr send(model::Neighbour n, runtime::ConstBuffer v) override { return inner_.send(n, v); }
  model::TransferPtr receive(model::Neighbour n, runtime::Buffer v, runtime::EventPtr ready) override {
    return inner_.receive(n, v, std::move(ready));
  }
  runtime::Buffer memory(std::size_t floats) override { return inner_.memory(floats); }

 private:
  model::Peers& inner_;
  std::size_t sums_;
  std::optional<std::size_t> forgotten_;
  std::size_t calls_ = 0;
};

inline MeshTrace train(dataparallel::Fabric& fabric, const MeshTraining& t, const model::Dataset& data) {
  kernels::set_compute_threads(1);
  std::optional<ForgetfulPeers> peers;
  const auto part_of_model = [&](const dataparallel::Mesh& mesh, model::Peers& honest) {
    const std::size_t batch = t.training.batch_global / static_cast<std::size_t>(mesh.shape().data);
    model::Part part = mesh.shape().part(mesh.place(), t.accumulate, batch);
    const std::size_t sums =
        model::make_model(t.model, {.features = 784, .classes = 10, .part = part})->pass_traffic(batch).sums.size();
    part.peers = &peers.emplace(honest, sums, t.forgotten);
    if (t.wrong_shard) part.tensor_rank = 0;
    return model::make_model(t.model, {.features = 784, .classes = 10, .part = part});
  };
  const std::string optimizer(t.training.optimizer);
  dataparallel::Assembly assembly(
      fabric, {.mesh = dataparallel::parse_mesh(t.mesh),
               .model = part_of_model,
               .seed = 100,
               .optimizer = optimizer,
               .strategy = dataparallel::find_strategy(t.training.strategy),
               .strategy_options = {.bucket_bytes = t.training.bucket_bytes, .optimizer = optimizer},
               .combines_norms = !t.local_norms});
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
        strategy.step(worker, micro, {.size = t.training.step_size, .number = static_cast<std::uint64_t>(i) + 1});
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
  trace.validation = model.forward(worker.queue(), {evaluation_weights, runtime::no_floats}, held.batch(0)).get();
  strategy.end(worker);
  return trace;
}

}  // namespace gradmeter::test
