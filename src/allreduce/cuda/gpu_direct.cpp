#include "allreduce/cuda/gpu_direct.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/cuda/peer_reduce.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {

#ifdef GRADMETER_HAS_CUDA
namespace {

using runtime::check_cuda;

std::size_t small_of(const Request& r) {
  return core::count_parameter(r.name, "small", {.least = 0, .most = std::uint64_t{1} << 40});
}

/// Every rank's window as this rank's GPU reaches it.
class PeerMemory {
 public:
  PeerMemory(const runtime::Communicator& c, runtime::CudaDevice& device, std::size_t bytes)
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
    blocks_ = resident_blocks(device.number(), std::ranges::count(shown, mine.bus_id, &Shown::bus_id));
    for (std::size_t r = 0; r < shown.size(); ++r) windows_.push_back(reach(shown[r], handles[r], mine));
  }
  /// Whoever opened another's memory closes it before that goes.
  ~PeerMemory() {
    for (void* p : opened_) cudaIpcCloseMemHandle(p);
    if (runtime::may_free()) communicator_.barrier();
  }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  std::span<std::byte* const> windows() const { return windows_; }
  /// Of a kernel that spins, on every GPU.
  unsigned blocks() const { return blocks_; }

 private:
  struct Shown {
    pid_t process;
    int device;
    std::byte* address;
    std::array<char, 32> bus_id = {};  ///< ranks call the same GPU by different numbers
  };

  /// A block a multiprocessor, of which each rank on the GPU has a part: the kernels of all ranks run at once.
  unsigned resident_blocks(int device, std::ptrdiff_t ranks_on_it) const {
    int multiprocessors = 0;
    check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    const double least = -communicator_.max(-static_cast<double>(multiprocessors / ranks_on_it));
    if (least < 1)
      throw core::BackendError("gpu-direct", "bind",
                               fmt::format("{} ranks on a GPU of {} multiprocessors: their kernels wait for each other "
                                           "and cannot all run; start fewer ranks",
                                           ranks_on_it, multiprocessors));
    return std::min(static_cast<unsigned>(least), cuda::most_peer_blocks);
  }

  std::byte* reach(const Shown& peer, const cudaIpcMemHandle_t& handle, const Shown& mine) {
    if (peer.process != mine.process) {
      void* opened = nullptr;
      check_cuda(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
      opened_.push_back(opened);
      return static_cast<std::byte*>(opened);
    }
    if (peer.device != mine.device) enable_access(peer.device);
    return peer.address;
  }
  static void enable_access(int peer) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) return check_cuda(error, "cudaDeviceEnablePeerAccess");
    cudaGetLastError();  // it is remembered, and must not be the next call's
  }

  runtime::Communicator communicator_;
  runtime::OwnedBuffer own_;
  std::vector<std::byte*> windows_;
  unsigned blocks_ = 1;
  std::vector<void*> opened_;
};

class GpuDirect final : public Collective {
 public:
  GpuDirect(std::string name, const runtime::Communicator& c, runtime::CudaDevice& device, runtime::Queue& queue,
            std::size_t room, std::size_t small)
      : name_(std::move(name)),
        queue_(queue),
        window_{(room + 15) / 16 * 16},
        peers_(c, device, window_.bytes()),
        rank_(static_cast<unsigned>(c.rank())),
        small_(small) {}
  /// Kernels read memory that goes next.
  ~GpuDirect() override {
    try {
      queue_.synchronise();
    } catch (...) {  // NOLINT(bugprone-empty-catch): whoever polled the call's event has had its error
    }
  }

  const std::string& name() const override { return name_; }
  bool takes_device_memory() const override { return true; }
  bool reads_device() const override { return true; }

  void start(const Call& call) override {
    if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
    check_supported(call.element(), call.op, call.accumulates_in());
    if (call.out.bytes() > window_.room)
      throw core::BackendError(
          "allreduce", name_,
          fmt::format("{} bytes are more than it was bound for, {}", call.out.bytes(), window_.room));
    running_ = true;
    if (call.count() > 0) submit(call);
    done_ = queue_.record();
  }

  bool advance() override {
    if (running_ && done_ && !done_->reached()) return false;
    running_ = false;
    return true;
  }

 private:
  void submit(const Call& call) {
    cuda::PeerCall c{.windows = {},
                     .ranks = static_cast<unsigned>(peers_.windows().size()),
                     .rank = rank_,
                     .window = window_,
                     .slot = calls_ % 2,
                     .blocks = peers_.blocks(),
                     .barrier = 2 * calls_ + 1};
    ++calls_;
    std::ranges::copy(peers_.windows(), std::begin(c.windows));
    const bool at_once = call.out.bytes() <= small_;
    const double bytes = static_cast<double>(call.out.bytes()) * (2 + (at_once ? c.ranks + 1 : 4));
    queue_.submit("all-reduce gpu-direct", {.flops = 0, .bytes = bytes}, [&] {
      runtime::device_access->copy(c.windows[rank_] + window_.given(c.slot), call.in.address(), call.in.bytes());
      const auto reduce = at_once ? cuda::reduce_peers_at_once : cuda::reduce_peers_by_blocks;
      reduce(call.element(), call.accumulates_in(), call.op, c, call.out.device().device_address(), call.count(),
             gpu::stream());
    });
  }

  const std::string name_;
  runtime::Queue& queue_;
  cuda::PeerWindow window_;
  PeerMemory peers_;
  unsigned rank_;
  std::size_t small_;
  std::uint32_t calls_ = 0;
  runtime::EventPtr done_;
  bool running_ = false;
};

}  // namespace

std::string gpu_direct_refusal(const Request& r) {
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (r.shape.ranks_per_node != r.shape.ranks) return "gpu-direct needs all ranks on one node";
  if (r.shape.ranks > cuda::most_peers)
    return fmt::format("gpu-direct takes up to {} ranks, of which a kernel knows all", cuda::most_peers);
  (void)small_of(r);
  return {};
}

std::unique_ptr<Collective> bind_gpu_direct(const Request& r, const Site& site, const ExecutorOptions& options) {
  auto* const device = options.queue ? dynamic_cast<runtime::CudaDevice*>(&options.queue->device()) : nullptr;
  if (!device)
    throw core::BackendError("gpu-direct", "bind",
                             "it reads memory of GPUs, and buffers are the host's: use shm-direct, or --device cuda");
  return std::make_unique<GpuDirect>(r.name.canonical(), site.communicator, *device, *options.queue, options.max_bytes,
                                     small_of(r));
}
#else
std::string gpu_direct_refusal(const Request&) {
  return "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON";
}
std::unique_ptr<Collective> bind_gpu_direct(const Request&, const Site&, const ExecutorOptions&) {
  throw core::BackendError("gpu-direct", "bind", "this program was built without CUDA");
}
#endif

}  // namespace gradmeter::allreduce
