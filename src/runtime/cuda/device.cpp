// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/device.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "runtime/cuda/queue.hpp"

#ifdef GRADMETER_CUDA_EMULATED
#include <cuda_emulator/emulator.hpp>
#endif

namespace gradmeter::runtime {

namespace {

/// The pool from which cudaMallocAsync takes memory; null: the device has none.
cudaMemPool_t pool_of(int device) {
  int has_pools = 0;
  check_cuda(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device), "cudaDeviceGetAttribute");
  cudaMemPool_t pool = nullptr;
  if (has_pools != 0) check_cuda(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
  return pool;
}

/// Makes the pool keep freed memory, since every step allocates the same memory again. Otherwise the driver would take
/// it back whenever a stream is waited for.
void keep_freed_memory(int device) {
  auto keep_all = std::numeric_limits<std::uint64_t>::max();
  if (cudaMemPool_t const pool = pool_of(device))
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all), "cudaMemPoolSetAttribute");
}

/// Allocates as cudaMalloc does. If that fails, it releases the pool's unused memory and tries again.
cudaError_t allocate(void** address, std::size_t bytes) {
  const cudaError_t error = cudaMalloc(address, bytes);
  int device = 0;
  if (error != cudaErrorMemoryAllocation || cudaGetDevice(&device) != cudaSuccess) return error;
  cudaGetLastError();  // clears the error, which must not be reported by the next call
  cudaMemPool_t const pool = pool_of(device);
  if (pool == nullptr || cudaMemPoolTrimTo(pool, 0) != cudaSuccess) return error;
  return cudaMalloc(address, bytes);
}

}  // namespace

void* allocate_device_memory(std::size_t bytes, std::source_location where) {
  void* address = nullptr;
  const cudaError_t error = allocate(&address, bytes);
  if (error != cudaErrorMemoryAllocation) return check_cuda(error, "cudaMalloc", where), address;
  cudaGetLastError();  // clears the error, which must not be reported by the next call
  int device = 0;
  std::size_t free = 0, total = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  throw core::BackendError(
      "CUDA", "cudaMalloc",
      fmt::format(
          "{} more are needed and {} of {} are free on GPU {}: choose a smaller problem, or a GPU for each rank",
          core::to_text(core::Bytes{bytes}), core::to_text(core::Bytes{free}), core::to_text(core::Bytes{total}),
          device),
      where);
}

namespace {

/// A ring buffer of the last names of work that a thread has given to GPUs.
struct RecentWork {
  static constexpr std::size_t name_length = 47;
  std::array<std::array<char, name_length + 1>, 4> names = {};
  std::size_t next = 0;
};
thread_local RecentWork recent_work;
thread_local int current_gpu = -1;  // the GPU that this thread has selected; -1: none

}  // namespace

void note_gpu_work(std::string_view name) noexcept {
  RecentWork& r = recent_work;
  auto& to = r.names[r.next];
  const std::size_t copied = name.copy(to.data(), RecentWork::name_length);
  to[copied] = '\0';
  r.next = (r.next + 1) % r.names.size();
}

std::string recent_gpu_work() {
  const RecentWork& r = recent_work;
  std::string text;
  std::string_view last;
  for (std::size_t i = 0; i < r.names.size(); ++i) {
    const std::string_view name = r.names[(r.next + i) % r.names.size()].data();
    if (name.empty() || name == last) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
    last = name;
  }
  return text;
}

void select_gpu(int number) {
  if (current_gpu == number) return;
  check_cuda(cudaSetDevice(number), "cudaSetDevice");
  current_gpu = number;
}

void select_gpu_to_release(int number) noexcept {
  if (current_gpu == number) return;
  const cudaError_t error = cudaSetDevice(number);
  note_cuda_error(error, "cudaSetDevice");
  if (error == cudaSuccess) current_gpu = number;
}

int selected_gpu() noexcept { return current_gpu; }

namespace {

constexpr CudaDevice::Allocator usual_allocator{
    .allocate = [](std::size_t bytes) { return allocate_device_memory(bytes); },
    .free = [](void* address) noexcept { note_cuda_error(cudaFree(address), "cudaFree"); }};

}  // namespace

CudaDevice::CudaDevice(int number) : number_(number) {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (number < 0 || number >= devices)
    throw core::BackendError("CUDA", "cudaSetDevice",
                             fmt::format("there is no GPU {}: this process sees {}", number, devices));
  select();
  keep_freed_memory(number);
}

bool CudaDevice::is_emulated() const {
#ifdef GRADMETER_CUDA_EMULATED
  return true;
#else
  return false;
#endif
}

bool CudaDevice::ranks_may_share() {
#ifdef GRADMETER_CUDA_EMULATED
  return cuda_emulator::ranks_share_device();
#else
  return false;
#endif
}

std::string CudaDevice::shared_gpu(const Communicator& c, int number) {
  if (ranks_may_share()) return {};
  struct RankGpu {
    int rank;
    std::array<char, 32> bus_id;  // ranks call the same GPU by different numbers
  };
  RankGpu mine{.rank = c.rank(), .bus_id = {}};
  check_cuda(cudaDeviceGetPCIBusId(mine.bus_id.data(), static_cast<int>(mine.bus_id.size()), number),
             "cudaDeviceGetPCIBusId");
  std::string shared;
  const Communicator node = c.split_by_node();
  for (const RankGpu& other : node.all_gather_value(mine)) {
    if (other.bus_id != mine.bus_id || other.rank == mine.rank) continue;
    const auto [first, second] = std::minmax(other.rank, mine.rank);
    shared = fmt::format("ranks {} and {} share the GPU {}", first, second, mine.bus_id.data());
    break;
  }
  return first_report(c, shared).text;
}

std::size_t CudaDevice::last_cache_bytes() const {
  int bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, number_), "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

std::size_t CudaDevice::free_bytes() const {
  select();
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::shared_ptr<void> CudaDevice::allocate_range(std::size_t bytes, std::byte* host_copy, const Allocator& allocator) {
  select();
  // Allocates at least one byte, so that an empty buffer has an address too.
  void* const address = allocator.allocate(std::max<std::size_t>(bytes, 1));
  auto* const begin = static_cast<std::byte*>(address);
  const auto free = [this, free_memory = allocator.free](void* released) {
    {
      const std::lock_guard lock(mutex_);
      ranges_.erase(static_cast<std::byte*>(released));
    }
    select_gpu_to_release(number_);
    free_memory(released);
  };
  {
    const std::lock_guard lock(mutex_);
    ranges_[begin] = {begin, bytes, host_copy};
  }
  std::shared_ptr<void> memory(address, free);
  const Stream stream;
  check_cuda(cudaMemsetAsync(address, 0, bytes, stream.get()), "cudaMemsetAsync");
  stream.synchronize();
  return memory;
}

OwnedBuffer CudaDevice::allocate(core::Element element, std::size_t count) {
  const std::size_t bytes = count * core::size_of(element);
  std::shared_ptr<void> memory = allocate_range(bytes, nullptr, usual_allocator);
  const DeviceSpan<std::byte> span(static_cast<std::byte*>(memory.get()), bytes);
  return {Buffer(element, span), std::move(memory)};
}

OwnedBuffer CudaDevice::allocate_beside(core::Element element, std::span<std::byte> host) {
  return allocate_beside(element, host, usual_allocator);
}

OwnedBuffer CudaDevice::allocate_beside(core::Element element, std::span<std::byte> host, const Allocator& allocator) {
  std::shared_ptr<void> memory = allocate_range(host.size(), host.data(), allocator);
  const DeviceSpan<std::byte> span(static_cast<std::byte*>(memory.get()), host.size());
  return {Buffer(element, span), std::move(memory)};
}

std::shared_ptr<void> CudaDevice::pin(std::span<std::byte> memory) {
  if (memory.empty()) return nullptr;
  select();
  check_cuda(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable), "cudaHostRegister");
  return {memory.data(), [number = number_](void* address) {
            select_gpu_to_release(number);
            note_cuda_error(cudaHostUnregister(address), "cudaHostUnregister");
          }};
}

CudaDevice::Range CudaDevice::range_of(const std::byte* address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.begin()) {
    const Range& range = std::prev(after)->second;
    if (static_cast<std::size_t>(address - range.begin) + bytes <= range.bytes) return range;
  }
  throw std::logic_error(
      fmt::format("{} bytes at {} are not memory of GPU {}", bytes, static_cast<const void*>(address), number_));
}

std::byte* CudaDevice::host_copy_of(const std::byte* address, std::size_t bytes) const {
  const Range range = range_of(address, bytes);
  if (!range.host_copy) throw std::logic_error("memory of a GPU that transports do not reach was given to one");
  return range.host_copy + (address - range.begin);
}

const std::byte* CudaDevice::transport_address(const ConstBuffer& b) const {
  if (!b.on_device()) return b.host();
  return host_copy_of(b.address(), b.bytes());
}
std::byte* CudaDevice::transport_address(const Buffer& b) const {
  return const_cast<std::byte*>(transport_address(ConstBuffer(b)));
}

std::unique_ptr<Queue> CudaDevice::make_queue() { return std::make_unique<CudaQueue>(*this); }

}  // namespace gradmeter::runtime
