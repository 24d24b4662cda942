// Selection of the k largest magnitudes by their bits, without sorting: detail/largest.cpp's result.
#include "compression/cuda/topk_state.cuh"

namespace gradmeter::compression::cuda {
namespace {

constexpr unsigned most_counting_blocks = 1024;

/// Whole warps stay together: body(i, inside) for the elements of the block.
template <class Body>
__device__ void each_counted(std::size_t n, Body body) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t from = std::size_t{blockIdx.x} * blockDim.x; from < n; from += step) {
    const std::size_t i = from + threadIdx.x;
    body(i, i < n);
  }
}

__global__ void count_upper(const float* x, std::size_t n, Count* counts) {
  GPU_SHARED(unsigned, bins, [upper_bins]);
  for (unsigned b = threadIdx.x; b < upper_bins; b += blockDim.x) bins[b] = 0;
  __syncthreads();
  each_counted(n, [&](std::size_t i, bool inside) {
    if (inside) atomicAdd(&bins[magnitude_bits(x[i]) >> upper_shift], 1u);
  });
  __syncthreads();
  for (unsigned b = threadIdx.x; b < upper_bins; b += blockDim.x) {
    if (bins[b] > 0) atomicAdd(&counts[b], Count{bins[b]});
  }
}

struct Bin {
  unsigned index;
  Count above;  ///< elements in higher bins
};

/// The bin in which the k-th largest lies, by one block.
__device__ Bin bin_of(const Count* counts, unsigned bins, Count k) {
  GPU_SHARED(Count, sums, [33]);
  GPU_SHARED(Bin, found, [1]);
  const unsigned each = bins / blockDim.x, top = bins - threadIdx.x * each;  // thread 0 has the highest
  Count mine = 0, all = 0;
  for (unsigned b = top - each; b < top; ++b) mine += counts[b];
  Count above = sum_before(mine, sums, all);
  if (above < k && above + mine >= k) {
    unsigned b = top - 1;
    for (; above + counts[b] < k; --b) above += counts[b];
    found[0] = {b, above};
  }
  __syncthreads();
  return found[0];
}

__global__ void choose_upper(TopKState state, Count k) {
  const Bin bin = bin_of(state.upper, upper_bins, k);
  if (threadIdx.x != 0) return;
  bool finite = true;
  for (unsigned b = infinity_bits >> upper_shift; b < upper_bins; ++b) finite = finite && state.upper[b] == 0;
  *state.chosen = {k - bin.above, bin.index << upper_shift, finite ? 1u : 0u};
}

/// Of the elements in the chosen bin. Equal numbers are common (zeros): the lanes that have the first one's are counted
/// at once.
__global__ void count_lower(const float* x, std::size_t n, TopKState state) {
  const std::uint32_t upper = state.chosen->bits >> upper_shift;
  each_counted(n, [&](std::size_t i, bool inside) {
    const std::uint32_t bits = inside ? magnitude_bits(x[i]) : 0u;
    const bool counted = inside && bits >> upper_shift == upper;
    const unsigned lanes = __ballot_sync(~0u, counted);
    if (lanes == 0) return;
    const unsigned leader = static_cast<unsigned>(__ffs(static_cast<int>(lanes))) - 1;
    const std::uint32_t leaders = __shfl_sync(~0u, bits, static_cast<int>(leader));
    const unsigned equal = __ballot_sync(~0u, counted && bits == leaders);
    const unsigned lane = threadIdx.x % 32, lower = bits & ((1u << upper_shift) - 1);
    if (!counted || (equal >> lane & 1 && lane != leader)) return;
    const Count many = lane == leader ? static_cast<Count>(__popc(equal)) : 1;
    atomicAdd(&state.coarse[lower >> lower_shift], many);
    atomicAdd(&state.fine[lower], many);
  });
}

__global__ void choose_lower(TopKState state) {
  Chosen chosen = *state.chosen;
  const Bin coarse = bin_of(state.coarse, lower_bins, chosen.ties);
  chosen.ties -= coarse.above;
  const Bin fine = bin_of(state.fine + coarse.index * lower_bins, lower_bins, chosen.ties);
  chosen.ties -= fine.above;
  chosen.bits += (coarse.index << lower_shift) + fine.index;
  if (threadIdx.x == 0) *state.chosen = chosen;
}

__global__ void count_chunks(const float* x, std::size_t n, TopKState state) {
  const std::uint32_t threshold = state.chosen->bits;
  unsigned above = 0, ties = 0;
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r);
    const std::uint32_t bits = i < n ? magnitude_bits(x[i]) : 0u;
    above += i < n && bits > threshold ? 1u : 0u;
    ties += i < n && bits == threshold ? 1u : 0u;
  }
  sum_of_block(above, ties);
  if (threadIdx.x != 0) return;
  state.above[blockIdx.x] = above;
  state.ties[blockIdx.x] = ties;
}

__global__ void order_taken(TopKState state) {
  Count total = 0;
  order_chunks(state, state.chosen->ties, total);
}

/// What this lane takes of its warp's 512 elements: bit r for round r. `first` becomes the slot of the warp's first.
__device__ std::uint32_t taken_of(const float* x, std::size_t n, const TopKState& state, Count& first) {
  GPU_SHARED(unsigned, above_of, [chunk_warps]);
  GPU_SHARED(unsigned, ties_of, [chunk_warps]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Chosen chosen = *state.chosen;
  std::uint32_t taken = 0, tied = 0;
  unsigned above = 0, ties = 0;
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r);
    const std::uint32_t bits = i < n ? magnitude_bits(x[i]) : 0u;
    taken |= (i < n && bits > chosen.bits ? 1u : 0u) << r;
    tied |= (i < n && bits == chosen.bits ? 1u : 0u) << r;
    above += static_cast<unsigned>(__popc(__ballot_sync(~0u, taken >> r & 1)));
    ties += static_cast<unsigned>(__popc(__ballot_sync(~0u, tied >> r & 1)));
  }
  if (lane == 0) {
    above_of[warp] = above;
    ties_of[warp] = ties;
  }
  __syncthreads();
  Count ties_before = state.ties_before[blockIdx.x];
  first = state.first[blockIdx.x];
  for (unsigned w = 0; w < warp; ++w) {
    const Count left = chosen.ties > ties_before ? chosen.ties - ties_before : 0;
    first += above_of[w] + core::lesser(Count{ties_of[w]}, left);
    ties_before += ties_of[w];
  }
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const unsigned lanes = __ballot_sync(~0u, tied >> r & 1);
    const Count before = ties_before + static_cast<Count>(__popc(lanes & ((1u << lane) - 1)));
    if (tied >> r & 1 && before < chosen.ties) taken |= 1u << r;
    ties_before += static_cast<Count>(__popc(lanes));
  }
  return taken;
}

struct Targets {
  std::uint32_t *indices, *bitmap;  ///< one of them null
  float* values;
  std::size_t k, bitmap_end, padding;  ///< elements of the bitmap with its padding; numbers behind the values
};

__device__ void pad(const Targets& to) {
  if (blockIdx.x != 0 || threadIdx.x >= to.padding) return;
  to.values[to.k + threadIdx.x] = 0;
  if (to.indices) to.indices[to.k + threadIdx.x] = 0;
}

/// Ascending. Where x is not finite: the first k places with NaN.
__global__ void write_taken(const float* x, std::size_t n, TopKState state, Targets to) {
  pad(to);
  const unsigned lane = threadIdx.x % 32;
  const bool finite = state.chosen->finite != 0;
  Count first = 0;
  const std::uint32_t taken = taken_of(x, n, state, first);
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r);
    const bool mine = finite ? taken >> r & 1 : i < to.k;
    const unsigned lanes = __ballot_sync(~0u, mine);
    const Count slot = finite ? first + static_cast<Count>(__popc(lanes & ((1u << lane) - 1))) : i;
    if (to.bitmap && lane == 0 && i < to.bitmap_end) to.bitmap[i / 32] = lanes;
    if (mine && to.indices) to.indices[slot] = static_cast<std::uint32_t>(i);
    if (mine) to.values[slot] = finite ? x[i] : std::numeric_limits<float>::quiet_NaN();
    first += static_cast<Count>(__popc(lanes));
  }
}

Targets targets_of(const TopKWire& w, std::byte* wire) {
  auto* places = reinterpret_cast<std::uint32_t*>(wire);
  return {.indices = w.bitmap ? nullptr : places,
          .bitmap = w.bitmap ? places : nullptr,
          .values = reinterpret_cast<float*>(wire + w.places_bytes()),
          .k = w.k,
          .bitmap_end = w.bitmap ? 8 * code_bytes(w.n, 1) : 0,
          .padding = (padded(4 * w.k) - 4 * w.k) / 4};
}

}  // namespace

std::size_t topk_workspace(std::size_t n) {
  const std::size_t chunks = (n + chunk_elements - 1) / chunk_elements;
  const std::size_t histograms = upper_bins + lower_bins + std::size_t{lower_bins} * lower_bins;
  return histograms * sizeof(Count) + chunks * chunk_bytes + sizeof(Chosen) + sizeof(std::uint32_t);
}

void topk_encode(const float* x, const TopKWire& w, std::byte* wire, std::byte* workspace, cudaStream_t stream) {
  const TopKState state(workspace, w.n);
  const auto blocks = static_cast<unsigned>(core::lesser<std::size_t>(state.chunks, most_counting_blocks));
  const gpu::Shape counting{.grid = dim3(blocks), .block = dim3(chunk_threads)};
  const gpu::Shape one{.grid = dim3(1), .block = dim3(one_block_threads)};
  const auto check = [](cudaError_t error, const char* kernel) { runtime::check_cuda(error, kernel); };
  check(cudaMemsetAsync(state.upper, 0, state.histogram_bytes(), stream), "cudaMemsetAsync");
  check(gpu::launch(count_upper, counting, stream, x, w.n, state.upper), "count_upper");
  check(gpu::launch(choose_upper, one, stream, state, Count{w.k}), "choose_upper");
  check(gpu::launch(count_lower, counting, stream, x, w.n, state), "count_lower");
  check(gpu::launch(choose_lower, one, stream, state), "choose_lower");
  check(gpu::launch(count_chunks, chunk_shape(state.chunks), stream, x, w.n, state), "count_chunks");
  check(gpu::launch(order_taken, one, stream, state), "order_taken");
  check(gpu::launch(write_taken, chunk_shape(state.chunks), stream, x, w.n, state, targets_of(w, wire)), "write_taken");
}

}  // namespace gradmeter::compression::cuda
