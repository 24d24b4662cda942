#include "compression/cuda/topk_state.cuh"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {
namespace {

constexpr float unfit = std::numeric_limits<float>::quiet_NaN();

struct Received {
  const std::uint32_t *indices, *bitmap;  ///< one of them null
  const float* values;
  std::size_t n, k;
  __device__ bool was_finite() const { return !(values[0] != values[0]); }
};

/// Everything before what was sent is put there.
__global__ void begin(Received wire, Sent how, const float* addend, float* out) {
  const bool finite = wire.was_finite();
  const bool stays = finite && (how == Sent::clear || (how == Sent::add && addend == out));
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = kernels::cuda::element_of_thread(); i < wire.n && !stays; i += step) {
    out[i] = how == Sent::clear ? 0.0f : !finite ? unfit : how == Sent::add ? addend[i] : 0.0f;
  }
}

__device__ void apply(Sent how, float value, float& element) {
  element = how == Sent::clear ? 0.0f : how == Sent::add ? element + value : value;
}

__global__ void spread_indices(Received wire, Sent how, float* out, std::uint32_t* damaged) {
  const std::size_t j = kernels::cuda::element_of_thread();
  if (j >= wire.k || !wire.was_finite()) return;
  const std::uint32_t index = wire.indices[j];
  if (index >= wire.n || (j > 0 && wire.indices[j - 1] >= index)) {
    atomicExch(damaged, 1u);  // several threads may
  } else {
    apply(how, wire.values[j], out[index]);
  }
}

/// Bits behind the tensor's end, where a chunk has padding, are damage.
__global__ void count_bits(Received wire, std::size_t bitmap_end, TopKState state) {
  unsigned bits = 0, outside = 0;
  const std::size_t first = std::size_t{blockIdx.x} * chunk_elements + 32 * std::size_t{threadIdx.x};
  if (threadIdx.x < chunk_elements / 32 && first < bitmap_end) {
    const std::uint32_t word = wire.bitmap[first / 32];
    const std::size_t inside = first < wire.n ? core::lesser<std::size_t>(32, wire.n - first) : 0;
    const std::uint32_t mask = inside == 32 ? ~0u : (1u << inside) - 1;
    bits = static_cast<unsigned>(__popc(word & mask));
    outside = static_cast<unsigned>(__popc(word & ~mask));
  }
  sum_of_block(bits, outside);
  if (threadIdx.x != 0) return;
  state.above[blockIdx.x] = bits;
  state.ties[blockIdx.x] = 0;
  if (outside > 0) atomicExch(state.damaged, 1u);
}

__global__ void order_bits(TopKState state, Count k) {
  Count total = 0;
  order_chunks(state, 0, total);
  if (threadIdx.x == 0 && total != k) *state.damaged = 1;
}

__global__ void spread_bits(Received wire, Sent how, float* out, TopKState state) {
  GPU_SHARED(unsigned, bits_of, [chunk_warps]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool finite = wire.was_finite();
  unsigned mine = 0;
  std::uint32_t words[chunk_rounds];
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r) - lane;  // the warp's first in this round
    words[r] = i < wire.n ? wire.bitmap[i / 32] : 0u;
    mine += static_cast<unsigned>(__popc(words[r]));
  }
  if (lane == 0) bits_of[warp] = mine;
  __syncthreads();
  std::size_t j = state.first[blockIdx.x];
  for (unsigned w = 0; w < warp; ++w) j += bits_of[w];
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r), slot = j + static_cast<unsigned>(__popc(words[r] & ((1u << lane) - 1)));
    if (finite && words[r] >> lane & 1 && i < wire.n && slot < wire.k) apply(how, wire.values[slot], out[i]);
    j += static_cast<unsigned>(__popc(words[r]));
  }
}

__global__ void mark_damage(std::size_t n, const std::uint32_t* damaged, float* out) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  const bool all = *damaged != 0;
  for (std::size_t i = kernels::cuda::element_of_thread(); i < n && all; i += step) out[i] = unfit;
}

/// Blocks that go on over all elements: few, since most calls have nothing to do.
gpu::Shape few_blocks(std::size_t n) {
  constexpr unsigned threads = kernels::cuda::threads_for_each;
  return {.grid = dim3(static_cast<unsigned>(core::lesser<std::size_t>((n + threads - 1) / threads, 1024))),
          .block = dim3(threads)};
}

void check(cudaError_t error, const char* kernel) { runtime::check_cuda(error, kernel); }

}  // namespace

void topk_decode(const std::byte* wire, const TopKWire& w, Sent how, const float* addend, float* out,
                 std::byte* workspace, cudaStream_t stream) {
  const TopKState state(workspace, w.n);
  const auto* places = reinterpret_cast<const std::uint32_t*>(wire);
  const Received received{.indices = w.bitmap ? nullptr : places,
                          .bitmap = w.bitmap ? places : nullptr,
                          .values = reinterpret_cast<const float*>(wire + w.places_bytes()),
                          .n = w.n,
                          .k = w.k};
  check(cudaMemsetAsync(state.damaged, 0, sizeof(*state.damaged), stream), "cudaMemsetAsync");
  check(gpu::launch(begin, few_blocks(w.n), stream, received, how, addend, out), "begin");
  if (w.bitmap) {
    check(gpu::launch(count_bits, chunk_shape(state.chunks), stream, received, 8 * code_bytes(w.n, 1), state),
          "count_bits");
    check(gpu::launch(order_bits, {.grid = dim3(1), .block = dim3(one_block_threads)}, stream, state, Count{w.k}),
          "order_bits");
    check(gpu::launch(spread_bits, chunk_shape(state.chunks), stream, received, how, out, state), "spread_bits");
  } else {
    kernels::cuda::launch_each(spread_indices, "spread_indices", w.k, stream, received, how, out, state.damaged);
  }
  check(gpu::launch(mark_damage, few_blocks(w.n), stream, w.n, state.damaged, out), "mark_damage");
}

}  // namespace gradmeter::compression::cuda
