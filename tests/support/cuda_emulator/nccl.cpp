// SPDX-License-Identifier: Apache-2.0
// NCCL's own symbols over the emulated runtime: ranks are threads, or processes that all wait by asking CUDA or NCCL.
//
// Calls run in their stream; those of one communicator one group after another, in the order of their issue. With a
// communicator that does not block, a call reaches its stream only when somebody has asked ncclCommGetAsyncError.
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/nccl_checks.hpp"
#include "support/cuda_emulator/nccl_parts.hpp"
#include "support/cuda_emulator/nccl_streams.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

/// Calls that wait for ncclCommGetAsyncError.
struct Deferred {
  Calls calls = {};
  std::size_t questions = 0;  ///< before they go on
};

// Never destroyed: the driver's thread uses them.
auto& nccl_memory = *new std::set<void*>;  // of ncclMemAlloc
auto& deferred = *new std::map<Comm*, Deferred>;
int failing_rank = -1;
std::array<std::string, most_ranks> environments;
std::string last_error_of_none;
thread_local int group_depth = 0;
thread_local Calls group;

CommPtr find_comm(ncclComm_t handle) {
  const auto it = comms.find(handle);
  if (it != comms.end()) return it->second;
  report("a communicator of NCCL that was destroyed, or never made, is used");
  return nullptr;
}

/// The group's end: those of communicators that do not block wait for a question.
ncclResult_t issue(Calls calls) {
  Calls now;
  bool waits = false;
  for (Pending& c : calls) {
    if (c.comm->is_blocking) {
      now.push_back(std::move(c));
    } else {
      waits = true;
      Deferred& d = deferred[c.comm.get()];
      if (d.calls.empty()) d.questions = order.is_random() ? order.below(4) : 2;
      d.calls.push_back(std::move(c));
    }
  }
  const ncclResult_t r = put_in_streams(std::move(now));
  return r == ncclSuccess && waits ? ncclInProgress : r;
}

ncclResult_t call(ncclComm_t handle, Description d, const void* from, void* to, int peer, cudaStream_t stream) {
  const Lock lock;
  const CommPtr comm = find_comm(handle);
  if (!comm) return ncclInvalidArgument;
  const Stream* const s = find_stream(stream);
  const bool is_in_progress = !deferred[comm.get()].calls.empty();
  if (const ncclResult_t r = check_call(*comm, d, from, to, peer, s, is_in_progress); r != ncclSuccess) return r;
  if (uses_registered(*comm, d, from, to)) ++running_counts().registered;
  if (d.count > 0) group.push_back({comm, stream, NcclPart(*comm, d, from, to, peer), s->capture.graph});
  return group_depth > 0 ? ncclSuccess : issue(std::exchange(group, {}));
}

/// Where an id's memory is: a file without a name, open in the process that made the id.
struct Id {
  int process, file, number;
};

SharedRanks* map_ranks(Id id) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", id.process, id.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const at = mmap(nullptr, sizeof(SharedRanks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<SharedRanks*>(at);
}

bool have_all_joined(const Comm& c) { return c.shared->joined.load() == c.ranks; }

/// As late as a rank may: NCCL initialises in a thread of its own.
void read_environment(Comm& c) {
  if (std::exchange(c.has_read_environment, true)) return;
  const auto variable = [](const char* v) { return std::string(std::getenv(v) ? std::getenv(v) : ""); };
  environments[static_cast<std::size_t>(c.rank)] = variable("NCCL_ALGO") + " " + variable("NCCL_PROTO");
}

ncclResult_t init(ncclComm_t* out, int ranks, ncclUniqueId unique_id, int rank, bool is_blocking) {
  Id id{};
  std::memcpy(&id, &unique_id, sizeof id);
  const Lock lock;
  if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks) {
    last_error_of_none = "the emulated NCCL has room for 8 ranks";
    return ncclInvalidArgument;
  }
  SharedRanks* const shared = map_ranks(id);
  if (!shared) {
    last_error_of_none = "the unique id is of no process";
    return ncclInvalidArgument;
  }
  const auto comm = std::make_shared<Comm>();
  comm->id = {id.process, id.number};
  comm->shared = shared;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->is_blocking = is_blocking;
  *out = reinterpret_cast<ncclComm_t>(comm.get());
  comms[*out] = comm;
  // Whoever comes last finds the file mapped by all.
  if (++shared->joined == ranks && id.process == getpid()) close(id.file);
  if (!is_blocking) return ncclInProgress;
  if (run_until([&] { return have_all_joined(*comm); })) return read_environment(*comm), ncclSuccess;
  report("hang: ncclCommInitRank of rank %d waits for peers that do not come", rank);
  return ncclRemoteError;
}

ncclResult_t state_of(Comm& c) {
  if (c.rank == failing_rank && c.error == ncclSuccess) c.fail(ncclRemoteError, "the test's asynchronous error");
  if (c.error != ncclSuccess) return c.error;
  if (c.shared->is_broken != 0) return ncclRemoteError;
  if (!have_all_joined(c)) return ncclInProgress;
  read_environment(c);
  Deferred& d = deferred[&c];
  if (!d.calls.empty()) {
    if (d.questions > 0) return --d.questions, ncclInProgress;
    if (const ncclResult_t r = put_in_streams(std::exchange(d.calls, {})); r != ncclSuccess) c.error = r;
  }
  if (!c.is_finalized || c.left.empty()) return c.error;
  (void)run_one(nullptr);
  return ncclInProgress;
}

/// The real one waits for their end.
void require_no_graph(const Comm& c, const char* call) {
  if (c.graphs > 0) report("hang: %s of rank %d waits for a graph that holds its calls", call, c.rank);
}

void forget(ncclComm_t handle) {
  deferred.erase(reinterpret_cast<Comm*>(handle));
  comms.erase(handle);
}

}  // namespace

void fail_nccl(int rank) {
  const Lock lock;
  failing_rank = rank;
}

std::string nccl_environment(int rank) {
  const Lock lock;
  return environments.at(static_cast<std::size_t>(rank));
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t r) {
  constexpr const char* names[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return r >= 0 && r < ncclNumResults ? names[r] : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = comm ? find_comm(comm) : nullptr;
  return c ? c->last_error.c_str() : last_error_of_none.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> ids = 0;
  const Id own{getpid(), memfd_create("nccl", MFD_CLOEXEC), ids++};
  if (own.file < 0 || ftruncate(own.file, sizeof(SharedRanks)) != 0) return ncclSystemError;
  *id = {};
  std::memcpy(id, &own, sizeof own);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  constexpr unsigned magic = 0xcafebeef;
  if (config && config->magic != magic) return ncclInvalidArgument;
  return init(comm, ranks, id, rank, !config || config->blocking != 0);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init(comm, ranks, id, rank, true);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c || c->is_finalized) return ncclInvalidArgument;
  c->is_finalized = true;
  require_no_graph(*c, "ncclCommFinalize");
  if (!c->is_blocking) return ncclInProgress;
  return run_until([&] { return c->left.empty() || c->has_ended(); }) ? ncclSuccess : ncclInternalError;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  if (!c->is_finalized) require_no_graph(*c, "ncclCommDestroy");
  if (!run_until([&] { return c->left.empty() || c->has_ended(); })) {
    report("hang: ncclCommDestroy of rank %d waits for calls that are not done", c->rank);
  }
  if (!c->registered.empty()) report("ncclCommDestroy of rank %d, which has registered buffers", c->rank);
  forget(comm);
  return ncclSuccess;
}
/// Of this rank alone, as the real one: the others find out by themselves.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  require_no_graph(*c, "ncclCommAbort");
  c->is_aborted = true;
  (void)run_until([&] { return c->left.empty(); });
  forget(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  *state = state_of(*c);
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* ranks) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  *ranks = c->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  *rank = c->rank;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** at, std::size_t bytes) {
  if (cudaMalloc(at, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  const Lock lock;
  nccl_memory.insert(*at);
  return ncclSuccess;
}
/// Every communicator has to have let go of it.
ncclResult_t ncclMemFree(void* at) {
  {
    const Lock lock;
    for (const auto& [handle, c] : comms) {
      if (c->registered.contains(static_cast<const char*>(at)))
        report("ncclMemFree of memory that rank %d still has registered", c->rank);
    }
    if (nccl_memory.erase(at) == 0) return ncclInvalidArgument;
  }
  return cudaFree(at) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* at, std::size_t bytes, void** handle) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  if (!is_on_device(at, bytes)) return refuse(*c, "ncclCommRegister: memory that is not the device's, or too little");
  if (!nccl_memory.contains(at))
    report("ncclCommRegister of rank %d: memory that is not ncclMemAlloc's, of which it makes no use", c->rank);
  *handle = at;
  c->registered[static_cast<const char*>(at)] = bytes;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  return c->registered.erase(static_cast<const char*>(handle)) == 1
             ? ncclSuccess
             : refuse(*c, "ncclCommDeregister: nothing is registered there");
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const Lock lock;
  if (group_depth == 0) return ncclInvalidUsage;
  return --group_depth > 0 ? ncclSuccess : issue(std::exchange(group, {}));
}
ncclResult_t ncclSend(const void* from, std::size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
  return call(c, {.call = NcclCall::send, .type = type, .count = n}, from, nullptr, peer, s);
}
ncclResult_t ncclRecv(void* to, std::size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s) {
  return call(c, {.call = NcclCall::receive, .type = type, .count = n}, nullptr, to, peer, s);
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s) {
  return call(c, {.call = NcclCall::all_reduce, .type = type, .op = op, .count = n}, from, to, 0, s);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t s) {
  return call(c, {.call = NcclCall::reduce, .type = type, .op = op, .count = n, .root = root}, from, to, 0, s);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s) {
  return call(c, {.call = NcclCall::reduce_scatter, .type = type, .op = op, .count = n}, from, to, 0, s);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t n, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t s) {
  return call(c, {.call = NcclCall::all_gather, .type = type, .count = n}, from, to, 0, s);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t n, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t s) {
  return call(c, {.call = NcclCall::broadcast, .type = type, .count = n, .root = root}, from, to, 0, s);
}

}  // extern "C"
