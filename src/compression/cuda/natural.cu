#include "compression/cuda/bucketed_launch.cuh"
#include "compression/detail/natural_rule.hpp"

namespace gradmeter::compression::cuda {

const BucketedKernels& natural_kernels() { return BucketedLaunch<detail::NaturalRule>::kernels; }

}  // namespace gradmeter::compression::cuda
