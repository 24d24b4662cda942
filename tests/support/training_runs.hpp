// SPDX-License-Identifier: Apache-2.0
// Short training runs of every kind over thread ranks, whose ends are compared bit for bit: on the host, and on devices
// whose work comes later. Nothing but the strategy waits: batches are uploaded before the first step and outcomes read
// after the last.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dataparallel/fabric/ranks/rank_fabric.hpp"
#include "dataparallel/mesh.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::test {

struct RunCase {
  std::string strategy = "sync", optimizer = "momentum", mesh = "data";
  int ranks = 2;                                   ///< of a mesh that does not say how many
  std::string algorithm = "ring", codec = "none";  ///< codec: of all-reduces, or of messages to servers
  dataparallel::ProgressMode progress = dataparallel::ProgressMode::on_wait;
  bool verified = false;  ///< all calls, in one verified step
  std::string model = "mlp:784-32-24-16-10";
  kernels::Precision precision = kernels::Precision::fp32;
  std::string loss_scale = "none", gradients = "fp32";  ///< as StrategyOptions has them
  int overflowing_rank = -1;                            ///< its gradient of the second pass has an infinite element

  dataparallel::MeshShape shape() const;
  /// Does it use parameter servers, or other messages that come when they come?
  bool serves() const;
  std::string text() const;
};

/// What one rank ends with.
struct RunEnd {
  std::vector<float> weights, gradients, evaluation_weights;
  std::vector<double> losses;
  std::uint64_t bytes_sent = 0;
  bool operator==(const RunEnd&) const = default;
};
/// On any fabric. Collective over its ranks.
RunEnd run(dataparallel::Fabric&, const RunCase&);

/// What one rank computes with.
class RankQueues {
 public:
  virtual ~RankQueues() = default;
  runtime::Queue* computation = nullptr;  ///< null: the host's
  runtime::Queue* exchange = nullptr;     ///< of collectives' copies and sums; null: the host's
};
/// Of a rank, made on its thread and gone when all ranks have ended.
using QueuesOf = std::function<std::shared_ptr<RankQueues>(int rank)>;

/// By rank. Null: all is done on the host.
std::vector<RunEnd> run(const RunCase&, const QueuesOf&);

/// Why this build's host, which devices are held against, cannot compute it: it has no oneDNN. Empty: it can.
std::string host_refusal(const RunCase&);

/// "ps-sync:push=2" as a test's name.
std::string name_of_text(std::string text);

}  // namespace gradmeter::test
