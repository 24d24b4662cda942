// Which layers of a list tensor ranks share.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

/// Pairs of layers, a first that can be cut by outputs and a later one by inputs, with none between them but those that
/// can be cut `between`. By layer: one rank's part, or null where all ranks have the whole layer.
/// Errors: UsageError where ranks cannot share a pair's width, or its heads, evenly.
/// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
std::vector<std::unique_ptr<Layer>> cut_pairs(std::span<const Layer* const>, std::size_t rank, std::size_t ranks);

}  // namespace gradmeter::model
