// SPDX-License-Identifier: Apache-2.0
// Collectives among the GPUs of a node, each call of which is one kernel: `gpu-direct`, `gpu-multimem` and `gpu-ring`.
#include "allreduce/gpu/algorithms.hpp"
#include "core/error.hpp"
#include "core/name.hpp"

#ifdef GRADMETER_HAS_CUDA
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "allreduce/binding.hpp"
#include "allreduce/gpu/peer_kernels.hpp"
#include "allreduce/gpu/stream_collective.hpp"
#include "allreduce/request.hpp"
#include "core/format.hpp"
#include "runtime/clock.hpp"
#include "runtime/communicator.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/multicast.hpp"
#include "runtime/cuda/queue.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/host/gpus.hpp"
#include "runtime/threads/thread_group.hpp"

namespace gradmeter::allreduce {
namespace {

using runtime::check_cuda;

/// The time by which the host waits longer than a kernel [s], so that the kernel gives up first: it knows for which
/// rank it waits.
constexpr double host_waits_longer_s = 2;

/// Places of multicast memory: two slots and the result.
constexpr std::size_t places_in_switch = 3;

/// The kernel of a row, and what its calls need.
struct PeerKernel {
  const char* row_name;    ///< a literal
  std::string what;        ///< the collective, for errors
  unsigned places;         ///< the number of places in a window; each holds the longest buffer
  std::uint32_t barriers;  ///< the most barriers that a call uses
  double moved;            ///< memory read and written by a call [buffers]
  bool in_switch = false;  ///< places are multicast memory, not the window's
  /// Launches the kernel. It is called in work of the queue.
  std::function<void(const cuda::PeerArguments&, const Call&)> launch;
};

/// The reason why NVLink's switches cannot make this sum; empty: they can.
std::string switch_refusal(const Arithmetic& a) {
  if (a.op != Op::sum && a.op != Op::average)
    return fmt::format("gpu-multimem has sums and averages: NVLink's switches have no {} of all types", name(a.op));
  if (a.element != core::Element::f32 && a.element != core::Element::f16 && a.element != core::Element::bf16)
    return fmt::format("gpu-multimem has fp32, fp16 and bf16: NVLink's switches add no {} by 16 bytes",
                       core::info(a.element).name);
  if (a.accumulate() != core::Element::f32) return "gpu-multimem adds 16-bit floats in fp32: accumulate in fp32";
  return {};
}

/// The facts about its window that each rank sends to all others.
struct WindowFacts {
  pid_t process;
  int device;
  std::byte* address;
  std::array<char, 32> bus_id = {};  ///< ranks call the same GPU by different numbers
  int multiprocessors = 0;
  cudaIpcMemHandle_t handle =
      {};  ///< empty where ranks are threads: one process needs none, and some machines have none
};

/// Host memory by which the host tells this rank's kernels to leave, and they tell it for whom they waited.
class HostSignals {
 public:
  /// Until `take`, there is no memory.
  HostSignals() = default;
  void take(const runtime::CudaDevice& device) {
    device.select();
    check_cuda(
        cudaHostAlloc(memory_.out_address(), sizeof(cuda::PeerSignals), cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
    host_ = new (memory_.get()) cuda::PeerSignals{};
    void* device_pointer = nullptr;
    check_cuda(cudaHostGetDevicePointer(&device_pointer, memory_.get(), 0), "cudaHostGetDevicePointer");
    device_signals_ = static_cast<cuda::PeerSignals*>(device_pointer);
  }
  cuda::PeerSignals* device_signals() const { return device_signals_; }
  void tell_to_leave() const noexcept { std::atomic_ref(host_->leave).store(1, std::memory_order_release); }
  /// The rank for which a kernel has waited in vain; -1: none has.
  int waited_for() const { return static_cast<int>(std::atomic_ref(host_->waited_for).load()) - 1; }

 private:
  runtime::Handle<runtime::PinnedTraits> memory_;
  cuda::PeerSignals *host_ = nullptr, *device_signals_ = nullptr;
};

/// A collective whose call is one kernel in the queue's stream; the host takes no part in it. Every rank's window is
/// reached through CUDA IPC between processes, by plain addresses between threads. Kernels of all ranks wait for each
/// other, so each rank needs a GPU of its own: nothing promises that two kernels of one GPU run at once (streams share
/// hardware queues, one cooperative grid may keep another one from beginning, and a kernel that is loaded, or memory
/// that is freed, may wait for all that runs).
/// Source: CUDA C++ Programming Guide, "Concurrent Kernel Execution", "Lazy Loading", "Implicit Synchronization"
class PeerCollective final : public StreamCollective {
 public:
  /// To be called by all ranks together, like the destructor. The queue must outlive the object. Errors: Unavailable
  /// where ranks share a GPU; BackendError where GPUs cannot reach each other's memory.
  PeerCollective(std::string name, const runtime::Communicator&, runtime::CudaDevice&, runtime::Queue&, PeerOptions,
                 PeerKernel);
  ~PeerCollective() override;
  PeerCollective(const PeerCollective&) = delete;
  PeerCollective& operator=(const PeerCollective&) = delete;
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  void enqueue(const Call&) override;
  bool advance() override;
  void before_launch() override { begin_s_ = runtime::host_clock(); }
  void check() override;
  void note_completion() override;
  void abort() noexcept override;

 private:
  [[noreturn]] void give_up(const std::string& reason);
  WindowFacts own_facts(const runtime::CudaDevice&) const;
  unsigned resident_blocks(const WindowFacts& own, std::ptrdiff_t ranks_on_it) const;
  void open_windows(std::span<const WindowFacts> facts, const WindowFacts& mine);
  void close_windows() noexcept;
  std::byte* window_address(const WindowFacts& peer, const WindowFacts& mine);
  void submit(const Call&);

  const std::string name_;
  const PeerKernel kernel_;
  const core::Seconds timeout_;
  runtime::Queue& queue_;
  HostSignals signals_;
  cuda::PeerWindow window_;
  runtime::Communicator communicator_;
  runtime::OwnedBuffer own_window_;
  std::shared_ptr<runtime::MulticastMemory> multicast_;  ///< null where the kernel has none
  std::vector<std::byte*> windows_;                      ///< by rank
  unsigned blocks_ = 1;  ///< the number of blocks of a kernel that spins, the same on every GPU
  std::vector<void*> opened_;
  runtime::EventPtr done_;
  double begin_s_ = 0;  ///< when the call, or the launch of a graph, began
  bool is_running_ = false, is_given_up_ = false;
};

void keep_for_ever(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;  // never destroyed: its device may be gone
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

/// Errors: Unavailable where ranks share a GPU.
void refuse_shared_gpus(const char* row_name, const runtime::Communicator& c, const runtime::CudaDevice& gpu) {
  const std::string shared = runtime::CudaDevice::shared_gpu(c, gpu.number());
  if (shared.empty()) return;
  throw core::Unavailable(fmt::format(
      "{}: {}, where kernels that wait for each other need not run at once; start one rank a GPU, or take ring",
      row_name, shared));
}

void enable_access(int peer) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) return check_cuda(error, "cudaDeviceEnablePeerAccess");
  cudaGetLastError();  // clears the error, which must not be reported by the next call
}

PeerCollective::PeerCollective(std::string name, const runtime::Communicator& c, runtime::CudaDevice& device,
                               runtime::Queue& queue, PeerOptions options, PeerKernel kernel)
    : name_(std::move(name)),
      kernel_(std::move(kernel)),
      timeout_(options.timeout),
      queue_(queue),
      window_{.room = (options.max_bytes + 15) / 16 * 16, .places = kernel_.places},
      communicator_(c.duplicate()) {
  refuse_shared_gpus(kernel_.row_name, c, device);
  WindowFacts mine{};
  on_all_ranks(communicator_, name_, [&] {
    signals_.take(device);
    own_window_ = device.allocate(core::Element::i8, window_.bytes());
    mine = own_facts(device);
  });
  if (kernel_.in_switch)
    multicast_ = std::make_shared<runtime::MulticastMemory>(communicator_, device, places_in_switch * window_.room);
  const auto facts = communicator_.all_gather_value(mine);
  blocks_ = resident_blocks(mine, std::ranges::count(facts, mine.bus_id, &WindowFacts::bus_id));
  open_windows(facts, mine);
}

/// Describes this rank's window to its peers.
WindowFacts PeerCollective::own_facts(const runtime::CudaDevice& device) const {
  WindowFacts mine{
      .process = getpid(), .device = device.number(), .address = own_window_.buffer.device().device_address()};
  check_cuda(cudaDeviceGetPCIBusId(mine.bus_id.data(), static_cast<int>(mine.bus_id.size()), mine.device),
             "cudaDeviceGetPCIBusId");
  check_cuda(cudaDeviceGetAttribute(&mine.multiprocessors, cudaDevAttrMultiProcessorCount, mine.device),
             "cudaDeviceGetAttribute");
  if (communicator_.size() > 1 && communicator_.ranks_as() == runtime::RanksAs::processes)
    check_cuda(cudaIpcGetMemHandle(&mine.handle, mine.address), "cudaIpcGetMemHandle");
  return mine;
}

/// Finds the addresses of all ranks' windows. If a rank cannot reach one, all ranks throw, and no rank frees its window
/// before all others have closed it.
void PeerCollective::open_windows(std::span<const WindowFacts> facts, const WindowFacts& mine) {
  try {
    on_all_ranks(communicator_, name_, [&] {
      for (const WindowFacts& peer : facts) windows_.push_back(window_address(peer, mine));
    });
  } catch (const core::BackendError&) {
    if (!runtime::lost_gpu().empty()) throw;  // the other ranks do not come to the barrier
    close_windows();
    communicator_.barrier();
    throw;
  }
}

void PeerCollective::close_windows() noexcept {
  for (void* p : opened_) runtime::note_cuda_error(cudaIpcCloseMemHandle(p), "cudaIpcCloseMemHandle");
}

/// Waits for the kernels before the memory that they read is freed. No rank frees its window before all others have
/// closed it.
PeerCollective::~PeerCollective() {
  if (is_running_ || !runtime::may_call_collectives()) abort();
  drain_before_free(queue_);
  close_windows();
  // While an exception propagates, the memory is kept: peers' kernels may still use it, and the rank is about to end.
  if (!runtime::may_call_collectives()) {
    keep_for_ever(std::move(own_window_.memory));
    keep_for_ever(std::move(multicast_));
    return;
  }
  communicator_.barrier();
}

/// The number of thread blocks of a kernel, the same on all GPUs: one for each multiprocessor, divided by the ranks on
/// the GPU, so that the kernels of all ranks run at the same time.
unsigned PeerCollective::resident_blocks(const WindowFacts& own, std::ptrdiff_t ranks_on_it) const {
  const std::ptrdiff_t own_blocks = own.multiprocessors / ranks_on_it;
  const double least = -communicator_.max(-static_cast<double>(own_blocks));
  if (least < 1)
    throw core::BackendError(kernel_.row_name, "bind",
                             fmt::format("{} ranks on a GPU of {} multiprocessors: their kernels wait for each other "
                                         "and cannot all run; start fewer ranks",
                                         ranks_on_it, own.multiprocessors));
  return std::min(static_cast<unsigned>(least), cuda::most_peer_blocks);
}

std::byte* PeerCollective::window_address(const WindowFacts& peer, const WindowFacts& mine) {
  if (peer.process != mine.process) {
    void* opened = nullptr;
    check_cuda(cudaIpcOpenMemHandle(&opened, peer.handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    opened_.push_back(opened);
    return static_cast<std::byte*>(opened);
  }
  if (peer.device != mine.device) enable_access(peer.device);
  return peer.address;
}

void PeerCollective::start(const Call& call) {
  enqueue(call);
  before_launch();
  is_running_ = true;
  done_ = queue_.record();
}

void PeerCollective::enqueue(const Call& call) {
  if (is_running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  if (is_given_up_) throw core::BackendError(kernel_.row_name, kernel_.what, "an earlier call was given up");
  check_supported(call.element(), call.op, call.accumulates_in());
  if (kernel_.in_switch)
    if (auto why = switch_refusal({call.element(), call.op, call.accumulates_in() == core::Element::f32}); !why.empty())
      throw core::BackendError(kernel_.row_name, kernel_.what, why);
  if (call.out.bytes() > window_.room)
    throw core::BackendError(
        "allreduce", name_, fmt::format("{} bytes are more than it was bound for, {}", call.out.bytes(), window_.room));
  if (call.count() > 0) submit(call);
}

bool PeerCollective::advance() {
  if (is_running_) is_running_ = !poll_completion(done_);
  return !is_running_;
}

void PeerCollective::give_up(const std::string& reason) {
  abort();
  throw core::BackendError(kernel_.row_name, kernel_.what,
                           fmt::format("rank {} of {}: {}", communicator_.rank(), communicator_.size(), reason));
}

void PeerCollective::check() {
  try {
    runtime::throw_if_abandoned(communicator_);
  } catch (const runtime::PeerFailed&) {
    abort();
    throw;
  }
  const double waited = runtime::host_clock() - begin_s_;
  if (waited > timeout_.value + host_waits_longer_s)
    give_up(fmt::format("not done after {}", core::to_text(core::Seconds{waited})));
}

void PeerCollective::note_completion() {
  if (const int peer = signals_.waited_for(); peer >= 0)
    give_up(fmt::format("its kernel has waited {} for rank {}, and left", core::to_text(timeout_), peer));
}

/// Makes running kernels end; no kernel can be launched afterwards.
void PeerCollective::abort() noexcept {
  signals_.tell_to_leave();
  is_given_up_ = true;
}

void PeerCollective::submit(const Call& call) {
  cuda::PeerArguments c{.windows = {},
                        .ranks = static_cast<unsigned>(windows_.size()),
                        .rank = static_cast<unsigned>(communicator_.rank()),
                        .window = window_,
                        .most_thread_blocks = blocks_,
                        .barriers_per_call = kernel_.barriers,
                        .signals = signals_.device_signals(),
                        .limit_ns = static_cast<std::uint64_t>(1e9 * timeout_.value),
                        .multicast_own = multicast_ ? multicast_->own() : nullptr,
                        .multicast_all = multicast_ ? multicast_->all() : nullptr};
  std::ranges::copy(windows_, std::begin(c.windows));
  const double bytes = kernel_.moved * static_cast<double>(call.out.bytes());
  queue_.submit(kernel_.row_name, {.flops = 0, .bytes = bytes}, [&] { kernel_.launch(c, call); });
}

/// The reason why kernels cannot read the memory of these ranks' GPUs; empty: they can, as far as the request says.
std::string peers_refusal(const Request& r) {
  if (r.shape.ranks_per_node != r.shape.ranks) return fmt::format("{} needs all ranks on one node", r.name.base);
  if (r.shape.ranks <= cuda::most_peers) return {};
  return fmt::format("{} takes up to {} ranks, of which a kernel knows all", r.name.base, cuda::most_peers);
}

/// The queue's GPU. Errors: BackendError that names `row_name` when it is none.
runtime::CudaDevice& gpu_of(const char* row_name, runtime::Queue* queue) {
  auto* const device = queue ? dynamic_cast<runtime::CudaDevice*>(&queue->device()) : nullptr;
  if (device) return *device;
  throw core::BackendError(row_name, "bind",
                           "it reads memory of GPUs, and buffers are the host's: use shm-direct, or --device cuda");
}

std::size_t small_of(const Request& r) {
  return core::count_parameter(r.name, "small", {.least = 0, .most = std::uint64_t{1} << 40});
}

/// The kernels of `gpu-direct`: one shot up to `small` bytes, else two.
PeerKernel direct_kernel(std::size_t small) {
  return {.row_name = "gpu-direct",
          .what = std::string(name(CollectiveKind::all_reduce)),
          .places = 3,
          .barriers = 2,
          .moved = 6,
          .launch = [small](const cuda::PeerArguments& c, const Call& call) {
            const auto reduce = call.out.bytes() <= small ? cuda::reduce_peers_at_once : cuda::reduce_peers_by_blocks;
            reduce(call.element(), call.accumulates_in(), call.op, c, call.in.device().device_address(),
                   call.out.device().device_address(), call.count(), gpu::stream());
          }};
}

PeerKernel ring_kernel(CollectiveKind kind, std::uint32_t root, std::uint32_t ranks) {
  return {.row_name = "gpu-ring",
          .what = std::string(name(kind)),
          .places = 2,
          .barriers = cuda::ring_barriers(ranks),
          .moved = 4,
          .launch = [kind, root](const cuda::PeerArguments& c, const Call& call) {
            cuda::ring_over_peers(kind, call.element(), call.op, c, root, call.in.device().device_address(),
                                  call.out.device().device_address(), call.count(), gpu::stream());
          }};
}

PeerKernel multimem_kernel() {
  return {.row_name = "gpu-multimem",
          .what = std::string(name(CollectiveKind::all_reduce)),
          .places = 0,
          .barriers = 2,
          .moved = 4,
          .in_switch = true,
          .launch = [](const cuda::PeerArguments& c, const Call& call) {
            cuda::reduce_in_switch(call.element(), call.op, c, call.in.device().device_address(),
                                   call.out.device().device_address(), call.count(), gpu::stream());
          }};
}

std::unique_ptr<Collective> bind_kernel(const Request& r, const GroupConnection& connection, const ExchangeSpec& o,
                                        PeerKernel kernel) {
  runtime::CudaDevice& device = gpu_of(kernel.row_name, o.queue);
  return std::make_unique<PeerCollective>(r.name.canonical(), connection.communicator, device, *o.queue,
                                          PeerOptions{.max_bytes = o.max_bytes}, std::move(kernel));
}

std::string gpu_direct_refusal(const Request& r) {
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  (void)small_of(r);
  return peers_refusal(r);
}
std::unique_ptr<Collective> bind_gpu_direct(const Request& r, const GroupConnection& connection,
                                            const ExchangeSpec& spec) {
  return bind_kernel(r, connection, spec, direct_kernel(small_of(r)));
}

std::string gpu_multimem_refusal(const Request& r) {
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (auto why = switch_refusal(r.arithmetic); !why.empty()) return why;
  return peers_refusal(r);
}
std::unique_ptr<Collective> bind_gpu_multimem(const Request& r, const GroupConnection& connection,
                                              const ExchangeSpec& spec) {
  return bind_kernel(r, connection, spec, multimem_kernel());
}

std::string gpu_ring_refusal(const Request& r) {
  using enum CollectiveKind;
  if (auto why = refusal_unless(r, {all_reduce, reduce_scatter, all_gather, broadcast, send_receive}); !why.empty())
    return why;
  return peers_refusal(r);
}
std::unique_ptr<Collective> bind_gpu_ring(const Request& r, const GroupConnection& connection,
                                          const ExchangeSpec& spec) {
  return bind_kernel(r, connection, spec, ring_kernel(r.collective_kind, r.root, r.shape.ranks));
}

}  // namespace

std::unique_ptr<Collective> make_gpu_direct(const GroupConnection& connection, runtime::Queue& queue,
                                            PeerOptions options, std::size_t small) {
  return std::make_unique<PeerCollective>("gpu-direct", connection.communicator, gpu_of("gpu-direct", &queue), queue,
                                          options, direct_kernel(small));
}

std::unique_ptr<Collective> make_gpu_ring(const GroupConnection& connection, runtime::Queue& queue, PeerOptions options,
                                          CollectiveKind kind, std::uint32_t root) {
  const auto ranks = static_cast<std::uint32_t>(connection.communicator.size());
  return std::make_unique<PeerCollective>("gpu-ring", connection.communicator, gpu_of("gpu-ring", &queue), queue,
                                          options, ring_kernel(kind, root, ranks));
}

}  // namespace gradmeter::allreduce
#else
namespace gradmeter::allreduce {
namespace {

constexpr const char* why_none = "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON";

std::string gpu_direct_refusal(const Request&) { return why_none; }
std::string gpu_multimem_refusal(const Request&) { return why_none; }
std::string gpu_ring_refusal(const Request&) { return why_none; }
std::unique_ptr<Collective> bind_gpu_direct(const Request&, const GroupConnection&, const ExchangeSpec&) {
  throw core::BackendError("gpu-direct", "bind", "this program was built without CUDA");
}
std::unique_ptr<Collective> bind_gpu_multimem(const Request&, const GroupConnection&, const ExchangeSpec&) {
  throw core::BackendError("gpu-multimem", "bind", "this program was built without CUDA");
}
std::unique_ptr<Collective> bind_gpu_ring(const Request&, const GroupConnection&, const ExchangeSpec&) {
  throw core::BackendError("gpu-ring", "bind", "this program was built without CUDA");
}

}  // namespace
}  // namespace gradmeter::allreduce
#endif

namespace gradmeter::allreduce {

constinit const AlgorithmInfo gpu_direct_row{
    .name = "gpu-direct",
    .parameters = "small=262144",
    .cost_text = "up to `small` bytes 1 barrier, n(p-1) read by each rank; beyond 2 barriers, 2n(p-1)/p",
    .source = "own kernels over CUDA IPC; one and two shots as vLLM's custom all-reduce",
    .backend = Backend::device,
    .on_device = true,
    .refusal = gpu_direct_refusal,
    .bind = bind_gpu_direct};
constinit const AlgorithmInfo gpu_multimem_row{
    .name = "gpu-multimem",
    .cost_text = "2 barriers, n/p read and written by each rank: NVLink's switches add and distribute",
    .source = "multimem instructions of Hopper (NVLS), as NCCL's; Klenk et al., ISCA 2020",
    .backend = Backend::device,
    .on_device = true,
    .adds_all_at_once = true,
    .refusal = gpu_multimem_refusal,
    .bind = bind_gpu_multimem};
constinit const AlgorithmInfo gpu_ring_row{.name = "gpu-ring",
                                           .cost_text = "2(p-1) barriers of neighbours, 2n(p-1)/p read by each rank",
                                           .source = "own kernels over CUDA IPC; ring as Patarasuk & Yuan, JPDC 2009",
                                           .backend = Backend::device,
                                           .on_device = true,
                                           .refusal = gpu_ring_refusal,
                                           .bind = bind_gpu_ring};

}  // namespace gradmeter::allreduce
