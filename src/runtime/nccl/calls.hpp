// NCCL's calls as a communicator makes them, each checked. Only with NCCL.
#pragma once
#ifdef GRADMETER_HAS_NCCL
#include <nccl.h>

#include <cstddef>
#include <source_location>
#include <string>

#include "core/element.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/nccl/communicator.hpp"

namespace gradmeter::runtime {

/// Errors: BackendError with NCCL's own text. A communicator that does not block answers ncclInProgress where others
/// would wait.
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr,
                std::source_location where = std::source_location::current());

/// NCCL's text for a result, with the first line of what it logged: it logs several where several things went wrong.
std::string nccl_reason(ncclResult_t result, ncclComm_t comm);

/// For destructors: notes an error that cannot be thrown.
void release_nccl(ncclResult_t result, const char* call) noexcept;

/// Of one communicator, in one stream.
class GroupCalls final : public NcclCalls {
 public:
  GroupCalls(ncclComm_t comm, cudaStream_t stream) : comm_(comm), stream_(stream) {}
  void all_reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) const override;
  void reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c, int root) const override;
  void reduce_scatter(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) const override;
  void all_gather(const std::byte* in, std::byte* out, std::size_t n, core::Element e) const override;
  void broadcast(const std::byte* in, std::byte* out, std::size_t n, core::Element e, int root) const override;
  void send(const std::byte* from, std::size_t n, core::Element e, int peer) const override;
  void receive(std::byte* to, std::size_t n, core::Element e, int peer) const override;

 private:
  ncclComm_t comm_;
  cudaStream_t stream_;
};

}  // namespace gradmeter::runtime
#endif
