// SPDX-License-Identifier: Apache-2.0
// The kernels of the bucketed codecs for any rule (detail/bucketed.hpp), from functions that read and write floats and
// codes up to functions that launch the kernels. A lane works on four neighbouring elements at a time, and holds their
// codes in one word.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compression/cuda/bucketed.hpp"
#include "compression/detail/bucketed.hpp"
#include "core/host_device.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/launch.hpp"

namespace gradmeter::compression::cuda {

/// Four neighbouring elements of a tensor.
struct Quad {
  float v[4];
};

/// The address `x` must be a multiple of 16 bytes.
__device__ inline Quad load_quad(const float* x) {
  const float4 v = *reinterpret_cast<const float4*>(x);
  return {v.x, v.y, v.z, v.w};
}

/// Elements i … i + 3, i a multiple of 4; those from `end` on are 0. `aligned`: x begins at a multiple of 16 bytes.
__device__ inline Quad read_quad(const float* x, bool aligned, std::size_t i, std::size_t end) {
  Quad q{};
  if (aligned && i + 4 <= end) return load_quad(x + i);
  for (unsigned c = 0; c < 4; ++c) {
    if (i + c < end) q.v[c] = x[i + c];
  }
  return q;
}

__device__ inline void write_quad(const Quad& q, float* x, bool aligned, std::size_t i, std::size_t end) {
  if (aligned && i + 4 <= end) {
    *reinterpret_cast<float4*>(x + i) = float4{q.v[0], q.v[1], q.v[2], q.v[3]};
    return;
  }
  for (unsigned c = 0; c < 4; ++c) {
    if (i + c < end) x[i + c] = q.v[c];
  }
}

/// The codes of elements i … i + 3, the first in the lowest bits.
template <std::size_t bits>
__device__ inline std::uint32_t read_codes(const std::byte* codes, std::size_t i) {
  static_assert(bits == 1 || bits == 2 || bits == 4 || bits == 8);
  if constexpr (bits == 8) return *reinterpret_cast<const std::uint32_t*>(codes + i);
  if constexpr (bits == 4) return *reinterpret_cast<const std::uint16_t*>(codes + i / 2);
  if constexpr (bits == 2) return *reinterpret_cast<const std::uint8_t*>(codes + i / 4);
  return *reinterpret_cast<const std::uint8_t*>(codes + i / 8) >> (i % 8) & 15u;
}

/// Writes the codes of this lane's quad if `inside`. All lanes of a warp call it, with consecutive quads. With one bit,
/// two lanes share a byte, so both must be `inside` or neither.
template <std::size_t bits>
__device__ inline void write_codes(std::uint32_t word, std::byte* codes, std::size_t i, bool inside) {
  if constexpr (bits == 1) {
    const std::uint32_t next = __shfl_down_sync(~0u, word, 1);
    if (inside && i % 8 == 0)
      *reinterpret_cast<std::uint8_t*>(codes + i / 8) = static_cast<std::uint8_t>(word | next << 4);
    return;
  }
  if (!inside) return;
  if constexpr (bits == 8) *reinterpret_cast<std::uint32_t*>(codes + i) = word;
  if constexpr (bits == 4) *reinterpret_cast<std::uint16_t*>(codes + i / 2) = static_cast<std::uint16_t>(word);
  if constexpr (bits == 2) *reinterpret_cast<std::uint8_t*>(codes + i / 4) = static_cast<std::uint8_t>(word);
}

template <class T>
__device__ inline T load_at(const std::byte* from) {
  return *reinterpret_cast<const T*>(from);
}

/// True if floats at this address can be moved four at a time.
inline bool whole_quads(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % sizeof(float4) == 0; }

// The sources of an encoding kernel's numbers: a tensor (FromFloats), or the sum of encoded tensors (FromWires). Their
// functions take the bucket that the numbers are in. whole_piece reads a piece that lies wholly within the tensor;
// `first` is this lane's first element. quad reads elements i … i + 3, with zeros from `end` on. one reads element i.

/// A lane's part of a piece (the elements that a warp works on at a time, cuda/bucketed.hpp): quad s begins 128·s +
/// 4·lane elements behind the piece's first element.
struct Piece {
  Quad quads[steps_of_piece];
};

struct FromFloats {
  /// The threads of a block in the kernel's launch bounds, with two such blocks on a multiprocessor. Launched blocks
  /// are smaller: the number serves to limit a thread to 48 registers, so that five blocks of 256 threads fit.
  static constexpr unsigned most_threads = 640;
  const float* x;
  bool aligned;

  bool gives_whole_pieces() const { return aligned; }
  __device__ Piece whole_piece(std::size_t, std::size_t first) const {
    Piece p;
    for (std::size_t s = 0; s < steps_of_piece; ++s) p.quads[s] = load_quad(x + first + s * step_elements);
    return p;
  }
  __device__ Quad quad(std::size_t, std::size_t i, std::size_t end) const { return read_quad(x, aligned, i, end); }
  __device__ float one(std::size_t, std::size_t i) const { return x[i]; }
};

/// The numbers are sums over the wires, added in the wires' order as in Reducer: the first wire is decoded, the others
/// are added.
template <class Rule>
struct FromWires {
  static constexpr unsigned most_threads = 512;
  Wires wires;
  std::size_t scale_bytes;

  __device__ detail::Coefficients decoder(unsigned w, std::size_t bucket) const {
    using Scale = typename Rule::Scale;
    return Rule::decoder(load_at<Scale>(wires.address[w] + bucket * sizeof(Scale)));
  }

  /// Adds the four numbers of wire w that begin with element i.
  __device__ void add(unsigned w, const detail::Coefficients& c, std::size_t i, Quad& sum) const {
    const std::uint32_t word = read_codes<Rule::bits>(wires.address[w] + scale_bytes, i);
    for (unsigned k = 0; k < 4; ++k) {
      const float value = Rule::value(c, word >> (k * Rule::bits) & ((1u << Rule::bits) - 1));
      sum.v[k] = w == 0 ? value : sum.v[k] + value;
    }
  }

  static bool gives_whole_pieces() { return true; }
  __device__ Piece whole_piece(std::size_t bucket, std::size_t first) const {
    Piece p{};
    for (unsigned w = 0; w < wires.count; ++w) {
      const detail::Coefficients c = decoder(w, bucket);
      for (std::size_t s = 0; s < steps_of_piece; ++s) add(w, c, first + s * step_elements, p.quads[s]);
    }
    return p;
  }
  __device__ Quad quad(std::size_t bucket, std::size_t i, std::size_t end) const {
    Quad q{};
    for (unsigned w = 0; w < wires.count && i < end; ++w) add(w, decoder(w, bucket), i, q);
    for (unsigned k = 0; k < 4; ++k) q.v[k] = i + k < end ? q.v[k] : 0.0f;
    return q;
  }
  __device__ float one(std::size_t bucket, std::size_t i) const {
    float sum = 0;
    for (unsigned w = 0; w < wires.count; ++w) {
      const std::uint32_t word = read_codes<Rule::bits>(wires.address[w] + scale_bytes, i / 4 * 4);
      const std::uint32_t code = word >> (i % 4 * Rule::bits) & ((1u << Rule::bits) - 1);
      const float value = Rule::value(decoder(w, bucket), code);
      sum = w == 0 ? value : sum + value;
    }
    return sum;
  }
};

// The norm of a bucket, computed by the warps that share the bucket. Its bits are those that the host computes.

inline constexpr std::uint32_t infinity_bits = 0x7f800000;

__device__ inline std::uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffff; }

/// The result of detail::max_norm, given the bits of the largest magnitude. As integers, the bits of NaN and infinity
/// are larger than those of any number.
__device__ inline float norm_of_bits(std::uint32_t most) {
  return most < infinity_bits ? __uint_as_float(most) : core::quiet_nan<float>();
}

/// Twice the bits of the largest magnitude. Signs are shifted out, not masked: the compiler can replace the shift by a
/// multiplication, which runs on other units than the comparisons.
__device__ inline std::uint32_t largest_doubled(const Quad& q) {
  std::uint32_t most = 0;
  for (const float v : q.v) most = core::greater(most, __float_as_uint(v) << 1);
  return most;
}
/// The bits of the largest magnitude.
__device__ inline std::uint32_t largest_bits(const Piece& p) {
  std::uint32_t most = 0;
  for (const Quad& q : p.quads) most = core::greater(most, largest_doubled(q));
  return most >> 1;
}
/// The same for the piece in which this lane's first element is i; elements from `end` on count as 0.
template <class Source>
__device__ std::uint32_t largest_bits(const Source& source, std::size_t bucket, std::size_t i, std::size_t end) {
  std::uint32_t most = 0;
  for (std::size_t s = 0; s < steps_of_piece; ++s) {
    most = core::greater(most, largest_doubled(source.quad(bucket, i + s * step_elements, end)));
  }
  return most >> 1;
}

/// Adds the sixteen partial sums of lanes 0 … 15 pairwise; lane 0 gets the sum.
__device__ inline double pairwise_sum(double partial) {
  for (unsigned half = 8; half > 0; half /= 2) partial += __shfl_down_sync(~0u, partial, half);
  return partial;
}

/// The sum of squares of one piece, as in detail::sum_of_squares; lane 0 gets it. Element i goes to partial sum i mod
/// 16: of the 32 elements that a warp reads at a time, a lane adds its own and then that of the lane 16 above it.
template <class Source>
__device__ double piece_squares(const Source& source, std::size_t bucket, std::size_t first, std::size_t end) {
  double partial = 0;
  for (std::size_t i = first + threadIdx.x % 32; i < first + piece_elements; i += 32) {
    const double v = i < end ? static_cast<double>(source.one(bucket, i)) : 0;
    const double square = v * v, above = __shfl_down_sync(~0u, square, 16);
    partial += square;
    partial += above;
  }
  return pairwise_sum(partial);
}

/// Adds neighbouring sums, then neighbours among the results, and so on, until sums[0] is the sum of all: the order of
/// detail::TreeSum. Called by a whole block. first_width: a power of two; the entries at its multiples already are sums
/// of first_width neighbours.
__device__ inline void add_tree(double* sums, std::size_t count, std::size_t first_width = 1) {
  for (std::size_t width = first_width; width < count; width *= 2) {
    __syncthreads();
    for (std::size_t j = 2 * width * threadIdx.x; j + width < count; j += 2 * width * blockDim.x)
      sums[j] += sums[j + width];
  }
  __syncthreads();
}

/// The root as detail::l2_of computes it.
__device__ inline float root_of(double sum) {
  if (!(sum - sum == 0)) return core::quiet_nan<float>();
  constexpr double most = core::largest_float;
  const double root = sqrt(sum);
  return static_cast<float>(core::lesser(root, most));
}

// A bucket of up to 512 elements is encoded by one warp; a longer one by a block, with a warp for each 512 elements but
// at most 16 warps. If a bucket is exactly one whole piece for each of its warps, its elements stay in registers
// between the norm and the codes: they are read once, and no bounds are checked. Other buckets are read a second time,
// from the L1 or L2 cache if they are short.

/// The elements that this warp works on: its bucket [bucket_begin, end), and the pieces of it that begin at `first`,
/// first + stride, … If the bucket is the last one, codes are written up to `codes_end`, beyond `end`. `warp`: the
/// warp's number among those that share the bucket. 32 bits can count the buckets for every n that memory holds, and
/// can hold the length of every bucket that these kernels encode.
struct WarpRange {
  __device__ explicit WarpRange(const WireShape& s)
      : warp(s.warps_per_bucket == 1 ? 0 : threadIdx.x / 32),
        bucket(s.warps_per_bucket == 1 ? blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32 : blockIdx.x),
        bucket_begin(std::size_t{bucket} * static_cast<std::uint32_t>(s.bucket)),
        end(core::lesser(bucket_begin + s.bucket, s.n)),
        codes_end(bucket + 1 == s.buckets ? s.codes_end : end),
        first(bucket_begin + warp * piece_elements),
        stride(s.warps_per_bucket * piece_elements) {}
  /// This lane's first element of the piece at `from`.
  __device__ static std::size_t lane_begin(std::size_t from) { return from + 4 * (threadIdx.x % 32); }

  unsigned warp, bucket;
  std::size_t bucket_begin, end, codes_end, first, stride;
};

/// The largest `mine` among all threads that share the bucket.
__device__ inline std::uint32_t team_max(std::uint32_t mine, unsigned warps_per_bucket) {
  const std::uint32_t of_warp = __reduce_max_sync(~0u, mine);
  if (warps_per_bucket == 1) return of_warp;
  GPU_SHARED(std::uint32_t, warps, [most_warps]);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return __reduce_max_sync(~0u, threadIdx.x % 32 < warps_per_bucket ? warps[threadIdx.x % 32] : 0u);
}

/// The L2 norm of the bucket, added up in the host's order: sums of pieces, then their tree. Dynamic shared memory: a
/// double for each piece of the bucket, if several warps share the bucket.
template <class Source>
__device__ float team_l2(const Source& source, const WarpRange& place, unsigned warps_per_bucket) {
  if (warps_per_bucket == 1) {
    const double sum = piece_squares(source, place.bucket, place.bucket_begin, place.end);
    return root_of(__shfl_sync(~0u, sum, 0));
  }
  auto* sums = gpu::dynamic_shared<double>();
  for (std::size_t from = place.first; from < place.end; from += place.stride) {
    const double sum = piece_squares(source, place.bucket, from, place.end);
    if (threadIdx.x % 32 == 0) sums[(from - place.bucket_begin) / piece_elements] = sum;
  }
  add_tree(sums, (place.end - place.bucket_begin + piece_elements - 1) / piece_elements);
  return root_of(sums[0]);
}

/// The draws of a launch. All elements share `keys`, unless their numbers differ in the high word (`crosses`).
struct LaunchDraws {
  LaunchDraws(const detail::Draws& draws, std::size_t n)
      : all_draws(draws),
        keys(draws.keys(0)),
        low(static_cast<std::uint32_t>(draws.number(0))),
        crosses(draws.crosses(0, n)) {}
  __device__ std::uint32_t draw(std::size_t i) const {
    return crosses ? all_draws.draw(i) : keys.draw(low + static_cast<std::uint32_t>(i));
  }

  detail::Draws all_draws;
  detail::DrawKeys keys;
  std::uint32_t low;  ///< element 0's number
  bool crosses;       ///< true if the high word changes within the launch, which happens once in 2^32 numbers
};

/// The number of leading pieces that are read and written without bounds checks. It is 0 unless a bucket is one whole
/// piece for each of its warps, the source can read whole pieces, and all elements share their draws' keys.
template <class Source>
std::uint32_t whole_pieces(const Source& source, const WireShape& s, const LaunchDraws& draws) {
  const bool any = source.gives_whole_pieces() && s.bucket == s.warps_per_bucket * piece_elements && !draws.crosses;
  return any ? static_cast<std::uint32_t>(s.n / s.bucket * s.warps_per_bucket) : 0;
}

/// A warp's number in the grid. Where buckets are whole pieces, it is also the index of the warp's piece in the tensor.
__device__ inline std::uint32_t piece_of_warp() { return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }
/// A lane's first element of that piece.
__device__ inline std::size_t first_of_lane(std::uint32_t piece) {
  return WarpRange::lane_begin(std::size_t{piece} * static_cast<std::uint32_t>(piece_elements));
}

/// Writes the codes of a whole piece; `mine` is this lane's first element there.
template <class Rule>
__device__ void write_whole_piece(const Piece& p, float norm, std::size_t mine, const LaunchDraws& draws,
                                  std::byte* codes) {
  // With one-bit codes, two lanes share a byte. The address of each step is `to` plus a constant.
  constexpr unsigned group = Rule::bits == 1 ? 8 : 4, step = static_cast<unsigned>(step_elements);
  std::byte* to = codes + mine / group * (group * Rule::bits / 8);
  const auto at = static_cast<unsigned>(mine % group);
  if (!(norm > 0)) {
    for (unsigned s = 0; s < steps_of_piece; ++s) write_codes<Rule::bits>(0, to, at + s * step, true);
    return;
  }
  const detail::Coefficients encoder = Rule::encoder(norm);
  const std::uint32_t low = draws.low + static_cast<std::uint32_t>(mine);
  for (unsigned s = 0; s < steps_of_piece; ++s) {
    std::uint32_t word = 0;
    for (unsigned c = 0; c < 4; ++c) {
      const std::uint32_t draw = Rule::random ? draws.keys.draw(low + (s * step + c)) : detail::half_draw;
      word |= Rule::code(encoder, p.quads[s].v[c], draw) << (c * Rule::bits);
    }
    write_codes<Rule::bits>(word, to, at + s * step, true);
  }
}

/// Writes the codes of the piece at `from`, which may be short. A lane holds only one quad at a time, to save
/// registers, and mostly reads it from the cache. `bucket`: the bucket whose scales decode the source's numbers.
template <class Rule, class Source>
__device__ void write_piece(const Source& source, std::size_t bucket, float norm, std::size_t from,
                            const WarpRange& place, const LaunchDraws& draws, std::byte* codes) {
  const detail::Coefficients encoder = Rule::encoder(norm > 0 ? norm : 1.0f);
  const std::size_t until = core::lesser(from + piece_elements, place.codes_end);
  for (std::size_t step = from; step < until; step += step_elements) {
    const std::size_t i = WarpRange::lane_begin(step);
    const Quad q = source.quad(bucket, i, place.end);
    std::uint32_t word = 0;
    for (unsigned c = 0; c < 4; ++c) {
      const std::uint32_t draw = Rule::random ? draws.draw(i + c) : detail::half_draw;
      if (norm > 0 && i + c < place.end) word |= Rule::code(encoder, q.v[c], draw) << (c * Rule::bits);
    }
    write_codes<Rule::bits>(word, codes, i, i < place.codes_end);
  }
}

/// Writes the bucket's scale, and with the last scale the padding behind it. Called by all lanes of all warps; only the
/// bucket's first warp writes (`is_first`).
template <class Rule>
__device__ void write_scale(float norm, std::uint32_t bucket, bool is_first, const WireShape& s, std::byte* wire) {
  using Scale = typename Rule::Scale;
  const unsigned lane = threadIdx.x % 32;
  if (!is_first) return;
  if (lane == 0) *reinterpret_cast<Scale*>(wire + bucket * sizeof(Scale)) = Rule::scale(norm);
  if (bucket + 1 != static_cast<std::uint32_t>(s.buckets)) return;
  const std::size_t padding = s.buckets * sizeof(Scale) + lane;
  if (padding < s.scale_bytes) wire[padding] = std::byte{0};
}

/// Encodes one whole piece on each warp. With norm=l2 the piece is loaded a second time, from the cache, since
/// computing the sum of squares leaves no registers to hold the piece.
template <class Rule, class Source>
__device__ void encode_whole(const Source& source, std::uint32_t piece, const WireShape& shape, detail::Norm kind,
                             const LaunchDraws& draws, std::byte* wire) {
  const std::uint32_t bucket = shape.warps_per_bucket == 1 ? piece : blockIdx.x;
  const std::size_t mine = first_of_lane(piece);
  float norm = kind == detail::Norm::l2 ? team_l2(source, WarpRange(shape), shape.warps_per_bucket) : 0.0f;
  const Piece values = source.whole_piece(bucket, mine);
  if (kind == detail::Norm::max) norm = norm_of_bits(team_max(largest_bits(values), shape.warps_per_bucket));
  write_scale<Rule>(norm, bucket, shape.warps_per_bucket == 1 || threadIdx.x < 32, shape, wire);
  write_whole_piece<Rule>(values, norm, mine, draws, wire + shape.scale_bytes);
}

/// Encodes a bucket of any length, whose last piece may be short.
template <class Rule, class Source>
__device__ void encode_ragged(const Source& source, const WarpRange& place, const WireShape& shape, detail::Norm kind,
                              const LaunchDraws& draws, std::byte* wire) {
  float norm = 0;
  if (kind == detail::Norm::max) {
    std::uint32_t most = 0;
    for (std::size_t from = place.first; from < place.end; from += place.stride) {
      most = core::greater(most, largest_bits(source, place.bucket, WarpRange::lane_begin(from), place.end));
    }
    norm = norm_of_bits(team_max(most, shape.warps_per_bucket));
  } else {
    norm = team_l2(source, place, shape.warps_per_bucket);
  }
  write_scale<Rule>(norm, place.bucket, place.warp == 0, shape, wire);
  for (std::size_t from = place.first; from < place.codes_end; from += place.stride) {
    write_piece<Rule>(source, place.bucket, norm, from, place, draws, wire + shape.scale_bytes);
  }
}

template <class Rule, class Source>
__global__ void __launch_bounds__(Source::most_threads, 2)
    encode_buckets(Source source, WireShape shape, std::uint32_t whole_piece_count, detail::Norm kind,
                   LaunchDraws draws, std::byte* wire) {
  const std::uint32_t piece = piece_of_warp();
  if (piece < whole_piece_count) return encode_whole<Rule>(source, piece, shape, kind, draws, wire);
  const WarpRange place(shape);
  if (place.bucket >= shape.buckets) return;  // only whole warps return here, and none where warps share a bucket
  encode_ragged<Rule>(source, place, shape, kind, draws, wire);
}

template <class Rule>
__global__ void decode_buckets(const std::byte* wire, WireShape shape, const float* addend, float* out, bool aligned) {
  using Scale = typename Rule::Scale;
  const std::size_t i = 4 * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (i >= shape.n) return;
  const detail::Coefficients decoder = Rule::decoder(load_at<Scale>(wire + shape.bucket_of(i) * sizeof(Scale)));
  const std::uint32_t word = read_codes<Rule::bits>(wire + shape.scale_bytes, i);
  Quad q;
  for (unsigned c = 0; c < 4; ++c) q.v[c] = Rule::value(decoder, word >> (c * Rule::bits) & ((1u << Rule::bits) - 1));
  if (addend) {
    const Quad a = read_quad(addend, aligned, i, shape.n);
    for (unsigned c = 0; c < 4; ++c) q.v[c] = a.v[c] + q.v[c];
  }
  write_quad(q, out, aligned, i, shape.n);
}

// Launches of the bucketed codecs' kernels.

/// The shape of an encoding launch: blocks of eight warps if each warp has a bucket of its own; otherwise a block has
/// the warps of one bucket.
inline gpu::Shape team_shape(const WireShape& s, detail::Norm kind) {
  const unsigned warps = s.warps_per_bucket == 1 ? 8 : s.warps_per_bucket, buckets_a_block = warps / s.warps_per_bucket;
  const std::size_t pieces = (s.bucket + piece_elements - 1) / piece_elements;
  return {.grid = dim3(gpu::blocks_of(s.buckets, buckets_a_block)),
          .block = dim3(32 * warps),
          .shared_bytes =
              kind == detail::Norm::l2 && s.warps_per_bucket > 1 ? static_cast<unsigned>(pieces * sizeof(double)) : 0};
}

template <class Rule, class Source>
void launch_buckets(const Source& source, const WireShape& s, detail::Norm kind, const detail::Draws& draws,
                    std::byte* wire, const char* name, cudaStream_t stream) {
  const LaunchDraws numbers(draws, s.n);
  runtime::check_cuda(gpu::launch(encode_buckets<Rule, Source>, team_shape(s, kind), stream, source, s,
                                  whole_pieces(source, s, numbers), kind, numbers, wire),
                      name);
}
template <class Rule>
void launch_encode(const float* x, const WireShape& s, detail::Norm kind, const detail::Draws& draws, std::byte* wire,
                   cudaStream_t stream) {
  launch_buckets<Rule>(FromFloats{x, whole_quads(x)}, s, kind, draws, wire, "encode_buckets", stream);
}
template <class Rule>
void launch_reduce(const Wires& wires, const WireShape& s, detail::Norm kind, const detail::Draws& draws,
                   std::byte* out, cudaStream_t stream) {
  launch_buckets<Rule>(FromWires<Rule>{wires, s.scale_bytes}, s, kind, draws, out, "encode_buckets of a sum", stream);
}
template <class Rule>
void launch_decode(const std::byte* wire, const WireShape& s, const float* addend, float* out, cudaStream_t stream) {
  constexpr std::size_t threads = 256;
  const unsigned blocks = gpu::blocks_of(s.n, 4 * threads);
  const bool aligned = whole_quads(out) && (!addend || whole_quads(addend));
  runtime::check_cuda(gpu::launch(decode_buckets<Rule>, {.grid = dim3(blocks), .block = dim3(threads)}, stream, wire, s,
                                  addend, out, aligned),
                      "decode_buckets");
}
template <class Rule>
inline constexpr BucketedKernels bucketed_kernels{launch_encode<Rule>, launch_decode<Rule>, launch_reduce<Rule>};

}  // namespace gradmeter::compression::cuda
