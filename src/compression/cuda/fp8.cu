#include "compression/cuda/bucketed_launch.cuh"
#include "compression/detail/fp8_rule.hpp"

namespace gradmeter::compression::cuda {

const BucketedKernels& fp8_kernels(bool e4m3) {
  return e4m3 ? BucketedLaunch<detail::Fp8Rule<true>>::kernels : BucketedLaunch<detail::Fp8Rule<false>>::kernels;
}

}  // namespace gradmeter::compression::cuda
