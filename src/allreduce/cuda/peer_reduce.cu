#include "allreduce/cuda/peer_reduce.hpp"

#include "allreduce/cuda/peer_kernels.cuh"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::allreduce::cuda {
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

/// Whole packs, the last rank's block may be shorter.
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

/// To where peers read it: by the threads whose blocks read it on all GPUs.
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
  peer_barrier(c, call.barrier);
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
  peer_barrier(c, call.barrier);
  const GivenByAll given = given_by_all(c, call.slot);
  const Packs<T> own = block_of<T>(c.rank, c, x.n);
  for (std::size_t i = own.first(); i < own.end; i += Packs<T>::step()) {
    auto p = combined<Format, op>(given, wide, i, x.n);
    scale_pack<Format>(p, factor);
    write_pack<T>(p, c.windows[c.rank] + c.window.result(), true, i, x.n);
  }
  peer_barrier(c, call.barrier + 1);
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

}  // namespace gradmeter::allreduce::cuda
