// SPDX-License-Identifier: Apache-2.0
#include "compression/cuda/device_codec.hpp"

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "compression/codecs/sparse.hpp"
#include "compression/cuda/bucketed.cuh"
#include "core/host_device.hpp"
#include "kernels/cuda/each.cuh"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::compression::cuda {
namespace {

// The workspace by which the kernels of `topk` pass results to each other, and the order of chunks.

using Count = unsigned long long;  // a type of atomicAdd that can count 2^32 elements

/// A chunk is a block's part of a tensor: a warp has 512 neighbouring elements, a lane every 32nd of these.
constexpr std::size_t chunk_elements = 4096;
constexpr unsigned chunk_threads = 256, chunk_warps = chunk_threads / 32;
constexpr unsigned chunk_rounds = chunk_elements / chunk_threads;

constexpr unsigned upper_bins = 2048, lower_bins = 1024;
constexpr int upper_shift = 20, lower_shift = 10;

/// detail::Threshold: magnitudes above `bits` are taken, and the first `ties` of those equal to it.
struct DeviceThreshold {
  Count ties;
  std::uint32_t bits, finite;
};

/// The bytes that TopKState holds for a chunk: two slots and two counts.
constexpr std::size_t chunk_bytes = 2 * sizeof(Count) + 2 * sizeof(std::uint32_t);

struct TopKState {
  TopKState(std::byte* workspace, std::size_t n)
      : chunks((n + chunk_elements - 1) / chunk_elements),
        upper(reinterpret_cast<Count*>(workspace)),
        coarse(upper + upper_bins),
        fine(coarse + lower_bins),
        first(fine + std::size_t{lower_bins} * lower_bins),
        ties_before(first + chunks),
        above(reinterpret_cast<std::uint32_t*>(ties_before + chunks)),
        ties(above + chunks),
        chosen(reinterpret_cast<DeviceThreshold*>(ties + chunks)),
        damaged(reinterpret_cast<std::uint32_t*>(chosen + 1)) {}
  std::size_t histogram_bytes() const { return static_cast<std::size_t>(first - upper) * sizeof(Count); }

  std::size_t chunks;
  /// Histograms of the upper 11 bits and, for the elements in the chosen bin, of the next 10 bits and of the lower 20.
  Count *upper, *coarse, *fine;
  Count *first, *ties_before;   ///< by chunk: the slot of its first taken element; ties in earlier chunks
  std::uint32_t *above, *ties;  ///< by chunk: the number of elements above the threshold, and equal to it
  DeviceThreshold* chosen;
  std::uint32_t* damaged;
};

/// Returns the sum of `mine` over the threads before this one; `all` becomes the sum over all threads. The block has
/// whole warps. `shared` [33].
__device__ Count sum_before(Count mine, Count* shared, Count& all) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Count with_mine = mine;
  for (unsigned by = 1; by < 32; by *= 2) {
    const Count below = __shfl_up_sync(~0u, with_mine, by);
    if (lane >= by) with_mine += below;
  }
  __syncthreads();  // the last call's numbers have been read
  if (lane == 31) shared[warp] = with_mine;
  __syncthreads();
  Count before = with_mine - mine;
  all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) {
    if (w < warp) before += shared[w];
    all += shared[w];
  }
  return before;
}

/// Finds, with one block, the slot of each chunk's first taken element. `wanted`: the number of ties that are taken in
/// all. `total` becomes the number of elements that are taken.
__device__ void order_chunks(const TopKState& state, Count wanted, Count& total) {
  GPU_SHARED(Count, sums, [33]);
  Count ties_so_far = 0, taken_so_far = 0;
  for (std::size_t from = 0; from < state.chunks; from += blockDim.x) {
    const std::size_t c = from + threadIdx.x;
    const Count ties = c < state.chunks ? state.ties[c] : 0, above = c < state.chunks ? state.above[c] : 0;
    Count all_ties = 0, all_taken = 0;
    const Count ties_before = ties_so_far + sum_before(ties, sums, all_ties);
    const Count left = wanted > ties_before ? wanted - ties_before : 0;
    const Count before = taken_so_far + sum_before(above + core::lesser(ties, left), sums, all_taken);
    if (c < state.chunks) {
      state.ties_before[c] = ties_before;
      state.first[c] = before;
    }
    ties_so_far += all_ties;
    taken_so_far += all_taken;
  }
  total = taken_so_far;
}

/// Replaces a and b by their sums over the threads of the block.
__device__ void sum_of_block(unsigned& a, unsigned& b) {
  GPU_SHARED(unsigned, sums, [2 * chunk_warps]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  a = __reduce_add_sync(~0u, a);
  b = __reduce_add_sync(~0u, b);
  if (lane == 0) {
    sums[warp] = a;
    sums[chunk_warps + warp] = b;
  }
  __syncthreads();
  a = __reduce_add_sync(~0u, lane < chunk_warps ? sums[lane] : 0u);
  b = __reduce_add_sync(~0u, lane < chunk_warps ? sums[chunk_warps + lane] : 0u);
}

/// This thread's element in round r of its chunk.
__device__ std::size_t chunk_place(unsigned r) {
  return std::size_t{blockIdx.x} * chunk_elements + threadIdx.x / 32 * (32 * chunk_rounds) + 32 * r + threadIdx.x % 32;
}

gpu::Shape chunk_shape(std::size_t chunks) {
  return {.grid = dim3(gpu::blocks_of(chunks, 1)), .block = dim3(chunk_threads)};
}
constexpr unsigned one_block_threads = 512;

// Selection of the k largest magnitudes by their bits, without sorting: the result of detail::find_threshold.

constexpr unsigned most_counting_blocks = 1024;

template <class Result>
void check(const Result& result, const char* call, std::source_location where = std::source_location::current()) {
  runtime::check_cuda(result, call, where);
}

/// Calls body(i, inside) for the block's elements. All lanes of a warp call it together, so that it may use ballots;
/// lanes beyond n get inside = false.
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

/// Finds, with one block, the bin in which the k-th largest element lies.
__device__ Bin bin_of(const Count* counts, unsigned bins, Count k) {
  GPU_SHARED(Count, sums, [33]);
  GPU_SHARED(Bin, found, [1]);
  const unsigned each = bins / blockDim.x, top = bins - threadIdx.x * each;  // thread 0 has the highest
  Count mine = 0, total = 0;
  for (unsigned b = top - each; b < top; ++b) mine += counts[b];
  Count above = sum_before(mine, sums, total);
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

/// Counts the elements in the chosen bin by their lower bits. Equal magnitudes are common (zeros), so all lanes of a
/// warp with the magnitude of its first counted lane are counted in one addition.
__global__ void count_lower(const float* x, std::size_t n, TopKState state) {
  const std::uint32_t upper = state.chosen->bits >> upper_shift;
  each_counted(n, [&](std::size_t i, bool inside) {
    const std::uint32_t bits = inside ? magnitude_bits(x[i]) : 0u;
    const bool counted = inside && bits >> upper_shift == upper;
    const unsigned lanes = __ballot_sync(~0u, counted);
    if (lanes == 0) return;
    const unsigned leader = static_cast<unsigned>(__ffs(static_cast<int>(lanes))) - 1;
    const std::uint32_t leader_bits = __shfl_sync(~0u, bits, static_cast<int>(leader));
    const unsigned equal = __ballot_sync(~0u, counted && bits == leader_bits);
    const unsigned lane = threadIdx.x % 32, lower = bits & ((1u << upper_shift) - 1);
    if (!counted || (equal >> lane & 1 && lane != leader)) return;
    const Count occurrences = lane == leader ? static_cast<Count>(__popc(equal)) : 1;
    atomicAdd(&state.coarse[lower >> lower_shift], occurrences);
    atomicAdd(&state.fine[lower], occurrences);
  });
}

__global__ void choose_lower(TopKState state) {
  DeviceThreshold chosen = *state.chosen;
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

/// Decides which of its elements this lane takes: bit r of the result is for round r. `first` becomes the slot of the
/// first element that the warp takes.
__device__ std::uint32_t taken_of(const float* x, std::size_t n, const TopKState& state, Count& first) {
  GPU_SHARED(unsigned, above_of, [chunk_warps]);
  GPU_SHARED(unsigned, ties_of, [chunk_warps]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const DeviceThreshold chosen = *state.chosen;
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

/// Writes zeros behind the values, and behind the places if they are indices.
__device__ void write_padding(const TopKLayout& w, std::byte* wire) {
  const std::size_t padding = (padded(4 * w.k) - 4 * w.k) / 4;
  if (blockIdx.x != 0 || threadIdx.x >= padding) return;
  reinterpret_cast<float*>(wire + w.places_bytes())[w.k + threadIdx.x] = 0;
  if (!w.bitmap) reinterpret_cast<std::uint32_t*>(wire)[w.k + threadIdx.x] = 0;
}

/// Writes places and values in ascending order of places; if x is not finite, the first k places with NaN.
__global__ void write_taken(const float* x, TopKState state, TopKLayout w, std::byte* wire) {
  write_padding(w, wire);
  auto* places = reinterpret_cast<std::uint32_t*>(wire);
  auto* values = reinterpret_cast<float*>(wire + w.places_bytes());
  const std::size_t bitmap_end = w.bitmap ? 8 * w.places_bytes() : 0;
  const unsigned lane = threadIdx.x % 32;
  const bool finite = state.chosen->finite != 0;
  Count first = 0;
  const std::uint32_t taken = taken_of(x, w.n, state, first);
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r);
    const bool mine = finite ? taken >> r & 1 : i < w.k;
    const unsigned lanes = __ballot_sync(~0u, mine);
    const Count slot = finite ? first + static_cast<Count>(__popc(lanes & ((1u << lane) - 1))) : i;
    if (lane == 0 && i < bitmap_end) places[i / 32] = lanes;
    if (mine && !w.bitmap) places[slot] = static_cast<std::uint32_t>(i);
    if (mine) values[slot] = finite ? x[i] : core::quiet_nan<float>();
    first += static_cast<Count>(__popc(lanes));
  }
}

}  // namespace

std::size_t topk_workspace(std::size_t n) {
  const std::size_t chunks = (n + chunk_elements - 1) / chunk_elements;
  const std::size_t histograms = upper_bins + lower_bins + std::size_t{lower_bins} * lower_bins;
  return histograms * sizeof(Count) + chunks * chunk_bytes + sizeof(DeviceThreshold) + sizeof(std::uint32_t);
}

void topk_encode(const float* x, const TopKLayout& w, std::byte* wire, std::byte* workspace, cudaStream_t stream) {
  const TopKState state(workspace, w.n);
  const auto blocks = static_cast<unsigned>(core::lesser<std::size_t>(state.chunks, most_counting_blocks));
  const gpu::Shape counting{.grid = dim3(blocks), .block = dim3(chunk_threads)};
  const gpu::Shape one{.grid = dim3(1), .block = dim3(one_block_threads)};
  check(cudaMemsetAsync(state.upper, 0, state.histogram_bytes(), stream), "cudaMemsetAsync");
  check(gpu::launch(count_upper, counting, stream, x, w.n, state.upper), "count_upper");
  check(gpu::launch(choose_upper, one, stream, state, Count{w.k}), "choose_upper");
  check(gpu::launch(count_lower, counting, stream, x, w.n, state), "count_lower");
  check(gpu::launch(choose_lower, one, stream, state), "choose_lower");
  check(gpu::launch(count_chunks, chunk_shape(state.chunks), stream, x, w.n, state), "count_chunks");
  check(gpu::launch(order_taken, one, stream, state), "order_taken");
  check(gpu::launch(write_taken, chunk_shape(state.chunks), stream, x, state, w, wire), "write_taken");
}

namespace {

constexpr float not_finite = core::quiet_nan<float>();

__device__ const std::uint32_t* places_of(const std::byte* wire) {
  return reinterpret_cast<const std::uint32_t*>(wire);
}
__device__ const float* values_of(const std::byte* wire, const TopKLayout& w) {
  return reinterpret_cast<const float*>(wire + w.places_bytes());
}
/// The first value of an input that was not finite is NaN.
__device__ bool was_finite(const float* values) { return !(values[0] != values[0]); }

/// Sets all elements to the values that they have where nothing is sent, before the values that were sent are
/// scattered.
__global__ void initialise_output(const std::byte* wire, TopKLayout w, Scatter how, const float* addend, float* out) {
  const bool finite = was_finite(values_of(wire, w));
  const bool stays = finite && (how == Scatter::clear || (how == Scatter::add && addend == out));
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = kernels::cuda::element_of_thread(); i < w.n && !stays; i += step) {
    out[i] = how == Scatter::clear ? 0.0f : !finite ? not_finite : how == Scatter::add ? addend[i] : 0.0f;
  }
}

__device__ void scatter_one(Scatter how, float value, float& element) {
  element = how == Scatter::clear ? 0.0f : how == Scatter::add ? element + value : value;
}

__global__ void scatter_indices(const std::byte* wire, TopKLayout w, Scatter how, float* out, std::uint32_t* damaged) {
  const std::size_t j = kernels::cuda::element_of_thread();
  const float* values = values_of(wire, w);
  if (j >= w.k || !was_finite(values)) return;
  const std::uint32_t* indices = places_of(wire);
  const std::uint32_t index = indices[j];
  if (index >= w.n || (j > 0 && indices[j - 1] >= index)) {
    atomicExch(damaged, 1u);  // several threads may find damage
  } else {
    scatter_one(how, values[j], out[index]);
  }
}

/// Counts the bits of each chunk. Bits behind the tensor's end, in the bitmap's padding, are damage.
__global__ void count_bits(const std::byte* wire, TopKLayout w, TopKState state) {
  unsigned bits = 0, outside = 0;
  const std::size_t first = std::size_t{blockIdx.x} * chunk_elements + 32 * std::size_t{threadIdx.x};
  if (threadIdx.x < chunk_elements / 32 && first < 8 * w.places_bytes()) {
    const std::uint32_t word = places_of(wire)[first / 32];
    const std::size_t inside = first < w.n ? core::lesser<std::size_t>(32, w.n - first) : 0;
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

__global__ void scatter_bits(const std::byte* wire, TopKLayout w, Scatter how, float* out, TopKState state) {
  GPU_SHARED(unsigned, bits_of, [chunk_warps]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float* values = values_of(wire, w);
  const bool finite = was_finite(values);
  unsigned mine = 0;
  std::uint32_t words[chunk_rounds];
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r) - lane;  // the warp's first in this round
    words[r] = i < w.n ? places_of(wire)[i / 32] : 0u;
    mine += static_cast<unsigned>(__popc(words[r]));
  }
  if (lane == 0) bits_of[warp] = mine;
  __syncthreads();
  std::size_t j = state.first[blockIdx.x];
  for (unsigned before = 0; before < warp; ++before) j += bits_of[before];
  for (unsigned r = 0; r < chunk_rounds; ++r) {
    const std::size_t i = chunk_place(r), slot = j + static_cast<unsigned>(__popc(words[r] & ((1u << lane) - 1)));
    if (finite && words[r] >> lane & 1 && i < w.n && slot < w.k) scatter_one(how, values[slot], out[i]);
    j += static_cast<unsigned>(__popc(words[r]));
  }
}

__global__ void mark_damage(std::size_t n, const std::uint32_t* damaged, float* out) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  const bool is_damaged = *damaged != 0;
  for (std::size_t i = kernels::cuda::element_of_thread(); i < n && is_damaged; i += step) out[i] = not_finite;
}

/// A grid of few blocks, which loop over all elements, since in most calls their kernels have nothing to do.
gpu::Shape few_blocks(std::size_t n) {
  constexpr unsigned threads = kernels::cuda::threads_of_block;
  return {.grid = dim3(static_cast<unsigned>(core::lesser<std::size_t>((n + threads - 1) / threads, 1024))),
          .block = dim3(threads)};
}

}  // namespace

void topk_decode(const std::byte* wire, const TopKLayout& w, Scatter how, const float* addend, float* out,
                 std::byte* workspace, cudaStream_t stream) {
  const TopKState state(workspace, w.n);
  check(cudaMemsetAsync(state.damaged, 0, sizeof(*state.damaged), stream), "cudaMemsetAsync");
  check(gpu::launch(initialise_output, few_blocks(w.n), stream, wire, w, how, addend, out), "initialise_output");
  if (w.bitmap) {
    check(gpu::launch(count_bits, chunk_shape(state.chunks), stream, wire, w, state), "count_bits");
    check(gpu::launch(order_bits, {.grid = dim3(1), .block = dim3(one_block_threads)}, stream, state, Count{w.k}),
          "order_bits");
    check(gpu::launch(scatter_bits, chunk_shape(state.chunks), stream, wire, w, how, out, state), "scatter_bits");
  } else {
    kernels::cuda::launch_each(scatter_indices, "scatter_indices", w.k, stream, wire, w, how, out, state.damaged);
  }
  check(gpu::launch(mark_damage, few_blocks(w.n), stream, w.n, state.damaged, out), "mark_damage");
}

using kernels::cuda::check_lengths, kernels::cuda::element_of_thread, kernels::cuda::launch_each;

namespace {

__global__ void draw_each(detail::RandomPlaces rule, std::uint32_t* places, std::size_t k) {
  const std::size_t j = element_of_thread();
  if (j < k) places[j] = rule.place(j);
}

__global__ void gather_places(const float* x, std::size_t n, const std::uint32_t* places, std::size_t k, float factor,
                              float* values) {
  const std::size_t j = element_of_thread();
  if (j < k && places[j] < n) values[j] = factor * x[places[j]];
}

/// out[places[j]] = values[j], or 0 if `values` is null.
__global__ void scatter_places(const float* values, const std::uint32_t* places, std::size_t k, float* out,
                               std::size_t n) {
  const std::size_t j = element_of_thread();
  if (j < k && places[j] < n) out[places[j]] = values ? values[j] : 0.0f;
}

}  // namespace

void draw_places(const RandomDraw& d, std::size_t n, DeviceSpan<std::uint32_t> places, cudaStream_t stream) {
  detail::require_indexable("randomk", n);
  const std::size_t k = places.size();
  if (k > n) throw std::invalid_argument("randomk: more places than elements");
  if (k > 0) launch_each(draw_each, "draw_each", k, stream, detail::RandomPlaces(d, n, k), places.device_address(), k);
}

void gather(DeviceSpan<const float> x, DeviceSpan<const std::uint32_t> places, float factor, DeviceSpan<float> values,
            cudaStream_t stream) {
  check_lengths("gather", values.size(), places.size());
  launch_each(gather_places, "gather_places", places.size(), stream, x.device_address(), x.size(),
              places.device_address(), places.size(), factor, values.device_address());
}

void scatter(DeviceSpan<const float> values, DeviceSpan<const std::uint32_t> places, DeviceSpan<float> out,
             cudaStream_t stream) {
  check_lengths("scatter", values.size(), places.size());
  if (out.empty()) return;
  runtime::check_cuda(cudaMemsetAsync(out.device_address(), 0, out.bytes(), stream), "cudaMemsetAsync");
  launch_each(scatter_places, "scatter_places", places.size(), stream, values.device_address(), places.device_address(),
              places.size(), out.device_address(), out.size());
}

void clear_sent(DeviceSpan<const std::uint32_t> places, DeviceSpan<float> x, cudaStream_t stream) {
  launch_each(scatter_places, "scatter_places", places.size(), stream, nullptr, places.device_address(), places.size(),
              x.device_address(), x.size());
}

}  // namespace gradmeter::compression::cuda
