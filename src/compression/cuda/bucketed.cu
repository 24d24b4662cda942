// SPDX-License-Identifier: Apache-2.0
// The kernels of each bucketed codec: most are those of bucketed.cuh for its rule; casts have no buckets, and `onebit`
// sums elements and packs signs in one pass.
#include "compression/cuda/bucketed.hpp"

#include "compression/codecs/block_scaled.hpp"
#include "compression/codecs/casts.hpp"
#include "compression/codecs/onebit.hpp"
#include "compression/codecs/quantized.hpp"
#include "compression/cuda/bucketed.cuh"
#include "core/host_device.hpp"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {

const BucketedKernels& fp8_kernels(bool e4m3) {
  return e4m3 ? bucketed_kernels<detail::Fp8Rule<true>> : bucketed_kernels<detail::Fp8Rule<false>>;
}

const BucketedKernels& lns4_kernels() { return bucketed_kernels<detail::Lns4Rule>; }

const BucketedKernels& natural_kernels() { return bucketed_kernels<detail::NaturalRule>; }

namespace {

using detail::QsgdRule, detail::Rounding;

template <std::size_t bits>
const BucketedKernels& rounded(Rounding rounding) {
  return rounding == Rounding::nearest ? bucketed_kernels<QsgdRule<bits, Rounding::nearest>>
                                       : bucketed_kernels<QsgdRule<bits, Rounding::stochastic>>;
}

}  // namespace

const BucketedKernels& qsgd_kernels(std::size_t bits, Rounding rounding) {
  if (bits == 8) return rounded<8>(rounding);
  if (bits == 4) return rounded<4>(rounding);
  return rounded<2>(rounding);
}

const BucketedKernels& qsgd1_kernels() { return bucketed_kernels<detail::Qsgd1Rule>; }

namespace {

template <bool fp16>
__device__ Quad decoded_quad(const std::byte* wire, std::size_t i) {
  const ushort4 codes = *reinterpret_cast<const ushort4*>(wire + 2 * i);
  constexpr core::SmallFormat format = detail::cast_format(fp16);
  return {core::to_float(format, codes.x), core::to_float(format, codes.y), core::to_float(format, codes.z),
          core::to_float(format, codes.w)};
}

template <bool fp16>
__device__ void write_quad_codes(const Quad& q, std::byte* wire, std::size_t i) {
  constexpr core::SmallFormat format = detail::cast_format(fp16);
  const ushort4 codes{core::rounded_code<format>(q.v[0]), core::rounded_code<format>(q.v[1]),
                      core::rounded_code<format>(q.v[2]), core::rounded_code<format>(q.v[3])};
  *reinterpret_cast<ushort4*>(wire + 2 * i) = codes;
}

__device__ std::size_t first_of_thread() { return 4 * kernels::cuda::element_of_thread(); }

/// Writes codes up to element `codes_end`, where the padding ends.
template <bool fp16>
__global__ void encode_casts(const float* x, bool aligned, std::size_t n, std::size_t codes_end, std::byte* wire) {
  const std::size_t i = first_of_thread();
  if (i < codes_end) write_quad_codes<fp16>(read_quad(x, aligned, i, n), wire, i);
}

template <bool fp16>
__global__ void sum_casts(Wires wires, std::size_t n, std::size_t codes_end, std::byte* out) {
  const std::size_t i = first_of_thread();
  if (i >= codes_end) return;
  Quad sum{};
  for (unsigned w = 0; w < wires.count && i < n; ++w) {
    const Quad q = decoded_quad<fp16>(wires.address[w], i);
    for (unsigned c = 0; c < 4; ++c) sum.v[c] = i + c >= n ? 0.0f : w == 0 ? q.v[c] : sum.v[c] + q.v[c];
  }
  write_quad_codes<fp16>(sum, out, i);
}

template <bool fp16>
__global__ void decode_casts(const std::byte* wire, std::size_t n, const float* addend, float* out, bool aligned) {
  const std::size_t i = first_of_thread();
  if (i >= n) return;
  Quad q = decoded_quad<fp16>(wire, i);
  if (addend) {
    const Quad a = read_quad(addend, aligned, i, n);
    for (unsigned c = 0; c < 4; ++c) q.v[c] = a.v[c] + q.v[c];
  }
  write_quad(q, out, aligned, i, n);
}

gpu::Shape shape_for(std::size_t elements) {
  constexpr unsigned elements_of_block = 4 * kernels::cuda::threads_of_block;
  return {.grid = dim3(gpu::blocks_of(elements, elements_of_block)), .block = dim3(kernels::cuda::threads_of_block)};
}

template <bool fp16>
void launch_cast_encode(const float* x, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* wire,
                        cudaStream_t stream) {
  runtime::check_cuda(
      gpu::launch(encode_casts<fp16>, shape_for(s.codes_end), stream, x, whole_quads(x), s.n, s.codes_end, wire),
      "encode_casts");
}
template <bool fp16>
void launch_cast_reduce(const Wires& wires, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* out,
                        cudaStream_t stream) {
  runtime::check_cuda(gpu::launch(sum_casts<fp16>, shape_for(s.codes_end), stream, wires, s.n, s.codes_end, out),
                      "sum_casts");
}
template <bool fp16>
void launch_cast_decode(const std::byte* wire, const WireShape& s, const float* addend, float* out,
                        cudaStream_t stream) {
  const bool aligned = whole_quads(out) && (!addend || whole_quads(addend));
  runtime::check_cuda(gpu::launch(decode_casts<fp16>, shape_for(s.n), stream, wire, s.n, addend, out, aligned),
                      "decode_casts");
}
template <bool fp16>
constexpr BucketedKernels kernels_of_casts{launch_cast_encode<fp16>, launch_cast_decode<fp16>,
                                           launch_cast_reduce<fp16>};

}  // namespace

const BucketedKernels& cast_kernels(bool fp16) { return fp16 ? kernels_of_casts<true> : kernels_of_casts<false>; }

// Kernels of `onebit`, which collect signs by ballots: in round k, lane l of a warp has element 32·k + l of a piece.
// The sums are added up in the same order.

namespace {

constexpr unsigned rounds = piece_elements / 32;

/// The sums of one piece (up and down as in detail::SignSums) and the number of its elements that are not negative;
/// complete in lane 0.
struct SignPiece {
  double up = 0, down = 0;
  unsigned ones = 0;
};

/// Writes the signs of the piece at `from` and returns its sums.
template <bool two_means, class Source>
__device__ SignPiece pack_signs(const Source& source, const WarpRange& place, std::size_t from, std::byte* codes) {
  const unsigned lane = threadIdx.x % 32;
  float v[rounds];
  for (unsigned k = 0; k < rounds; ++k) {
    const std::size_t i = from + 32 * k + lane;
    v[k] = i < place.end ? source.one(place.bucket, i) : 0.0f;
  }
  SignPiece sums;
  std::uint32_t word_to_write = 0;
  for (unsigned k = 0; k < rounds; ++k) {
    const bool positive = v[k] >= 0;
    const std::uint32_t signs = __ballot_sync(~0u, positive && from + 32 * k + lane < place.end);
    if (lane == k) word_to_write = signs;
    sums.ones += static_cast<unsigned>(__popc(signs));
    const double up = two_means ? (positive ? v[k] : 0.0f) : fabsf(v[k]), up_above = __shfl_down_sync(~0u, up, 16);
    sums.up += up;
    sums.up += up_above;
    if (!two_means) continue;
    const double down = positive ? 0.0f : v[k], down_above = __shfl_down_sync(~0u, down, 16);
    sums.down += down;
    sums.down += down_above;
  }
  if (lane < rounds && from + 32 * lane < place.codes_end) {
    *reinterpret_cast<std::uint32_t*>(codes + from / 8 + 4 * lane) = word_to_write;
  }
  sums.up = pairwise_sum(sums.up);
  if (two_means) sums.down = pairwise_sum(sums.down);
  return sums;
}

template <bool two_means>
__device__ void write_means(const SignPiece& sums, const WarpRange& place, const WireShape& s, std::byte* wire) {
  using Scale = typename detail::SignRule<two_means>::Scale;
  const unsigned lane = threadIdx.x % 32;
  if (place.warp != 0) return;
  const std::size_t n = place.end - place.bucket_begin;
  const detail::SignValues means =
      detail::sign_means<two_means>(sums.up, sums.down, sums.ones, n - sums.ones, core::quiet_nan<float>());
  auto* to = reinterpret_cast<float*>(wire + place.bucket * sizeof(Scale));
  if (lane == 0) to[0] = means.one;
  if (lane == 0 && two_means) to[1] = means.zero;
  const std::size_t padding = s.buckets * sizeof(Scale) + lane;
  if (place.bucket + 1 == s.buckets && padding < s.scale_bytes) wire[padding] = std::byte{0};
}

/// Dynamic shared memory where several warps share a bucket: two doubles and a count for each piece.
template <bool two_means, class Source>
__global__ void encode_signs(Source source, WireShape shape, std::byte* wire) {
  const WarpRange place(shape);
  if (place.bucket >= shape.buckets) return;  // only whole warps return here, and none where warps share a bucket
  std::byte* codes = wire + shape.scale_bytes;
  if (shape.warps_per_bucket == 1)
    return write_means<two_means>(pack_signs<two_means>(source, place, place.bucket_begin, codes), place, shape, wire);
  const std::size_t pieces = (place.end - place.bucket_begin + piece_elements - 1) / piece_elements;
  auto* up = gpu::dynamic_shared<double>();
  double* down = up + pieces;
  auto* ones = reinterpret_cast<unsigned*>(down + pieces);
  for (std::size_t from = place.first; from < place.codes_end; from += place.stride) {
    const SignPiece sums = pack_signs<two_means>(source, place, from, codes);
    const std::size_t p = (from - place.bucket_begin) / piece_elements;
    if (threadIdx.x % 32 != 0 || p >= pieces) continue;
    up[p] = sums.up;
    down[p] = sums.down;
    ones[p] = sums.ones;
  }
  add_tree(up, pieces);
  if (two_means) add_tree(down, pieces);
  SignPiece sums{up[0], two_means ? down[0] : 0, 0};
  for (std::size_t p = 0; two_means && p < pieces; ++p) sums.ones += ones[p];
  write_means<two_means>(sums, place, shape, wire);
}

gpu::Shape sign_shape(const WireShape& s) {
  gpu::Shape shape = team_shape(s, detail::Norm::max);
  const std::size_t pieces = (s.bucket + piece_elements - 1) / piece_elements;
  if (s.warps_per_bucket > 1)
    shape.shared_bytes = static_cast<unsigned>(pieces * (2 * sizeof(double) + sizeof(unsigned)));
  return shape;
}

template <bool two_means>
void launch_sign_encode(const float* x, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* wire,
                        cudaStream_t stream) {
  runtime::check_cuda(
      gpu::launch(encode_signs<two_means, FromFloats>, sign_shape(s), stream, FromFloats{x, whole_quads(x)}, s, wire),
      "encode_signs");
}
template <bool two_means>
void launch_sign_reduce(const Wires& wires, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* out,
                        cudaStream_t stream) {
  using Rule = detail::SignRule<two_means>;
  runtime::check_cuda(gpu::launch(encode_signs<two_means, FromWires<Rule>>, sign_shape(s), stream,
                                  FromWires<Rule>{wires, s.scale_bytes}, s, out),
                      "encode_signs of a sum");
}
template <bool two_means>
constexpr BucketedKernels kernels_of_signs{launch_sign_encode<two_means>, launch_decode<detail::SignRule<two_means>>,
                                           launch_sign_reduce<two_means>};

}  // namespace

const BucketedKernels& onebit_kernels(bool two_means) {
  return two_means ? kernels_of_signs<true> : kernels_of_signs<false>;
}

}  // namespace gradmeter::compression::cuda
