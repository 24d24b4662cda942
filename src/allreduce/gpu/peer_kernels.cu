// SPDX-License-Identifier: Apache-2.0
// The parts that kernels which read the memory of other GPUs share: barriers between GPUs, and the split of the
// elements.
#include "allreduce/gpu/peer_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "allreduce/gpu/packs.cuh"
#include "allreduce/gpu/reduce.hpp"
#include "allreduce/schedule/slices.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"
#include "runtime/cuda/spin.hpp"

namespace gradmeter::allreduce::cuda {

inline constexpr unsigned peer_threads = 256;

/// The flag in `window` by which block `block` of rank `from` says which barrier it has reached.
__device__ inline std::uint32_t* flag_of(std::byte* window, unsigned block, unsigned from) {
  return reinterpret_cast<std::uint32_t*>(window) + block * most_peers + from;
}

__device__ inline std::uint32_t* counts_of(const PeerCall& c) {
  return reinterpret_cast<std::uint32_t*>(c.windows[c.rank] + PeerWindow::counts());
}
/// The word of this GPU's window that says whether one of its blocks has given a barrier up.
__device__ inline std::uint32_t* given_up_of(const PeerCall& c) { return counts_of(c) + 2; }

/// The numbers of a call that depend on how many calls came before. GPUs count calls themselves, so that a graph that
/// holds a call may be launched again.
struct CallNumbers {
  unsigned slot;          ///< place that holds what is given
  std::uint32_t barrier;  ///< the call's first
  bool is_given_up;       ///< peers' memory may be gone
};

/// Whether a thread of this block has given a barrier up.
__device__ inline std::uint32_t& block_gives_up() {
  GPU_SHARED(std::uint32_t, word, [1]);
  return word[0];
}

/// At the beginning of a call, by all threads.
__device__ inline CallNumbers numbers_of(const PeerCall& c) {
  if (threadIdx.x == 0) block_gives_up() = 0;
  const std::uint32_t calls = counts_of(c)[0];
  return {calls % 2, c.barriers * calls + 1, gpu::look_at(given_up_of(c)) != 0};
}

/// Whether a wait that began then ends without the flag: the host says so, a block before did, or it lasts too long.
__device__ inline bool must_leave(const PeerCall& c, unsigned from, std::uint64_t begin) {
  if (gpu::look_at(given_up_of(c)) != 0) return true;
  const bool is_late = gpu::nanoseconds() - begin > c.limit_ns;
  if (!is_late && gpu::look_at(&c.watch->leave) == 0) return false;
  if (is_late) gpu::release_to_all(&c.watch->waited_for, from + 1);
  gpu::release_to_all(given_up_of(c), 1);
  return true;
}

/// One thread: waits until rank `from` has reached a barrier; false: it was given up. Numbers grow, and wrap: a
/// difference says who is behind.
__device__ inline bool await_flag(const PeerCall& c, unsigned from, std::uint32_t number) {
  std::uint32_t* const theirs = flag_of(c.windows[c.rank], blockIdx.x, from);
  std::uint64_t begin = 0;  // of the first look: most waits are over before, and need no clock
  for (unsigned turns = 1; static_cast<std::int32_t>(gpu::acquire_from_all(theirs) - number) < 0; ++turns) {
    gpu::spin_pause();
    if (turns % gpu::turns_between_looks != 0) continue;
    if (begin == 0) begin = gpu::nanoseconds();
    if (must_leave(c, from, begin)) return false;
  }
  return true;
}

/// One thread: tells rank `to` that this block has reached a barrier, and waits until rank `from` has.
__device__ inline void signal_and_wait(const PeerCall& c, const CallNumbers& call, unsigned to, unsigned from,
                                       std::uint32_t number) {
  bool has_come = false;
  if (!call.is_given_up) {
    gpu::release_to_all(flag_of(c.windows[to], blockIdx.x, c.rank), number);
    has_come = await_flag(c, from, number);
  }
  if (!has_come) atomicExch(&block_gives_up(), 1U);
}

/// Blocks of this number of all GPUs: whoever leaves sees what the others wrote before they came. False: the barrier
/// was given up, and the block must leave the kernel.
__device__ inline bool peer_barrier(const PeerCall& c, const CallNumbers& call, std::uint32_t number) {
  __syncthreads();
  if (threadIdx.x < c.ranks) signal_and_wait(c, call, threadIdx.x, threadIdx.x, number);
  __syncthreads();
  return block_gives_up() == 0;
}

/// At the end of a call, by all threads. The last block counts it: by then all have read the number, since each call
/// has a barrier before its end.
__device__ inline void count_call(const PeerCall& c) {
  if (threadIdx.x != 0) return;
  std::uint32_t* const counts = counts_of(c);
  __threadfence();
  if (atomicAdd(&counts[1], 1U) + 1 < gridDim.x) return;
  __threadfence();
  atomicExch(&counts[1], 0U);  // not a plain store: others have added to it since their fences
  ++counts[0];
}

/// As allreduce::finish, on the result that memory holds.
template <class Format>
__device__ void scale_pack(Pack<typename Format::Memory>& p, double factor) {
  if constexpr (std::is_floating_point_v<typename Format::Value>) {
    if (factor == 1) return;
    const auto f = static_cast<typename Format::Value>(factor);
    for (auto& v : p.v) v = Format::store(Format::load(v) * f);
  }
}

/// Packs of a block of elements, dealt out to the threads of the grid: pack k of a block is the same thread's on every
/// GPU.
template <class T>
struct Packs {
  std::size_t begin, end;
  __device__ std::size_t first() const {
    return begin + Pack<T>::count * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  }
  static __device__ std::size_t step() { return Pack<T>::count * std::size_t{gridDim.x} * blockDim.x; }
};

/// How a kernel is launched for the longest stretch of elements that the grid works on at a time: the same on all GPUs.
template <class T>
gpu::Shape shape_of(std::size_t elements, unsigned most_blocks) {
  const std::size_t packs = (elements + Pack<T>::count - 1) / Pack<T>::count;
  const std::size_t blocks = std::clamp<std::size_t>((packs + peer_threads - 1) / peer_threads, 1, most_blocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(peer_threads), .cooperative = true};
}

template <class Kernel>
void launch_op(Op op, const Kernel& kernel) {
  if (op == Op::min) return kernel.template operator()<Op::min>();
  if (op == Op::max) return kernel.template operator()<Op::max>();
  if (op == Op::product) return kernel.template operator()<Op::product>();
  kernel.template operator()<Op::sum>();
}

__host__ __device__ inline bool has_whole_packs(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

namespace {

/// Addresses are made where they are read: a table of them would fill the registers.
struct GivenByAll {
  struct Place {
    const PeerCall& c;
    std::size_t given;
    __device__ const std::byte* operator[](unsigned r) const { return c.windows[r] + given; }
  };
  Place of;
  unsigned count;
  bool aligned;
};

__device__ GivenByAll given_by_all(const PeerCall& c, unsigned slot) {
  return {{c, c.window.given(slot)}, c.ranks, true};
}

/// A rank's block is whole packs, but the last one's may be shorter.
template <class T>
__host__ __device__ std::size_t block_length(std::size_t n, unsigned ranks) {
  const std::size_t packs = (n + Pack<T>::count - 1) / Pack<T>::count;
  return Pack<T>::count * ((packs + ranks - 1) / ranks);
}

template <class T>
__device__ Packs<T> block_of(unsigned rank, const PeerCall& c, std::size_t n) {
  const std::size_t length = block_length<T>(n, c.ranks), begin = rank * length;
  return {begin < n ? begin : n, begin + length < n ? begin + length : n};
}

struct Numbers {
  const std::byte* from;
  std::byte* to;
  std::size_t n;
  bool from_is_aligned, to_is_aligned;
};

Numbers numbers(const std::byte* from, std::byte* to, std::size_t n) {
  return {from, to, n, has_whole_packs(from), has_whole_packs(to)};
}

/// Copies it to where peers read it, by the threads whose blocks read it on all GPUs.
template <class T>
__device__ void give(const PeerCall& c, unsigned slot, const Numbers& x, const Packs<T>& packs) {
  std::byte* const to = c.windows[c.rank] + c.window.given(slot);
  for (std::size_t i = packs.first(); i < packs.end; i += Packs<T>::step())
    write_pack<T>(read_pack<T>(x.from, x.from_is_aligned, i, x.n), to, true, i, x.n);
}

template <class Format, Op op>
__global__ void sum_at_once(PeerCall c, bool wide, double factor, Numbers x) {
  using T = typename Format::Memory;
  const CallNumbers call = numbers_of(c);
  const Packs<T> all{0, x.n};
  give<T>(c, call.slot, x, all);
  if (!peer_barrier(c, call, call.barrier)) return;
  const GivenByAll given = given_by_all(c, call.slot);
  for (std::size_t i = all.first(); i < all.end; i += Packs<T>::step()) {
    auto p = combined<Format, op>(given, wide, i, x.n);
    scale_pack<Format>(p, factor);
    write_pack<T>(p, x.to, x.to_is_aligned, i, x.n);
  }
  count_call(c);
}

template <class Format, Op op>
__global__ void sum_by_blocks(PeerCall c, bool wide, double factor, Numbers x) {
  using T = typename Format::Memory;
  const CallNumbers call = numbers_of(c);
  for (unsigned r = 0; r < c.ranks; ++r) give<T>(c, call.slot, x, block_of<T>(r, c, x.n));
  if (!peer_barrier(c, call, call.barrier)) return;
  const GivenByAll given = given_by_all(c, call.slot);
  const Packs<T> own = block_of<T>(c.rank, c, x.n);
  for (std::size_t i = own.first(); i < own.end; i += Packs<T>::step()) {
    auto p = combined<Format, op>(given, wide, i, x.n);
    scale_pack<Format>(p, factor);
    write_pack<T>(p, c.windows[c.rank] + c.window.result(), true, i, x.n);
  }
  if (!peer_barrier(c, call, call.barrier + 1)) return;
  for (unsigned r = 0; r < c.ranks; ++r) {
    const Packs<T> theirs = block_of<T>(r, c, x.n);
    for (std::size_t i = theirs.first(); i < theirs.end; i += Packs<T>::step())
      write_pack<T>(read_pack<T>(c.windows[r] + c.window.result(), true, i, x.n), x.to, x.to_is_aligned, i, x.n);
  }
  count_call(c);
}

}  // namespace

void reduce_peers_at_once(core::Element e, core::Element accumulate, Op op, const PeerCall& c, const std::byte* from,
                          std::byte* to, std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  with_format(e, [&]<class Format>(Format) {
    launch_op(op, [&]<Op o>() {
      runtime::check_cuda(gpu::launch(sum_at_once<Format, o>, shape_of<typename Format::Memory>(n, c.blocks), stream, c,
                                      accumulate != e, factor, numbers(from, to, n)),
                          "sum_at_once");
    });
  });
}

void reduce_peers_by_blocks(core::Element e, core::Element accumulate, Op op, const PeerCall& c, const std::byte* from,
                            std::byte* to, std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  with_format(e, [&]<class Format>(Format) {
    using T = typename Format::Memory;
    launch_op(op, [&]<Op o>() {
      runtime::check_cuda(gpu::launch(sum_by_blocks<Format, o>, shape_of<T>(block_length<T>(n, c.ranks), c.blocks),
                                      stream, c, accumulate != e, factor, numbers(from, to, n)),
                          "sum_by_blocks");
    });
  });
}

namespace {

struct RingCall {
  PeerCall peers;
  const std::byte* in;
  std::byte* out;
  bool whole_packs;  ///< both begin with one
  std::size_t n;
  double factor;                      ///< of sums, where they are complete
  std::size_t begin[most_peers + 1];  ///< of blocks, and the end [elements]
};

/// The right neighbour reads what this block wrote before, and this block what the left one wrote. False: as of
/// peer_barrier.
__device__ bool ring_barrier(const PeerCall& c, const CallNumbers& call, std::uint32_t number) {
  const unsigned right = (c.rank + 1) % c.ranks, left = (c.rank + c.ranks - 1) % c.ranks;
  __syncthreads();
  if (threadIdx.x == 0) signal_and_wait(c, call, right, left, number);
  __syncthreads();
  return block_gives_up() == 0;
}

/// A stretch of elements in all places that a step may touch.
template <class T>
struct Stretch {
  Packs<T> packs;
  bool aligned;
  const std::byte *in, *left;
  std::byte *own, *out;

  __device__ Stretch(const RingCall& c, unsigned slot, std::size_t begin, std::size_t end)
      : packs{begin, end},
        aligned(c.whole_packs && begin * sizeof(T) % 16 == 0),
        in(c.in),
        left(c.peers.windows[(c.peers.rank + c.peers.ranks - 1) % c.peers.ranks] + c.peers.window.given(slot)),
        own(c.peers.windows[c.peers.rank] + c.peers.window.given(slot)),
        out(c.out) {}

  /// Calls body(index of a pack's first element), for the packs of this thread.
  template <class Body>
  __device__ void each(const Body& body) const {
    for (std::size_t i = packs.first(); i < packs.end; i += Packs<T>::step()) body(i);
  }
  __device__ Pack<T> read(const std::byte* from, std::size_t i) const {
    return read_pack<T>(from, aligned, i, packs.end);
  }
  __device__ void write(const Pack<T>& p, std::byte* to, std::size_t i) const {
    if (to) write_pack<T>(p, to, aligned, i, packs.end);
  }
  /// Nowhere where `to` or `also` is null.
  __device__ void copy(const std::byte* from, std::byte* to, std::byte* also) const {
    each([&](std::size_t i) {
      const Pack<T> p = read(from, i);
      write(p, to, i);
      write(p, also, i);
    });
  }
};

template <class T>
__device__ Stretch<T> block_of(const RingCall& c, unsigned slot, unsigned b) {
  b %= c.peers.ranks;
  return {c, slot, c.begin[b], c.begin[b + 1]};
}

/// Leaves the finished sum of this rank's block in `out`, and where the ring goes on also in its slot, and the number
/// of the next barrier in `now`. False: a barrier was given up.
template <class Format, Op op>
__device__ bool reduce_round(const RingCall& c, bool goes_on, CallNumbers& now) {
  using T = typename Format::Memory;
  const unsigned p = c.peers.ranks;
  const Stretch<T> first = block_of<T>(c, now.slot, c.peers.rank + p - 1);
  first.copy(first.in, first.own, nullptr);
  for (unsigned hop = 1; hop < p; ++hop) {
    if (!ring_barrier(c.peers, now, now.barrier++)) return false;
    const bool last = hop + 1 == p;
    const Stretch<T> s = block_of<T>(c, now.slot, c.peers.rank + 2 * p - 1 - hop);
    s.each([&](std::size_t i) {
      auto sum = combined<Format, op>(s.read(s.left, i), s.read(s.in, i));
      if (last) scale_pack<Format>(sum, c.factor);
      s.write(sum, last && !goes_on ? nullptr : s.own, i);
      if (last) s.write(sum, s.out, i);
    });
  }
  return true;
}

/// This rank's block is in its slot. False: a barrier was given up.
template <class T>
__device__ bool gather_round(const RingCall& c, CallNumbers now) {
  const unsigned p = c.peers.ranks;
  for (unsigned hop = 1; hop < p; ++hop) {
    if (!ring_barrier(c.peers, now, now.barrier++)) return false;
    const Stretch<T> s = block_of<T>(c, now.slot, c.peers.rank + p - hop);
    s.copy(s.left, s.out, hop + 1 < p ? s.own : nullptr);
  }
  return true;
}

template <class Format, Op op>
__global__ void reduce_in_ring(RingCall c, bool gathers) {
  CallNumbers now = numbers_of(c.peers);
  if (!reduce_round<Format, op>(c, gathers, now)) return;
  if (gathers && !gather_round<typename Format::Memory>(c, now)) return;
  count_call(c.peers);
}

template <class T>
__global__ void gather_in_ring(RingCall c) {
  const CallNumbers call = numbers_of(c.peers);
  const Stretch<T> own = block_of<T>(c, call.slot, c.peers.rank);
  own.copy(own.in, own.own, own.in == own.out ? nullptr : own.out);
  if (!gather_round<T>(c, call)) return;
  count_call(c.peers);
}

/// In step s, whoever is d hops from the root has piece s - d. All ranks take part in all steps, so that nobody is a
/// call ahead of his right neighbour.
template <class T>
__global__ void broadcast_in_ring(RingCall c, unsigned root, unsigned pieces) {
  const CallNumbers call = numbers_of(c.peers);
  const unsigned p = c.peers.ranks, hops = (c.peers.rank + p - root) % p;
  const std::size_t packs = (c.n + Pack<T>::count - 1) / Pack<T>::count;
  const auto begin_of = [&](unsigned piece) {
    const std::size_t at = Pack<T>::count * (packs * piece / pieces);
    return at < c.n ? at : c.n;
  };
  for (unsigned step = 0; step < pieces + p - 1; ++step) {
    const unsigned piece = step - hops;  // wraps where there is none yet
    if (piece < pieces) {
      const Stretch<T> s(c, call.slot, begin_of(piece), begin_of(piece + 1));
      if (hops == 0) {
        s.copy(s.in, s.own, s.in == s.out ? nullptr : s.out);
      } else {
        s.copy(s.left, s.out, hops + 1 < p ? s.own : nullptr);
      }
    }
    if (!ring_barrier(c.peers, call, call.barrier + step)) return;
  }
  count_call(c.peers);
}

/// A barrier of all: with one of neighbours a rank could be two calls ahead of the one that reads its slot.
template <class T>
__global__ void pass_in_ring(RingCall c) {
  const CallNumbers call = numbers_of(c.peers);
  const Stretch<T> all(c, call.slot, 0, c.n);
  all.copy(all.in, all.own, nullptr);
  if (!peer_barrier(c.peers, call, call.barrier)) return;
  all.copy(all.left, all.out, nullptr);
  count_call(c.peers);
}

template <class... P>
void launch(const char* name, void (*kernel)(P...), const gpu::Shape& shape, cudaStream_t stream,
            std::type_identity_t<P>... arguments) {
  runtime::check_cuda(gpu::launch(kernel, shape, stream, arguments...), name);
}

template <class T>
void launch_copies(CollectiveKind kind, const RingCall& c, unsigned root, std::size_t longest, cudaStream_t stream) {
  const gpu::Shape whole = shape_of<T>(c.n, c.peers.blocks);
  if (kind == CollectiveKind::all_gather) {
    launch("gather_in_ring", gather_in_ring<T>, shape_of<T>(longest, c.peers.blocks), stream, c);
  } else if (kind == CollectiveKind::broadcast) {
    const unsigned pieces = 4 * c.peers.ranks;
    launch("broadcast_in_ring", broadcast_in_ring<T>, shape_of<T>(c.n / pieces + 1, c.peers.blocks), stream, c, root,
           pieces);
  } else {
    launch("pass_in_ring", pass_in_ring<T>, whole, stream, c);
  }
}

}  // namespace

void ring_over_peers(CollectiveKind kind, core::Element e, Op op, const PeerCall& peers, unsigned root,
                     const std::byte* in, std::byte* out, std::size_t n, cudaStream_t stream) {
  if (peers.ranks == 1) return finish(e, op, out, in, n, 1, stream);
  RingCall c{.peers = peers,
             .in = in,
             .out = out,
             .whole_packs = has_whole_packs(in) && has_whole_packs(out),
             .n = n,
             .factor = op == Op::average ? 1.0 / peers.ranks : 1,
             .begin = {}};
  std::size_t longest = 0;
  for (unsigned b = 0; b <= peers.ranks; ++b) {
    c.begin[b] = block_begin(n, peers.ranks, b);
    if (b > 0) longest = std::max(longest, c.begin[b] - c.begin[b - 1]);
  }
  with_format(e, [&]<class Format>(Format) {
    using T = typename Format::Memory;
    if (!reduces(kind)) return launch_copies<T>(kind, c, root, longest, stream);
    launch_op(op, [&]<Op o>() {
      launch("reduce_in_ring", reduce_in_ring<Format, o>, shape_of<T>(longest, peers.blocks), stream, c,
             kind == CollectiveKind::all_reduce);
    });
  });
}

}  // namespace gradmeter::allreduce::cuda
