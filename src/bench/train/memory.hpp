// SPDX-License-Identifier: Apache-2.0
// The memory that a training will need, planned before anything is allocated.
#pragma once
#include <cstddef>

#include "bench/train/config.hpp"

namespace gradmeter::bench {

/// The bytes that one rank will have resident, without the data set. Requires a configuration for which `refusal`
/// returns an empty text.
std::size_t resident_bytes(const TrainingConfig&, const DataFacts&, int ranks);
/// The part of the resident bytes that is in /dev/shm, summed over the ranks of a node; for ranks that are processes.
std::size_t shm_bytes(const TrainingConfig&, const DataFacts&, const NodeMap&);
/// The part of the resident bytes that the training takes: weights, gradients, activations, states of optimizers,
/// strategy and codec, and buffers of exchanges. The rest belongs to the process and its libraries.
std::size_t training_bytes(const TrainingConfig&, const DataFacts&, int ranks);

/// The bytes that a rank needs for its part of the model, by use; each is the maximum over the ranks of a replica.
/// parameters: one fp32 array of the weights. strategy: what the strategy takes from the fabric's memory.
/// strategy_own: what it allocates besides. norm_memory, norm_message: the memory of the sums by which ranks compute
/// tensors' norms together, and the longest message of these sums. peers: what exchanges with peers need.
struct LargestPart {
  std::size_t parameters = 0, strategy = 0, strategy_own = 0, norm_memory = 0, norm_message = 0;
  model::PeerNeeds peers = {};
};
LargestPart largest_part(const TrainingConfig&, Layout, const DataFacts&);

}  // namespace gradmeter::bench
