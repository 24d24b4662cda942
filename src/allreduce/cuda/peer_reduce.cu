#include "allreduce/cuda/peer_reduce.hpp"

#include <algorithm>

#include "allreduce/cuda/packs.cuh"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"

namespace gradmeter::allreduce::cuda {
namespace {

constexpr unsigned peer_threads = 256;

/// Where block `block` of rank `from` says in `window` which barrier it has reached.
__device__ std::uint32_t* flag_of(std::byte* window, unsigned block, unsigned from) {
  return reinterpret_cast<std::uint32_t*>(window) + block * most_peers + from;
}

/// Blocks of this number of all GPUs: whoever leaves sees what the others wrote before they came. Numbers grow, and
/// wrap: a difference says who is behind.
__device__ void peer_barrier(const PeerCall& c, std::uint32_t number) {
  __syncthreads();
  const unsigned peer = threadIdx.x;
  if (peer < c.ranks) {
    gpu::release_to_all(flag_of(c.windows[peer], blockIdx.x, c.rank), number);
    std::uint32_t* const theirs = flag_of(c.windows[c.rank], blockIdx.x, peer);
    while (static_cast<std::int32_t>(gpu::acquire_from_all(theirs) - number) < 0) gpu::spin_pause();
  }
  __syncthreads();
}

/// Addresses are made where they are read: a table of them would fill the registers.
struct GivenByAll {
  struct Place {
    const PeerCall& c;
    __device__ const std::byte* operator[](unsigned r) const { return c.windows[r] + c.window.given(c.slot); }
  };
  Place of;
  unsigned count;
  bool aligned;
};

__device__ GivenByAll given_by_all(const PeerCall& c) { return {{c}, c.ranks, true}; }

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

template <class Format, Op op>
__global__ void sum_at_once(PeerCall c, bool wide, double factor, std::byte* to, bool aligned, std::size_t n) {
  using T = typename Format::Memory;
  peer_barrier(c, c.barrier);
  const GivenByAll given = given_by_all(c);
  for (std::size_t i = Packs<T>{0, n}.first(); i < n; i += Packs<T>::step()) {
    auto p = combined<Format, op>(given, wide, i, n);
    scale_pack<Format>(p, factor);
    write_pack<T>(p, to, aligned, i, n);
  }
}

template <class Format, Op op>
__global__ void sum_by_blocks(PeerCall c, bool wide, double factor, std::byte* to, bool aligned, std::size_t n) {
  using T = typename Format::Memory;
  peer_barrier(c, c.barrier);
  const GivenByAll given = given_by_all(c);
  const Packs<T> own = block_of<T>(c.rank, c, n);
  for (std::size_t i = own.first(); i < own.end; i += Packs<T>::step()) {
    auto p = combined<Format, op>(given, wide, i, n);
    scale_pack<Format>(p, factor);
    write_pack<T>(p, c.windows[c.rank] + c.window.result(), true, i, n);
  }
  peer_barrier(c, c.barrier + 1);
  for (unsigned r = 0; r < c.ranks; ++r) {
    const Packs<T> theirs = block_of<T>(r, c, n);
    for (std::size_t i = theirs.first(); i < theirs.end; i += Packs<T>::step())
      write_pack<T>(read_pack<T>(c.windows[r] + c.window.result(), true, i, n), to, aligned, i, n);
  }
}

/// Of the longest stretch of elements that the grid works on at a time. The same on all GPUs.
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

bool has_whole_packs(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

}  // namespace

void reduce_peers_at_once(core::Element e, core::Element accumulate, Op op, const PeerCall& c, std::byte* to,
                          std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  with_format(e, [&]<class Format>(Format) {
    launch_op(op, [&]<Op o>() {
      runtime::check_cuda(gpu::launch(sum_at_once<Format, o>, shape_of<typename Format::Memory>(n, c.blocks), stream, c,
                                      accumulate != e, factor, to, has_whole_packs(to), n),
                          "sum_at_once");
    });
  });
}

void reduce_peers_by_blocks(core::Element e, core::Element accumulate, Op op, const PeerCall& c, std::byte* to,
                            std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  with_format(e, [&]<class Format>(Format) {
    using T = typename Format::Memory;
    launch_op(op, [&]<Op o>() {
      runtime::check_cuda(gpu::launch(sum_by_blocks<Format, o>, shape_of<T>(block_length<T>(n, c.ranks), c.blocks),
                                      stream, c, accumulate != e, factor, to, has_whole_packs(to), n),
                          "sum_by_blocks");
    });
  });
}

}  // namespace gradmeter::allreduce::cuda
