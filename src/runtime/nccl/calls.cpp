#include "runtime/nccl/calls.hpp"

#include "core/error.hpp"
#include "core/format.hpp"

#ifdef GRADMETER_HAS_NCCL
namespace gradmeter::runtime {
namespace {

ncclDataType_t nccl_type(core::Element e) {
  switch (e) {
    case core::Element::f64:
      return ncclFloat64;
    case core::Element::f32:
      return ncclFloat32;
    case core::Element::i64:
      return ncclInt64;
    case core::Element::i32:
      return ncclInt32;
    case core::Element::f16:
      return ncclFloat16;
    case core::Element::bf16:
      return ncclBfloat16;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    case core::Element::e4m3:
      return ncclFloat8e4m3;
    case core::Element::e5m2:
      return ncclFloat8e5m2;
#else
    case core::Element::e4m3:
    case core::Element::e5m2:
      return ncclUint8;  // to be moved only: nccl_sum_refusal
#endif
    case core::Element::i8:
      break;
  }
  return ncclInt8;
}

ncclRedOp_t nccl_operation(Combine c) {
  switch (c) {
    case Combine::min:
      return ncclMin;
    case Combine::max:
      return ncclMax;
    case Combine::product:
      return ncclProd;
    case Combine::sum:
      break;
  }
  return ncclSum;
}

}  // namespace

std::string nccl_reason(ncclResult_t result, ncclComm_t comm) {
  std::string detail = ncclGetLastError(comm);
  detail = detail.substr(0, detail.find('\n'));
  const std::string text = ncclGetErrorString(result);
  return detail.empty() ? text : fmt::format("{} ({})", text, detail);
}

void release_nccl(ncclResult_t result, const char* call) noexcept {
  if (result != ncclSuccess) core::note_failed_release("NCCL", call, ncclGetErrorString(result));
}

void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm, std::source_location where) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw core::BackendError("NCCL", call, nccl_reason(result, comm), where);
}

void GroupCalls::all_reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) const {
  check_nccl(ncclAllReduce(in, out, n, nccl_type(e), nccl_operation(c), comm_, stream_), "ncclAllReduce", comm_);
}
void GroupCalls::reduce(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c,
                        int root) const {
  check_nccl(ncclReduce(in, out, n, nccl_type(e), nccl_operation(c), root, comm_, stream_), "ncclReduce", comm_);
}
void GroupCalls::reduce_scatter(const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) const {
  check_nccl(ncclReduceScatter(in, out, n, nccl_type(e), nccl_operation(c), comm_, stream_), "ncclReduceScatter",
             comm_);
}
void GroupCalls::all_gather(const std::byte* in, std::byte* out, std::size_t n, core::Element e) const {
  check_nccl(ncclAllGather(in, out, n, nccl_type(e), comm_, stream_), "ncclAllGather", comm_);
}
void GroupCalls::broadcast(const std::byte* in, std::byte* out, std::size_t n, core::Element e, int root) const {
  check_nccl(ncclBroadcast(in, out, n, nccl_type(e), root, comm_, stream_), "ncclBroadcast", comm_);
}
void GroupCalls::send(const std::byte* from, std::size_t n, core::Element e, int peer) const {
  check_nccl(ncclSend(from, n, nccl_type(e), peer, comm_, stream_), "ncclSend", comm_);
}
void GroupCalls::receive(std::byte* to, std::size_t n, core::Element e, int peer) const {
  check_nccl(ncclRecv(to, n, nccl_type(e), peer, comm_, stream_), "ncclRecv", comm_);
}

}  // namespace gradmeter::runtime
#endif
