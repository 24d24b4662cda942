// SPDX-License-Identifier: Apache-2.0
// Collectives by kernels that read the memory of other GPUs, and the memory (PeerWindow) that each GPU shows its peers
// for this.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/schedule.hpp"
#include "core/element.hpp"
#include "core/host_device.hpp"

namespace gradmeter::allreduce::cuda {

inline constexpr unsigned most_peers = 64;  ///< the most GPUs in a group that read each other's memory
/// The most thread blocks of a kernel. All blocks wait at barriers, so all of them must run on the GPU at the same
/// time.
inline constexpr unsigned most_peer_blocks = 36;

/// The layout of the memory that each GPU shows its peers: first the flags of barriers between thread blocks that have
/// the same index on all GPUs, then counts that only the GPU itself uses, then places for data. Calls use the first two
/// places (the slots) in turn. The memory must be zero before the first call.
struct PeerWindow {
  static constexpr std::size_t flag_bytes = sizeof(std::uint32_t) * most_peers * most_peer_blocks;
  /// Room for three words: the number of this GPU's calls, how many thread blocks of the current call are done, and
  /// whether a barrier was given up.
  static constexpr std::size_t count_bytes = 16;
  std::size_t room;     ///< bytes of each place, a multiple of 16
  unsigned places = 2;  ///< number of places, including the two slots; 0: all places are in multicast memory

  /// Offsets in the window [bytes]: of the counts, and of a slot or another place.
  GRADMETER_HOST_DEVICE static constexpr std::size_t counts_offset() { return flag_bytes; }
  GRADMETER_HOST_DEVICE constexpr std::size_t place_offset(unsigned place) const {
    return flag_bytes + count_bytes + place * room;
  }
  GRADMETER_HOST_DEVICE constexpr std::size_t result_offset() const {
    return place_offset(2);
  }  ///< the third place, for results
  GRADMETER_HOST_DEVICE constexpr std::size_t bytes() const { return place_offset(places); }
};

/// Host memory that a rank's own GPU can reach. Through it the host ends kernels that wait for peers, and learns that a
/// kernel has given up waiting.
struct PeerSignals {
  std::uint32_t leave;       ///< written by the host; 1: kernels end without a result
  std::uint32_t waited_for;  ///< written by a kernel: 1 + the rank whose flag did not come in time; 0: none
};

/// The arguments of a kernel that describe its rank, its peers and their memory.
struct PeerArguments {
  std::byte* windows[most_peers];  ///< by rank, at the addresses by which this GPU reaches them
  unsigned ranks, rank;
  PeerWindow window;
  unsigned most_thread_blocks;  ///< the most thread blocks of a kernel, up to most_peer_blocks; the same on all GPUs
  /// Each call on the window advances the number of the next barrier by this, even if it waits at fewer barriers.
  std::uint32_t barriers_per_call;
  PeerSignals* signals;
  std::uint64_t limit_ns;  ///< the longest wait at a barrier
  /// Multicast memory of three places of `room` bytes each: this GPU's own part, and the address that reaches all
  /// parts. Null in calls that use none.
  std::byte *multicast_own = nullptr, *multicast_all = nullptr;
};

// All-reduces in which each GPU runs one kernel, which reads the memory of its peers. A kernel that waits longer than
// `limit_ns`, or is told to leave, ends without a result, and so do all later kernels on its window.

/// Both of the following functions reduce n elements of `from`, which may be `to`; the elements are first copied to the
/// window. Every rank must queue the same call, on windows of three places; a call has up to two barriers. Sums are in
/// rank order, so all GPUs get equal bits, which are those of allreduce::reduce and finish. Errors: BackendError.
///
/// One shot: each GPU sums all elements. Cost: 1 barrier, (ranks+1)·n elements read, 2·n written.
void reduce_peers_at_once(core::Element, core::Element accumulate, Op, const PeerArguments&, const std::byte* from,
                          std::byte* to, std::size_t n, cudaStream_t);
/// Two shots: each GPU sums its own block, and collects the blocks of the others. Cost: 2 barriers, 3·n elements read,
/// 2·n and its block written.
void reduce_peers_by_blocks(core::Element, core::Element accumulate, Op, const PeerArguments&, const std::byte* from,
                            std::byte* to, std::size_t n, cudaStream_t);

/// Two shots in which NVLink's switches add and distribute: each GPU asks them for its own block, by multimem
/// instructions on multicast memory. It takes sums and averages of fp32, fp16 and bf16; 16-bit floats are added in
/// fp32. The order of a sum is the switch's, but all GPUs get equal bits, since each block is summed once.
/// Cost: 2 barriers; each GPU copies n elements in and n out, and through the switches reads n/p from every GPU and
/// writes n/p to every GPU.
void reduce_in_switch(core::Element, Op, const PeerArguments&, const std::byte* from, std::byte* to, std::size_t n,
                      cudaStream_t);

// Collectives in which each GPU runs one kernel, which reads only its left neighbour's memory.

/// The most barriers that a call of `ring_over_peers` uses.
constexpr unsigned ring_barriers(unsigned ranks) { return 8 * ranks; }

/// Every rank must queue the same call, of any kind but all-to-all; calls use the two slots in turn. A rank copies the
/// data that it has read from its left neighbour to its own slot, where its right neighbour reads them. Each thread
/// block works on its own part of every step, and does not wait for other thread blocks of its GPU. in == out: in
/// place. Blocks of the buffer are cut by `block_begin` over the whole buffer, and bits are those of the schedule
/// `ring` in one slice. `root` matters only in a broadcast, whose data travel round the ring in pieces.
/// Errors: BackendError. Cost: p-1 steps, twice as many for an all-reduce; in each step a barrier between neighbours,
/// and n/p elements read and written. A broadcast takes p-1 steps more than it has pieces; send-receive takes one
/// barrier among all GPUs.
void ring_over_peers(CollectiveKind, core::Element, Op, const PeerArguments&, unsigned root, const std::byte* in,
                     std::byte* out, std::size_t n, cudaStream_t);

}  // namespace gradmeter::allreduce::cuda
