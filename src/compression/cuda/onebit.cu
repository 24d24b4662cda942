// Signs by ballots: lane l of a warp has element 32·k + l in step k, which is also the order of the sums.
#include "compression/cuda/onebit.hpp"

#include "compression/cuda/bucketed_launch.cuh"
#include "compression/detail/sign_rule.hpp"

namespace gradmeter::compression::cuda {
namespace {

constexpr unsigned rounds = piece_elements / 32;

/// In lane 0 when a piece is done.
struct SignPiece {
  double up = 0, down = 0;
  unsigned ones = 0;
};

/// Writes the signs of the piece at `from` and returns its sums.
template <bool two, class Source>
__device__ SignPiece take_signs(const Source& source, const Place& place, std::size_t from, std::byte* codes) {
  const unsigned lane = threadIdx.x % 32;
  float v[rounds];
  for (unsigned k = 0; k < rounds; ++k) {
    const std::size_t i = from + 32 * k + lane;
    v[k] = i < place.end ? source.one(place.bucket, i) : 0.0f;
  }
  SignPiece sums;
  std::uint32_t mine = 0;
  for (unsigned k = 0; k < rounds; ++k) {
    const bool positive = v[k] >= 0;
    const std::uint32_t signs = __ballot_sync(~0u, positive && from + 32 * k + lane < place.end);
    if (lane == k) mine = signs;
    sums.ones += static_cast<unsigned>(__popc(signs));
    const double up = two ? (positive ? v[k] : 0.0f) : fabsf(v[k]), up_above = __shfl_down_sync(~0u, up, 16);
    sums.up += up;
    sums.up += up_above;
    if (!two) continue;
    const double down = positive ? 0.0f : v[k], down_above = __shfl_down_sync(~0u, down, 16);
    sums.down += down;
    sums.down += down_above;
  }
  if (lane < rounds && from + 32 * lane < place.codes_end) {
    *reinterpret_cast<std::uint32_t*>(codes + from / 8 + 4 * lane) = mine;
  }
  sums.up = pairwise_sum(sums.up);
  if (two) sums.down = pairwise_sum(sums.down);
  return sums;
}

template <bool two>
__device__ void write_means(const SignPiece& all, const Place& place, const WireShape& s, std::byte* wire) {
  using Scale = typename detail::SignRule<two>::Scale;
  const unsigned lane = threadIdx.x % 32;
  if (place.warp != 0) return;
  const std::size_t n = place.end - place.at;
  const detail::SignValues means =
      detail::sign_means<two>(all.up, all.down, all.ones, n - all.ones, std::numeric_limits<float>::quiet_NaN());
  auto* to = reinterpret_cast<float*>(wire + place.bucket * sizeof(Scale));
  if (lane == 0) to[0] = means.one;
  if (lane == 0 && two) to[1] = means.zero;
  const std::size_t padding = s.buckets * sizeof(Scale) + lane;
  if (place.bucket + 1 == s.buckets && padding < s.scale_bytes) wire[padding] = std::byte{0};
}

/// Dynamic shared memory where several warps share a bucket: two doubles and a count for each piece.
template <bool two, class Source>
__global__ void encode_signs(Source source, WireShape shape, std::byte* wire) {
  const Place place(shape);
  if (place.bucket >= shape.buckets) return;  // whole warps, and with several to a bucket none
  std::byte* codes = wire + shape.scale_bytes;
  if (shape.team == 1) return write_means<two>(take_signs<two>(source, place, place.at, codes), place, shape, wire);
  const std::size_t pieces = (place.end - place.at + piece_elements - 1) / piece_elements;
  auto* up = gpu::dynamic_shared<double>();
  double* down = up + pieces;
  auto* ones = reinterpret_cast<unsigned*>(down + pieces);
  for (std::size_t from = place.first; from < place.codes_end; from += place.stride) {
    const SignPiece sums = take_signs<two>(source, place, from, codes);
    const std::size_t p = (from - place.at) / piece_elements;
    if (threadIdx.x % 32 != 0 || p >= pieces) continue;
    up[p] = sums.up;
    down[p] = sums.down;
    ones[p] = sums.ones;
  }
  add_tree(up, pieces);
  if (two) add_tree(down, pieces);
  SignPiece all{up[0], two ? down[0] : 0, 0};
  for (std::size_t p = 0; two && p < pieces; ++p) all.ones += ones[p];
  write_means<two>(all, place, shape, wire);
}

gpu::Shape sign_shape(const WireShape& s) {
  gpu::Shape shape = team_shape(s, detail::Norm::max);
  const std::size_t pieces = (s.bucket + piece_elements - 1) / piece_elements;
  if (s.team > 1) shape.shared_bytes = static_cast<unsigned>(pieces * (2 * sizeof(double) + sizeof(unsigned)));
  return shape;
}

template <bool two>
struct SignLaunch {
  using Rule = detail::SignRule<two>;
  static void encode(const float* x, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* wire,
                     cudaStream_t stream) {
    runtime::check_cuda(
        gpu::launch(encode_signs<two, FromFloats>, sign_shape(s), stream, FromFloats{x, whole_quads(x)}, s, wire),
        "encode_signs");
  }
  static void reduce(const Wires& wires, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* out,
                     cudaStream_t stream) {
    runtime::check_cuda(gpu::launch(encode_signs<two, FromWires<Rule>>, sign_shape(s), stream,
                                    FromWires<Rule>{wires, s.scale_bytes}, s, out),
                        "encode_signs of a sum");
  }
  static constexpr BucketedKernels kernels{encode, BucketedLaunch<Rule>::decode, reduce};
};

}  // namespace

const BucketedKernels& onebit_kernels(bool two) { return two ? SignLaunch<true>::kernels : SignLaunch<false>::kernels; }

}  // namespace gradmeter::compression::cuda
