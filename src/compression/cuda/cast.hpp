// The kernels of `fp16` and `bf16`.
#pragma once
#include "compression/cuda/bucketed.hpp"

namespace gradmeter::compression::cuda {

/// As BucketedKernels of a rule; norm and draws are not used, and there are no scales.
const BucketedKernels& cast_kernels(bool half);

}  // namespace gradmeter::compression::cuda
