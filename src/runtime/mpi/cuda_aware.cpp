#include "runtime/mpi/cuda_aware.hpp"

#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "runtime/mpi/mpi.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::runtime {

CudaAwareMpi cuda_aware_mpi() {
#if defined(OMPI_HAVE_MPI_EXT_CUDA) && defined(MPIX_CUDA_AWARE_SUPPORT)
  constexpr bool built = MPIX_CUDA_AWARE_SUPPORT;
  const bool aware = MpiSession::running() ? MPIX_Query_cuda_support() == 1 : built;
  return aware ? CudaAwareMpi::yes : CudaAwareMpi::no;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  if (!MpiSession::running()) return CudaAwareMpi::unknown;
  int aware = 0;
  check_mpi(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &aware), "MPIX_GPU_query_support");
  return aware ? CudaAwareMpi::yes : CudaAwareMpi::no;
#else
  return CudaAwareMpi::unknown;
#endif
}

}  // namespace gradmeter::runtime
