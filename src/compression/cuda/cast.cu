#include "compression/cuda/cast.hpp"

#include "compression/cuda/wire_access.cuh"
#include "compression/detail/cast_plain.hpp"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {
namespace {

template <bool half>
__device__ Quad decoded_quad(const std::byte* wire, std::size_t i) {
  const ushort4 codes = *reinterpret_cast<const ushort4*>(wire + 2 * i);
  constexpr core::SmallFormat format = detail::cast_format(half);
  return {core::to_float(format, codes.x), core::to_float(format, codes.y), core::to_float(format, codes.z),
          core::to_float(format, codes.w)};
}

template <bool half>
__device__ void write_quad_codes(const Quad& q, std::byte* wire, std::size_t i) {
  constexpr core::SmallFormat format = detail::cast_format(half);
  const ushort4 codes{core::rounded_code<format>(q.v[0]), core::rounded_code<format>(q.v[1]),
                      core::rounded_code<format>(q.v[2]), core::rounded_code<format>(q.v[3])};
  *reinterpret_cast<ushort4*>(wire + 2 * i) = codes;
}

__device__ std::size_t first_of_thread() { return 4 * kernels::cuda::element_of_thread(); }

/// Up to `codes_end`, where the padding ends.
template <bool half>
__global__ void encode_casts(const float* x, bool aligned, std::size_t n, std::size_t codes_end, std::byte* wire) {
  const std::size_t i = first_of_thread();
  if (i < codes_end) write_quad_codes<half>(read_quad(x, aligned, i, n), wire, i);
}

template <bool half>
__global__ void sum_casts(Wires wires, std::size_t n, std::size_t codes_end, std::byte* out) {
  const std::size_t i = first_of_thread();
  if (i >= codes_end) return;
  Quad sum{};
  for (unsigned w = 0; w < wires.count && i < n; ++w) {
    const Quad q = decoded_quad<half>(wires.of[w], i);
    for (unsigned c = 0; c < 4; ++c) sum.v[c] = i + c >= n ? 0.0f : w == 0 ? q.v[c] : sum.v[c] + q.v[c];
  }
  write_quad_codes<half>(sum, out, i);
}

template <bool half>
__global__ void decode_casts(const std::byte* wire, std::size_t n, const float* addend, float* out, bool aligned) {
  const std::size_t i = first_of_thread();
  if (i >= n) return;
  Quad q = decoded_quad<half>(wire, i);
  if (addend) {
    const Quad a = read_quad(addend, aligned, i, n);
    for (unsigned c = 0; c < 4; ++c) q.v[c] = a.v[c] + q.v[c];
  }
  write_quad(q, out, aligned, i, n);
}

gpu::Shape shape_for(std::size_t elements) {
  constexpr unsigned elements_of_block = 4 * kernels::cuda::threads_for_each;
  return {.grid = dim3(static_cast<unsigned>((elements + elements_of_block - 1) / elements_of_block)),
          .block = dim3(kernels::cuda::threads_for_each)};
}

template <bool half>
struct CastLaunch {
  static void encode(const float* x, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* wire,
                     cudaStream_t stream) {
    runtime::check_cuda(
        gpu::launch(encode_casts<half>, shape_for(s.codes_end), stream, x, whole_quads(x), s.n, s.codes_end, wire),
        "encode_casts");
  }
  static void reduce(const Wires& wires, const WireShape& s, detail::Norm, const detail::Draws&, std::byte* out,
                     cudaStream_t stream) {
    runtime::check_cuda(gpu::launch(sum_casts<half>, shape_for(s.codes_end), stream, wires, s.n, s.codes_end, out),
                        "sum_casts");
  }
  static void decode(const std::byte* wire, const WireShape& s, const float* addend, float* out, cudaStream_t stream) {
    const bool aligned = whole_quads(out) && (!addend || whole_quads(addend));
    runtime::check_cuda(gpu::launch(decode_casts<half>, shape_for(s.n), stream, wire, s.n, addend, out, aligned),
                        "decode_casts");
  }
  static constexpr BucketedKernels kernels{encode, decode, reduce};
};

}  // namespace

const BucketedKernels& cast_kernels(bool half) { return half ? CastLaunch<true>::kernels : CastLaunch<false>::kernels; }

}  // namespace gradmeter::compression::cuda
