#include "allreduce/cuda/peer_memory.hpp"

#ifdef GRADMETER_HAS_CUDA
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/cuda/handles.hpp"

namespace gradmeter::allreduce {

using runtime::check_cuda;

struct PeerMemory::Shown {
  pid_t process;
  int device;
  std::byte* address;
  std::array<char, 32> bus_id = {};  ///< ranks call the same GPU by different numbers
};

namespace {

void enable_access(int peer) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) return check_cuda(error, "cudaDeviceEnablePeerAccess");
  cudaGetLastError();  // it is remembered, and must not be the next call's
}

}  // namespace

PeerMemory::PeerMemory(const char* row, const runtime::Communicator& c, runtime::CudaDevice& device, std::size_t bytes)
    : communicator_(c.duplicate()), own_(device.allocate(core::Element::i8, bytes)) {
  Shown mine{.process = getpid(), .device = device.number(), .address = own_.buffer.device().device_address()};
  check_cuda(cudaDeviceGetPCIBusId(mine.bus_id.data(), static_cast<int>(mine.bus_id.size()), device.number()),
             "cudaDeviceGetPCIBusId");
  const auto shown = communicator_.all_gather_value(mine);
  std::vector<cudaIpcMemHandle_t> handles(shown.size());
  // One process needs none, and some machines have none.
  if (std::ranges::any_of(shown, [&](const Shown& s) { return s.process != mine.process; })) {
    cudaIpcMemHandle_t handle{};
    check_cuda(cudaIpcGetMemHandle(&handle, mine.address), "cudaIpcGetMemHandle");
    handles = communicator_.all_gather_value(handle);
  }
  blocks_ = resident_blocks(row, device.number(), std::ranges::count(shown, mine.bus_id, &Shown::bus_id));
  for (std::size_t r = 0; r < shown.size(); ++r) windows_.push_back(reach(shown[r], &handles[r], mine));
}

/// Whoever opened another's memory closes it before that goes.
PeerMemory::~PeerMemory() {
  for (void* p : opened_) runtime::release_cuda(cudaIpcCloseMemHandle(p), "cudaIpcCloseMemHandle");
  if (runtime::may_free()) communicator_.barrier();
}

/// A block a multiprocessor, of which each rank on the GPU has a part: the kernels of all ranks run at once.
unsigned PeerMemory::resident_blocks(const char* row, int device, std::ptrdiff_t ranks_on_it) const {
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  const std::ptrdiff_t mine = multiprocessors / ranks_on_it;
  const double least = -communicator_.max(-static_cast<double>(mine));
  if (least < 1)
    throw core::BackendError(row, "bind",
                             fmt::format("{} ranks on a GPU of {} multiprocessors: their kernels wait for each other "
                                         "and cannot all run; start fewer ranks",
                                         ranks_on_it, multiprocessors));
  return std::min(static_cast<unsigned>(least), cuda::most_peer_blocks);
}

std::byte* PeerMemory::reach(const Shown& peer, const void* handle, const Shown& mine) {
  if (peer.process != mine.process) {
    void* opened = nullptr;
    check_cuda(
        cudaIpcOpenMemHandle(&opened, *static_cast<const cudaIpcMemHandle_t*>(handle), cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle");
    opened_.push_back(opened);
    return static_cast<std::byte*>(opened);
  }
  if (peer.device != mine.device) enable_access(peer.device);
  return peer.address;
}

PeerCollective::PeerCollective(std::string name, const runtime::Communicator& c, runtime::CudaDevice& device,
                               runtime::Queue& queue, std::size_t max_bytes, Kernel kernel)
    : name_(std::move(name)),
      kernel_(std::move(kernel)),
      queue_(queue),
      window_{.room = (max_bytes + 15) / 16 * 16, .places = kernel_.places},
      peers_(kernel_.row, c, device, window_.bytes()),
      rank_(static_cast<unsigned>(c.rank())) {}

PeerCollective::~PeerCollective() {
  try {
    queue_.synchronise();
  } catch (...) {  // NOLINT(bugprone-empty-catch): whoever polled the call's event has had its error
  }
}

void PeerCollective::start(const Call& call) {
  enqueue(call);
  running_ = true;
  done_ = queue_.record();
}

void PeerCollective::enqueue(const Call& call) {
  if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  check_supported(call.element(), call.op, call.accumulates_in());
  if (call.out.bytes() > window_.room)
    throw core::BackendError(
        "allreduce", name_, fmt::format("{} bytes are more than it was bound for, {}", call.out.bytes(), window_.room));
  if (call.count() > 0) submit(call);
}

bool PeerCollective::advance() {
  if (running_ && done_ && !done_->reached()) return false;
  running_ = false;
  return true;
}

void PeerCollective::submit(const Call& call) {
  cuda::PeerCall c{.windows = {},
                   .ranks = static_cast<unsigned>(peers_.windows().size()),
                   .rank = rank_,
                   .window = window_,
                   .blocks = peers_.blocks(),
                   .barriers = kernel_.barriers};
  std::ranges::copy(peers_.windows(), std::begin(c.windows));
  queue_.submit(kernel_.row, {.flops = 0, .bytes = kernel_.moved(c, call)}, [&] { kernel_.launch(c, call); });
}

std::string peers_refusal(const Request& r) {
  if (r.shape.ranks_per_node != r.shape.ranks) return fmt::format("{} needs all ranks on one node", r.name.base);
  if (r.shape.ranks <= cuda::most_peers) return {};
  return fmt::format("{} takes up to {} ranks, of which a kernel knows all", r.name.base, cuda::most_peers);
}

runtime::CudaDevice& gpu_of(const char* row, runtime::Queue* queue) {
  auto* const device = queue ? dynamic_cast<runtime::CudaDevice*>(&queue->device()) : nullptr;
  if (device) return *device;
  throw core::BackendError(row, "bind",
                           "it reads memory of GPUs, and buffers are the host's: use shm-direct, or --device cuda");
}

}  // namespace gradmeter::allreduce
#endif
