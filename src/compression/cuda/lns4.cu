#include "compression/cuda/bucketed_launch.cuh"
#include "compression/detail/lns4_rule.hpp"

namespace gradmeter::compression::cuda {

const BucketedKernels& lns4_kernels() { return BucketedLaunch<detail::Lns4Rule>::kernels; }

}  // namespace gradmeter::compression::cuda
