#include "kernels/cuda/pointwise_case.hpp"

#include "kernels/cases/pointwise_case.hpp"
#include "kernels/cuda/loops/pointwise.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {
namespace {

using runtime::Buffer;

DeviceSpan<Bf16> numbers(const Buffer& b) {
  return DeviceSpan<Bf16>(reinterpret_cast<Bf16*>(b.device().device_address()), b.bytes() / sizeof(Bf16));
}

void update_bf16(PointwiseKind kind, std::span<const Buffer> x) {
  const auto stream = gpu::stream();
  const auto w = numbers(x[0]);
  if (kind == PointwiseKind::sgd) sgd(w, numbers(x[1]), PointwiseRules::step, {}, stream);
  if (kind == PointwiseKind::momentum) momentum(w, numbers(x[1]), numbers(x[2]), PointwiseRules::momentum, {}, stream);
  if (kind == PointwiseKind::adam)
    adam(w, numbers(x[1]), numbers(x[2]), numbers(x[3]), PointwiseRules::adam, 1, stream);
}

}  // namespace

std::unique_ptr<KernelCase> make_pointwise_case(const Problem& p, const KernelCaseOptions& o) {
  return make_device_pointwise_case(p, o, p.precision == Precision::bf16 ? update_bf16 : update_by_loops, "own fused");
}

}  // namespace gradmeter::kernels::cuda
