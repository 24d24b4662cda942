// SPDX-License-Identifier: Apache-2.0
#include "allreduce/gpu/reduce.hpp"

#include <stdexcept>
#include <string>

#include "allreduce/gpu/packs.cuh"
#include "kernels/cuda/each.cuh"

namespace gradmeter::allreduce::cuda {
namespace {

using kernels::cuda::element_of_thread, kernels::cuda::launch_each;

template <class Format, Op op>
__global__ void combine_all(Sources sources, bool wide, std::byte* to, std::size_t n) {
  using T = typename Format::Memory;
  const std::size_t i = Pack<T>::count * element_of_thread();
  if (i < n) write_pack<T>(combined<Format, op>(sources, wide, i, n), to, sources.aligned, i, n);
}

template <class Format>
void launch_combine(Op op, const Sources& sources, bool wide, std::byte* to, std::size_t n, cudaStream_t stream) {
  constexpr std::size_t count = Pack<typename Format::Memory>::count;
  const std::size_t threads = (n + count - 1) / count;
  const auto launch = [&](auto* kernel) { launch_each(kernel, "combine_all", threads, stream, sources, wide, to, n); };
  if (op == Op::min) return launch(combine_all<Format, Op::min>);
  if (op == Op::max) return launch(combine_all<Format, Op::max>);
  if (op == Op::product) return launch(combine_all<Format, Op::product>);
  launch(combine_all<Format, Op::sum>);
}

template <class Format>
__global__ void scale(std::byte* to, const std::byte* from, std::size_t n, typename Format::Value factor) {
  using T = typename Format::Memory;
  const std::size_t i = element_of_thread();
  if (i < n) reinterpret_cast<T*>(to)[i] = Format::store(Format::load(reinterpret_cast<const T*>(from)[i]) * factor);
}

template <class Format>
__global__ void widen_each(float* to, const std::byte* from, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) to[i] = static_cast<float>(Format::load(reinterpret_cast<const typename Format::Memory*>(from)[i]));
}

template <class Format>
__global__ void narrow_each(std::byte* to, const float* from, std::size_t n) {
  const std::size_t i = element_of_thread();
  if (i < n) reinterpret_cast<typename Format::Memory*>(to)[i] = Format::store(from[i]);
}

bool aligned_to_packs(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

}  // namespace

void reduce(core::Element e, core::Element accumulate, Op op, std::byte* destination,
            std::span<const std::byte* const> sources, std::size_t n, cudaStream_t stream) {
  if (sources.size() < 2 || sources.size() > most_sources) {
    throw std::invalid_argument("a reduction kernel takes 2 to " + std::to_string(most_sources) + " sources, not " +
                                std::to_string(sources.size()) + ": reduce in turns");
  }
  Sources device_sources{};
  device_sources.aligned = aligned_to_packs(destination);
  for (const std::byte* source : sources) {
    device_sources.addresses[device_sources.count++] = source;
    device_sources.aligned = device_sources.aligned && aligned_to_packs(source);
  }
  with_format(e, [&]<class Format>(Format) {
    launch_combine<Format>(op, device_sources, accumulate != e, destination, n, stream);
  });
}

void finish(core::Element e, Op op, std::byte* destination, const std::byte* source, std::size_t n, int ranks,
            cudaStream_t stream) {
  if (op == Op::average && ranks > 1) {
    with_format(e, [&]<class Format>(Format) {
      using Value = typename Format::Value;
      if constexpr (std::is_floating_point_v<Value>) {
        launch_each(scale<Format>, "scale", n, stream, destination, source, n, static_cast<Value>(1.0 / ranks));
      }
    });
  } else if (destination != source && n > 0) {
    runtime::check_cuda(cudaMemcpyAsync(destination, source, n * core::size_of(e), cudaMemcpyDeviceToDevice, stream),
                        "cudaMemcpyAsync");
  }
}

void widen(core::Element from, float* destination, const std::byte* source, std::size_t n, cudaStream_t stream) {
  with_format(from, [&]<class Format>(Format) {
    if constexpr (is_small<Format>) launch_each(widen_each<Format>, "widen_each", n, stream, destination, source, n);
  });
}

void narrow(core::Element to, std::byte* destination, const float* source, std::size_t n, cudaStream_t stream) {
  with_format(to, [&]<class Format>(Format) {
    if constexpr (is_small<Format>) launch_each(narrow_each<Format>, "narrow_each", n, stream, destination, source, n);
  });
}

}  // namespace gradmeter::allreduce::cuda
