// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_aware_mpi.hpp"

#include <cuda_runtime_api.h>
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace {

struct Bounce {
  void* device = nullptr;  ///< null: of a send
  std::vector<std::byte> bytes;
};

// Calls come from one thread at a time, but not always the same.
std::mutex mutex;
std::map<MPI_Request, Bounce> under_way;
gradmeter::test::DeviceMessages counted;

bool is_device(const void* p) {
  cudaPointerAttributes a{};
  return cudaSetDevice(0) == cudaSuccess && cudaPointerGetAttributes(&a, p) == cudaSuccess &&
         a.type == cudaMemoryTypeDevice;
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  // A copy from pageable memory has not ended when cudaMemcpy returns.
  const bool is_chosen = cudaSetDevice(0) == cudaSuccess;
  if (is_chosen && cudaMemcpy(to, from, bytes, kind) == cudaSuccess && cudaStreamSynchronize(nullptr) == cudaSuccess)
    return;
  std::fputs("cuda_aware_mpi: cudaMemcpy failed\n", stderr);
  std::abort();
}

/// What has come goes to the device; the buffer of a message that is complete goes.
void complete(MPI_Request request) {
  const auto it = under_way.find(request);
  if (it == under_way.end()) return;
  Bounce& b = it->second;
  if (b.device) copy(b.device, b.bytes.data(), b.bytes.size(), cudaMemcpyHostToDevice);
  under_way.erase(it);
}

}  // namespace

gradmeter::test::DeviceMessages gradmeter::test::device_messages() {
  const std::lock_guard lock(mutex);
  return counted;
}

// Messages are bytes here. Other calls that complete requests (MPI_Test, MPI_Wait) are made for memory of the host.
extern "C" {
int MPIX_Query_cuda_support(void) { return 1; }

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  if (!is_device(data)) return PMPI_Isend(data, count, type, peer, tag, comm, request);
  const std::lock_guard lock(mutex);
  Bounce b{.device = nullptr, .bytes = std::vector<std::byte>(static_cast<std::size_t>(count))};
  copy(b.bytes.data(), data, b.bytes.size(), cudaMemcpyDeviceToHost);
  ++counted.sent;
  const int code = PMPI_Isend(b.bytes.data(), count, type, peer, tag, comm, request);
  if (code == MPI_SUCCESS) under_way.insert_or_assign(*request, std::move(b));
  return code;
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  if (!is_device(data)) return PMPI_Irecv(data, count, type, peer, tag, comm, request);
  const std::lock_guard lock(mutex);
  Bounce b{.device = data, .bytes = std::vector<std::byte>(static_cast<std::size_t>(count))};
  ++counted.received;
  const int code = PMPI_Irecv(b.bytes.data(), count, type, peer, tag, comm, request);
  if (code == MPI_SUCCESS) under_way.insert_or_assign(*request, std::move(b));
  return code;
}

int MPI_Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  const std::lock_guard lock(mutex);
  const std::vector<MPI_Request> before(requests, requests + count);
  const int code = PMPI_Testsome(count, requests, done, indices, statuses);
  if (code != MPI_SUCCESS || *done == MPI_UNDEFINED) return code;
  for (int i = 0; i < *done; ++i) complete(before[static_cast<std::size_t>(indices[i])]);
  return code;
}
}
