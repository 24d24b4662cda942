// SPDX-License-Identifier: Apache-2.0
// How long a pass takes whose stages and tensor ranks compute at the same time, by the clock of virtual time.
#include <gtest/gtest.h>

#include <algorithm>

#include "dataparallel/fabric/simulation/world.hpp"
#include "dataparallel/mesh.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "model/registry.hpp"
#include "support/machines.hpp"
#include "support/mesh_training.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Computation alone takes time, by its FLOP.
SimMachine thinking_machine() {
  SimMachine m;
  m.machine.flops_per_s = 1e9;
  m.machine.memory_bytes_per_s = 1e30;
  m.machine = gradmeter::test::linked(1e-12, 1e30, 1e30, m.machine);
  return m;
}

constexpr std::size_t width = 128, micro_samples = 8;

/// [s] of one pass over so many micro-batches through four layers, until the last rank is done.
double pass_time(const std::string& mesh_text, std::size_t micro_batches, std::size_t features) {
  const std::size_t batch = micro_samples * micro_batches;
  const auto ends = SimWorld(test::ranks_of(mesh_text), thinking_machine()).run([&](Fabric& f) {
    kernels::set_compute_threads(1);
    const Mesh mesh(f, parse_mesh(mesh_text));
    FabricPeers peers(f, mesh);
    const std::string name = "mlp:" + std::to_string(features) + "-128-128-128-128";
    const auto part = mesh.shape().part(mesh.place(), micro_batches, batch, &peers);
    const auto model = model::make_model(name, {.features = features, .classes = width, .part = part});
    kernels::AlignedVector<float> parameters(model->element_count()), gradients(parameters.size());
    model->initialise(f, {parameters, gradients}, 1);
    const std::vector<float> inputs(features * batch, 0.1f);
    const std::vector<std::int32_t> labels(batch, 3);
    const auto none = make_optimizer("sgd", {.elements = parameters.size(), .tensors = model->tensors()});
    Worker worker(f, mesh.data(), *model, {parameters, gradients}, *none);
    (void)worker.pass({inputs, labels});
  });
  return *std::max_element(ends.begin(), ends.end());
}

// The first layer has no input gradient: half as wide again, it takes as long as the others.
TEST(Pipeline, TheBubbleOfEqualStagesIsTheFormulas) {
  for (const std::size_t m : {1u, 4u, 12u}) {
    const double busy = pass_time("data=1", m, width * 3 / 2) / 4, time = pass_time("pipeline=4", m, width * 3 / 2);
    // GPipe, section 2.3: (K − 1) / (m + K − 1) of K stages.
    EXPECT_NEAR(1 - busy / time, 3. / (static_cast<double>(m) + 3), 0.015) << m;
  }
}

// Of equal widths, the first stage's backward pass is as long as a forward pass and the others' twice that, so the last
// one of the step ends by so much earlier.
TEST(Pipeline, BothSchedulesTakeTheTimeOfMicroBatchesAndStagesLessOne) {
  for (const std::size_t m : {1u, 4u, 12u}) {
    const auto micro_batches = static_cast<double>(m);
    const double forward = pass_time("data=1", m, width) / (11 * micro_batches);
    const double expected = forward * (3 * (micro_batches + 3) - 1);
    EXPECT_NEAR(pass_time("pipeline=4", m, width), expected, 0.03 * expected) << m;
    EXPECT_NEAR(pass_time("pipeline=4,schedule=gpipe", m, width), expected, 0.03 * expected) << m;
  }
}

TEST(Pipeline, TwoTensorRanksHalveItsTime) {
  const double whole = pass_time("pipeline=2", 6, width), shared = pass_time("tensor=2,pipeline=2", 6, width);
  EXPECT_NEAR(shared, whole / 2, 0.03 * whole);
}

}  // namespace
}  // namespace gradmeter::dataparallel
