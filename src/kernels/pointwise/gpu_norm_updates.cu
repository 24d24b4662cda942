// SPDX-License-Identifier: Apache-2.0
// Every step of the arithmetic is rounded, as on the host: this file is compiled without fused multiply-adds.
#include <algorithm>

#include "kernels/cuda/each.cuh"
#include "kernels/pointwise/gpu_kernels.hpp"

namespace gradmeter::kernels::cuda {
namespace {

constexpr std::size_t lanes = NormBlocks::lanes;

/// Pieces of tensors as an argument of kernels, so that no table must be copied to the device. A piece is cut into
/// blocks (NormBlocks), which are numbered through all pieces.
struct PieceTable {
  static constexpr unsigned max_pieces = 64;
  TensorPiece pieces[max_pieces];
  std::uint32_t first_block[max_pieces + 1];
  std::uint32_t count = 0;

  struct Block {
    std::uint32_t piece;
    std::size_t begin, elements;  ///< the block is elements [begin, begin + elements) of the update's buffers
  };
  /// The block with this number; beyond the last one, a block without elements.
  GRADMETER_HOST_DEVICE Block block(std::size_t number) const {
    if (number >= first_block[count]) return {0, 0, 0};
    // Finds the last piece whose first block is at or before this one; empty pieces have no block of their own.
    std::uint32_t low = 0, high = count;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (first_block[middle] <= number ? low : high) = middle;
    }
    const std::size_t at = (number - first_block[low]) * NormBlocks::length;
    return {low, pieces[low].offset + at, core::lesser(NormBlocks::length, pieces[low].count - at)};
  }
};

using Unbiased = LambParameters::Unbiased;

/// `compute_terms` returns what element i adds to the two sums of LARS.
struct LarsSquares {
  const float *w, *g;
  __device__ Unbiased unbiased() const { return {}; }
  __device__ NormSquares compute_terms(std::size_t i, Unbiased) const {
    const double x = static_cast<double>(w[i]), y = static_cast<double>(g[i]);
    return {x * x, y * y};
  }
};

/// `compute_terms` updates element i's averages m and v, and returns what the element adds to the two sums of LAMB.
struct LambSquares {
  const float *w, *g;
  float *m, *v;
  LambParameters p;
  UpdateGate gate;
  __device__ Unbiased unbiased() const { return p.unbiased(gate.number_without_skipped()); }
  __device__ NormSquares compute_terms(std::size_t i, Unbiased u) const {
    p.average(m[i], v[i], g[i]);
    const double x = static_cast<double>(w[i]), y = static_cast<double>(p.direction(w[i], m[i], v[i], u));
    return {x * x, y * y};
  }
};

/// Adds up the values of NormBlocks::lanes threads in the order of the lanes; each of them gets the sum.
__device__ double add_lanes(double lane_value) {
  double sum = 0;
  for (unsigned k = 0; k < lanes; ++k)
    sum += __shfl_sync(~0u, lane_value, static_cast<int>(k), static_cast<int>(lanes));
  return sum;
}

/// Sums each block of the pieces. A thread computes a lane of a block, so a warp computes four blocks.
template <class Squares>
__global__ void sum_blocks(PieceTable table, Squares squares, UpdateGate gate, NormSquares* blocks) {
  if (gate.is_skipped()) return;
  const Unbiased u = squares.unbiased();
  const std::size_t number = element_of_thread() / lanes, lane = threadIdx.x % lanes;
  const auto block = table.block(number);
  const std::size_t in_lanes = block.elements / lanes * lanes;
  NormSquares s;
  for (std::size_t i = lane; i < in_lanes; i += lanes) {
    const NormSquares term = squares.compute_terms(block.begin + i, u);
    s.weight_squares += term.weight_squares;
    s.other_squares += term.other_squares;
  }
  s = {add_lanes(s.weight_squares), add_lanes(s.other_squares)};
  if (lane != 0 || number >= table.first_block[table.count]) return;
  for (std::size_t i = in_lanes; i < block.elements; ++i) {
    const NormSquares term = squares.compute_terms(block.begin + i, u);
    s.weight_squares += term.weight_squares;
    s.other_squares += term.other_squares;
  }
  blocks[number] = s;
}

/// Adds up the sums of each piece's blocks. A thread block of one warp handles a piece: it reads the sums of 32 blocks
/// at once and adds them in order.
__global__ void add_blocks(PieceTable table, UpdateGate gate, const NormSquares* blocks, NormSquares* sums) {
  if (gate.is_skipped()) return;
  const std::uint32_t begin = table.first_block[blockIdx.x], end = table.first_block[blockIdx.x + 1];
  NormSquares s;
  for (std::uint32_t at = begin; at < end; at += 32) {
    const std::uint32_t own_block = at + threadIdx.x, n = core::lesser(32u, end - at);
    const NormSquares own_sums = own_block < end ? blocks[own_block] : NormSquares{};
    for (std::uint32_t k = 0; k < n; ++k) {
      s.weight_squares += __shfl_sync(~0u, own_sums.weight_squares, static_cast<int>(k));
      s.other_squares += __shfl_sync(~0u, own_sums.other_squares, static_cast<int>(k));
    }
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = s;
}

/// The values that are the same for all numbers of a tensor.
struct TensorFactors {
  float rate;
  Unbiased unbiased;
};
struct LarsMove {
  float *w, *v;
  const float* g;
  LarsParameters p;
  __device__ TensorFactors tensor_factors(NormSquares s, UpdateGate) const { return {p.rate(s), {}}; }
  __device__ void update(std::size_t i, const TensorFactors& t) const { p.update(w[i], v[i], g[i], t.rate); }
};
struct LambMove {
  float* w;
  const float *m, *v;
  LambParameters p;
  __device__ TensorFactors tensor_factors(NormSquares s, UpdateGate gate) const {
    return {p.rate(s), p.unbiased(gate.number_without_skipped())};
  }
  __device__ void update(std::size_t i, const TensorFactors& t) const {
    w[i] -= t.rate * p.direction(w[i], m[i], v[i], t.unbiased);
  }
};

/// Updates the weights; a thread block handles a block of a piece.
template <class Move>
__global__ void move_blocks(PieceTable table, Move move, UpdateGate gate, const NormSquares* sums) {
  if (gate.is_skipped()) return;
  GPU_SHARED(TensorFactors, factors, [1]);
  const auto block = table.block(blockIdx.x);
  if (threadIdx.x == 0) factors[0] = move.tensor_factors(sums[block.piece], gate);
  __syncthreads();
  for (std::size_t i = threadIdx.x; i < block.elements; i += threads_of_block) move.update(block.begin + i, factors[0]);
}

/// Divides the pieces into tables, and calls each(table, first) for each table, whose first piece is number `first`.
/// Errors: std::invalid_argument when a piece does not lie within `elements`.
template <class Each>
void each_table(const char* what, Pieces pieces, std::size_t elements, const Each& each) {
  for (std::size_t first = 0; first < pieces.size(); first += PieceTable::max_pieces) {
    PieceTable table;
    table.count = static_cast<std::uint32_t>(std::min<std::size_t>(PieceTable::max_pieces, pieces.size() - first));
    table.first_block[0] = 0;
    for (std::uint32_t i = 0; i < table.count; ++i) {
      const TensorPiece& p = table.pieces[i] = pieces[first + i];
      if (p.offset > elements || p.count > elements - p.offset)
        throw std::invalid_argument(std::string(what) + ": a piece lies outside of the buffers");
      table.first_block[i + 1] = table.first_block[i] + static_cast<std::uint32_t>(NormBlocks::blocks_in(p.count));
    }
    each(table, first);
  }
}

template <class Squares>
void launch_norms(const char* what, Pieces pieces, std::size_t elements, const Squares& squares, UpdateGate gate,
                  DeviceSpan<NormSquares> sums, DeviceSpan<NormSquares> workspace, cudaStream_t stream) {
  check_lengths(what, sums.size(), pieces.size());
  check_lengths(what, workspace.bytes(), norms_workspace(pieces));
  each_table(what, pieces, elements, [&](const PieceTable& table, std::size_t first) {
    const std::uint32_t blocks = table.first_block[table.count];
    launch_each(sum_blocks<Squares>, "sum_blocks", blocks * lanes, stream, table, squares, gate,
                workspace.device_address());
    runtime::check_cuda(gpu::launch(add_blocks, {.grid = dim3(table.count), .block = dim3(32)}, stream, table, gate,
                                    workspace.device_address(), sums.device_address() + first),
                        "add_blocks");
  });
}

template <class Move>
void launch_moves(const char* what, Pieces pieces, std::size_t elements, const Move& move, UpdateGate gate,
                  DeviceSpan<const NormSquares> sums, cudaStream_t stream) {
  check_lengths(what, sums.size(), pieces.size());
  each_table(what, pieces, elements, [&](const PieceTable& table, std::size_t first) {
    const std::uint32_t blocks = table.first_block[table.count];
    if (blocks == 0) return;
    runtime::check_cuda(gpu::launch(move_blocks<Move>, {.grid = dim3(blocks), .block = dim3(threads_of_block)}, stream,
                                    table, move, gate, sums.device_address() + first),
                        "move_blocks");
  });
}

}  // namespace

std::size_t norms_workspace(Pieces pieces) {
  std::size_t most = 0;
  for (std::size_t first = 0; first < pieces.size(); first += PieceTable::max_pieces) {
    std::size_t blocks = 0;
    for (const auto& p : pieces.subspan(first, std::min<std::size_t>(PieceTable::max_pieces, pieces.size() - first)))
      blocks += NormBlocks::blocks_in(p.count);
    most = std::max(most, blocks);
  }
  return most * sizeof(NormSquares);
}

void lars_norms(DeviceSpan<const float> w, DeviceSpan<const float> g, Pieces pieces, DeviceSpan<NormSquares> sums,
                DeviceSpan<NormSquares> workspace, cudaStream_t stream) {
  check_lengths("lars_norms: g", g.size(), w.size());
  launch_norms("lars_norms: sums or workspace", pieces, w.size(), LarsSquares{w.device_address(), g.device_address()},
               {}, sums, workspace, stream);
}

void lars(DeviceSpan<float> w, DeviceSpan<float> v, DeviceSpan<const float> g, Pieces pieces,
          DeviceSpan<const NormSquares> sums, LarsParameters p, UpdateGate gate, cudaStream_t stream) {
  check_lengths("lars: v", v.size(), w.size());
  check_lengths("lars: g", g.size(), w.size());
  launch_moves("lars: sums", pieces, w.size(), LarsMove{w.device_address(), v.device_address(), g.device_address(), p},
               gate, sums, stream);
}

void lamb_norms(DeviceSpan<const float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g,
                Pieces pieces, DeviceSpan<NormSquares> sums, DeviceSpan<NormSquares> workspace, LambParameters p,
                UpdateGate gate, cudaStream_t stream) {
  check_lengths("lamb_norms: m", m.size(), w.size());
  check_lengths("lamb_norms: v", v.size(), w.size());
  check_lengths("lamb_norms: g", g.size(), w.size());
  launch_norms("lamb_norms: sums or workspace", pieces, w.size(),
               LambSquares{w.device_address(), g.device_address(), m.device_address(), v.device_address(), p, gate},
               gate, sums, workspace, stream);
}

void lamb(DeviceSpan<float> w, DeviceSpan<const float> m, DeviceSpan<const float> v, Pieces pieces,
          DeviceSpan<const NormSquares> sums, LambParameters p, UpdateGate gate, cudaStream_t stream) {
  check_lengths("lamb: m", m.size(), w.size());
  check_lengths("lamb: v", v.size(), w.size());
  launch_moves("lamb: sums", pieces, w.size(), LambMove{w.device_address(), m.device_address(), v.device_address(), p},
               gate, sums, stream);
}

}  // namespace gradmeter::kernels::cuda
