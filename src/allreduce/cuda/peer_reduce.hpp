// All-reduces in one kernel a GPU, which reads the memory of its peers.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "allreduce/reduce.hpp"
#include "core/element.hpp"

namespace gradmeter::allreduce::cuda {

inline constexpr unsigned most_peers = 64;        ///< GPUs that read each other's memory, themselves included
inline constexpr unsigned most_peer_blocks = 36;  ///< of a kernel: all spin, so all must be resident at once

/// What each GPU shows its peers: flags of barriers between blocks of one number, two slots for what it gives, in turn,
/// and one for the block of the result that it computes. Zeroed before the first call.
struct PeerWindow {
  static constexpr std::size_t flag_bytes = sizeof(std::uint32_t) * most_peers * most_peer_blocks;
  std::size_t room;  ///< of each place [bytes], a multiple of 16

  constexpr std::size_t given(unsigned slot) const { return flag_bytes + slot * room; }
  constexpr std::size_t result() const { return flag_bytes + 2 * room; }
  constexpr std::size_t bytes() const { return flag_bytes + 3 * room; }
};

struct PeerCall {
  std::byte* windows[most_peers];  ///< by rank, as this GPU reaches them
  unsigned ranks, rank;
  PeerWindow window;
  unsigned slot;          ///< place that holds what is given
  unsigned blocks;        ///< at most, up to most_peer_blocks; the same on all GPUs
  std::uint32_t barrier;  ///< number of the call's first barrier, from 1 on; a call has two numbers and may use one
};

/// Every rank must queue the same call. What is given lies in the windows when this GPU's stream got here. Sums are in
/// rank order: equal bits on all GPUs, and those of allreduce::reduce and finish. Errors: BackendError.
/// One shot: each GPU sums all elements. Cost: 1 barrier, ranks·n elements read.
void reduce_peers_at_once(core::Element, core::Element accumulate, Op, const PeerCall&, std::byte* to, std::size_t n,
                          cudaStream_t);
/// Two shots: each GPU sums its block, and collects the others'. Cost: 2 barriers, 2·n elements read, n written.
void reduce_peers_by_blocks(core::Element, core::Element accumulate, Op, const PeerCall&, std::byte* to, std::size_t n,
                            cudaStream_t);

}  // namespace gradmeter::allreduce::cuda
