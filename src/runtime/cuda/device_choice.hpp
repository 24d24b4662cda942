// Which device a rank drives. Values alone: no CUDA and no communicator is needed to decide, or to test it.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/launcher.hpp"

namespace gradmeter::runtime {

/// What CUDA shows to one rank: each device's identity (GpuFacts::uuid), in the order of CUDA's own numbers. That is
/// after CUDA_VISIBLE_DEVICES and after what Slurm leaves to a task (--gpus-per-task, --gpu-bind): both are respected.
using VisibleDevices = std::vector<std::string>;

/// CUDA's number of the device of each rank of a node, ranks in the order of their node-local numbers.
/// Ranks that see the same devices get their node-local number modulo the devices; a rank that sees one gets that one;
/// of others each takes the device that fewest ranks have, those with the smallest choice first.
/// Ranks see other devices under the same number where a launcher binds them: hence identities.
/// Shape:  one element a rank; nothing for a rank that sees no device (no_device_reason).
/// Errors: none.
std::vector<std::optional<int>> choose_devices(std::span<const VisibleDevices> ranks_of_a_node);

/// How many ranks drive the device that most of them share; 1: every rank has its own. 0 for no ranks.
/// `devices`: the identity of each rank's.
int most_ranks_on_a_device(std::span<const std::string> devices);

/// One sentence for a result's notes: ranks that share a device take turns, so their times say nothing of scaling.
/// Empty where every rank has a device of its own.
std::string shared_devices_note(std::span<const std::string> devices);

/// Why this rank sees no device, from the environment, and what to do.
std::string no_device_reason(const ReadVariable& variable);

}  // namespace gradmeter::runtime
