#include "compression/cuda/randomk.hpp"

#include "compression/detail/parameters.hpp"
#include "compression/detail/randomk_places.hpp"
#include "kernels/cuda/each.cuh"

namespace gradmeter::compression::cuda {

using kernels::cuda::check_lengths, kernels::cuda::element_of_thread, kernels::cuda::launch_each;

namespace {

__global__ void draw(detail::RandomPlaces rule, std::uint32_t* places, std::size_t k) {
  const std::size_t j = element_of_thread();
  if (j < k) places[j] = rule.place(j);
}

__global__ void pick(const float* x, std::size_t n, const std::uint32_t* places, std::size_t k, float factor,
                     float* values) {
  const std::size_t j = element_of_thread();
  if (j < k && places[j] < n) values[j] = factor * x[places[j]];
}

/// Without values: zeros.
__global__ void put(const float* values, const std::uint32_t* places, std::size_t k, float* out, std::size_t n) {
  const std::size_t j = element_of_thread();
  if (j < k && places[j] < n) out[places[j]] = values ? values[j] : 0.0f;
}

}  // namespace

void draw_places(const Draw& d, std::size_t n, DeviceSpan<std::uint32_t> places, cudaStream_t stream) {
  detail::require_indexable("randomk", n);
  const std::size_t k = places.size();
  if (k > n) throw std::invalid_argument("randomk: more places than elements");
  if (k > 0) launch_each(draw, "draw", k, stream, detail::RandomPlaces(d, n, k), places.device_address(), k);
}

void gather(DeviceSpan<const float> x, DeviceSpan<const std::uint32_t> places, float factor, DeviceSpan<float> values,
            cudaStream_t stream) {
  check_lengths("gather", values.size(), places.size());
  launch_each(pick, "pick", places.size(), stream, x.device_address(), x.size(), places.device_address(), places.size(),
              factor, values.device_address());
}

void scatter(DeviceSpan<const float> values, DeviceSpan<const std::uint32_t> places, DeviceSpan<float> out,
             cudaStream_t stream) {
  check_lengths("scatter", values.size(), places.size());
  if (out.empty()) return;
  runtime::check_cuda(cudaMemsetAsync(out.device_address(), 0, out.bytes(), stream), "cudaMemsetAsync");
  launch_each(put, "put", places.size(), stream, values.device_address(), places.device_address(), places.size(),
              out.device_address(), out.size());
}

void clear_sent(DeviceSpan<const std::uint32_t> places, DeviceSpan<float> x, cudaStream_t stream) {
  launch_each(put, "put", places.size(), stream, nullptr, places.device_address(), places.size(), x.device_address(),
              x.size());
}

}  // namespace gradmeter::compression::cuda
