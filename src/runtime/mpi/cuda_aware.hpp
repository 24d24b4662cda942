// Does MPI take device memory? No MPI header is needed to include this.
#pragma once

namespace gradmeter::runtime {

enum class CudaAwareMpi {
  no_mpi,   ///< a build without MPI
  unknown,  ///< this MPI has no such question; what a checked send of device memory says is true
  no,       ///< device memory goes through host memory of ours
  yes
};

/// What the library says of itself as it runs (MPIX_Query_cuda_support; MPICH: MPIX_GPU_query_support), or, before MPI
/// runs, of how it was built. A `no` may be wrong where UCX carries device memory all the same.
/// Source: Open MPI 4.1 and 5.0, MPIX_Query_cuda_support(3); MPICH 4.0, MPIX_GPU_query_support.
CudaAwareMpi cuda_aware_mpi();

}  // namespace gradmeter::runtime
