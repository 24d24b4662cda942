// SPDX-License-Identifier: Apache-2.0
// The all-reduce in NVLink's switches (NVLS): each GPU asks the switch for the sums of its own block, and has the
// switch store them into the memory of all GPUs. A GPU thus reads and writes n/p elements, and the switch reads n/p
// from every GPU for it.
// Source: Klenk et al., ISCA 2020; NCCL's NVLS, which has the same two steps
#include <cstddef>

#include "allreduce/gpu/packs.cuh"
#include "allreduce/gpu/peer_kernels.cuh"
#include "core/host_device.hpp"
#include "runtime/cuda/multimem.cuh"

namespace gradmeter::allreduce::cuda {
namespace {

using gpu::SwitchSum;

/// Packs that a thread has under way in the switch at once.
constexpr unsigned packs_of_switch = 8;

template <class Format, SwitchSum format>
__global__ void __launch_bounds__(peer_threads) sum_in_switch(PeerArguments c, double factor, CallBuffers x) {
  using T = typename Format::Memory;
  const CallNumbers call = begin_call(c);
  const std::size_t input = call.slot * c.window.room, result = 2 * c.window.room;
  for (unsigned r = 0; r < c.ranks; ++r)
    copy_packs<T>(block_of<T>(r, x), x.from, x.from_is_aligned, c.multicast_own + input, true);
  gpu::order_aliases();
  if (!peer_barrier(c, call, call.barrier)) return;
  gpu::order_aliases();
  // The last pack is summed whole, beyond the last element: places hold whole packs, and only the elements are copied
  // out.
  PackRange<T> own = block_of<T>(c.rank, x);
  own.end = own.begin + (own.end - own.begin + Pack<T>::count - 1) / Pack<T>::count * Pack<T>::count;
  const auto sum = [&](std::size_t i) { return gpu::load_sum<format>(c.multicast_all + input + i * sizeof(T)); };
  const auto store = [&](const uint4& words, std::size_t i) {
    auto p = core::bits_as<Pack<T>>(words);
    scale_pack<Format>(p, factor);
    gpu::store_to_all(c.multicast_all + result + i * sizeof(T), core::bits_as<uint4>(p));
  };
  own.template each<packs_of_switch>(
      true,
      [&](std::size_t i) {
        uint4 words[packs_of_switch];
        GPU_UNROLL
        for (unsigned u = 0; u < packs_of_switch; ++u) words[u] = sum(i + u * own.step());
        GPU_UNROLL
        for (unsigned u = 0; u < packs_of_switch; ++u) store(words[u], i + u * own.step());
      },
      [&](std::size_t i) { store(sum(i), i); });
  gpu::order_aliases();
  if (!peer_barrier(c, call, call.barrier + 1)) return;
  gpu::order_aliases();
  for (unsigned r = 0; r < c.ranks; ++r)
    copy_packs<T>(block_of<T>(r, x), c.multicast_own + result, true, x.to, x.to_is_aligned);
  count_call(c);
}

template <class Format, SwitchSum format>
void launch_sum(const PeerArguments& c, double factor, const CallBuffers& x, cudaStream_t stream) {
  using T = typename Format::Memory;
  runtime::check_cuda(gpu::launch(sum_in_switch<Format, format>, shape_of<T>(x.rank_block_length, c.most_thread_blocks),
                                  stream, c, factor, x),
                      "sum_in_switch");
}

}  // namespace

void reduce_in_switch(core::Element e, Op op, const PeerArguments& c, const std::byte* from, std::byte* to,
                      std::size_t n, cudaStream_t stream) {
  const double factor = op == Op::average ? 1.0 / c.ranks : 1;
  if (e == core::Element::f32)
    return launch_sum<Plain<float>, SwitchSum::f32>(c, factor, call_buffers<float>(from, to, n, c.ranks), stream);
  const CallBuffers x = call_buffers<std::uint16_t>(from, to, n, c.ranks);
  if (e == core::Element::f16)
    return launch_sum<Small<std::uint16_t, core::fp16_format>, SwitchSum::f16>(c, factor, x, stream);
  launch_sum<Small<std::uint16_t, core::bf16_format>, SwitchSum::bf16>(c, factor, x, stream);
}

}  // namespace gradmeter::allreduce::cuda
