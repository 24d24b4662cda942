// The kernels of `onebit`.
#pragma once
#include "compression/cuda/bucketed.hpp"

namespace gradmeter::compression::cuda {

/// `two`: a mean for either sign. As BucketedKernels of a rule; norm and draws are not used.
const BucketedKernels& onebit_kernels(bool two);

}  // namespace gradmeter::compression::cuda
