// Kernels of the bucketed codecs, for any rule (detail/bucketed_plain.hpp). A bucket of up to 512 elements is a warp's;
// a longer one has a warp for each 512 of its elements, up to a block of 16. Up to 8192 elements are held in registers
// between the norm and the codes: one read, one write.
#pragma once
#include "compression/cuda/bucketed.hpp"
#include "compression/cuda/norms.cuh"
#include "compression/detail/bucketed.hpp"

namespace gradmeter::compression::cuda {

/// The place of this warp: its bucket, and its pieces there.
struct Place {
  __device__ explicit Place(const WireShape& s)
      : warp(threadIdx.x / 32 % s.team),
        bucket(std::size_t{blockIdx.x} * (blockDim.x / 32 / s.team) + threadIdx.x / 32 / s.team),
        at(bucket * s.bucket),
        end(core::lesser(at + s.bucket, s.n)),
        codes_end(bucket + 1 == s.buckets ? s.codes_end : end),
        first(at + warp * piece_elements),
        stride(s.team * piece_elements) {}
  /// This lane's first element of the piece at `from`.
  __device__ static std::size_t mine(std::size_t from) { return from + 4 * (threadIdx.x % 32); }

  unsigned warp;
  std::size_t bucket, at, end, codes_end, first, stride;
};

/// The largest of all threads of the team.
__device__ inline std::uint32_t team_max(std::uint32_t mine, unsigned team) {
  const std::uint32_t of_warp = __reduce_max_sync(~0u, mine);
  if (team == 1) return of_warp;
  GPU_SHARED(std::uint32_t, warps, [most_warps]);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return __reduce_max_sync(~0u, threadIdx.x % 32 < team ? warps[threadIdx.x % 32] : 0u);
}

/// The L2 norm, in the host's order: sums of pieces, then their tree. Dynamic shared memory: a double for each piece.
template <class Source>
__device__ float team_l2(const Source& source, const Place& place, unsigned team) {
  if (team == 1) {
    const double sum = piece_squares(source, place.bucket, place.at, place.end);
    return root_of(__shfl_sync(~0u, sum, 0));
  }
  auto* sums = gpu::dynamic_shared<double>();
  for (std::size_t from = place.first; from < place.end; from += place.stride) {
    const double sum = piece_squares(source, place.bucket, from, place.end);
    if (threadIdx.x % 32 == 0) sums[(from - place.at) / piece_elements] = sum;
  }
  add_tree(sums, (place.end - place.at + piece_elements - 1) / piece_elements);
  return root_of(sums[0]);
}

template <class Rule>
__device__ void write_piece(const Piece& p, float norm, std::size_t from, const Place& place,
                            const detail::Draws& draws, std::byte* codes) {
  const auto keys = draws.keys(place.at);
  const bool crosses = draws.crosses(place.at, place.end - place.at);  // once in 2^32 elements
  const typename Rule::Encoder rule(norm > 0 ? norm : 1.0f);
  for (std::size_t s = 0; s < steps; ++s) {
    const std::size_t i = Place::mine(from) + s * step_elements;
    std::uint32_t word = 0;
    for (unsigned c = 0; c < 4; ++c) {
      std::uint32_t draw = detail::half_draw;
      if (Rule::random) {
        draw = crosses ? draws.draw(i + c) : keys.draw(static_cast<std::uint32_t>(draws.number(i + c)));
      }
      if (norm > 0 && i + c < place.end) word |= rule.code(p.quads[s].v[c], draw) << (c * Rule::bits);
    }
    write_codes<Rule::bits>(word, codes, i, i < place.codes_end);
  }
}

template <class Rule>
__device__ void write_scale(float norm, const Place& place, const WireShape& s, std::byte* wire) {
  using Scale = typename Rule::Scale;
  const unsigned lane = threadIdx.x % 32;
  if (place.warp != 0) return;
  if (lane == 0) *reinterpret_cast<Scale*>(wire + place.bucket * sizeof(Scale)) = Rule::scale(norm);
  const std::size_t padding = s.buckets * sizeof(Scale) + lane;
  if (place.bucket + 1 == s.buckets && padding < s.scale_bytes) wire[padding] = std::byte{0};
}

template <class Rule, class Source>
__global__ void encode_buckets(Source source, WireShape shape, detail::Norm kind, detail::Draws draws,
                               std::byte* wire) {
  const Place place(shape);
  if (place.bucket >= shape.buckets) return;  // whole warps, and with several to a bucket none
  Piece held = source.piece(place.bucket, Place::mine(place.first), place.end);
  float norm = 0;
  if (kind == detail::Norm::max) {
    std::uint32_t most = largest_bits(held);
    for (std::size_t from = place.first + place.stride; from < place.end; from += place.stride) {
      most = core::greater(most, largest_bits(source.piece(place.bucket, Place::mine(from), place.end)));
    }
    norm = norm_of_bits(team_max(most, shape.team));
  } else {
    norm = team_l2(source, place, shape.team);
  }
  write_scale<Rule>(norm, place, shape, wire);
  for (std::size_t from = place.first; from < place.codes_end; from += place.stride) {
    if (from != place.first) held = source.piece(place.bucket, Place::mine(from), place.end);
    write_piece<Rule>(held, norm, from, place, draws, wire + shape.scale_bytes);
  }
}

template <class Rule>
__global__ void decode_buckets(const std::byte* wire, WireShape shape, const float* addend, float* out, bool aligned) {
  using Scale = typename Rule::Scale;
  const std::size_t i = 4 * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (i >= shape.n) return;
  const typename Rule::Decoder rule(load_at<Scale>(wire + shape.bucket_of(i) * sizeof(Scale)));
  const std::uint32_t word = read_codes<Rule::bits>(wire + shape.scale_bytes, i);
  Quad q;
  for (unsigned c = 0; c < 4; ++c) q.v[c] = rule.value(word >> (c * Rule::bits) & ((1u << Rule::bits) - 1));
  if (addend) {
    const Quad a = read_quad(addend, aligned, i, shape.n);
    for (unsigned c = 0; c < 4; ++c) q.v[c] = a.v[c] + q.v[c];
  }
  write_quad(q, out, aligned, i, shape.n);
}

}  // namespace gradmeter::compression::cuda
