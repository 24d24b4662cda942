#include <cstdint>

#include "allreduce/mover/kernels.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/cuda/reduce.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {

#ifdef GRADMETER_HAS_CUDA
namespace {

constexpr SliceKernels in_stream{
    .copy = [](std::byte* to, const std::byte* from,
               std::size_t n) { cuda::finish(core::Element::i8, Op::sum, to, from, n, 1, gpu::stream()); },
    .reduce = [](core::Element e, core::Element accumulate, Op op, std::byte* to,
                 std::span<const std::byte* const> sources,
                 std::size_t n) { cuda::reduce(e, accumulate, op, to, sources, n, gpu::stream()); },
    .finish = [](core::Element e, Op op, std::byte* to, const std::byte* from, std::size_t n,
                 int ranks) { cuda::finish(e, op, to, from, n, ranks, gpu::stream()); }};

}  // namespace

std::string gpu_kernels_refusal(std::uint32_t ranks) {
  if (ranks <= cuda::most_sources) return {};
  return fmt::format("a kernel adds up {} ranks at most, and there are {}: use nccl, or mpi", cuda::most_sources,
                     ranks);
}
const SliceKernels& gpu_kernels() { return in_stream; }
#else
std::string gpu_kernels_refusal(std::uint32_t) { return {}; }
const SliceKernels& gpu_kernels() {
  throw core::BackendError("CUDA", "sums", "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON");
}
#endif

}  // namespace gradmeter::allreduce
