// SPDX-License-Identifier: Apache-2.0
// The plan of a scaling sweep: the points of the requested factors and their controls, each point once.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/engine/session.hpp"
#include "bench/train/config.hpp"
#include "core/result.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

/// The batch that stays the same when the number of ranks changes. weak: the batch of each rank. strong: the batch of
/// all ranks together.
enum class Scaling { weak, strong };
std::string_view name(Scaling);

/// The factors that the user asked for. Each list has the values of one factor; `settings` has further factors with
/// their values.
struct ScaleFactors {
  std::vector<std::string> models;  ///< canonical
  std::vector<std::size_t> batches;
  std::vector<int> ranks;
  std::vector<Placement> placements{Placement::packed};
  std::vector<TrainingFactor> settings = {};  ///< further factors of a training
  std::vector<dataparallel::MeshShape> meshes{{}};
  std::vector<dataparallel::StrategyPtr> strategies;
  std::vector<allreduce::AlgorithmPtr> algorithms;
  std::vector<compression::CodecChoicePtr> codecs{nullptr};  ///< null: no codec
  std::vector<Overlap> overlaps;
  std::vector<dataparallel::TransportKind> transports;
  std::vector<Scaling> scalings;
  std::vector<int> threads;
  std::vector<runtime::Cadence> cadences;
  std::string interconnect;    ///< a label of the network between ranks; may be empty
  NodeMap map = {};            ///< nodes of the world, which decide whether placements differ; empty: one node
  int cores_per_node = 1;      ///< number of cores of a node, which decides automatic overlap
  TrainingConfig common = {};  ///< settings that are not factors: optimizer, seed, injected faults
};

/// One point: a training on `ranks` ranks, with the step size of its strategy. On one rank its mesh is data-parallel.
struct ScalePoint : TrainingConfig {
  int ranks = 1;
  std::optional<Placement> placement = {};  ///< empty where every placement would take the same ranks
  std::size_t batch_global = 1;
  ExchangeFactors applies = {};  ///< the exchange factors that apply to it; the others are null in its row
  runtime::Cadence cadence = runtime::Cadence::barrier;
  /// The cadence that the user asked for, which the control keeps. `cadence` is `none` instead if the strategy uses
  /// ports, since barriers would synchronise its workers.
  runtime::Cadence control_cadence = runtime::Cadence::barrier;
  std::optional<Scaling> scaling = {};  ///< empty at one rank: there weak and strong are the same
  std::size_t curve = 0;                ///< the number of its curve, whose points take turns
  std::string impossible = {};          ///< the reason why it cannot be measured; empty: it can
};

/// The point with strategy `independent` on one rank, with the batch of one rank (weak) or of all ranks (strong
/// scaling).
ScalePoint baseline_of(ScalePoint);
/// The point on one rank, with `StrategyChoice::alone` of its strategy; the batch is that of `baseline_of`.
ScalePoint alone_of(ScalePoint);
/// The point with strategy `independent` on the ranks of one full node.
ScalePoint full_node_of(ScalePoint, const NodeMap& world, int ranks_per_node);
/// The point with strategy `independent`, and otherwise equal factors. A rank's batch is that of one of the point's
/// workers.
ScalePoint control_of(ScalePoint);

/// Plans all points, baselines first: one rank before more, `independent` before the points that are compared with it.
/// Adds controls that were not asked for: one rank, and `independent` at every rank count.
std::vector<ScalePoint> plan_scale(const ScaleFactors&);

/// The point's factors in its row: automatic choices are resolved, factors that do not apply are null.
core::Factors to_factors(const ScalePoint&, const Session&, const std::string& interconnect);

}  // namespace gradmeter::bench
