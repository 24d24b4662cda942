// What the steps of a plan do to memory: the host's functions, or a GPU's kernels in the stream of the queue whose work
// runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "allreduce/reduce.hpp"

namespace gradmeter::allreduce {

/// For a caller's thread, without an indirection.
struct HostKernels {
  static void copy(std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); }
  static void reduce(core::Element e, core::Element accumulate, Op op, std::byte* to,
                     std::span<const std::byte* const> sources, std::size_t n) {
    allreduce::reduce(e, accumulate, op, to, sources, n);
  }
  static void finish(core::Element e, Op op, std::byte* to, const std::byte* from, std::size_t n, int ranks) {
    allreduce::finish(e, op, to, from, n, ranks);
  }
};

/// As HostKernels, with its bits, on memory of a device.
struct SliceKernels {
  void (*copy)(std::byte* to, const std::byte* from, std::size_t n);
  void (*reduce)(core::Element, core::Element accumulate, Op, std::byte* to, std::span<const std::byte* const> sources,
                 std::size_t n);
  void (*finish)(core::Element, Op, std::byte* to, const std::byte* from, std::size_t n, int ranks);
};
inline constexpr SliceKernels host_kernels{HostKernels::copy, HostKernels::reduce, HostKernels::finish};

/// Why GPUs cannot add up so many ranks; empty: they can.
std::string gpu_kernels_refusal(std::uint32_t ranks);
/// Errors: BackendError without CUDA.
const SliceKernels& gpu_kernels();

}  // namespace gradmeter::allreduce
