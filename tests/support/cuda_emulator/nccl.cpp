// SPDX-License-Identifier: Apache-2.0
// NCCL's own symbols over the emulated runtime: ranks are threads, or processes that all wait by asking CUDA or NCCL.
//
// Calls run in their stream; those of one communicator one group after another, in the order of their issue.
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/nccl_checks.hpp"
#include "support/cuda_emulator/nccl_parts.hpp"
#include "support/cuda_emulator/nccl_streams.hpp"
#include "support/cuda_emulator/running_counts.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {
namespace {

// Never destroyed: the driver's thread uses them.
auto& nccl_memory = *new std::set<void*>;  // of ncclMemAlloc
/// Who launches on a device now: by rank where each stands for a device of its own.
auto& launching = *new std::map<int, std::thread::id>;
std::chrono::duration<double> launch_time{};
bool connects = false;
int failing_rank = -1;
auto& environments = *new std::array<std::string, most_ranks>;
auto& last_error_of_none = *new std::string;
thread_local int group_depth = 0;
thread_local Calls group;

CommPtr find_comm(ncclComm_t handle) {
  const auto it = comms.find(handle);
  if (it != comms.end()) return it->second;
  report("a communicator of NCCL that was destroyed, or never made, is used");
  return nullptr;
}

/// The first group of collectives connects the ranks: whoever comes first waits for the others, as in ncclGroupEnd.
ncclResult_t connect(const Calls& calls) {
  std::set<Comm*> first;
  for (const Pending& c : calls) {
    if (connects && !c.comm->is_connected && is_collective(c.part.description().call)) first.insert(c.comm.get());
  }
  for (Comm* const c : first) {
    c->is_connected = true;
    ++c->shared->connecting;
    const bool have_come = run_until([c] { return c->has_ended() || c->shared->connecting.load() == c->ranks; });
    if (!have_come) report("hang: ncclGroupEnd of rank %d waits for peers that do not come", c->rank);
    if (!have_come || c->has_ended()) return ncclRemoteError;
  }
  return ncclSuccess;
}

/// As NCCL_LAUNCH_RACE_FATAL.
ncclResult_t launch(Calls calls) {
  if (calls.empty()) return ncclSuccess;
  const int place = ranks_share_device() ? calls.front().comm->rank : 0;
  const auto me = std::this_thread::get_id();
  if (const auto [other, is_first] = launching.emplace(place, me); !is_first && other->second != me) {
    report("NCCL rank %d: host threads racing to launch NCCL on device 0", calls.front().comm->rank);
    return ncclInvalidUsage;
  }
  if (launch_time.count() > 0) {
    const Unlocked unlocked;
    std::this_thread::sleep_for(launch_time);
  }
  launching.erase(place);
  return put_in_streams(std::move(calls));
}

/// The end of a group.
ncclResult_t issue(Calls calls) {
  if (const ncclResult_t r = connect(calls); r != ncclSuccess) return r;
  return launch(std::move(calls));
}

ncclResult_t call(ncclComm_t handle, Description d, const void* from, void* to, int peer, cudaStream_t stream) {
  const Lock lock;
  const CommPtr comm = find_comm(handle);
  if (!comm) return ncclInvalidArgument;
  const Stream* const s = find_stream(stream);
  if (const ncclResult_t r = check_call(*comm, d, from, to, peer, s); r != ncclSuccess) return r;
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

/// As late as a rank may.
void read_environment(Comm& c) {
  if (std::exchange(c.has_read_environment, true)) return;
  const auto variable = [](const char* v) { return std::string(std::getenv(v) ? std::getenv(v) : ""); };
  environments[static_cast<std::size_t>(c.rank)] = variable("NCCL_ALGO") + " " + variable("NCCL_PROTO");
}

ncclResult_t init(ncclComm_t* out, int ranks, ncclUniqueId unique_id, int rank) {
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
  // Whoever comes last finds the file mapped by all.
  if (++shared->joined == ranks && id.process == getpid()) close(id.file);
  // Not reported: whoever waits here may have been given up by the thread that made it.
  if (!run_until([&] { return have_all_joined(*comm); })) return ncclRemoteError;
  read_environment(*comm);
  if (ranks > 1 && !ranks_share_device()) {
    last_error_of_none = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                         std::to_string(rank == 0 ? 1 : 0) + " both on CUDA device 0";
    return ncclInvalidUsage;
  }
  *out = reinterpret_cast<ncclComm_t>(comm.get());
  comms[*out] = comm;
  return ncclSuccess;
}

ncclResult_t state_of(Comm& c) {
  if (c.rank == failing_rank && c.error == ncclSuccess) c.fail(ncclRemoteError, "the test's asynchronous error");
  if (c.error != ncclSuccess) return c.error;
  return c.shared->is_broken != 0 ? ncclRemoteError : ncclSuccess;
}

/// NCCL waits for the end of graphs that hold calls of the communicator.
void wait_for_graphs(const Comm& c, const char* call) {
  if (run_until([&] { return c.graphs == 0; })) return;
  if (c.graphs > 0) report("hang: %s of rank %d waits for a graph that holds its calls", call, c.rank);
}

}  // namespace

void fail_nccl(int rank) {
  const Lock lock;
  failing_rank = rank;
}

void set_nccl_launch_time(double seconds) {
  const Lock lock;
  launch_time = std::chrono::duration<double>(seconds);
}
void set_nccl_connects(bool c) {
  const Lock lock;
  connects = c;
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
  if (config && config->blocking == 0) {
    report("NCCL rank %d: a communicator that does not block makes and joins a thread for each group of calls", rank);
    return ncclInvalidArgument;
  }
  return init(comm, ranks, id, rank);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init(comm, ranks, id, rank);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c || c->is_finalized) return ncclInvalidArgument;
  c->is_finalized = true;
  wait_for_graphs(*c, "ncclCommFinalize");
  return run_until([&] { return c->left.empty() || c->has_ended(); }) ? ncclSuccess : ncclInternalError;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  if (!c->is_finalized) wait_for_graphs(*c, "ncclCommDestroy");
  if (!run_until([&] { return c->left.empty() || c->has_ended(); })) {
    report("hang: ncclCommDestroy of rank %d waits for calls that are not done", c->rank);
  }
  if (!c->registered.empty()) report("ncclCommDestroy of rank %d, which has registered buffers", c->rank);
  comms.erase(comm);
  return ncclSuccess;
}
/// Of this rank alone, as the real one: the others find out by themselves. By any thread.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock;
  const CommPtr c = find_comm(comm);
  if (!c) return ncclInvalidArgument;
  c->is_aborted = true;
  (void)run_until([&] { return c->left.empty(); });
  wait_for_graphs(*c, "ncclCommAbort");
  comms.erase(comm);
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
