// SPDX-License-Identifier: Apache-2.0
// All-reduces and collectives round a ring, each of which is one kernel a GPU.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allreduce/gpu/packs.cuh"
#include "allreduce/gpu/peer_kernels.cuh"
#include "allreduce/gpu/reduce.hpp"
#include "allreduce/schedule/slices.hpp"
#include "runtime/cuda/launch.hpp"

namespace gradmeter::allreduce::cuda {
namespace {

/// The inputs of all ranks, with the members of `Sources`. Addresses are computed where they are read: a table of them
/// would fill the registers.
struct RankInputs {
  struct InputAddresses {
    const PeerArguments& c;
    std::size_t offset;
    __device__ const std::byte* operator[](unsigned r) const { return c.windows[r] + offset; }
  };
  InputAddresses addresses;
  unsigned count;
  bool aligned;
};

__device__ RankInputs inputs_of_ranks(const PeerArguments& c, unsigned slot) {
  return {{c, c.window.place_offset(slot)}, c.ranks, true};
}

/// Copies packs of the input to this rank's slot, where peers read them. The thread block that copies a pack has the
/// same index as the thread blocks that read it on all GPUs.
template <class T>
__device__ void copy_to_slot(const PeerArguments& c, unsigned slot, const CallBuffers& x, const PackRange<T>& packs) {
  copy_packs<T>(packs, x.from, x.from_is_aligned, c.windows[c.rank] + c.window.place_offset(slot), true);
}

/// Combines the inputs of all ranks in rank order, and writes the results to `to`. ranks: their number, or
/// any_source_count.
template <class Format, Op op, unsigned ranks>
__device__ void sum_inputs(const PeerArguments& c, unsigned slot, const PackRange<typename Format::Memory>& packs,
                           bool wide, double factor, std::byte* to, bool to_is_aligned) {
  using T = typename Format::Memory;
  constexpr unsigned packs_per_turn = packs_of_sum<Format, op, ranks>;
  const RankInputs inputs = inputs_of_ranks(c, slot);
  packs.template each<packs_per_turn>(
      to_is_aligned,
      [&](std::size_t i) {
        Pack<T> p[packs_per_turn];
        combine_whole<Format, op, ranks>(inputs, wide, i, packs.step(), p);
        GPU_UNROLL
        for (unsigned u = 0; u < packs_per_turn; ++u) {
          scale_pack<Format>(p[u], factor);
          write_whole_pack<T>(core::bits_as<uint4>(p[u]), to, i + u * packs.step());
        }
      },
      [&](std::size_t i) {
        Pack<T> p = combined<Format, op, ranks>(inputs, wide, i, packs.end);
        scale_pack<Format>(p, factor);
        write_pack<T>(p, to, to_is_aligned, i, packs.end);
      });
}

/// Collects the results of all ranks' blocks. Each GPU begins with its own block, so that at any time the GPUs read
/// from different peers.
template <class T, unsigned ranks>
__device__ void collect(const PeerArguments& c, const CallBuffers& x) {
  constexpr unsigned packs_per_turn = ranks == 2 ? 4 : 2;
  const auto rank_after = [&](unsigned k) { return c.rank + k < c.ranks ? c.rank + k : c.rank + k - c.ranks; };
  const auto copy = [&](unsigned r, const PackRange<T>& packs) {
    copy_packs<T>(packs, c.windows[r] + c.window.result_offset(), true, x.to, x.to_is_aligned);
  };
  if constexpr (ranks == any_source_count) {
    for (unsigned k = 0; k < c.ranks; ++k) copy(rank_after(k), block_of<T>(rank_after(k), x));
  } else {
    // Packs at the same place of all blocks go together, as far as the last block, the shortest, reaches.
    const std::size_t length = x.rank_block_length;
    const PackRange<T> shortest = block_of<T>(ranks - 1, x);
    std::size_t i = shortest.first() - shortest.begin;
    const std::size_t step = PackRange<T>::step(), last = (packs_per_turn - 1) * step;
    for (; x.to_is_aligned && is_whole<T>(shortest.begin + i + last, shortest.end); i += packs_per_turn * step) {
      uint4 p[ranks][packs_per_turn];
      GPU_UNROLL
      for (unsigned k = 0; k < ranks; ++k) {
        GPU_UNROLL
        for (unsigned u = 0; u < packs_per_turn; ++u)
          p[k][u] =
              whole_pack<T>(c.windows[rank_after(k)] + c.window.result_offset(), rank_after(k) * length + i + u * step);
      }
      GPU_UNROLL
      for (unsigned k = 0; k < ranks; ++k) {
        GPU_UNROLL
        for (unsigned u = 0; u < packs_per_turn; ++u)
          write_whole_pack<T>(p[k][u], x.to, rank_after(k) * length + i + u * step);
      }
    }
    for (unsigned k = 0; k < ranks; ++k) {
      const PackRange<T> whole = block_of<T>(rank_after(k), x);
      const std::size_t done = i - Pack<T>::count * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
      const std::size_t begin = whole.begin + done;
      copy(rank_after(k), {begin < whole.end ? begin : whole.end, whole.end});
    }
  }
}

template <class Format, Op op, unsigned ranks>
__global__ void __launch_bounds__(peer_threads) sum_at_once(PeerArguments c, bool wide, double factor, CallBuffers x) {
  const CallNumbers call = begin_call(c);
  const PackRange<typename Format::Memory> packs{0, x.n};
  copy_to_slot(c, call.slot, x, packs);
  if (!peer_barrier(c, call, call.barrier)) return;
  sum_inputs<Format, op, ranks>(c, call.slot, packs, wide, factor, x.to, x.to_is_aligned);
  count_call(c);
}

template <class Format, Op op, unsigned ranks>
__global__ void __launch_bounds__(peer_threads)
    sum_by_blocks(PeerArguments c, bool wide, double factor, CallBuffers x) {
  using T = typename Format::Memory;
  const CallNumbers call = begin_call(c);
  for (unsigned r = 0; r < c.ranks; ++r) copy_to_slot<T>(c, call.slot, x, block_of<T>(r, x));
  if (!peer_barrier(c, call, call.barrier)) return;
  sum_inputs<Format, op, ranks>(c, call.slot, block_of<T>(c.rank, x), wide, factor,
                                c.windows[c.rank] + c.window.result_offset(), true);
  if (!peer_barrier(c, call, call.barrier + 1)) return;
  collect<T, ranks>(c, x);
  count_call(c);
}

/// Calls launch<ranks>(). Sums of fp32, and of 16-bit floats added in fp32, have kernels for 2, 4 and 8 ranks; all
/// other calls take the kernel for any number.
template <class Format, Op op, class Launch>
void with_ranks(unsigned ranks, bool wide, const Launch& launch) {
  using T = typename Format::Memory;
  if constexpr (op == Op::sum && (std::is_same_v<T, float> || (is_small<Format> && sizeof(T) == 2))) {
    if (wide || !is_small<Format>) {
      if (ranks == 2) return launch.template operator()<2>();
      if (ranks == 4) return launch.template operator()<4>();
      if (ranks == 8) return launch.template operator()<8>();
    }
  }
  launch.template operator()<any_source_count>();
}

}  // namespace

void reduce_peers_at_once(core::Element e, core::Element accumulate, Op op, const PeerArguments& c,
                          const std::byte* from, std::byte* to, std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  with_format(e, [&]<class Format>(Format) {
    launch_op(op, [&]<Op o>() {
      with_ranks<Format, o>(c.ranks, accumulate != e, [&]<unsigned ranks>() {
        runtime::check_cuda(
            gpu::launch(sum_at_once<Format, o, ranks>, shape_of<typename Format::Memory>(n, c.most_thread_blocks),
                        stream, c, accumulate != e, factor,
                        call_buffers<typename Format::Memory>(from, to, n, c.ranks)),
            "sum_at_once");
      });
    });
  });
}

void reduce_peers_by_blocks(core::Element e, core::Element accumulate, Op op, const PeerArguments& c,
                            const std::byte* from, std::byte* to, std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  with_format(e, [&]<class Format>(Format) {
    using T = typename Format::Memory;
    launch_op(op, [&]<Op o>() {
      with_ranks<Format, o>(c.ranks, accumulate != e, [&]<unsigned ranks>() {
        runtime::check_cuda(
            gpu::launch(sum_by_blocks<Format, o, ranks>, shape_of<T>(block_length<T>(n, c.ranks), c.most_thread_blocks),
                        stream, c, accumulate != e, factor,
                        call_buffers<typename Format::Memory>(from, to, n, c.ranks)),
            "sum_by_blocks");
      });
    });
  });
}

namespace {

struct RingCall {
  PeerArguments peers;
  const std::byte* in;
  std::byte* out;
  bool buffers_aligned;  ///< `in` and `out` are aligned to packs
  std::size_t n;
  double factor;                      ///< of complete sums: 1 / ranks for an average, else 1
  std::size_t begin[most_peers + 1];  ///< the first element of each block; the last entry is the end
};

/// A barrier with both neighbours. After it the right neighbour may read what this thread block wrote before, and this
/// thread block what the left neighbour's wrote. False: the barrier was given up.
__device__ bool ring_barrier(const PeerArguments& c, const CallNumbers& call, std::uint32_t number) {
  const unsigned right = (c.rank + 1) % c.ranks, left = (c.rank + c.ranks - 1) % c.ranks;
  __syncthreads();
  if (threadIdx.x == 0) signal_and_wait(c, call, right, left, number);
  __syncthreads();
  return block_gives_up() == 0;
}

/// A stretch of elements in all places that a step may touch.
template <class T>
struct Stretch {
  PackRange<T> packs;
  bool aligned;
  const std::byte *in, *left_slot;
  std::byte *own_slot, *out;

  __device__ Stretch(const RingCall& c, unsigned slot, std::size_t begin, std::size_t end)
      : packs{begin, end},
        aligned(c.buffers_aligned && begin * sizeof(T) % 16 == 0),
        in(c.in),
        left_slot(c.peers.windows[(c.peers.rank + c.peers.ranks - 1) % c.peers.ranks] +
                  c.peers.window.place_offset(slot)),
        own_slot(c.peers.windows[c.peers.rank] + c.peers.window.place_offset(slot)),
        out(c.out) {}

  __device__ Pack<T> read(const std::byte* from, std::size_t i) const {
    return read_pack<T>(from, aligned, i, packs.end);
  }
  __device__ void write(const Pack<T>& p, std::byte* to, std::size_t i) const {
    write_pack<T>(p, to, aligned, i, packs.end);
  }
  /// Copies to `to` and to `also`, either of which may be null.
  __device__ void copy(const std::byte* from, std::byte* to, std::byte* also) const {
    copy_packs<T>(packs, from, aligned, to, aligned, also);
  }
  /// Combines the left neighbour's packs with those of `in`, multiplies by `factor`, and writes to `to` and to `also`,
  /// either of which may be null.
  template <class Format, Op op>
  __device__ void add_left_and_in(double factor, std::byte* to, std::byte* also) const {
    // The neighbour's packs are far away: the loads of all of them are under way before the first half of the own packs
    // is read.
    constexpr unsigned half = packs_of_sum<Format, op>, packs_per_turn = 2 * half;
    packs.template each<packs_per_turn>(
        aligned,
        [&](std::size_t i) {
          uint4 a[packs_per_turn];
          GPU_UNROLL
          for (unsigned u = 0; u < packs_per_turn; ++u) a[u] = whole_pack<T>(left_slot, i + u * packs.step());
          GPU_UNROLL
          for (unsigned first = 0; first < packs_per_turn; first += half) {
            uint4 b[half];
            GPU_UNROLL
            for (unsigned u = 0; u < half; ++u) b[u] = whole_pack<T>(in, i + (first + u) * packs.step());
            GPU_UNROLL
            for (unsigned u = 0; u < half; ++u) {
              Pack<T> sum = combined<Format, op>(core::bits_as<Pack<T>>(a[first + u]), core::bits_as<Pack<T>>(b[u]));
              scale_pack<Format>(sum, factor);
              const std::size_t at = i + (first + u) * packs.step();
              if (to) write_whole_pack<T>(core::bits_as<uint4>(sum), to, at);
              if (also) write_whole_pack<T>(core::bits_as<uint4>(sum), also, at);
            }
          }
        },
        [&](std::size_t i) {
          Pack<T> sum = combined<Format, op>(read(left_slot, i), read(in, i));
          scale_pack<Format>(sum, factor);
          if (to) write(sum, to, i);
          if (also) write(sum, also, i);
        });
  }
};

template <class T>
__device__ Stretch<T> block_of(const RingCall& c, unsigned slot, unsigned b) {
  b %= c.peers.ranks;
  return {c, slot, c.begin[b], c.begin[b + 1]};
}

/// The reduce-scatter: writes the finished sum of this rank's block to `out`, and also to its slot if an all-gather
/// follows. Advances `now.barrier` to the next barrier. False: a barrier was given up.
template <class Format, Op op>
__device__ bool reduce_scatter_pass(const RingCall& c, bool gather_follows, CallNumbers& now) {
  using T = typename Format::Memory;
  const unsigned p = c.peers.ranks;
  const Stretch<T> first = block_of<T>(c, now.slot, c.peers.rank + p - 1);
  first.copy(first.in, first.own_slot, nullptr);
  for (unsigned hop = 1; hop < p; ++hop) {
    if (!ring_barrier(c.peers, now, now.barrier++)) return false;
    const bool last = hop + 1 == p;
    const Stretch<T> s = block_of<T>(c, now.slot, c.peers.rank + 2 * p - 1 - hop);
    s.template add_left_and_in<Format, op>(last ? c.factor : 1, last && !gather_follows ? nullptr : s.own_slot,
                                           last ? s.out : nullptr);
  }
  return true;
}

/// The all-gather of blocks, of which each rank has its own in its slot. False: a barrier was given up.
template <class T>
__device__ bool all_gather_pass(const RingCall& c, CallNumbers now) {
  const unsigned p = c.peers.ranks;
  for (unsigned hop = 1; hop < p; ++hop) {
    if (!ring_barrier(c.peers, now, now.barrier++)) return false;
    const Stretch<T> s = block_of<T>(c, now.slot, c.peers.rank + p - hop);
    s.copy(s.left_slot, s.out, hop + 1 < p ? s.own_slot : nullptr);
  }
  return true;
}

template <class Format, Op op>
__global__ void __launch_bounds__(peer_threads) reduce_in_ring(RingCall c, bool gathers) {
  CallNumbers now = begin_call(c.peers);
  if (!reduce_scatter_pass<Format, op>(c, gathers, now)) return;
  if (gathers && !all_gather_pass<typename Format::Memory>(c, now)) return;
  count_call(c.peers);
}

template <class T>
__global__ void __launch_bounds__(peer_threads) gather_in_ring(RingCall c) {
  const CallNumbers call = begin_call(c.peers);
  const Stretch<T> own = block_of<T>(c, call.slot, c.peers.rank);
  own.copy(own.in, own.own_slot, own.in == own.out ? nullptr : own.out);
  if (!all_gather_pass<T>(c, call)) return;
  count_call(c.peers);
}

/// In step s, a rank that is d hops after the root copies piece s - d. All ranks wait at the barriers of all steps, so
/// that no rank is a call ahead of its right neighbour.
template <class T>
__global__ void __launch_bounds__(peer_threads)
    broadcast_in_ring(RingCall c, unsigned root, unsigned pieces, std::size_t length) {
  const CallNumbers call = begin_call(c.peers);
  const unsigned p = c.peers.ranks, hops = (c.peers.rank + p - root) % p;
  const auto begin_of = [&](unsigned piece) {
    const std::size_t at = piece * length;
    return at < c.n ? at : c.n;
  };
  for (unsigned step = 0; step < pieces + p - 1; ++step) {
    const unsigned piece = step - hops;  // wraps where there is none yet
    if (piece < pieces) {
      const Stretch<T> s(c, call.slot, begin_of(piece), begin_of(piece + 1));
      if (hops == 0) {
        s.copy(s.in, s.own_slot, s.in == s.out ? nullptr : s.out);
      } else {
        s.copy(s.left_slot, s.out, hops + 1 < p ? s.own_slot : nullptr);
      }
    }
    if (!ring_barrier(c.peers, call, call.barrier + step)) return;
  }
  count_call(c.peers);
}

/// Send-receive. The barrier is one of all ranks: with a barrier of neighbours a rank could be two calls ahead of the
/// rank that reads its slot.
template <class T>
__global__ void __launch_bounds__(peer_threads) pass_in_ring(RingCall c) {
  const CallNumbers call = begin_call(c.peers);
  const Stretch<T> whole_call(c, call.slot, 0, c.n);
  whole_call.copy(whole_call.in, whole_call.own_slot, nullptr);
  if (!peer_barrier(c.peers, call, call.barrier)) return;
  whole_call.copy(whole_call.left_slot, whole_call.out, nullptr);
  count_call(c.peers);
}

template <class... P>
void launch(const char* name, void (*kernel)(P...), const gpu::Shape& shape, cudaStream_t stream,
            std::type_identity_t<P>... arguments) {
  runtime::check_cuda(gpu::launch(kernel, shape, stream, arguments...), name);
}

template <class T>
void launch_copies(CollectiveKind kind, const RingCall& c, unsigned root, std::size_t longest_block,
                   cudaStream_t stream) {
  const gpu::Shape whole = shape_of<T>(c.n, c.peers.most_thread_blocks);
  if (kind == CollectiveKind::all_gather) {
    launch("gather_in_ring", gather_in_ring<T>, shape_of<T>(longest_block, c.peers.most_thread_blocks), stream, c);
  } else if (kind == CollectiveKind::broadcast) {
    const unsigned pieces = 4 * c.peers.ranks;
    const std::size_t length = block_length<T>(c.n, pieces);
    launch("broadcast_in_ring", broadcast_in_ring<T>, shape_of<T>(length, c.peers.most_thread_blocks), stream, c, root,
           pieces, length);
  } else {
    launch("pass_in_ring", pass_in_ring<T>, whole, stream, c);
  }
}

}  // namespace

void ring_over_peers(CollectiveKind kind, core::Element e, Op op, const PeerArguments& peers, unsigned root,
                     const std::byte* in, std::byte* out, std::size_t n, cudaStream_t stream) {
  if (peers.ranks == 1) return finish(e, op, out, in, n, 1, stream);
  RingCall c{.peers = peers,
             .in = in,
             .out = out,
             .buffers_aligned = is_pack_aligned(in) && is_pack_aligned(out),
             .n = n,
             .factor = op == Op::average ? 1.0 / peers.ranks : 1,
             .begin = {}};
  std::size_t longest_block = 0;
  for (unsigned b = 0; b <= peers.ranks; ++b) {
    c.begin[b] = block_begin(n, peers.ranks, b);
    if (b > 0) longest_block = std::max(longest_block, c.begin[b] - c.begin[b - 1]);
  }
  with_format(e, [&]<class Format>(Format) {
    using T = typename Format::Memory;
    if (!reduces(kind)) return launch_copies<T>(kind, c, root, longest_block, stream);
    launch_op(op, [&]<Op o>() {
      launch("reduce_in_ring", reduce_in_ring<Format, o>, shape_of<T>(longest_block, peers.most_thread_blocks), stream,
             c, kind == CollectiveKind::all_reduce);
    });
  });
}

}  // namespace gradmeter::allreduce::cuda
