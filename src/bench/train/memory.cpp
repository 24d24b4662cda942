// SPDX-License-Identifier: Apache-2.0
#include "bench/train/memory.hpp"

#include <algorithm>

#include "bench/train/uploaded.hpp"
#include "dataparallel/assembly.hpp"
#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/strategy.hpp"
#include "kernels/host/library.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::bench {
namespace {

using dataparallel::GroupSums;

/// Arrays of a tensor's length that the check of a coded sum keeps at once.
constexpr std::size_t arrays_of_coded_check = 8;
constexpr std::size_t copies_of_feedback = 2;  ///< copies of the tensors: two residuals, or momentum and its sum
constexpr std::size_t process_bytes = std::size_t{96}
                                      << 20;  ///< the memory of a rank without any training: libraries, MPI

}  // namespace

LargestPart largest_part(const TrainingConfig& config, Layout layout, const DataFacts& facts) {
  const auto strategy = config.strategy->make(config.strategy_options());
  LargestPart most;
  for (int r = 0; r < layout.mesh.replica_ranks(); ++r) {
    layout.place = layout.mesh.place(r);
    const auto m = sized_model(config, layout, facts);
    const auto needs = m->peer_needs();
    most.parameters = std::max(most.parameters, m->element_count() * sizeof(float));
    most.strategy = std::max(most.strategy, strategy->fabric_bytes(*m, layout.mesh.data));
    most.strategy_own = std::max(most.strategy_own, strategy->bytes_besides_fabric(*m, layout.mesh.data));
    const std::size_t sums = dataparallel::sums_per_tensor * m->tensors().size();
    const int ranks = std::max(layout.mesh.data, layout.mesh.tensor);
    most.norm_message = std::max(most.norm_message, GroupSums::gathered_floats(ranks, sums) * sizeof(float));
    if (dataparallel::needs_norm_sums(layout.mesh, config.optimizer))
      most.norm_memory = std::max(most.norm_memory, GroupSums::memory_bytes(layout.mesh.tensor, sums));
    most.peers.memory_bytes = std::max(most.peers.memory_bytes, needs.memory_bytes);
    most.peers.largest_sum_bytes = std::max(most.peers.largest_sum_bytes, needs.largest_sum_bytes);
  }
  return most;
}

namespace {

/// The bytes that optimizers, strategy and codec keep from step to step, outside the fabric's memory.
std::size_t state_bytes(const TrainingConfig& config, const Layout& layout, const DataFacts& facts) {
  const LargestPart part = largest_part(config, layout, facts);
  const std::size_t optimizer_state =
      config.strategy->info().keeps_optimizer_state
          ? 0
          : dataparallel::optimizer_bytes(config.optimizer_name(), part.parameters / sizeof(float));
  const bool feeds_back = config.codec && config.codec->feedback && encodes_sums(config.strategy->info().communication);
  return part.strategy_own + optimizer_state +
         (feeds_back && exchanges(config, layout) ? copies_of_feedback * part.parameters : 0);
}

}  // namespace

std::size_t resident_bytes(const TrainingConfig& config, const DataFacts& facts, int ranks) {
  const std::size_t batch = config.batch_per_rank * facts.features * sizeof(float);
  const std::size_t pinned = config.device == "cpu" ? 0 : most_upload_buffers(batch) * batch;
  return process_bytes + training_bytes(config, facts, ranks) + pinned;
}

std::size_t shm_bytes(const TrainingConfig& config, const DataFacts& facts, const NodeMap& map) {
  using runtime::TransportKind;
  if (config.transport == TransportKind::mpi || config.transport == TransportKind::cuda_mpi) return 0;
  const auto options = fabric_options(config, layout_of(config, map.ranks(), 0), facts);
  const std::size_t cells = static_cast<std::size_t>(options.groups) *
                            runtime::shared_memory_cell_count(map.ranks_per_node(), allreduce::most_lanes(map.ranks()));
  return runtime::shm_for(static_cast<std::size_t>(map.ranks_per_node()) *
                              dataparallel::RankFabric::resident_bytes(options, map.ranks()) +
                          cells * sizeof(runtime::SharedMemoryCell));
}

std::size_t training_bytes(const TrainingConfig& config, const DataFacts& facts, int ranks) {
  const auto fabric =
      dataparallel::RankFabric::resident_bytes(fabric_options(config, layout_of(config, ranks, 0), facts), ranks);
  const double copies = config.precision == kernels::Precision::bf16 && !kernels::has_bf16_kernels() ? 3 : 1;
  std::size_t most = 0;
  for (int r = 0; r < std::min(ranks, 64); ++r) {  // later ranks hold the same parts of the model again
    const Layout layout = layout_of(config, ranks, r);
    const auto m = sized_model(config, layout, facts);
    double operands = 0;  // bytes of the largest operation's operands, which the limits' measurement allocates
    for (const auto& p : m->pass_problems(config.batch_per_rank))
      operands = std::max(operands, kernels::held_bytes(p.problem));
    std::size_t largest = 0;
    for (const model::Tensor& t : m->tensors()) largest = std::max(largest, t.count * sizeof(float));
    most = std::max(most, (config.codec && exchanges(config, layout) ? arrays_of_coded_check * largest : 0) +
                              state_bytes(config, layout, facts) + m->workspace_bytes(config.batch_per_rank) +
                              static_cast<std::size_t>(copies * operands));
    if (layout.mesh.replica_ranks() == 1 && layout.workers == layout.mesh.data) break;  // all are alike
  }
  return fabric + most + config.batch_per_rank * facts.features * sizeof(float);
}

}  // namespace gradmeter::bench
