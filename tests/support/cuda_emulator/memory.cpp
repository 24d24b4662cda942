// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/emulator.hpp"
#include "support/cuda_emulator/grid.hpp"
#include "support/cuda_emulator/limits.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/sanitizers.hpp"

namespace cuda_emulator {
namespace {

constexpr std::size_t page = 4096, window_bytes = std::size_t{256} << 30, alignment = 256;
constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

constexpr std::byte beside{0xA5};  ///< what is in an allocation's pages beside it

struct Allocation {
  std::byte* pages = nullptr;
  std::size_t bytes = 0, span = 0;  ///< asked for; of all its pages
  bool is_peers = false;
  bool is_open = false;  ///< its pages can be touched
};

std::byte* window = nullptr;
std::size_t used = 0;
auto& allocations = *new std::map<std::byte*, Allocation>;  ///< by address
std::size_t live_bytes = 0, memory_bytes = [] {
  const char* const text = std::getenv("GRADMETER_CUDA_EMULATOR_MEMORY");
  return text ? static_cast<std::size_t>(std::strtoull(text, nullptr, 10)) : limits::memory_bytes;
}();
struct Pinned {
  std::size_t bytes = 0;
  bool registered = false;  ///< it is the program's own
};
std::map<std::byte*, Pinned> pinned;
thread_local bool may_touch = false;
auto& opened = *new std::vector<Allocation*>;  ///< never grows in the handler of faults
int arena = -1;  ///< the file whose pages own allocations are, at the offset of their address in the window

constexpr std::size_t rounded_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

void protect(const Allocation& a, int rights) {
  if (mprotect(a.pages, a.span, rights) != 0) std::abort();
}

void open_pages(Allocation& a) {
  if (a.is_open) return;
  protect(a, PROT_READ | PROT_WRITE);
  a.is_open = true;
  opened.push_back(&a);
}

/// False: no allocation has a page there.
bool open_pages_at(const void* at) {
  auto* const p = static_cast<std::byte*>(const_cast<void*>(at));
  // The next allocation may have pages before its first byte.
  auto it = allocations.upper_bound(p);
  if (it == allocations.end() || p < it->second.pages) {
    if (it == allocations.begin()) return false;
    --it;
  }
  if (p >= it->second.pages + it->second.span) return false;
  open_pages(it->second);
  return true;
}

bool in_window(const void* at) {
  const auto* p = static_cast<const std::byte*>(at);
  return window && p >= window && p < window + window_bytes;
}

void on_fault(int signal, siginfo_t* info, void*) {
  if (may_touch && open_pages_at(info->si_addr)) return;
  char text[160];
  int n = 0;
  if (in_kernel() && may_touch) {
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

/// Of the pages, where the allocation is not.
bool is_beside_untouched(const std::byte* at, const Allocation& a) {
  const auto all = [](const std::byte* from, const std::byte* to) {
    return std::all_of(from, to, [](std::byte b) { return b == beside; });
  };
  return all(a.pages, at) && all(at + a.bytes, a.pages + a.span);
}

void check_beside(const std::byte* at, Allocation& a) {
  if (a.is_peers) return;
  open_pages(a);
  if (is_beside_untouched(at, a)) return;
  report("bytes before or after an allocation of %zu bytes of device memory were written", a.bytes);
}

/// The address sanitizer sees accesses beside it.
void fence_off(std::byte* at, const Allocation& a) {
  if (!a.is_peers) {
    std::fill(a.pages, at, beside);
    std::fill(at + a.bytes, a.pages + a.span, beside);
  }
  if (!finds_overruns()) return;
  __asan_poison_memory_region(a.pages, a.span);
  __asan_unpoison_memory_region(at, a.bytes);
}

/// Takes the next pages of the window. Null: none are left.
std::byte* take_pages(std::size_t span) {
  if (span > window_bytes - used - page) return nullptr;
  std::byte* const pages = window + used;
  used += span + page;  // a page that is nobody's
  return pages;
}

bool map_pages(std::byte* pages, std::size_t span, int file, std::size_t offset) {
  return mmap(pages, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) !=
         MAP_FAILED;
}

/// Its pages are open.
void* keep(std::byte* at, const Allocation& a) {
  opened.reserve(allocations.size() + 1);
  opened.push_back(&allocations.emplace(at, a).first->second);
  return at;
}

/// As before they were taken: the kernel keeps one mapping for all that is free.
void give_pages_back(std::byte* at, const Allocation& a) {
  if (mmap(a.pages, a.span, PROT_NONE, reserved | MAP_FIXED, -1, 0) == MAP_FAILED) std::abort();
  if (finds_overruns()) __asan_poison_memory_region(at, a.bytes);
  if (a.is_peers) return;
  (void)fallocate(arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, a.pages - window, static_cast<off_t>(a.span));
}

void forget(std::map<std::byte*, Allocation>::iterator it) {
  std::erase(opened, &it->second);
  allocations.erase(it);
}

}  // namespace

void fill_with_noise(std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    at[i] = order.is_random() ? static_cast<std::byte>(order.bits() | 1) : std::byte{0xff};
  }
}

void begin_memory() {
  if (window) return;
  void* const at = mmap(nullptr, window_bytes, PROT_NONE, reserved, -1, 0);
  if (at == MAP_FAILED) std::abort();
  window = static_cast<std::byte*>(at);
  arena = memfd_create("device", MFD_CLOEXEC);
  if (arena < 0 || ftruncate(arena, static_cast<off_t>(window_bytes)) != 0) std::abort();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

void* allocate_device(std::size_t bytes) {
  const std::size_t aligned = rounded_up(std::max<std::size_t>(bytes, 1), alignment), span = rounded_up(aligned, page);
  if (live_bytes + bytes > memory_bytes) return nullptr;
  std::byte* const pages = take_pages(span);
  if (!pages || !map_pages(pages, span, arena, static_cast<std::size_t>(pages - window))) return nullptr;
  const Allocation a{.pages = pages, .bytes = bytes, .span = span, .is_open = true};
  std::byte* const at = pages + span - aligned;
  fill_with_noise(at, bytes);
  fence_off(at, a);
  live_bytes += bytes;
  return keep(at, a);
}

bool free_device(void* p) {
  const auto it = allocations.find(static_cast<std::byte*>(p));
  if (it == allocations.end() || it->second.is_peers) return false;
  check_beside(it->first, it->second);
  give_pages_back(it->first, it->second);
  live_bytes -= it->second.bytes;
  forget(it);
  return true;
}

void report_overruns() {
  for (auto& [at, a] : allocations) check_beside(at, a);
}

bool share_device_memory(const void* p, SharedPages& out) {
  const auto it = allocations.find(static_cast<std::byte*>(const_cast<void*>(p)));
  if (it == allocations.end() || it->second.is_peers) return false;
  const auto& [at, a] = *it;
  out = {.process = getpid(),
         .file = arena,
         .offset = static_cast<std::size_t>(a.pages - window),
         .span = a.span,
         .head = static_cast<std::size_t>(at - a.pages),
         .bytes = a.bytes};
  return true;
}

void* open_device_memory(const SharedPages& pages) {
  const std::string path = "/proc/" + std::to_string(pages.process) + "/fd/" + std::to_string(pages.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  const Allocation a{
      .pages = take_pages(pages.span), .bytes = pages.bytes, .span = pages.span, .is_peers = true, .is_open = true};
  const bool mapped = a.pages && map_pages(a.pages, a.span, file, pages.offset);
  close(file);
  if (!mapped) return nullptr;
  std::byte* const at = a.pages + pages.head;
  fence_off(at, a);
  return keep(at, a);
}

bool close_device_memory(void* p) {
  const auto it = allocations.find(static_cast<std::byte*>(p));
  if (it == allocations.end() || !it->second.is_peers) return false;
  give_pages_back(it->first, it->second);
  forget(it);
  return true;
}

std::byte* take_addresses(std::size_t bytes) {
  begin_memory();
  return take_pages(rounded_up(bytes, page));
}
bool map_device_memory(std::byte* at, std::size_t bytes, const std::byte* pages) {
  const std::size_t span = rounded_up(bytes, page);
  const Allocation a{.pages = at, .bytes = bytes, .span = span, .is_peers = true, .is_open = true};
  if (!map_pages(at, span, arena, static_cast<std::size_t>(pages - window))) return false;
  fence_off(at, a);
  keep(at, a);
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
  const Lock lock;
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

DeviceOpen::DeviceOpen() { may_touch = true; }
DeviceOpen::~DeviceOpen() { may_touch = false; }

void close_device() {
  for (Allocation* a : opened) {
    protect(*a, PROT_NONE);
    a->is_open = false;
  }
  opened.clear();
}

}  // namespace cuda_emulator
