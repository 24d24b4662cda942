// SPDX-License-Identifier: Apache-2.0
// The kernels of `terngrad`, which has one scale for a whole tensor: the first kernels find the tensor's largest
// magnitude and, for clipping, its sum of squares; the last one writes the codes.
#include "compression/cuda/bucketed.hpp"

#include "compression/codecs/quantized.hpp"
#include "compression/cuda/bucketed.cuh"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {

using kernels::cuda::check_lengths, kernels::cuda::element_of_thread, kernels::cuda::element_of_warp,
    kernels::cuda::launch_each, kernels::cuda::warp_for_each;

namespace {

using Rule = detail::TernaryRule;

/// The results that the first kernel leaves for the second: the sum of squares and the largest magnitude of each piece.
struct Partials {
  Partials(std::byte* workspace, std::size_t n)
      : count((n + piece_elements - 1) / piece_elements),
        squares(reinterpret_cast<double*>(workspace)),
        most(reinterpret_cast<std::uint32_t*>(squares + count)) {}
  std::size_t count;
  double* squares;
  std::uint32_t* most;
};

/// Each warp finds the largest magnitude of a piece and, if `clips`, its sum of squares.
template <class Source>
__global__ void measure_pieces(Source source, std::size_t n, bool clips, Partials partials) {
  const std::size_t piece = element_of_warp(), first = piece * piece_elements;
  if (first >= n) return;
  const std::size_t end = core::lesser(first + piece_elements, n);
  const std::uint32_t most = __reduce_max_sync(~0u, largest_bits(source, 0, WarpRange::lane_begin(first), end));
  const double squares = clips ? piece_squares(source, 0, first, end) : 0;
  if (threadIdx.x % 32 != 0) return;
  partials.most[piece] = most;
  partials.squares[piece] = squares;
}

/// The largest of every step-th number, by a whole block.
__device__ std::uint32_t largest_of(const std::uint32_t* most, std::size_t count, std::size_t step) {
  std::uint32_t mine = 0;
  for (std::size_t p = step * threadIdx.x; p < count; p += step * blockDim.x) mine = core::greater(mine, most[p]);
  return team_max(mine, blockDim.x / 32);
}

/// A block joins the results of a group of pieces, and leaves the joint result in place of that of the first piece.
__global__ void join_group(Partials partials, bool clips) {
  const std::size_t first = blockIdx.x * group_pieces, count = core::lesser(group_pieces, partials.count - first);
  const std::uint32_t most = largest_of(partials.most + first, count, 1);
  if (threadIdx.x == 0) partials.most[first] = most;
  if (clips) add_tree(partials.squares + first, count);
}

/// One block finds the scale from the results of all groups. `to` [count] gets the scale and then zeros, which are a
/// wire's padding.
__global__ void find_scale(Partials partials, std::size_t n, double clip, float* to, unsigned count) {
  const std::uint32_t most = largest_of(partials.most, partials.count, group_pieces);
  if (clip > 0) add_tree(partials.squares, partials.count, group_pieces);
  if (threadIdx.x >= count) return;
  const float scale = detail::clipped_scale(norm_of_bits(most), partials.squares[0], n, clip);
  to[threadIdx.x] = threadIdx.x == 0 ? scale : 0.0f;
}

template <class Source>
__global__ void __launch_bounds__(Source::most_threads, 2)
    encode_pieces(Source source, WireShape shape, std::uint32_t whole_piece_count, LaunchDraws draws, std::byte* wire) {
  const std::uint32_t piece = piece_of_warp();
  if (piece < whole_piece_count) {
    const std::size_t mine = first_of_lane(piece);
    return write_whole_piece<Rule>(source.whole_piece(0, mine), load_at<float>(wire), mine, draws, wire + 16);
  }
  const WarpRange place(shape);
  if (place.bucket >= shape.buckets) return;
  write_piece<Rule>(source, 0, load_at<float>(wire), place.first, place, draws, wire + 16);
}

__global__ void quantise(const float* x, std::size_t n, const float* scale, LaunchDraws draws, std::int8_t* codes) {
  const std::size_t i = element_of_thread();
  if (i >= n) return;
  codes[i] = *scale > 0 ? detail::ternary_code(Rule::encoder(*scale), x[i], draws.draw(i)) : std::int8_t{0};
}

template <class Sum>
__global__ void multiply_sums(const Sum* sums, std::size_t n, const float* scale, float* out) {
  const std::size_t i = element_of_thread();
  if (i < n) out[i] = static_cast<float>(sums[i]) * *scale;
}

template <class Source>
void measure(const Source& source, std::size_t n, double clip, float* scale, unsigned count, std::byte* workspace,
             cudaStream_t stream) {
  const Partials partials(workspace, n);
  runtime::check_cuda(
      gpu::launch(measure_pieces<Source>, warp_for_each(partials.count), stream, source, n, clip > 0, partials),
      "measure_pieces");
  const dim3 block(32 * most_warps);
  runtime::check_cuda(
      gpu::launch(join_group, {.grid = dim3(gpu::blocks_of(partials.count, group_pieces)), .block = block}, stream,
                  partials, clip > 0),
      "join_group");
  runtime::check_cuda(
      gpu::launch(find_scale, {.grid = dim3(1), .block = block}, stream, partials, n, clip, scale, count),
      "find_scale");
}

template <class Source>
void encode(const Source& source, std::size_t n, double clip, const detail::Draws& draws, std::byte* wire,
            std::byte* workspace, cudaStream_t stream) {
  measure(source, n, clip, reinterpret_cast<float*>(wire), 4, workspace, stream);
  // A shape whose buckets are the pieces: the kernel uses only their positions.
  const WireShape pieces({.bucket = piece_elements, .bits = Rule::bits}, n);
  const LaunchDraws numbers(draws, n);
  runtime::check_cuda(gpu::launch(encode_pieces<Source>, warp_for_each(pieces.buckets), stream, source, pieces,
                                  whole_pieces(source, pieces, numbers), numbers, wire),
                      "encode_pieces");
}

template <class Sum>
void decode_sums(DeviceSpan<const Sum> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                 cudaStream_t stream) {
  check_lengths("terngrad: sums", sums.size(), out.size());
  check_lengths("terngrad: the scale", scale.size(), 1);
  launch_each(multiply_sums<Sum>, "multiply_sums", out.size(), stream, sums.device_address(), out.size(),
              scale.device_address(), out.device_address());
}

/// A wire whose one bucket is the whole span.
WireShape whole_tensor_wire(std::size_t n) { return WireShape({.bucket = (n + 63) / 64 * 64, .bits = Rule::bits}, n); }

}  // namespace

std::size_t terngrad_workspace(std::size_t n) {
  return (n + piece_elements - 1) / piece_elements * (sizeof(double) + sizeof(std::uint32_t));
}

void terngrad_encode(DeviceSpan<const float> x, double clip, const detail::Draws& draws, std::byte* wire,
                     std::byte* workspace, cudaStream_t stream) {
  const float* from = x.device_address();
  encode(FromFloats{from, whole_quads(from)}, x.size(), clip, draws, wire, workspace, stream);
}

void terngrad_reduce(const Wires& wires, std::size_t n, double clip, const detail::Draws& draws, std::byte* out,
                     std::byte* workspace, cudaStream_t stream) {
  encode(FromWires<Rule>{wires, whole_tensor_wire(n).scale_bytes}, n, clip, draws, out, workspace, stream);
}

void terngrad_decode(const std::byte* wire, const float* addend, DeviceSpan<float> out, cudaStream_t stream) {
  launch_decode<Rule>(wire, whole_tensor_wire(out.size()), addend, out.device_address(), stream);
}

void ternary_scale(DeviceSpan<const float> x, double clip, DeviceSpan<float> scale, std::byte* workspace,
                   cudaStream_t stream) {
  check_lengths("terngrad: the scale", scale.size(), 1);
  const float* from = x.device_address();
  if (x.empty()) {
    runtime::check_cuda(cudaMemsetAsync(scale.device_address(), 0, scale.bytes(), stream), "cudaMemsetAsync");
  } else {
    measure(FromFloats{from, whole_quads(from)}, x.size(), clip, scale.device_address(), 1, workspace, stream);
  }
}

void ternary_quantise(DeviceSpan<const float> x, DeviceSpan<const float> scale, DeviceSpan<std::int8_t> codes,
                      const detail::Draws& draws, cudaStream_t stream) {
  check_lengths("terngrad: codes", codes.size(), x.size());
  check_lengths("terngrad: the scale", scale.size(), 1);
  launch_each(quantise, "quantise", x.size(), stream, x.device_address(), x.size(), scale.device_address(),
              LaunchDraws(draws, x.size()), codes.device_address());
}

void ternary_decode(DeviceSpan<const std::int8_t> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                    cudaStream_t stream) {
  decode_sums(sums, scale, out, stream);
}
void ternary_decode(DeviceSpan<const std::int32_t> sums, DeviceSpan<const float> scale, DeviceSpan<float> out,
                    cudaStream_t stream) {
  decode_sums(sums, scale, out, stream);
}

}  // namespace gradmeter::compression::cuda
