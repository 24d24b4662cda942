// SPDX-License-Identifier: Apache-2.0
#include "support/training_runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <deque>

#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/fabric/decorators/verifier.hpp"
#include "model/data/sources.hpp"
#include "model/registry.hpp"
#include "runtime/threads/thread_group.hpp"
#include "support/overflowing.hpp"
#include "support/training.hpp"

namespace gradmeter::test {

using namespace dataparallel;  // NOLINT(google-build-using-namespace): all of it is about strategies

namespace {

constexpr int steps = 3;
constexpr std::size_t batch_per_replica = 8;

const model::Dataset& data_of(const RunCase& c) {
  static const std::shared_ptr<const model::Dataset> digits = training_digits(),
                                                     language =
                                                         model::make_language("language:steps=6", {.samples = 480});
  return c.model.find("-lm") == std::string::npos ? *digits : *language;
}

std::vector<model::Batch> batches_of(Fabric& f, const Mesh& mesh, const model::Dataset& data,
                                     std::deque<Samples>& memory) {
  std::vector<model::Batch> batches;
  for (int i = 0; i < steps; ++i) {
    const auto replicas = static_cast<std::size_t>(mesh.shape().data);
    batches.push_back(
        memory.emplace_back(f, data, batch_per_replica * replicas, mesh.place().data, mesh.shape().data).batch(i));
  }
  return batches;
}

std::unique_ptr<model::Model> make(const RunCase& c, const model::Dataset& data, const Mesh& mesh, model::Peers& peers,
                                   int rank) {
  auto m = model::make_model(c.model, {.features = data.features(),
                                       .classes = data.classes(),
                                       .labels = data.labels(),
                                       .precision = c.precision,
                                       .loss_precision = c.precision,
                                       .part = mesh.shape().part(mesh.place(), 2, batch_per_replica, &peers)});
  if (c.overflowing_rank != rank) return m;
  return std::make_unique<Overflowing>(std::move(m), 1);
}

}  // namespace

RunEnd run(Fabric& fabric, const RunCase& c) {
  const model::Dataset& data = data_of(c);
  Assembly assembly(fabric, {.mesh = c.shape(),
                             .model = [&](const Mesh& mesh,
                                          model::Peers& peers) { return make(c, data, mesh, peers, fabric.rank()); },
                             .optimizer = c.optimizer,
                             .strategy = find_strategy(c.strategy),
                             .strategy_options = {.bucket_bytes = std::size_t{16} << 10,
                                                  .optimizer = c.optimizer,
                                                  .codec = c.serves() ? compression::find_codec(c.codec) : nullptr,
                                                  .seed = 7,
                                                  .loss_scale = parse_loss_scaling(c.loss_scale),
                                                  .gradient_format = c.gradients}});
  Worker& worker = assembly.worker();
  Strategy& strategy = assembly.strategy();
  std::deque<Samples> memory;
  const auto batches = batches_of(fabric, assembly.mesh(), data, memory);
  const Buffer word = fabric.memory(1), evaluated = fabric.memory(worker.parameters().count());
  strategy.begin(worker);
  assembly.probe().begin_step();
  std::vector<model::PendingOutcome> outcomes;
  for (int i = 0; i < steps; ++i) {
    const auto number = static_cast<std::uint64_t>(i) + 1;
    outcomes.push_back(
        strategy.step(worker, batches[static_cast<std::size_t>(i)], {.step_size = 0.02f, .number = number}));
  }
  strategy.settle(worker);
  RunEnd end;
  const std::uint64_t sent = decompose(assembly.probe().end_step(), {}).bytes_sent;
  if (!c.serves()) end.bytes_sent = sent;  // when a message has left is not the same every time
  fabric.wait(fabric.all_reduce(everybody, word, allreduce::Op::sum));  // evaluation needs all ranks settled
  strategy.evaluation_weights(worker, evaluated);
  for (const model::Batch& b : batches)
    outcomes.push_back(assembly.model().forward(fabric, {evaluated, runtime::empty_buffer}, b));
  strategy.end(worker);
  for (const auto& o : outcomes) end.losses.push_back(o.get().loss_sum);
  end.weights = values_of(fabric, worker.parameters());
  end.gradients = values_of(fabric, worker.gradients());
  end.evaluation_weights = values_of(fabric, evaluated);
  return end;
}

MeshShape RunCase::shape() const {
  const MeshShape given = parse_mesh(mesh);
  return given.replica_ranks() == 1 ? given.complete(ranks)
                                    : given.complete(std::max(1, given.data) * given.replica_ranks());
}

bool RunCase::serves() const { return uses_ports(find_strategy(strategy)->info().communication); }

std::string RunCase::text() const {
  return fmt::format("{} {} {} {} {} on {} ranks, {} {}, loss scale {}", model, kernels::name(precision), strategy,
                     optimizer, mesh, shape().ranks(), algorithm, codec, loss_scale);
}

std::string host_refusal(const RunCase& c) {
  const model::Dataset& data = data_of(c);
  try {
    model::make_model(c.model, {.features = data.features(),
                                .classes = data.classes(),
                                .labels = data.labels(),
                                .precision = c.precision,
                                .loss_precision = c.precision});
  } catch (const core::UsageError& e) {
    const std::string why = e.what();
    if (why.find("built without oneDNN") != std::string::npos) return why;
  }
  return {};
}

std::vector<RunEnd> run(const RunCase& c, const QueuesOf& queues_of) {
  const int ranks = c.shape().ranks();
  std::vector<RunEnd> ends(static_cast<std::size_t>(ranks));
  runtime::run_thread_ranks(ranks, [&](const runtime::Communicator& world) {
    kernels::set_compute_threads(1);
    runtime::Activity activity;
    const auto queues = queues_of ? queues_of(world.rank()) : std::make_shared<RankQueues>();
    {
      RankFabric fabric(world,
                        {.exchange = {.max_bytes = std::size_t{1} << 20,
                                      .algorithm = allreduce::find_algorithm(c.algorithm),
                                      .codec = c.serves() ? nullptr : compression::find_codec(c.codec),
                                      .queue = queues->exchange},
                         .progress = c.progress,
                         .spin_policy = {20, 0},
                         .memory_bytes = std::size_t{4} << 20,
                         .uses_reduce_scatter = true,
                         .groups = 1 + Mesh::groups(c.shape()),
                         .queue = queues->computation},
                        activity);
      Verifier verifier(fabric, world, c.codec != "none");
      if (c.verified) verifier.arm();
      verifier.begin_step(1);
      ends[static_cast<std::size_t>(world.rank())] = run(verifier, c);
      verifier.end_step();
      EXPECT_EQ(verifier.verified_last_step(), c.verified) << c.text();
      EXPECT_EQ(c.verified ? verifier.take_fault() : "", "") << c.text();
      world.barrier();  // nobody reads this rank's memory any more
    }
  });
  return ends;
}

std::string name_of_text(std::string text) {
  std::ranges::replace_if(
      text, [](char ch) { return !std::isalnum(static_cast<unsigned char>(ch)); }, '_');
  return text;
}

}  // namespace gradmeter::test
