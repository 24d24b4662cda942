// SPDX-License-Identifier: Apache-2.0
// Which points a scaling sweep has: the requested factors, their controls, and no point twice.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/train/config.hpp"
#include "core/result.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

/// weak: the batch per rank stays; strong: the batch of all ranks together stays.
enum class Scaling { weak, strong };
std::string_view name(Scaling);

/// What the user asked for; each list is a factor.
struct ScaleFactors {
  std::vector<std::string> models;  ///< canonical
  std::vector<std::size_t> batches;
  std::vector<int> ranks;
  std::vector<Placement> placements{Placement::packed};
  std::vector<TrainingFactor> settings = {};  ///< further factors of a training
  std::vector<dataparallel::MeshShape> meshes{{}};
  std::vector<dataparallel::StrategyPtr> strategies;
  std::vector<allreduce::AlgorithmPtr> algorithms;
  std::vector<compression::CodecChoicePtr> codecs{nullptr};  ///< null: none
  std::vector<Overlap> overlaps;
  std::vector<std::size_t> buckets;
  std::vector<dataparallel::TransportKind> transports;
  std::vector<Scaling> scalings;
  std::vector<int> threads;
  std::vector<runtime::Cadence> cadences;
  std::string interconnect;    ///< a label of the network between ranks; may be empty
  NodeMap map = {};            ///< of the world: where placements differ; empty: all ranks are on one node
  int cores_per_node = 1;      ///< for automatic overlap
  TrainingConfig common = {};  ///< what is no factor: optimizer, seed, injected faults
};

/// One point: a training on so many ranks, with the step size of its strategy. A mesh is as asked for; at one rank:
/// data.
struct ScalePoint : TrainingConfig {
  int ranks = 1;
  std::optional<Placement> placement = {};  ///< empty where every placement takes the same ranks
  std::size_t batch_global = 1;
  Applies applies = {};  ///< factors of the exchange that it has; the others are null in its row
  runtime::Cadence cadence = runtime::Cadence::barrier;
  runtime::Cadence control_cadence = runtime::Cadence::barrier;  ///< as asked for; a strategy may run without it
  std::optional<Scaling> scaling = {};  ///< empty at one rank: there weak and strong are the same
  std::size_t curve = 0;                ///< points of one curve are measured in turn
  std::string impossible = {};          ///< why it cannot be measured: a row `skipped`
};

/// One rank's `independent`, whatever the strategy: equal batch per rank (weak) or in all (strong).
ScalePoint baseline_of(ScalePoint);
/// The same strategy on one rank.
ScalePoint alone_of(ScalePoint);
/// `independent` on the ranks of one full node.
ScalePoint node_of(ScalePoint, const NodeMap& world, int ranks_per_node);
/// `independent` at the same factors.
ScalePoint control_of(ScalePoint);

/// Baselines first: 1 rank before more, `independent` before the points that are compared with it. Controls that were
/// not asked for are added: 1 rank, and `independent` at every rank count.
std::vector<ScalePoint> plan_scale(const ScaleFactors&);

/// The point's factors in its row: automatic choices are resolved, factors that do not apply are null.
core::Factors to_factors(const ScalePoint&, const Session&, const std::string& interconnect);

}  // namespace gradmeter::bench
