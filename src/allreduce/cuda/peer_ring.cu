#include "allreduce/cuda/peer_ring.hpp"

#include <algorithm>

#include "allreduce/cuda/peer_kernels.cuh"
#include "allreduce/cuda/reduce.hpp"
#include "allreduce/schedule/slices.hpp"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::allreduce::cuda {
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

/// The right neighbour reads what this block wrote before, and this block what the left one wrote.
__device__ void ring_barrier(const PeerCall& c, std::uint32_t number) {
  const unsigned right = (c.rank + 1) % c.ranks, left = (c.rank + c.ranks - 1) % c.ranks;
  __syncthreads();
  if (threadIdx.x == 0) signal_and_wait(c, right, left, number);
  __syncthreads();
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

  /// Body(index of a pack's first element), for the packs of this thread.
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
/// of the next barrier in `now`.
template <class Format, Op op>
__device__ void reduce_round(const RingCall& c, bool goes_on, CallNumbers& now) {
  using T = typename Format::Memory;
  const unsigned p = c.peers.ranks;
  const Stretch<T> first = block_of<T>(c, now.slot, c.peers.rank + p - 1);
  first.copy(first.in, first.own, nullptr);
  for (unsigned hop = 1; hop < p; ++hop) {
    ring_barrier(c.peers, now.barrier++);
    const bool last = hop + 1 == p;
    const Stretch<T> s = block_of<T>(c, now.slot, c.peers.rank + 2 * p - 1 - hop);
    s.each([&](std::size_t i) {
      auto sum = combined<Format, op>(s.read(s.left, i), s.read(s.in, i));
      if (last) scale_pack<Format>(sum, c.factor);
      s.write(sum, last && !goes_on ? nullptr : s.own, i);
      if (last) s.write(sum, s.out, i);
    });
  }
}

/// This rank's block is in its slot.
template <class T>
__device__ void gather_round(const RingCall& c, CallNumbers now) {
  const unsigned p = c.peers.ranks;
  for (unsigned hop = 1; hop < p; ++hop) {
    ring_barrier(c.peers, now.barrier++);
    const Stretch<T> s = block_of<T>(c, now.slot, c.peers.rank + p - hop);
    s.copy(s.left, s.out, hop + 1 < p ? s.own : nullptr);
  }
}

template <class Format, Op op>
__global__ void reduce_in_ring(RingCall c, bool gathers) {
  CallNumbers now = numbers_of(c.peers);
  reduce_round<Format, op>(c, gathers, now);
  if (gathers) gather_round<typename Format::Memory>(c, now);
  count_call(c.peers);
}

template <class T>
__global__ void gather_in_ring(RingCall c) {
  const CallNumbers call = numbers_of(c.peers);
  const Stretch<T> own = block_of<T>(c, call.slot, c.peers.rank);
  own.copy(own.in, own.own, own.in == own.out ? nullptr : own.out);
  gather_round<T>(c, call);
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
    ring_barrier(c.peers, call.barrier + step);
  }
  count_call(c.peers);
}

/// A barrier of all: with one of neighbours a rank could be two calls ahead of the one that reads its slot.
template <class T>
__global__ void pass_in_ring(RingCall c) {
  const CallNumbers call = numbers_of(c.peers);
  const Stretch<T> all(c, call.slot, 0, c.n);
  all.copy(all.in, all.own, nullptr);
  peer_barrier(c.peers, call.barrier);
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
