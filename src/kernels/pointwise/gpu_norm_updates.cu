// SPDX-License-Identifier: Apache-2.0
// Every step of the arithmetic is rounded, as on the host: this file is compiled without fused multiply-adds.
#include <algorithm>

#include "kernels/cuda/each.cuh"
#include "kernels/pointwise/gpu_kernels.hpp"

namespace gradmeter::kernels::cuda {
namespace {

constexpr std::size_t lanes = NormBlocks::lanes;

/// Pieces as a kernel's parameters, so that no table must be copied. Their blocks are numbered consecutively.
struct PieceTable {
  static constexpr unsigned most = 64;
  TensorPiece pieces[most];
  std::uint32_t first_block[most + 1];
  std::uint32_t count = 0;

  struct Block {
    std::uint32_t piece;
    std::size_t begin, elements;  ///< place in the update's buffers
  };
  /// The block of this number; empty beyond the last one.
  GRADMETER_HOST_DEVICE Block block(std::size_t number) const {
    if (number >= first_block[count]) return {0, 0, 0};
    // finds the last piece that begins at or before the block, since empty pieces share a beginning
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

/// LARS' terms of both sums for one number.
struct LarsSquares {
  const float *w, *g;
  __device__ Unbiased unbiased() const { return {}; }
  __device__ TwoSums at(std::size_t i, Unbiased) const {
    const double x = static_cast<double>(w[i]), y = static_cast<double>(g[i]);
    return {x * x, y * y};
  }
};

/// LAMB's terms of both sums; it first updates the averages.
struct LambSquares {
  const float *w, *g;
  float *m, *v;
  LambParameters p;
  UpdateGate gate;
  __device__ Unbiased unbiased() const { return p.unbiased(gate.counted()); }
  __device__ TwoSums at(std::size_t i, Unbiased u) const {
    p.average(m[i], v[i], g[i]);
    const double x = static_cast<double>(w[i]), y = static_cast<double>(p.direction(w[i], m[i], v[i], u));
    return {x * x, y * y};
  }
};

/// Adds in the order of the lanes; all of them get the same sum.
__device__ double add_lanes(double mine) {
  double sum = 0;
  for (unsigned k = 0; k < lanes; ++k) sum += __shfl_sync(~0u, mine, static_cast<int>(k), static_cast<int>(lanes));
  return sum;
}

/// A thread computes a lane, so a warp computes four blocks.
template <class Squares>
__global__ void sum_blocks(PieceTable table, Squares squares, UpdateGate gate, TwoSums* blocks) {
  if (gate.is_skipped()) return;
  const Unbiased u = squares.unbiased();
  const std::size_t number = element_of_thread() / lanes, lane = threadIdx.x % lanes;
  const auto block = table.block(number);
  const std::size_t whole = block.elements / lanes * lanes;
  TwoSums s;
  for (std::size_t i = lane; i < whole; i += lanes) {
    const TwoSums term = squares.at(block.begin + i, u);
    s.first += term.first;
    s.second += term.second;
  }
  s = {add_lanes(s.first), add_lanes(s.second)};
  if (lane != 0 || number >= table.first_block[table.count]) return;
  for (std::size_t i = whole; i < block.elements; ++i) {
    const TwoSums term = squares.at(block.begin + i, u);
    s.first += term.first;
    s.second += term.second;
  }
  blocks[number] = s;
}

/// A block of one warp handles a piece: it reads 32 blocks together and adds them in their order.
__global__ void add_blocks(PieceTable table, UpdateGate gate, const TwoSums* blocks, TwoSums* sums) {
  if (gate.is_skipped()) return;
  const std::uint32_t begin = table.first_block[blockIdx.x], end = table.first_block[blockIdx.x + 1];
  TwoSums s;
  for (std::uint32_t at = begin; at < end; at += 32) {
    const std::uint32_t mine = at + threadIdx.x, n = core::lesser(32u, end - at);
    const TwoSums read = mine < end ? blocks[mine] : TwoSums{};
    for (std::uint32_t k = 0; k < n; ++k) {
      s.first += __shfl_sync(~0u, read.first, static_cast<int>(k));
      s.second += __shfl_sync(~0u, read.second, static_cast<int>(k));
    }
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = s;
}

/// The values that all numbers of a tensor share.
struct OfTensor {
  float rate;
  Unbiased u;
};
struct LarsMove {
  float *w, *v;
  const float* g;
  LarsParameters p;
  __device__ OfTensor of(TwoSums s, UpdateGate) const { return {p.rate(s), {}}; }
  __device__ void at(std::size_t i, const OfTensor& t) const { p.move(w[i], v[i], g[i], t.rate); }
};
struct LambMove {
  float* w;
  const float *m, *v;
  LambParameters p;
  __device__ OfTensor of(TwoSums s, UpdateGate gate) const { return {p.rate(s), p.unbiased(gate.counted())}; }
  __device__ void at(std::size_t i, const OfTensor& t) const { w[i] -= t.rate * p.direction(w[i], m[i], v[i], t.u); }
};

/// A block of threads updates a block of numbers.
template <class Move>
__global__ void move_blocks(PieceTable table, Move move, UpdateGate gate, const TwoSums* sums) {
  if (gate.is_skipped()) return;
  GPU_SHARED(OfTensor, of_tensor, [1]);
  const auto block = table.block(blockIdx.x);
  if (threadIdx.x == 0) of_tensor[0] = move.of(sums[block.piece], gate);
  __syncthreads();
  for (std::size_t i = threadIdx.x; i < block.elements; i += threads_for_each) move.at(block.begin + i, of_tensor[0]);
}

/// Calls each(table, first) with as many pieces as a kernel's parameters hold, from piece `first` on.
template <class Each>
void each_table(const char* what, Pieces pieces, std::size_t elements, const Each& each) {
  for (std::size_t first = 0; first < pieces.size(); first += PieceTable::most) {
    PieceTable table;
    table.count = static_cast<std::uint32_t>(std::min<std::size_t>(PieceTable::most, pieces.size() - first));
    table.first_block[0] = 0;
    for (std::uint32_t i = 0; i < table.count; ++i) {
      const TensorPiece& p = table.pieces[i] = pieces[first + i];
      if (p.offset > elements || p.count > elements - p.offset)
        throw std::invalid_argument(std::string(what) + ": a piece lies outside of the buffers");
      table.first_block[i + 1] = table.first_block[i] + static_cast<std::uint32_t>(NormBlocks::in(p.count));
    }
    each(table, first);
  }
}

template <class Squares>
void launch_norms(const char* what, Pieces pieces, std::size_t elements, const Squares& squares, UpdateGate gate,
                  DeviceSpan<TwoSums> sums, DeviceSpan<TwoSums> workspace, cudaStream_t stream) {
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
                  DeviceSpan<const TwoSums> sums, cudaStream_t stream) {
  check_lengths(what, sums.size(), pieces.size());
  each_table(what, pieces, elements, [&](const PieceTable& table, std::size_t first) {
    const std::uint32_t blocks = table.first_block[table.count];
    if (blocks == 0) return;
    runtime::check_cuda(gpu::launch(move_blocks<Move>, {.grid = dim3(blocks), .block = dim3(threads_for_each)}, stream,
                                    table, move, gate, sums.device_address() + first),
                        "move_blocks");
  });
}

}  // namespace

std::size_t norms_workspace(Pieces pieces) {
  std::size_t most = 0;
  for (std::size_t first = 0; first < pieces.size(); first += PieceTable::most) {
    std::size_t blocks = 0;
    for (const auto& p : pieces.subspan(first, std::min<std::size_t>(PieceTable::most, pieces.size() - first)))
      blocks += NormBlocks::in(p.count);
    most = std::max(most, blocks);
  }
  return most * sizeof(TwoSums);
}

void lars_norms(DeviceSpan<const float> w, DeviceSpan<const float> g, Pieces pieces, DeviceSpan<TwoSums> sums,
                DeviceSpan<TwoSums> workspace, cudaStream_t stream) {
  check_lengths("lars_norms: g", g.size(), w.size());
  launch_norms("lars_norms: sums or workspace", pieces, w.size(), LarsSquares{w.device_address(), g.device_address()},
               {}, sums, workspace, stream);
}

void lars(DeviceSpan<float> w, DeviceSpan<float> v, DeviceSpan<const float> g, Pieces pieces,
          DeviceSpan<const TwoSums> sums, LarsParameters p, UpdateGate gate, cudaStream_t stream) {
  check_lengths("lars: v", v.size(), w.size());
  check_lengths("lars: g", g.size(), w.size());
  launch_moves("lars: sums", pieces, w.size(), LarsMove{w.device_address(), v.device_address(), g.device_address(), p},
               gate, sums, stream);
}

void lamb_norms(DeviceSpan<const float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g,
                Pieces pieces, DeviceSpan<TwoSums> sums, DeviceSpan<TwoSums> workspace, LambParameters p,
                UpdateGate gate, cudaStream_t stream) {
  check_lengths("lamb_norms: m", m.size(), w.size());
  check_lengths("lamb_norms: v", v.size(), w.size());
  check_lengths("lamb_norms: g", g.size(), w.size());
  launch_norms("lamb_norms: sums or workspace", pieces, w.size(),
               LambSquares{w.device_address(), g.device_address(), m.device_address(), v.device_address(), p, gate},
               gate, sums, workspace, stream);
}

void lamb(DeviceSpan<float> w, DeviceSpan<const float> m, DeviceSpan<const float> v, Pieces pieces,
          DeviceSpan<const TwoSums> sums, LambParameters p, UpdateGate gate, cudaStream_t stream) {
  check_lengths("lamb: m", m.size(), w.size());
  check_lengths("lamb: v", v.size(), w.size());
  launch_moves("lamb: sums", pieces, w.size(), LambMove{w.device_address(), m.device_address(), v.device_address(), p},
               gate, sums, stream);
}

}  // namespace gradmeter::kernels::cuda
