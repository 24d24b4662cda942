// SPDX-License-Identifier: Apache-2.0
// The work of a recv_reduce on a device's memory: the functions of allreduce/reduce.hpp on a GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"

namespace gradmeter::allreduce::cuda {

/// The most sources of one call: their addresses must fit into a kernel's parameters.
inline constexpr std::size_t most_sources = 256;

/// Does what allreduce::reduce does, with the same bits: left to right, the same roundings, the same NaN. All addresses
/// are of device memory, and multiples of an element's size; where all are multiples of 16 bytes, 16 bytes are read
/// and written at a time. There are two or more sources. The work is queued on the stream. Cost: (sources + 1)·n
/// elements moved, each once.
/// Errors: std::invalid_argument with fewer than two sources or more than most_sources; BackendError when a launch
/// fails.
void reduce(core::Element, core::Element accumulate, Op, std::byte* destination,
            std::span<const std::byte* const> sources, std::size_t n, cudaStream_t);

/// Does what allreduce::finish does: an average is divided, other values are copied unless destination and source are
/// the same.
void finish(core::Element, Op, std::byte* destination, const std::byte* source, std::size_t n, int ranks, cudaStream_t);

/// Converts n small floats to fp32 (exactly), and back, rounded as `reduce` rounds.
void widen(core::Element from, float* destination, const std::byte* source, std::size_t n, cudaStream_t);
void narrow(core::Element to, std::byte* destination, const float* source, std::size_t n, cudaStream_t);

}  // namespace gradmeter::allreduce::cuda
