// Launches of the bucketed codecs' kernels.
#pragma once
#include "compression/cuda/bucketed.cuh"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::compression::cuda {

/// Blocks of eight warps where each has a bucket of its own, else of one bucket's.
inline gpu::Shape team_shape(const WireShape& s, detail::Norm kind) {
  const unsigned warps = s.team == 1 ? 8 : s.team, buckets_a_block = warps / s.team;
  const std::size_t pieces = (s.bucket + piece_elements - 1) / piece_elements;
  return {.grid = dim3(static_cast<unsigned>((s.buckets + buckets_a_block - 1) / buckets_a_block)),
          .block = dim3(32 * warps),
          .shared_bytes = kind == detail::Norm::l2 && s.team > 1 ? static_cast<unsigned>(pieces * sizeof(double)) : 0};
}

template <class Rule>
struct BucketedLaunch {
  static void encode(const float* x, const WireShape& s, detail::Norm kind, const detail::Draws& draws, std::byte* wire,
                     cudaStream_t stream) {
    runtime::check_cuda(gpu::launch(encode_buckets<Rule, FromFloats>, team_shape(s, kind), stream,
                                    FromFloats{x, whole_quads(x)}, s, kind, draws, wire),
                        "encode_buckets");
  }
  static void reduce(const Wires& wires, const WireShape& s, detail::Norm kind, const detail::Draws& draws,
                     std::byte* out, cudaStream_t stream) {
    runtime::check_cuda(gpu::launch(encode_buckets<Rule, FromWires<Rule>>, team_shape(s, kind), stream,
                                    FromWires<Rule>{wires, s.scale_bytes}, s, kind, draws, out),
                        "encode_buckets of a sum");
  }
  static void decode(const std::byte* wire, const WireShape& s, const float* addend, float* out, cudaStream_t stream) {
    constexpr std::size_t threads = 256;
    const auto blocks = static_cast<unsigned>((s.n + 4 * threads - 1) / (4 * threads));
    const bool aligned = whole_quads(out) && (!addend || whole_quads(addend));
    runtime::check_cuda(gpu::launch(decode_buckets<Rule>, {.grid = dim3(blocks), .block = dim3(threads)}, stream, wire,
                                    s, addend, out, aligned),
                        "decode_buckets");
  }
  static constexpr BucketedKernels kernels{encode, decode, reduce};
};

}  // namespace gradmeter::compression::cuda
