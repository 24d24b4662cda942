#include "allreduce/cuda/gpu_direct.hpp"

#include "core/error.hpp"
#include "core/name.hpp"

#ifdef GRADMETER_HAS_CUDA
#include "allreduce/cuda/peer_memory.hpp"
#include "allreduce/cuda/peer_reduce.hpp"
#include "allreduce/cuda/peer_ring.hpp"
#include "runtime/cuda/stream.hpp"
#endif

namespace gradmeter::allreduce {

#ifdef GRADMETER_HAS_CUDA
namespace {

std::size_t small_of(const Request& r) {
  return core::count_parameter(r.name, "small", {.least = 0, .most = std::uint64_t{1} << 40});
}

PeerCollective::Kernel shots(std::size_t small) {
  return {.row = "gpu-direct",
          .places = 3,
          .barriers = 2,
          .moved = [](const cuda::PeerCall&, const Call& call) { return 6.0 * static_cast<double>(call.out.bytes()); },
          .launch =
              [small](const cuda::PeerCall& c, const Call& call) {
                const auto reduce =
                    call.out.bytes() <= small ? cuda::reduce_peers_at_once : cuda::reduce_peers_by_blocks;
                reduce(call.element(), call.accumulates_in(), call.op, c, call.in.device().device_address(),
                       call.out.device().device_address(), call.count(), gpu::stream());
              }};
}

PeerCollective::Kernel ring_of(CollectiveKind kind, std::uint32_t root, std::uint32_t ranks) {
  return {.row = "gpu-ring",
          .places = 2,
          .barriers = cuda::ring_barriers(ranks),
          .moved = [](const cuda::PeerCall&, const Call& call) { return 4.0 * static_cast<double>(call.out.bytes()); },
          .launch =
              [kind, root](const cuda::PeerCall& c, const Call& call) {
                cuda::ring_over_peers(kind, call.element(), call.op, c, root, call.in.device().device_address(),
                                      call.out.device().device_address(), call.count(), gpu::stream());
              }};
}

std::unique_ptr<Collective> bind_kernel(const Request& r, const Site& site, const ExecutorOptions& o,
                                        PeerCollective::Kernel kernel) {
  runtime::CudaDevice& device = gpu_of(kernel.row, o.queue);
  return std::make_unique<PeerCollective>(r.name.canonical(), site.communicator, device, *o.queue, o.max_bytes,
                                          std::move(kernel));
}

}  // namespace

std::string gpu_direct_refusal(const Request& r) {
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  (void)small_of(r);
  return peers_refusal(r);
}
std::unique_ptr<Collective> bind_gpu_direct(const Request& r, const Site& site, const ExecutorOptions& options) {
  return bind_kernel(r, site, options, shots(small_of(r)));
}

std::string gpu_ring_refusal(const Request& r) {
  using enum CollectiveKind;
  if (auto why = only_collectives(r, {all_reduce, reduce_scatter, all_gather, broadcast, send_receive}); !why.empty())
    return why;
  return peers_refusal(r);
}
std::unique_ptr<Collective> bind_gpu_ring(const Request& r, const Site& site, const ExecutorOptions& options) {
  return bind_kernel(r, site, options, ring_of(r.collective_kind, r.root, r.shape.ranks));
}
#else
namespace {

constexpr const char* why_none = "this program was built without CUDA: configure with -DGRADMETER_CUDA=ON";

}  // namespace

std::string gpu_direct_refusal(const Request&) { return why_none; }
std::string gpu_ring_refusal(const Request&) { return why_none; }
std::unique_ptr<Collective> bind_gpu_direct(const Request&, const Site&, const ExecutorOptions&) {
  throw core::BackendError("gpu-direct", "bind", "this program was built without CUDA");
}
std::unique_ptr<Collective> bind_gpu_ring(const Request&, const Site&, const ExecutorOptions&) {
  throw core::BackendError("gpu-ring", "bind", "this program was built without CUDA");
}
#endif

}  // namespace gradmeter::allreduce
