// Operations of the device "cuda" by kernels of our own: every model trains without a vendor's library.
#pragma once
namespace gradmeter::kernels::cuda {

/// The backend "own" of products, convolutions and recurrent layers. Once, before threads begin.
void add_cuda_own_ops();

}  // namespace gradmeter::kernels::cuda
