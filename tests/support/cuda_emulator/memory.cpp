#include "support/cuda_emulator/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/limits.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/streams.hpp"

namespace cuda_emulator {
namespace {

constexpr std::size_t page = 4096, window_bytes = std::size_t{256} << 30, alignment = 256;
constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

struct Allocation {
  std::byte* pages = nullptr;
  std::size_t bytes = 0, span = 0;  ///< asked for; of all its pages
};

std::byte* window = nullptr;
std::size_t used = 0;
std::map<std::byte*, Allocation> allocations;  ///< by address
std::size_t live_bytes = 0, memory_bytes = limits::memory_bytes;
struct Pinned {
  std::size_t bytes = 0;
  bool registered = false;  ///< it is the program's own
};
std::map<std::byte*, Pinned> pinned;
bool is_open = false;

constexpr std::size_t rounded_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

void protect(const Allocation& a, int rights) {
  if (mprotect(a.pages, a.span, rights) != 0) std::abort();
}

bool in_window(const void* at) {
  const auto* p = static_cast<const std::byte*>(at);
  return window && p >= window && p < window + window_bytes;
}

void on_fault(int signal, siginfo_t* info, void*) {
  char text[160];
  int n = 0;
  if (in_kernel()) {
    n = std::snprintf(text, sizeof text,
                      "CUDA emulator: a kernel touched %p, which is no allocation (block %u thread %u)\n",
                      info->si_addr, place->block.x, place->thread.x);
  } else if (in_window(info->si_addr)) {
    n = std::snprintf(text, sizeof text, "CUDA emulator: the host touched device memory %p\n", info->si_addr);
  }
  if (n > 0) {
    (void)!write(2, text, static_cast<std::size_t>(n));
    _exit(86);
  }
  std::signal(signal, SIG_DFL);
}

void fill_with_noise(std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    at[i] = order.is_random() ? static_cast<std::byte>(order.bits() | 1) : std::byte{0xff};
  }
}

}  // namespace

void begin_memory() {
  if (window) return;
  void* const at = mmap(nullptr, window_bytes, PROT_NONE, reserved, -1, 0);
  if (at == MAP_FAILED) std::abort();
  window = static_cast<std::byte*>(at);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

void* allocate_device(std::size_t bytes) {
  const std::size_t aligned = rounded_up(std::max<std::size_t>(bytes, 1), alignment), span = rounded_up(aligned, page);
  if (span > window_bytes - used - page || live_bytes + bytes > memory_bytes) return nullptr;
  const Allocation a{.pages = window + used, .bytes = bytes, .span = span};
  used += span + page;  // a page that is nobody's
  protect(a, PROT_READ | PROT_WRITE);
  std::byte* const at = a.pages + span - aligned;
  fill_with_noise(at, bytes);
  if (!is_open) protect(a, PROT_NONE);
  allocations.emplace(at, a);
  live_bytes += bytes;
  return at;
}

bool free_device(void* p) {
  const auto it = allocations.find(static_cast<std::byte*>(p));
  if (it == allocations.end()) return false;
  // As it was before: pages go back, and the kernel keeps one mapping for all that is free.
  if (mmap(it->second.pages, it->second.span, PROT_NONE, reserved | MAP_FIXED, -1, 0) == MAP_FAILED) std::abort();
  live_bytes -= it->second.bytes;
  allocations.erase(it);
  return true;
}

void* device_allocation_of(const void* at) {
  auto* const p = static_cast<std::byte*>(const_cast<void*>(at));
  auto it = allocations.upper_bound(p);
  if (it == allocations.begin()) return nullptr;
  --it;
  return p < it->first + it->second.bytes ? it->first : nullptr;
}

bool is_device_memory(const void* at, std::size_t bytes) {
  auto* const p = static_cast<std::byte*>(const_cast<void*>(at));
  auto it = allocations.upper_bound(p);
  if (it == allocations.begin()) return false;
  --it;
  return p + bytes <= it->first + it->second.bytes;
}

DeviceMemory device_memory() { return {.total = memory_bytes, .used = live_bytes}; }

void set_device_memory(std::size_t bytes) {
  const std::lock_guard lock(runtime_mutex());
  memory_bytes = bytes;
}

void* allocate_pinned(std::size_t bytes) {
  void* const p = std::malloc(std::max<std::size_t>(bytes, 1));
  if (p) pinned[static_cast<std::byte*>(p)] = {.bytes = bytes};
  return p;
}

bool free_pinned(void* p) {
  const auto it = pinned.find(static_cast<std::byte*>(p));
  if (it == pinned.end() || it->second.registered) return false;
  pinned.erase(it);
  std::free(p);
  return true;
}

bool register_pinned(void* p, std::size_t bytes) {
  auto* const at = static_cast<std::byte*>(p);
  const auto after = pinned.lower_bound(at + bytes);
  if (after != pinned.begin()) {
    const auto& [other, o] = *std::prev(after);
    if (other + o.bytes > at) return false;
  }
  pinned[at] = {.bytes = bytes, .registered = true};
  return true;
}

bool unregister_pinned(void* p) {
  const auto it = pinned.find(static_cast<std::byte*>(p));
  if (it == pinned.end() || !it->second.registered) return false;
  pinned.erase(it);
  return true;
}

Where where_is(const void* at, std::size_t bytes) {
  if (in_window(at)) return is_device_memory(at, bytes) ? Where::device : Where::bad;
  auto* const p = static_cast<std::byte*>(const_cast<void*>(at));
  auto it = pinned.upper_bound(p);
  if (it != pinned.begin() && (--it, p + bytes <= it->first + it->second.bytes)) return Where::pinned;
  return Where::pageable;
}

DeviceOpen::DeviceOpen() {
  for (const auto& [at, a] : allocations) protect(a, PROT_READ | PROT_WRITE);
  is_open = true;
}
DeviceOpen::~DeviceOpen() {
  for (const auto& [at, a] : allocations) protect(a, PROT_NONE);
  is_open = false;
}

}  // namespace cuda_emulator
