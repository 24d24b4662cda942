// SPDX-License-Identifier: Apache-2.0
// Models that real ranks hold together against the same in virtual time, to the bit.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/fabric/simulation/world.hpp"
#include "mpi/ranks.hpp"
#include "runtime/mpi/session.hpp"
#include "support/mesh_training.hpp"

namespace gradmeter::dataparallel {
namespace {

using test::MeshTrace;
using test::MeshTraining;

std::vector<MeshTraining> plans_for(int ranks) {
  const std::map<int, std::vector<std::string>> meshes{
      {2, {"tensor=2", "pipeline=2"}},
      {3, {"pipeline=3", "pipeline=3,schedule=gpipe"}},
      {4, {"tensor=2,pipeline=2", "data=2,tensor=2", "data=2,pipeline=2"}},
      {8, {"data=2,tensor=2,pipeline=2"}}};
  std::vector<MeshTraining> plans;
  for (const std::string& mesh : meshes.at(ranks)) {
    const int copies = parse_mesh(mesh).complete(ranks).data;
    plans.push_back({.mesh = mesh, .accumulate = 2});
    plans.back().training.batch_global = 8 * static_cast<std::size_t>(copies);
  }
  // A language model in two stages, convolutions in three.
  if (ranks < 4)
    plans.push_back({.mesh = "pipeline=" + std::to_string(ranks),
                     .model = ranks == 2 ? "lstm-lm:hidden=12,layers=1" : "cnn:convolutions=2,filters=4,hidden=16",
                     .accumulate = 2,
                     .training = {.batch_global = 8, .steps = 4, .own_start = false}});
  if (ranks == 2 || ranks == 4) {
    const auto add = [&](std::string mesh, std::string_view strategy, std::string_view optimizer, float step) {
      plans.push_back({.mesh = std::move(mesh), .accumulate = 2});
      test::Training& t = plans.back().training;
      t.strategy = strategy, t.optimizer = optimizer, t.step_size = step, t.batch_global = 16, t.steps = 4;
    };
    const std::string data = ranks == 2 ? "" : "data=2,";
    add(data + "tensor=2", "sync", "lars", 10);
    add(data + "tensor=2", "sharded", "lamb", 0.01f);
    add(data + "tensor=2", "es:pairs=2", "sgd", 0.001f);
    add(data + "pipeline=2", "population:size=4,survivors=2", "sgd", 0);
  }
  return plans;
}

MeshTrace on_ranks(const runtime::Communicator& world, const MeshTraining& t, TransportKind transport,
                   ProgressMode progress) {
  runtime::Activity activity;
  RankFabric fabric(world,
                    {.exchange = {.max_bytes = std::size_t{1} << 20, .algorithm = allreduce::find_algorithm("ring")},
                     .transport = transport,
                     .progress = progress,
                     .spin_policy = test::spin_policy_of(world, progress == ProgressMode::thread ? 2 : 1),
                     .memory_bytes = std::size_t{2} << 20,
                     .uses_reduce_scatter = true,
                     .groups = 1 + Mesh::groups(parse_mesh(t.mesh).complete(world.size()))},
                    activity);
  return test::train(fabric, t);
}

MeshTrace in_virtual_time(const runtime::Communicator& world, const MeshTraining& t) {
  MeshTrace mine;
  SimWorld(world.size(), {}).run([&](Fabric& f) {
    MeshTrace trace = test::train(f, t);
    if (f.rank(everybody) == world.rank()) mine = std::move(trace);
  });
  return mine;
}

TEST(MeshOnRanks, HoldsTheBitsOfVirtualTime) {
  const auto world = runtime::MpiSession::world();
  for (const MeshTraining& t : plans_for(world.size())) {
    const MeshTrace expected = in_virtual_time(world, t);
    for (const auto transport : {TransportKind::mpi, TransportKind::shm}) {
      for (const auto progress : {ProgressMode::on_wait, ProgressMode::thread}) {
        const MeshTrace trace = on_ranks(world, t, transport, progress);
        EXPECT_EQ(trace.weights, expected.weights) << t.mesh << " transport " << int(transport);
        EXPECT_EQ(trace.validation.loss_sum, expected.validation.loss_sum) << t.mesh;
        EXPECT_EQ(trace.bytes_sent, expected.bytes_sent) << t.mesh;
        for (std::size_t i = 0; i < trace.outcomes.size(); ++i)
          EXPECT_EQ(trace.outcomes[i].loss_sum, expected.outcomes[i].loss_sum) << t.mesh << " step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace gradmeter::dataparallel
