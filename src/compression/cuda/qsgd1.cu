#include "compression/cuda/bucketed_launch.cuh"
#include "compression/detail/qsgd1_rule.hpp"

namespace gradmeter::compression::cuda {

const BucketedKernels& qsgd1_kernels() { return BucketedLaunch<detail::Qsgd1Rule>::kernels; }

}  // namespace gradmeter::compression::cuda
